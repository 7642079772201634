/* one_row.js: one row of scores through stages 1, 2 and 3, step by step: the terms, the
 * denominator as their sum, the output, and the loop of C that is running. */
const ONE_ROW_STAGES = [ /* and what each keeps while it reads the row */
  {key: "naive", number: "1", state: ["l"]}, {key: "safe", number: "2", state: ["m", "l"]},
  {key: "online", number: "3", state: ["m", "l", "correction"]},
];
const ONE_ROW_TYPES = {f32: 88.722839, f16: 11.09375, bf16: 88.722839}; /* e^x is finite up to here */
const MOST_SCORES = 16;

/* The steps and weights of one stage for these scores. */
function one_row_run(wasm, stage, scores, type) {
  const x = wasm.floats(wasm.scores_address(), scores.length);
  scores.forEach((score, j) => { x[j] = wasm.to_type(score, type); });
  const n = wasm.stage_row(Number(stage.number), scores.length, type);
  const width = wasm.step_floats(), table = wasm.floats(wasm.steps_address(), n * width);
  const steps = [];
  for (let i = 0; i < n; i++) {
    const [index, x_j, m, l, correction, loop, sums] = table.subarray(i * width, (i + 1) * width);
    steps.push({index, x: x_j, m, l, correction, loop, sums});
  }
  const weights = [...wasm.floats(wasm.weights_address(), scores.length)];
  return {steps, weights, o: weights.reduce((sum, p, j) => sum + (scores[j] === -Infinity && p === 0
    ? 0 : p * j), 0)};
}

/* Bars of numbers.  A bar is dragged, or moved with the up and down keys; the bars stay the same
 * elements while they move.  The height grows as asinh: 1 and 100 both have room.
 *   most  the number at the upper edge; mark()  where a line is drawn, or null */
function score_bars(change, what = "score", most = 120, mark = () => null) {
  const width = 40, height = 132, picture = element("svg", {class: "fig-bars", role: "group",
    "aria-label": `the ${what}s, as bars to drag`});
  const axis = element("line", {x1: 0, y1: height / 2, y2: height / 2, class: "fig-axis"});
  const limit = element("line", {x1: 0, class: "fig-mean"}), name = element("text", {});
  let bars = [], scores = [], top = most, dragged = -1;
  const half = height / 2 - 14, y = x => height / 2 - Math.asinh(x) / Math.asinh(top) * half;
  function drag(event, j) {
    const box = picture.getBoundingClientRect();
    const at = (height / 2 - (event.clientY - box.top) / box.height * height) / half;
    const score = Math.sinh(Math.max(-1, Math.min(1, at)) * Math.asinh(top));
    change(j, Math.round(score * 10) / 10);
  }
  function make(j) {
    const bar = element("rect", {x: j * width + 6, width: width - 12, tabindex: 0,
      role: "slider", "aria-label": `${what} ${j}`, "aria-orientation": "vertical"});
    const handle = element("rect", {x: j * width, y: 0, width, height, class: "fig-handle",
      pointerdown: event => { handle.setPointerCapture(event.pointerId); dragged = j; drag(event, j); },
      pointermove: event => { if (dragged === j) drag(event, j); },
      pointerup: () => { dragged = -1; draw(scores, -1); }});
    bar.addEventListener("keydown", event => {
      const by = {ArrowUp: 0.5, ArrowDown: -0.5, PageUp: 10, PageDown: -10}[event.key];
      if (!by) return;
      change(j, scores[j] + by);
      event.preventDefault();
      event.stopPropagation();
    });
    return {bar, handle, text: element("text", {x: j * width + width / 2, "text-anchor": "middle"})};
  }
  function draw(now, current) {
    scores = now;
    if (dragged < 0) // the scale stands still under a finger
      top = Math.max(most, ...scores.filter(Number.isFinite).map(x => 1.1 * Math.abs(x)));
    if (bars.length !== scores.length) {
      bars = scores.map((_, j) => make(j));
      const end = width * scores.length;
      set(picture, {viewBox: `0 0 ${end + 40} ${height}`, style: `max-width: ${end + 40}px`});
      set(axis, {x2: end});
      set(limit, {x2: end});
      set(name, {x: end + 2});
      picture.replaceChildren(axis, limit, name,
        ...bars.flatMap(({bar, handle, text}) => [handle, bar, text]));
    }
    const line = mark();
    limit.style.display = line === null ? "none" : "";
    name.textContent = line === null ? "" : number_text(Math.round(line * 100) / 100);
    if (line !== null) { set(limit, {y1: y(line), y2: y(line)}); set(name, {y: y(line) + 3}); }
    scores.forEach((score, j) => {
      const shown = Number.isFinite(score) ? score : score > 0 ? top : -top, to = y(shown);
      set(bars[j].bar, {y: Math.min(y(0), to), height: Math.max(2, Math.abs(to - y(0))),
        class: j === current ? "fig-now" : "fig-score", "aria-valuenow":
        Number.isFinite(score) ? number_text(score) : number_text(shown),
        "aria-valuetext": number_text(score)});
      set(bars[j].text, {y: score >= 0 ? to - 4 : to + 12});
      bars[j].text.textContent = number_text(score);
    });
  }
  return {picture, draw};
}

/* The lines of softmax_row in stage.c; show(loop) marks the loop that is running. */
function code_view(number) {
  const lines = SOURCES[number].split("\n");
  let loop = 0;
  const spans = lines.map(line => {
    if (line.startsWith("for ")) loop++;
    const inside = loop && /^(for|    |\})/.test(line) ? loop : 0;
    return {loop: inside, span: element("span", {class: "fig-line"}, line + "\n")};
  });
  const code = element("pre", {class: "fig-code"}, ...spans.map(({span}) => span));
  return {code, loops: loop, show: now => spans.forEach(({loop: mine, span}) =>
    span.classList.toggle("fig-running", mine > 0 && mine === now))};
}

/* Terms e^(x_j - m) as bars, beside them l: the same bars on top of one another.  When m grows
 * every term shrinks, and l with them.  Beside infinity a finite term has no height. */
function term_picture() {
  const picture = element("svg", {class: "fig-terms", role: "img"}), height = 96, foot = 110;
  let rects = [], over = null;
  function draw(terms, l, current, correction, stage) {
    const n = terms.length, width = 200 / (n + 3), gone = !Number.isFinite(l);
    if (rects.length !== n) {
      rects = terms.map(() => ({term: element("rect", {}), part: element("rect", {})}));
      over = element("text", {"text-anchor": "middle", class: "fig-over"});
      picture.replaceChildren(
        element("line", {x1: 0, x2: 200, y1: foot, y2: foot, class: "fig-axis"}),
        ...rects.flatMap(({term, part}) => [term, part]), over,
        element("text", {x: width * n / 2, y: foot + 11, "text-anchor": "middle"}, stage === "naive"
          ? "exp(x)" : "exp(x − m)"),
        element("text", {x: width * (n + 1.5), y: foot + 11, "text-anchor": "middle"}, "l"));
      set(picture, {viewBox: "0 0 200 124"});
    }
    const finite = terms.filter(Number.isFinite), sum = finite.reduce((a, b) => a + b, 0);
    const infinite = terms.includes(Infinity) || l === Infinity;
    const scale = infinite ? Infinity : stage === "naive" ? sum || 1 : Math.max(2, sum);
    let top = foot;
    terms.forEach((term, j) => {
      const lost = term !== null && !Number.isFinite(term);
      const tall = term === null ? 0 : lost ? height : term / scale * height;
      const kind = lost ? "fig-lost" : j === current ? "fig-now" : "fig-score";
      set(rects[j].term, {x: j * width + 1, width: width - 2, class: kind,
        style: `y: ${foot - tall}px; height: ${tall}px`});
      top -= gone ? 0 : tall;
      const part = gone ? (j === 0 ? height : 0) : tall; // an l that is lost is one bar
      set(rects[j].part, {x: (n + 0.7) * width, width: width * 1.6, class: gone ? "fig-lost" : kind,
        style: `y: ${gone ? foot - height : top}px; height: ${part}px`});
    });
    over.textContent = gone ? number_text(l) : correction < 1 ? `× ${number_text(correction)}` : "";
    set(over, {x: width * (n + 1.5), y: gone ? 10 : Math.max(9, top - 4)});
    set(picture, {"aria-label": `terms ${terms.filter(x => x !== null).map(number_text).join(", ")}; ` +
      `l ${number_text(l)}`});
  }
  return {picture, draw};
}

/* What a stage has lost, in words; "" where all is well. */
function lost_text(run, now, ended, type) {
  const first = run.steps.find(step => step.l === Infinity);
  if (now && now.sums && now.l === Infinity)
    return first.x === Infinity ? "A score is inf, and so is l: a weight becomes inf / inf = nan or 0."
      : `exp(${number_text(first.x)}) makes l larger than the largest ${type}: inf, ` +
        "and a weight becomes inf / inf = nan or 0.";
  if (now && now.sums && Number.isNaN(now.l)) return "l is nan, and so is every weight.";
  if (ended && run.weights.some(Number.isNaN))
    return now && now.l === 0 ? "Every term is 0, and each weight is 0 / 0 = nan." : "A weight is nan.";
  return "";
}

function one_row_panel(stage, wasm) {
  const code = code_view(stage.number), terms = term_picture();
  const cells = Object.fromEntries(["loop", "score", ...stage.state, "weights", "o"].map(name =>
    [name, element("td", {"data-cell": `${stage.key}-${name}`})]));
  const lost = element("p", {class: "fig-lost-text", "data-cell": `${stage.key}-lost`});
  const section = element("section", {},
    element("p", {class: "fig-title"}, `stage ${stage.number}, ${stage.key}`), terms.picture,
    element("table", {class: "fig-state"}, ...Object.entries(cells).map(([name, cell]) =>
      element("tr", {}, element("th", {scope: "row"}, name), cell))), lost, code.code);
  function show(run, at, scores, type) {
    const now = run.steps[Math.min(at, run.steps.length) - 1], ended = at > run.steps.length;
    const m = !now || stage.key === "naive" ? 0 : now.m, counts = now && now.sums;
    const last = !now ? -1 : ended ? scores.length - 1 : now.index;
    const rounded = x => wasm.to_type(x, Object.keys(ONE_ROW_TYPES).indexOf(type));
    code.show(!now ? 0 : ended ? code.loops : now.loop);
    terms.draw(scores.map((x, j) => !counts || j > last ? null
      : x === -Infinity ? 0 : Math.fround(rounded(Math.exp(x - m)))),
      counts ? now.l : 0, ended ? -1 : last, ended || !now ? 1 : now.correction, stage.key);
    cells.loop.textContent = now ? ended ? code.loops : now.loop : "–";
    cells.score.textContent = now ? number_text(now.x) : "–";
    for (const name of stage.state)
      cells[name].textContent = now && (counts || name === "m") ? number_text(now[name]) : "–";
    cells.weights.className = ended ? "fig-weights" : "";
    cells.weights.textContent = ended ? run.weights.map(number_text).join("  ") : "after the last loop";
    cells.o.textContent = ended ? number_text(Math.fround(run.o)) : "the weights' mean of the values 0, 1, 2, …";
    lost.textContent = lost_text(run, now, ended, type);
    section.className = "fig-stage" + (lost.textContent ? " fig-bad" : "");
  }
  return {section, show};
}

FIGURES["one-row"] = function (root, wasm) {
  const kept = figure_state(root, {x: "3,2,89,1", type: "f32", step: "0", stages: "123"}, restore);
  const {state} = kept, types = Object.keys(ONE_ROW_TYPES);
  let scores = [3, 2, 5, 1], runs = [], stages = [], panels = [];
  const input = element("input", {size: 20, "aria-label": "scores, separated by commas", spellcheck: "false",
    input: () => {
      const read = parse_numbers(input.value, MOST_SCORES);
      if (!wrong.say(input, read ? "" : `Give 1 to ${MOST_SCORES} numbers, such as 3, 2, 5, 1.`)) return;
      scores = read;
      compute();
    }});
  const type = choice("type", types.map(name => [name, name]), value => { state.type = value; compute(); });
  const wrong = complaint(), bars = score_bars(change, "score", 120, () => ONE_ROW_TYPES[type.value]);
  const place = element("div", {class: "fig-panels"});
  const spoken = element("p", {class: "fig-unseen", "aria-live": "polite"});
  const steps = stepper(root, kept, () => 1 + Math.max(0, ...runs.map(run => run.steps.length)), show);

  function compute(step = steps.wanted()) {
    state.x = scores.map(number_text).join(",");
    runs = stages.map(stage => one_row_run(wasm, stage, scores, types.indexOf(type.value)));
    steps.go(step);
  }
  function change(j, score) {
    scores[j] = score;
    input.value = scores.map(number_text).join(", ");
    wrong.say(input, "");
    compute();
  }
  function show(at) {
    const i = stages.length - 1, now = runs[i].steps[Math.min(at, runs[i].steps.length) - 1];
    bars.draw(scores, now && at <= runs[i].steps.length ? now.index : -1);
    panels.forEach((panel, k) => panel.show(runs[k], at, scores, type.value));
    spoken.textContent = now
      ? `stage ${stages[i].number}, after score ${number_text(now.x)}: l is ${number_text(now.l)}`
      : "no score read yet";
  }
  function restore() {
    const read = parse_numbers(state.x, MOST_SCORES);
    wrong.say(input, read ? "" : `${state.x} is no row of scores.`);
    scores = read || [3, 2, 5, 1];
    type.value = types.includes(state.type) ? state.type : "f32";
    stages = ONE_ROW_STAGES.filter(stage => state.stages.includes(stage.number));
    if (!stages.length) stages = ONE_ROW_STAGES;
    panels = stages.map(stage => one_row_panel(stage, wasm));
    place.replaceChildren(...panels.map(panel => panel.section));
    input.value = scores.map(number_text).join(", ");
    compute(Number(state.step));
  }
  root.append(element("div", {class: "fig-bar"}, labelled("scores", input),
                      labelled("type", type)), wrong.line, bars.picture, steps.bar, place, spoken);
  restore();
};
