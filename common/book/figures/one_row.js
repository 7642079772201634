/* one_row.js: one row of scores through stages 1, 2 and 3, step by step. */
"use strict";

const ONE_ROW_STAGES = [
  {key: "naive", title: "1 naive", row: "naive_row"},
  {key: "safe", title: "2 safe", row: "safe_row"},
  {key: "online", title: "3 online", row: "online_row"},
];
const ONE_ROW_TYPES = ["f32", "f16", "bf16"];
const MOST_SCORES = 16;

/* The steps and weights of one stage for these scores. */
function one_row_run(wasm, stage, scores, type) {
  const x = wasm.floats(wasm.scores_address(), scores.length);
  scores.forEach((score, j) => { x[j] = wasm.to_type(score, type); });
  const n = wasm[stage.row](scores.length, type);
  const width = wasm.step_floats(), table = wasm.floats(wasm.steps_address(), n * width);
  const steps = [];
  for (let i = 0; i < n; i++) {
    const [index, x_j, m, l, correction] = table.subarray(i * width, (i + 1) * width);
    steps.push({index, x: x_j, m, l, correction, loop: table[i * width + width - 1]});
  }
  return {steps, weights: [...wasm.floats(wasm.weights_address(), scores.length)]};
}

/* Bars of the scores; a bar is dragged to another score. */
function one_row_bars(scores, current, change) {
  const finite = scores.filter(Number.isFinite).map(Math.abs);
  const most = Math.max(6, ...finite) * 1.15, width = 40, height = 132;
  const y = score => height / 2 - score / most * (height / 2 - 14);
  const picture = element("svg", {
    viewBox: `0 0 ${width * scores.length} ${height}`, class: "fig-bars", role: "img",
    style: `max-width: ${width * scores.length}px`,
    "aria-label": "scores " + scores.map(number_text).join(", ")});
  scores.forEach((score, j) => {
    const shown = Number.isFinite(score) ? score : score > 0 ? most : -most;
    const top = Math.min(y(0), y(shown)), size = Math.max(2, Math.abs(y(shown) - y(0)));
    const bar = element("rect", {
      x: j * width + 6, width: width - 12, y: top, height: size,
      class: j === current ? "fig-now" : "fig-score"});
    bar.addEventListener("pointerdown", event => {
      bar.setPointerCapture(event.pointerId);
      bar.onpointermove = move => {
        const box = picture.getBoundingClientRect();
        const at = (move.clientY - box.top) / box.height * height;
        change(j, Math.round((height / 2 - at) / (height / 2 - 14) * most * 10) / 10);
      };
    });
    picture.append(bar, element("text", {
      x: j * width + width / 2, y: score >= 0 ? y(shown) - 4 : y(shown) + 12,
      "text-anchor": "middle"}, number_text(score)));
  });
  picture.append(element("line", {x1: 0, x2: width * scores.length, y1: y(0), y2: y(0),
                                  class: "fig-axis"}));
  return picture;
}

function one_row_table(stage, run, at) {
  const now = run.steps[Math.min(at, run.steps.length) - 1];
  const ended = at > run.steps.length;
  const cells = now
    ? [["loop", now.loop], ["score", number_text(now.x)],
       ["m", Number.isNaN(now.m) && stage.key === "naive" ? "–" : number_text(now.m)],
       ["l", Number.isNaN(now.l) && stage.key === "safe" && now.loop === 1
         ? "–" : number_text(now.l)],
       ["correction", number_text(now.correction)]]
    : [["loop", "–"], ["score", "–"], ["m", "–"], ["l", "–"], ["correction", "–"]];
  const bad = now && [now.m, now.l].some((value, i) =>
    !Number.isFinite(value) && cells[2 + i][1] !== "–" && cells[2 + i][1] !== "-inf");
  const table = element("table", {class: "fig-state"}, ...cells.map(([name, text]) =>
    element("tr", {}, element("th", {scope: "row"}, name),
            element("td", {"data-cell": `${stage.key}-${name}`}, String(text)))));
  const weights = element("p", {class: "fig-weights", "data-cell": `${stage.key}-weights`},
    ended ? run.weights.map(number_text).join("  ") : " ");
  return element("section", {class: "fig-stage" + (bad ? " fig-bad" : "")},
    element("h4", {}, stage.title), table,
    element("p", {class: "fig-small"}, ended ? "weights" : "weights come after the last loop"),
    weights);
}

FIGURES["one-row"] = function (root, wasm) {
  const {state, save} = address_state("one-row", {x: "3,2,5,1", type: "f32", step: "0"});
  let scores = parse_numbers(state.x, MOST_SCORES) || [3, 2, 5, 1], runs = [];
  const input = element("input", {value: scores.map(number_text).join(", "), size: 24,
    "aria-label": "scores, separated by commas", spellcheck: "false",
    input: () => read_input()});
  const type = element("select", {change: () => { state.type = type.value; compute(); }},
    ...ONE_ROW_TYPES.map(name => element("option", {value: name}, name)));
  type.value = ONE_ROW_TYPES.includes(state.type) ? state.type : "f32";
  const error = element("p", {class: "fig-error", role: "alert"});
  const bars = element("div"), panels = element("div", {class: "fig-panels"});
  const spoken = element("p", {class: "fig-spoken", "aria-live": "polite"});
  const steps = stepper(root, () => 1 + Math.max(...runs.map(run => run.steps.length)), show);

  function compute() {
    state.x = scores.map(number_text).join(",");
    runs = ONE_ROW_STAGES.map(stage =>
      one_row_run(wasm, stage, scores, ONE_ROW_TYPES.indexOf(type.value)));
    steps.go(steps.at());
  }
  function read_input() {
    const read = parse_numbers(input.value, MOST_SCORES);
    error.textContent = read ? "" : `Give 1 to ${MOST_SCORES} numbers, such as 3, 2, 5, 1.`;
    if (!read) return;
    scores = read;
    compute();
  }
  function change(j, score) {
    scores[j] = score;
    input.value = scores.map(number_text).join(", ");
    compute();
  }
  function show(at) {
    state.step = String(at);
    save();
    const now = runs[2].steps[Math.min(at, runs[2].steps.length) - 1];
    bars.replaceChildren(one_row_bars(scores, now ? now.index : -1, change));
    panels.replaceChildren(...ONE_ROW_STAGES.map((stage, i) =>
      one_row_table(stage, runs[i], at)));
    spoken.textContent = now
      ? `online, after score ${number_text(now.x)}: m is ${number_text(now.m)}, ` +
        `l is ${number_text(now.l)}, correction ${number_text(now.correction)}`
      : "no score read yet";
  }
  root.append(element("div", {class: "fig-bar"}, labelled("scores", input),
                      labelled("type", type)), error, bars, steps.bar, panels, spoken);
  const first = Number(state.step) || 0;
  compute();
  steps.go(first);
};
