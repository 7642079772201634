/* plane.js: online attention with values of two columns: o is an arrow that every key pulls.  The
 * states are folds of stage 4's monoid.h; a cut row is two folds, and one merge at the end. */
const PLANE_KEYS = "1:0.9:0.2, 2:0.3:0.9, 1:-0.7:0.6, 4:-0.4:-0.8, 3:0.8:-0.5, 5:0.6:0.7";

FIGURES["plane"] = function (root, wasm) {
  const kept = figure_state(root, {leaves: PLANE_KEYS, cut: "0", step: "0"}, restore), {state} = kept;
  let leaves = parse_leaves(PLANE_KEYS);
  const wrong = complaint(), picture = element("div", {class: "fig-plane"});
  const said = element("p", {class: "fig-spoken", "aria-live": "polite", "data-cell": "plane"});
  const input = element("input", {size: 44, spellcheck: "false", "aria-label": "keys, each as score:v0:v1", change: () => {
    state.leaves = input.value;
    restore();
  }});
  const cut = element("input", {type: "range", min: 0, step: 1, "aria-label": "cut the row before this key, 0: nowhere",
    input: () => { state.cut = cut.value; steps.go(steps.wanted()); }});
  const parts = () => Number(state.cut) ? [[0, Number(state.cut)], [Number(state.cut), leaves.length]] : [[0, leaves.length]];
  const longest = () => Math.max(...parts().map(([first, end]) => end - first));
  const steps = stepper(root, kept, () => longest() + parts().length - 1, show);
  const node = i => { const [m, l, x, y] = wasm.floats(wasm.node_address(i), 4); return {m, l, x, y}; };

  /* The keys first ... end - 1 folded into node `at`; before: what the last key found. */
  function fold(at, first, end) {
    let before = null;
    wasm.node_leaf(at, -Infinity, 0, 0);
    for (let j = first; j < end; j++) {
      before = node(at);
      wasm.node_leaf(at + 1, ...leaves[j]);
      wasm.node_merge(at, at, at + 1);
    }
    return {...node(at), before};
  }
  function show(at) {
    const merged = at > longest(), x = value => 150 + 70 * value, y = value => 130 - 70 * value;
    const folds = parts().map(([first, end], i) => ({first, end: Math.min(end, first + at), ...fold(2 * i, first, Math.min(end, first + at))}));
    if (merged) {
      const before = folds[0];
      wasm.node_merge(0, 0, 2);
      folds.splice(0, 2, {first: 0, end: leaves.length, ...node(0), before});
    }
    const arrow = (from, kind) => element("path", {class: kind, d: `M ${x(0)} ${y(0)} L ${x(from.x)} ${y(from.y)}`});
    picture.replaceChildren(element("svg", {viewBox: "0 0 300 260", class: "fig-bars", style: "max-width: 420px", role: "img",
      "aria-label": "values as points, o as an arrow"},
    element("line", {x1: 0, x2: 300, y1: y(0), y2: y(0), class: "fig-axis"}),
    element("line", {x1: x(0), x2: x(0), y1: 0, y2: 260, class: "fig-axis"}),
    ...leaves.map(([score, v0, v1], j) => {
      const of = folds.find(part => j >= part.first && j < part.end), weight = of && of.l ? Math.exp(score - of.m) / of.l : 0;
      return element("g", {}, element("circle", {cx: x(v0), cy: y(v1), r: 3 + 14 * Math.sqrt(weight), class: of ? "fig-ghost-fill" : "fig-ahead"}),
        element("text", {x: x(v0) + 6, y: y(v1) - 6}, number_text(score)));
    }),
    ...folds.flatMap(part => [...(part.before && part.before.m < part.m && part.before.l ? [arrow(part.before, "fig-ghost")] : []),
      arrow(part, "fig-arrow"), ...(part.l ? [element("circle", {cx: x(part.x / part.l), cy: y(part.y / part.l), r: 4, class: "fig-node"})] : [])])));
    said.textContent = (merged ? "Merged: " : "") + folds.map(part => `m ${number_text(part.m)}, l ${number_text(part.l)}, o (${number_text(part.x)}, ` +
      `${number_text(part.y)})${part.l ? `, o / l (${number_text(Math.fround(part.x / part.l))}, ${number_text(Math.fround(part.y / part.l))})` : ""}`).join("; and ");
  }
  function restore() {
    const read = parse_leaves(state.leaves);
    wrong.say(input, read ? "" : "Give 1 to 12 keys such as 1:0.9:0.2, 4:0:1, -inf:9:9.");
    leaves = read || parse_leaves(PLANE_KEYS);
    input.value = state.leaves;
    cut.max = leaves.length - 1;
    cut.value = state.cut;
    state.cut = cut.value;
    steps.go(Number(state.step));
  }
  root.append(element("div", {class: "fig-bar"}, labelled("keys, each score:value:value", input), labelled("cut", cut)),
    wrong.line, steps.bar, picture, said);
  restore();
};
