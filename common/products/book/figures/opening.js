/* opening.js: a sentence as a small language model reads it (tests/fixture).  The weights of a word
 * come from a stage's softmax_row, and one slider raises all scores until it fails. */
const OPENING_HEADS = {9: "the same word elsewhere", 11: "the word before", 8: "the word after",
                       4: "only backwards"};

FIGURES["opening"] = function (root, wasm) {
  const {words, scores} = SENTENCE, n = words.length;
  const {state, save} = figure_state(root, {word: "66", head: "9", factor: "1", stage: "1"}, restore);
  const choose = (name, options) => choice(name, options, value => { state[name] = value; show(); });
  const head = choose("head", Object.entries(OPENING_HEADS));
  const stage = choose("stage", [["1", "stage 1, naive"], ["2", "stage 2, safe"], ["3", "stage 3, online"]]);
  const factor = element("input", {type: "range", min: 1, max: 32, step: 0.1, "aria-label": "all scores times",
    input: () => { state.factor = factor.value; show(); }});
  const times = element("output", {class: "fig-step"});
  const said = element("p", {class: "fig-spoken", "aria-live": "polite", "data-cell": "said"});
  const spans = words.map((word, i) => element("span", {class: "fig-word",
    pointerenter: () => pick(i), pointerdown: () => pick(i)}, word.replace("##", "")));
  const named = i => `“${words[i].replace("##", "")}”`;

  /* The scores of word i, and the weights that the stage makes of them. */
  function row(i) {
    const x = scores[state.head].slice(i * n, (i + 1) * n).map(score => Math.fround(score * state.factor));
    wasm.floats(wasm.scores_address(), n).set(x);
    wasm.stage_row(Number(state.stage), n, 0);
    return {most: Math.max(...x), weights: [...wasm.floats(wasm.weights_address(), n)]};
  }
  function pick(i) {
    state.word = String(Math.max(0, Math.min(n - 1, i)));
    show();
  }
  function show() {
    save();
    const lost = words.map((_, i) => row(i).weights.some(Number.isNaN));
    const at = Number(state.word), {most, weights} = row(at), dead = lost[at];
    spans.forEach((span, j) => {
      span.style.setProperty("--weight", dead ? 0 : Math.sqrt(weights[j]).toFixed(3));
      span.className = `fig-word${j === at ? " fig-asks" : ""}${lost[j] ? " fig-dead" : ""}`;
    });
    const best = weights.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    times.textContent = `scores × ${Number(state.factor).toFixed(1)}`;
    said.textContent = (dead ? `${named(at)} has no answer: its largest score is ${number_text(Number(most.toFixed(2)))}, ` +
      "the sum of the exponentials is inf, and inf / inf is nan."
      : `${named(at)} attends to ${best.map(([weight, j]) => `${named(j)} ${weight.toFixed(3)}`).join(", ")}.`) +
      ` Words without an answer: ${lost.filter(x => x).length} of ${n}.`;
  }
  function restore() {
    head.value = state.head in OPENING_HEADS ? state.head : "9";
    stage.value = /^[123]$/.test(state.stage) ? state.stage : "1";
    [state.head, state.stage] = [head.value, stage.value];
    factor.value = state.factor;
    state.factor = factor.value;
    pick(Number(state.word) || 0);
  }
  keys(root, {ArrowRight: () => pick(Number(state.word) + 1), ArrowLeft: () => pick(Number(state.word) - 1)});
  root.append(element("p", {class: "fig-sentence"},
      ...spans.flatMap((span, i) => words[i].startsWith("##") || /^[,.'’?]$/.test(words[i]) ? [span] : [" ", span])),
    element("div", {class: "fig-bar"}, labelled("raise the scores", factor), times),
    element("div", {class: "fig-bar"}, labelled("this head attends to", head), labelled("softmax of", stage)), said);
  restore();
};
