/* gradient.js: the gradient of one row, step by step: P, dP, their mean D, and dS, whose sum is 0. */
const GRADIENT_STEPS = ["P_j = exp(s_j − lse)", "dP_j = do · v_j", "D = do · o, the mean of dP",
                        "dS_j = P_j (dP_j − D)"];
const GRADIENT_ARENA = {values: 0, P: 64, dS: 128, D: 192};

/* One number of every key as bars up and down from an axis, and what the row adds up to at the
 * right: what pushes up on what pushes down. */
function gradient_bars(name, values, height, most, {line = null, sum = null} = {}) {
  const width = 44, n = values.length, short = x => number_text(Number(x.toPrecision(3)) + 0);
  const up = values.some(x => x > 0) || line > 0, down = values.some(x => x < 0) || line < 0;
  const axis = 12 + (height - 24) * (up && down ? 0.5 : down ? 0 : 1);
  const scale = (height - 24) / (up && down ? 2 : 1) / most, y = value => axis - value * scale;
  const svg = element("svg", {viewBox: `0 0 ${width * (n + 2.6)} ${height}`, class: "fig-bars",
    style: `max-width: ${1.5 * width * (n + 2.6)}px`, role: "img",
    "aria-label": `${name}: ${values.map(number_text).join(", ")}`});
  const rect = (x, a, b, wide, kind) => svg.append(element("rect", {x, width: wide,
    y: Math.min(y(a), y(b)), height: Math.abs(y(a) - y(b)), class: kind}));
  values.forEach((value, j) => {
    rect(width * (j + 0.8) + 6, 0, value, width - 12, value < 0 ? "fig-now" : "fig-score");
    svg.append(element("text", {x: width * (j + 1.3), "text-anchor": "middle",
      y: value < 0 ? y(value) + 10 : y(value) - 3}, short(value)));
  });
  svg.append(element("text", {x: 0, y: axis + 3}, name),
    element("line", {x1: width * 0.8, x2: width * (n + (sum === null ? 0.8 : 1.65)),
      y1: axis, y2: axis, class: "fig-axis"}));
  if (line !== null) svg.append(
    element("line", {x1: width * 0.8, x2: width * (n + 0.8), y1: y(line), y2: y(line),
      class: "fig-mean"}),
    element("text", {x: width * (n + 0.9), y: y(line) + 3}, `D ${short(line)}`));
  if (sum !== null) {
    const x = width * (n + 1), parts = [0, 0];
    for (const value of values) {
      const side = value < 0 ? 1 : 0, from = parts[side];
      parts[side] += value;
      rect(x, from, parts[side], 24, side ? "fig-now" : "fig-score");
    }
    svg.append(element("text", {x: x + 34, y: axis + 3}, `sum ${short(sum)}`));
  }
  return svg;
}

FIGURES["gradient"] = function (root, wasm) {
  const kept = figure_state(root, {s: "1,3,2,0", v: "2,1,-2,4", D: "own", step: "0"}, restore);
  const {state} = kept;
  let rows = {s: [], v: []};
  const wrong = complaint(), place = element("div"), formulas = element("pre", {class: "fig-code"});
  const spoken = element("p", {class: "fig-spoken", "aria-live": "polite"});
  const D = choice("D", [["own", "of this row"], ["none", "left out"]], value => { state.D = value; compute(); });
  const inputs = {}, bars = {};
  for (const [name, what] of [["s", "scores"], ["v", "values"]]) {
    inputs[name] = element("input", {size: 14, spellcheck: "false",
      "aria-label": `${what}, separated by commas`, input: () => read()});
    bars[name] = score_bars((j, value) => {
      rows[name][j] = value;
      inputs[name].value = rows[name].map(number_text).join(", ");
      compute();
    }, what.slice(0, -1), 8);
  }
  const steps = stepper(root, kept, () => GRADIENT_STEPS.length, show);

  function read(step) {
    const now = {s: parse_numbers(inputs.s.value, 8), v: parse_numbers(inputs.v.value, 8)};
    const fits = now.s && now.v && now.s.length === now.v.length &&
      now.v.every(Number.isFinite) && !now.s.some(x => Number.isNaN(x) || x === Infinity);
    if (!wrong.say(inputs.v, fits ? "" : "Give 1 to 8 scores, and as many finite values.")) return;
    rows = now;
    compute(step);
  }
  function compute(step = steps.wanted()) {
    for (const name of ["s", "v"]) state[name] = rows[name].map(number_text).join(",");
    steps.go(step);
  }
  function show(at) {
    const n = rows.s.length, arena = wasm.arena_address(), from = GRADIENT_ARENA;
    wasm.floats(wasm.scores_address(), n).set(rows.s);
    wasm.floats(arena, n).set(rows.v);
    wasm.gradient_row(n, D.value === "none" ? 1 : 0);
    const row = name => [...wasm.floats(arena + 4 * from[name], n)];
    const P = row("P"), dS = row("dS"), mean = wasm.floats(arena + 4 * from.D, 1)[0];
    const sum = values => values.reduce((a, b) => a + b, 0);
    const rest = sum(dS), zero = Math.abs(rest) < 1e-6 * Math.max(1, ...rows.v.map(Math.abs));
    /* One scale for dP and dS: both in units of a value, and neither sum of dS exceeds it. */
    const most = Math.max(1e-30, ...rows.v.map(Math.abs), ...[1, -1].map(sign =>
      sum(dS.map(x => Math.max(0, sign * x)))));
    bars.s.draw(rows.s, -1);
    bars.v.draw(rows.v, -1);
    place.replaceChildren(...[
      gradient_bars("P", P, 74, 1, {sum: sum(P)}),
      gradient_bars("dP", rows.v, 96, most, {line: at > 2 ? mean : null}),
      gradient_bars("dS", dS, 96, most, {sum: zero ? 0 : rest})].filter((_, i) => at > [0, 1, 3][i]));
    formulas.replaceChildren(...GRADIENT_STEPS.map((text, i) => element("span",
      {class: "fig-line" + (i === at - 1 ? " fig-running" : "")}, text + "\n")));
    spoken.textContent = at < 4 ? "do is 1 here, so dP of a key is its value."
      : `The sum of dS is ${number_text(zero ? 0 : rest)}` + (zero
        ? ": what one key's score gains, the others lose." : ": without D it is not 0.");
    for (const [name, value] of [["P", P], ["dS", dS], ["D", [mean]], ["sum", [rest]]])
      root.dataset[name] = value.map(number_text).join(",");
  }
  function restore() {
    for (const name of ["s", "v"]) inputs[name].value = state[name].replaceAll(",", ", ");
    D.value = state.D === "none" ? "none" : "own";
    read(Number(state.step));
  }
  root.append(element("div", {class: "fig-bar"}, labelled("scores s", inputs.s),
      labelled("values v", inputs.v), labelled("D", D)), wrong.line,
    element("div", {class: "fig-panels"},
      element("div", {}, "scores", bars.s.picture), element("div", {}, "values", bars.v.picture),
      element("div", {}, "for each key j, with do = 1", formulas)),
    steps.bar, place, spoken);
  restore();
};
