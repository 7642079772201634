/* tiles.js: the same small attention problem in stages 1 to 5, side by side: what is read,
 * written and kept.  The plans below say which stage touches what and when; every number in
 * the outputs is computed by the stages' own functions. */
"use strict";

const TILE_FLOAT = 4; /* bytes */

/* A plan is a list of steps {rows, cols: [first, end), what, read, written, kept}: the cells
 * of S that a step works on, bytes to and from main memory, bytes of intermediate results
 * that exist after it. */
function rows_plan(p, passes_of_scores) {
  const plan = [], {nq, nk, d} = p, row = nk * TILE_FLOAT;
  for (let i = 0; i < nq; i++) /* K is read once: it then stays in a cache */
    plan.push({rows: [i, i + 1], what: `scores of query ${i} are stored`, phase: "scores",
      read: (d + (i === 0 ? nk * d : 0)) * TILE_FLOAT, written: row, kept: (i + 1) * row});
  for (let i = 0; i < nq; i++)
    plan.push({rows: [i, i + 1], what: `softmax of row ${i}: read ${passes_of_scores} times, ` +
      "written once", phase: "softmax", read: passes_of_scores * row, written: row,
      kept: (nq + i + 1) * row});
  for (let i = 0; i < nq; i++)
    plan.push({rows: [i, i + 1], what: `output of query ${i}`, phase: "output",
      read: row + (i === 0 ? nk * d * TILE_FLOAT : 0), written: (d + 1) * TILE_FLOAT,
      kept: 2 * nq * row});
  return plan.map(step => ({...step, cols: [0, nk]}));
}

function online_plan(p) {
  const {nq, nk, d} = p, plan = [];
  for (let i = 0; i < nq; i++) {
    plan.push({rows: [i, i + 1], cols: [0, nk], phase: "scores",
      what: `query ${i}, loop 1: m and l; no score is stored`,
      read: (d + (i === 0 ? nk * d : 0)) * TILE_FLOAT, written: 0, kept: 2 * TILE_FLOAT});
    plan.push({rows: [i, i + 1], cols: [0, nk], phase: "output",
      what: `query ${i}, loop 2: scores again, weighted values`,
      read: i === 0 ? nk * d * TILE_FLOAT : 0, written: (d + 1) * TILE_FLOAT,
      kept: (2 + d) * TILE_FLOAT});
  }
  return plan;
}

/* Tiles of br queries by bc keys.  On a CPU (stage 4) K and V come from main memory once and
 * then from a cache; each block of a GPU (stage 5) reads them again. */
function tiled_plan(p, again) {
  const {nq, nk, d, br, bc} = p, plan = [];
  for (let i = 0; i < nq; i += br)
    for (let j = 0; j < nk; j += bc) {
      const rows = Math.min(br, nq - i), cols = Math.min(bc, nk - j), last = j + bc >= nk;
      const tile = again || i === 0 ? 2 * cols * d : 0;
      plan.push({rows: [i, i + rows], cols: [j, j + cols], phase: "tile",
        what: `queries ${i}–${i + rows - 1}, keys ${j}–${j + cols - 1}`,
        read: ((j === 0 ? rows * d : 0) + tile) * TILE_FLOAT,
        written: last ? rows * (d + 1) * TILE_FLOAT : 0,
        kept: (rows * (2 + d) + rows * cols) * TILE_FLOAT});
    }
  return plan;
}

const TILE_STAGES = [
  {number: 1, title: "1 naive", plan: p => rows_plan(p, 2)},
  {number: 2, title: "2 safe", plan: p => rows_plan(p, 3)},
  {number: 3, title: "3 online", plan: online_plan},
  {number: 4, title: "4 monoid, tiled", plan: p => tiled_plan(p, false)},
  {number: 5, title: "5 flash (one block per row of tiles)", plan: p => tiled_plan(p, true)},
];

const TILE_ARENA = {Q: 0, K: 1024, V: 2048, O: 3072}; /* as in wasm/tiles.c */

/* Values that can be followed by eye: small multiples of 1/4, the same at every visit. */
function fill_arena(wasm, p) {
  const arena = wasm.floats(wasm.arena_address(), 5120);
  const value = (i, c, factor) => ((i * factor + c * 5) % 9 - 4) / 4;
  for (let i = 0; i < p.nq; i++)
    for (let c = 0; c < p.d; c++) arena[TILE_ARENA.Q + i * p.d + c] = value(i, c, 7);
  for (let j = 0; j < p.nk; j++)
    for (let c = 0; c < p.d; c++) {
      arena[TILE_ARENA.K + j * p.d + c] = value(j, c, 4);
      arena[TILE_ARENA.V + j * p.d + c] = value(j, c, 2);
    }
  return arena;
}

/* o of the stage; stages 4 and 5 go tile by tile as their plan does. */
function tile_output(wasm, stage, p, plan) {
  const arena = fill_arena(wasm, p);
  if (stage.number <= 3) wasm.stage_attention(stage.number, p.nq, p.nk, p.d, p.causal);
  else {
    for (const step of plan)
      wasm.tile_step(p.nq, p.nk, p.d, p.causal, step.rows[0], step.rows[1] - step.rows[0],
                     step.cols[0], step.cols[1]);
    wasm.tile_finish(p.nq, p.d);
  }
  return [...arena.subarray(TILE_ARENA.O, TILE_ARENA.O + p.nq * p.d)];
}

function tile_grid(wasm, p, plan, at) {
  const size = 16, now = plan[at - 1];
  const done = plan.slice(0, at);
  const picture = element("svg", {viewBox: `0 0 ${p.nk * size + 2} ${p.nq * size + 2}`,
    class: "fig-grid", role: "img", "aria-label": now ? now.what : "nothing done yet"});
  const within = (step, i, j) => step && i >= step.rows[0] && i < step.rows[1] &&
    j >= step.cols[0] && j < step.cols[1];
  for (let i = 0; i < p.nq; i++)
    for (let j = 0; j < p.nk; j++) {
      const masked = !wasm.sees(p.nq, p.nk, p.causal, i, j);
      const kind = masked ? "fig-masked" : within(now, i, j) ? "fig-now"
        : done.some(step => within(step, i, j)) ? "fig-done" : "fig-ahead";
      picture.append(element("rect", {x: 1 + j * size, y: 1 + i * size, width: size - 1,
                                      height: size - 1, class: kind}));
    }
  return picture;
}

FIGURES["tiles"] = function (root, wasm) {
  const {state, save} = address_state("tiles",
    {nq: "6", nk: "7", d: "4", br: "4", bc: "3", causal: "0", step: "0"});
  const limits = {nq: 12, nk: 12, d: 8, br: 12, bc: 12};
  const controls = Object.entries({nq: "queries", nk: "keys", d: "head_dim", br: "Br", bc: "Bc"})
    .map(([name, text]) => labelled(text, element("input", {type: "number", min: 1,
      max: limits[name], value: state[name], "data-input": name, input: event => {
        const n = Number(event.target.value);
        if (!Number.isInteger(n) || n < 1 || n > limits[name]) return;
        state[name] = String(n);
        compute();
      }})));
  const causal = element("input", {type: "checkbox", "data-input": "causal",
    change: () => { state.causal = causal.checked ? "1" : "0"; compute(); }});
  causal.checked = state.causal === "1";
  const panels = element("div", {class: "fig-panels"});
  const spoken = element("p", {class: "fig-spoken", "aria-live": "polite"});
  let p = {}, plans = [], outputs = [];
  const steps = stepper(root, () => Math.max(...plans.map(plan => plan.length)), show);

  function compute() {
    for (const name of [...Object.keys(limits), "causal"]) p[name] = Number(state[name]);
    plans = TILE_STAGES.map(stage => stage.plan(p));
    outputs = TILE_STAGES.map((stage, i) => tile_output(wasm, stage, p, plans[i]));
    steps.go(steps.at());
  }
  function panel(stage, i, at) {
    const plan = plans[i], done = plan.slice(0, Math.min(at, plan.length));
    const sum = name => done.reduce((total, step) => total + step[name], 0);
    const most = done.reduce((top, step) => Math.max(top, step.kept), 0);
    const ended = at >= plan.length;
    const cell = (name, text) => element("tr", {}, element("th", {scope: "row"}, name),
      element("td", {"data-cell": `${stage.number}-${name}`}, text));
    return element("section", {class: "fig-stage"}, element("h4", {}, stage.title),
      tile_grid(wasm, p, plan, Math.min(at, plan.length)),
      element("p", {class: "fig-small"}, at ? plan[Math.min(at, plan.length) - 1].what : " "),
      element("table", {class: "fig-state"},
        cell("bytes read", sum("read")), cell("bytes written", sum("written")),
        cell("bytes kept", most),
        cell("o of query 0", ended
          ? outputs[i].slice(0, Math.min(2, p.d)).map(number_text).join(", ") : "–")));
  }
  function show(at) {
    state.step = String(at);
    save();
    panels.replaceChildren(...TILE_STAGES.map((stage, i) => panel(stage, i, at)));
    spoken.textContent = at ? plans.map((plan, i) => `stage ${i + 1}: ` +
      plan[Math.min(at, plan.length) - 1].what).join("; ") : "nothing done yet";
  }
  root.append(element("div", {class: "fig-bar"}, ...controls, labelled("causal", causal)),
              steps.bar, panels, spoken);
  const first = Number(state.step) || 0;
  compute();
  steps.go(first);
};
