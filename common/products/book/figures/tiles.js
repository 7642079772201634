/* tiles.js: the same small attention problem in stages 1 to 5: what moves between main memory,
 * a cache and the chip.  The plans below say which stage touches what and when; the outputs
 * are computed by the stages' own functions. */
const TILE_FLOAT = 4; /* bytes */

/* A plan is a list of steps {rows, cols: [first, end), what, main, cache, kept, stored}: the
 * cells of S that a step works on; bytes to and from main memory; bytes that a cache serves,
 * because they were read before; bytes kept on the chip, and stored in main memory, after it. */
function rows_plan(p, seen, passes_of_scores) {
  const plan = [], {nq, nk, d} = p, row = nk * TILE_FLOAT, key = d * TILE_FLOAT;
  /* Rows of K, or of V, that query i reads: those that no query read before come from main memory. */
  const read = i => {
    const before = Math.max(0, ...Array.from({length: i}, (_, other) => seen(other)));
    return {main: Math.max(0, seen(i) - before) * key, cache: Math.min(seen(i), before) * key};
  };
  for (let i = 0; i < nq; i++)
    plan.push({rows: [i, i + 1], what: `scores of query ${i}, stored`,
      main: read(i).main + key + row, cache: read(i).cache, stored: (i + 1) * row});
  for (let i = 0; i < nq; i++)
    plan.push({rows: [i, i + 1], what: `softmax of row ${i}: read ${passes_of_scores} times, ` +
      "written once", main: (passes_of_scores + 1) * row, cache: 0, stored: (nq + i + 1) * row});
  for (let i = 0; i < nq; i++)
    plan.push({rows: [i, i + 1], what: `output of query ${i}: P, and S for its masks`,
      main: 2 * row + read(i).main + key + TILE_FLOAT, cache: read(i).cache, stored: 2 * nq * row});
  return plan.map(step => ({...step, kept: key + TILE_FLOAT, cols: [0, nk]}));
}

/* Tiles of br queries by bc keys, one query by all keys in stage 3.  K and V come from main
 * memory once; for the next queries a cache has them: a CPU's, or the L2 of a GPU.  Keys that
 * no query of a tile sees are not read. */
function tiled_plan(p, seen, br, bc, lse) {
  const {nq, d} = p, plan = [];
  let read = 0;
  for (let i = 0; i < nq; i += br) {
    const rows = Math.min(br, nq - i), begun = plan.length, end = seen(i + rows - 1);
    for (let j = 0; j < end; j += bc) {
      const cols = Math.min(bc, end - j), fresh = Math.max(0, j + cols - Math.max(read, j));
      read += fresh;
      plan.push({rows: [i, i + rows], cols: [j, j + cols], stored: 0,
        what: lse ? `query ${i}: m, l and o in one loop over the keys`
          : `queries ${i} to ${i + rows - 1}, keys ${j} to ${j + cols - 1}`,
        main: 2 * fresh * d * TILE_FLOAT, cache: 2 * (cols - fresh) * d * TILE_FLOAT,
        kept: (rows * (2 + d) + (lse ? 0 : rows * cols)) * TILE_FLOAT});
    }
    if (plan.length === begun) // nothing is visible: o is 0 all the same
      plan.push({rows: [i, i + rows], cols: [0, 0], what: `queries ${i} to ${i + rows - 1} see no key`,
        main: 0, cache: 0, kept: 0, stored: 0});
    plan[begun].main += rows * d * TILE_FLOAT;
    plan[plan.length - 1].main += rows * (d + 1) * TILE_FLOAT;
  }
  return plan;
}

const TILED = (p, seen) => tiled_plan(p, seen, p.br, p.bc);
const TILE_STAGES = [["1 naive", (p, seen) => rows_plan(p, seen, 2)], ["2 safe", (p, seen) => rows_plan(p, seen, 3)],
  ["3 online", (p, seen) => tiled_plan(p, seen, 1, p.nk, true)], ["4 tiled", TILED], ["5 flash", TILED],
].map(([title, plan], i) => ({number: i + 1, title, plan}));
const TILE_LANES = {main: "main memory", cache: "cache (L2)", kept: "on the chip"};

const TILE_ARENA = {Q: 0, K: 1024, V: 2048, O: 3072}; /* as in wasm/tiles.c */

/* Values that can be followed by eye: small multiples of 1/4, the same at every visit. */
function fill_arena(wasm, p) {
  const arena = wasm.floats(wasm.arena_address(), 5120);
  for (const [from, rows, factor] of [[TILE_ARENA.Q, p.nq, 7], [TILE_ARENA.K, p.nk, 4], [TILE_ARENA.V, p.nk, 2]])
    for (let i = 0; i < rows; i++)
      for (let c = 0; c < p.d; c++) arena[from + i * p.d + c] = ((i * factor + c * 5) % 9 - 4) / 4;
  return arena;
}

/* o of the stage; stages 4 and 5 go tile by tile. */
function tile_output(wasm, stage, p) {
  const arena = fill_arena(wasm, p);
  if (stage.number <= 3) wasm.stage_attention(stage.number, p.nq, p.nk, p.d, p.causal);
  else {
    for (let i = 0; i < p.nq; i += p.br)
      for (let j = 0; j < p.nk; j += p.bc)
        wasm.tile_step(p.nq, p.nk, p.d, p.causal, i, Math.min(p.br, p.nq - i), j,
                       Math.min(j + p.bc, p.nk));
    wasm.tile_finish(p.nq, p.d);
  }
  return [...arena.subarray(TILE_ARENA.O, TILE_ARENA.O + p.nq * p.d)];
}

function tile_grid(wasm, p, plan, at) {
  const size = 16, now = plan[at - 1], done = plan.slice(0, at);
  const picture = element("svg", {viewBox: `0 0 ${p.nk * size + 2} ${p.nq * size + 2}`,
    class: "fig-grid", role: "img", "aria-label": now ? now.what : "nothing done yet"});
  const within = (step, i, j) => step && i >= step.rows[0] && i < step.rows[1] &&
    j >= step.cols[0] && j < step.cols[1];
  for (let i = 0; i < p.nq; i++)
    for (let j = 0; j < p.nk; j++) {
      const masked = !wasm.sees(p.nq, p.nk, p.causal, i, j);
      const kind = masked ? "fig-masked" : within(now, i, j) ? "fig-now"
        : done.some(step => within(step, i, j)) ? "fig-done" : "fig-ahead";
      picture.append(element("rect", {x: 2 + j * size, y: 2 + i * size, width: size - 3,
                                      height: size - 3, class: kind}));
    }
  return picture;
}

FIGURES["tiles"] = function (root, wasm) {
  const first = {nq: "6", nk: "7", d: "4", br: "3", bc: "3", causal: "0", step: "0"};
  const kept = figure_state(root, first, restore), {state} = kept;
  const limits = {nq: 12, nk: 12, d: 8, br: 12, bc: 12};
  const names = {nq: "queries", nk: "keys", d: "head_dim", br: "Br", bc: "Bc"};
  const wrong = complaint(), inputs = {};
  const controls = Object.entries(names).map(([name, text]) => {
    inputs[name] = element("input", {type: "number", min: 1, max: limits[name],
      "data-input": name, input: event => { if (accept(name, event.target.value)) compute(); }});
    return labelled(text, inputs[name]);
  });
  const causal = element("input", {type: "checkbox", "data-input": "causal",
    change: () => { state.causal = causal.checked ? "1" : "0"; compute(); }});
  const place = element("div", {class: "fig-lanes"});
  const spoken = element("p", {class: "fig-unseen", "aria-live": "polite"});
  let p = {}, plans = [], outputs = [];
  const steps = stepper(root, kept, () => Math.max(0, ...plans.map(plan => plan.length)), show);

  /* Takes a size, or says what would be one. */
  function accept(name, text) {
    const good = Number.isInteger(Number(text)) && Number(text) >= 1 && Number(text) <= limits[name];
    if (good) state[name] = String(Number(text));
    return wrong.say(inputs[name], good ? "" :
      `${names[name]}: give a whole number from 1 to ${limits[name]}.`);
  }
  function compute(step = steps.wanted()) {
    for (const name of [...Object.keys(limits), "causal"]) p[name] = Number(state[name]);
    const keys = Array.from({length: p.nk}, (_, j) => j); // a query sees the first ones
    const seen = i => keys.filter(j => wasm.sees(p.nq, p.nk, p.causal, i, j)).length;
    plans = TILE_STAGES.map(stage => stage.plan(p, seen));
    outputs = TILE_STAGES.map(stage => tile_output(wasm, stage, p));
    steps.go(step);
  }
  /* Bytes of a lane up to a step: added up, or for what is kept the most. */
  function bytes(plan, at, lane) {
    const done = plan.slice(0, Math.min(at, plan.length)).map(step => step[lane]);
    return lane === "kept" || lane === "stored" ? Math.max(0, ...done)
      : done.reduce((sum, x) => sum + x, 0);
  }
  function line(stage, i, at) {
    const plan = plans[i], now = plan[Math.min(at, plan.length) - 1];
    const lanes = Object.keys(TILE_LANES).map(lane => {
      const n = bytes(plan, at, lane), most = Math.max(1, ...plans.map(other =>
        bytes(other, other.length, lane)));
      return element("div", {class: "fig-lane-cell"},
        element("span", {class: `fig-fill fig-${lane}`, style: `width: ${100 * n / most}%`}),
        element("b", {"data-cell": `${stage.number}-${lane}`}, String(n)));
    });
    const o = at >= plan.length ? outputs[i].slice(0, Math.min(2, p.d)).map(number_text).join(", ")
      : "–";
    const stored = bytes(plan, at, "stored");
    return element("section", {class: "fig-stage fig-row"}, element("p", {class: "fig-title"}, stage.title),
      tile_grid(wasm, p, plan, Math.min(at, plan.length)), ...lanes,
      element("p", {class: "fig-small"}, now ? now.what : "nothing done yet",
        stored ? element("span", {}, `; S and P stored: ${stored} bytes`) : "",
        "; o of query 0: ", element("span", {"data-cell": `${stage.number}-o of query 0`}, o)));
  }
  function show(at) {
    place.replaceChildren(
      element("div", {class: "fig-row fig-head"}, element("span", {}, "bytes"), element("span"),
        ...Object.values(TILE_LANES).map(text => element("span", {}, text))),
      ...TILE_STAGES.map((stage, i) => line(stage, i, at)));
    spoken.textContent = at ? plans.map((plan, i) => `stage ${i + 1}: ` +
      plan[Math.min(at, plan.length) - 1].what).join("; ") : "nothing done yet";
  }
  function restore() {
    const bad = Object.keys(limits).find(name => !accept(name, state[name]));
    if (bad) Object.assign(state, first, {step: state.step}); // and the complaint stays
    for (const name of Object.keys(limits)) inputs[name].value = state[name];
    state.causal = state.causal === "1" ? "1" : "0";
    causal.checked = state.causal === "1";
    compute(Number(state.step));
  }
  root.append(element("div", {class: "fig-bar"}, ...controls, labelled("causal", causal)),
              wrong.line, steps.bar, place, spoken);
  restore();
};
