/* ladder.js: what the warps of the Hopper rungs do when, from time stamps of a GPU.
 *
 * The numbers are those of notes/results/hopper/timeline.csv (TIMELINE_CSV): a line is a warpgroup of
 * one block of a rung, `bars` what it does from cycle `begin` on, a letter and a number of
 * cycles each. */
const ACTIVITIES = {
  s: ["softmax", "#e07b00"], p: ["waits for products", "#5c9bd1"],
  q: ["issues Q Kᵀ", "#1f5f99"], v: ["issues P V", "#12355b"],
  t: ["waits for its turn", "#d81b60"], k: ["waits for K", "#d9d9d9"],
  u: ["waits for V", "#a8a8a8"], x: ["waits for Q", "#6b6b6b"],
  e: ["waits for an empty stage", "#dcd6c8"], b: ["waits for its warps", "#c9b3d9"],
  c: ["issues a copy", "#3a9d7c"], o: ["stores o", "#8e5ea2"],
};

/* Lines of the CSV as {variant, head_dim, ..., bars: [{what, begin, end}]}. */
function timeline_rows(text) {
  const [names, ...lines] = text.trim().split("\n").map(line => line.split(","));
  return lines.map(parts => {
    const row = Object.fromEntries(names.map((name, i) => [name, parts[i]]));
    let at = Number(row.begin);
    row.bars = row.bars.split(" ").map(bar => {
      const begin = at;
      at += Number(bar.slice(1));
      return {what: bar[0], begin, end: at};
    });
    return row;
  });
}

/* Cycles between from and to in which all of the rows do `what`. */
function all_at_once(rows, what, from, to) {
  let common = [[from, to]];
  for (const row of rows) {
    const next = [];
    for (const bar of row.bars) {
      if (bar.what !== what) continue;
      for (const [begin, end] of common)
        if (Math.max(begin, bar.begin) < Math.min(end, bar.end))
          next.push([Math.max(begin, bar.begin), Math.min(end, bar.end)]);
    }
    common = next;
  }
  return common.reduce((sum, [begin, end]) => sum + end - begin, 0);
}

const percent = (part, whole) => `${whole > 0 ? (100 * part / whole).toFixed(1) : "0.0"} %`;

FIGURES["ladder"] = TIMELINE_CSV && function (root) {
  const number = variant => RUNGS.indexOf(variant) + 1;
  const all = timeline_rows(TIMELINE_CSV).filter(row => number(row.variant))
    .sort((a, b) => number(a.variant) - number(b.variant));
  const {state, save} = figure_state(root,
    {rung: "warp_specialized", beside: "ping_pong", shape: "128-0", from: "8000", to: "16000"}, restore);
  const rungs = [...new Map(all.map(row => [row.variant, `${number(row.variant)} ${row.variant}`]))];
  const shapes = [...new Map(all.map(row => [`${row.head_dim}-${row.causal}`,
    `d = ${row.head_dim}, ${row.causal === "1" ? "causal" : "full mask"}`]))];
  const rows_of = rung => all.filter(row => row.variant === rung && `${row.head_dim}-${row.causal}` === state.shape);
  const panels = element("div"), said = element("p", {class: "fig-spoken", "aria-live": "polite"});
  let shown = [];

  function view(from, to) {
    const last = Math.max(1000, ...shown.map(row => row.bars[row.bars.length - 1].end));
    const width = Math.max(200, Math.min(to - from, last));
    const begin = Math.max(0, Math.min(from, last - width));
    state.from = String(Math.round(begin));
    state.to = String(Math.round(begin + width));
    draw();
  }
  function zoom(factor) {
    const half = (state.to - state.from) / 2, middle = Number(state.from) + half;
    view(middle - half * factor, middle + half * factor);
  }
  const pan = part => {
    const width = state.to - state.from;
    view(Number(state.from) + part * width, Number(state.to) + part * width);
  };
  const say = ({variant, role}, {what, begin, end}) => {
    said.textContent = `${variant}, ${role}: ${ACTIVITIES[what][0]}, ${end - begin} cycles, from ${begin} to ${end}`;
  };
  function bars_of(row, width) {
    const from = Number(state.from), scale = width / (state.to - from);
    const picture = element("svg", {viewBox: `0 0 ${width} 18`, width, height: 18,
      class: "fig-lane", role: "img", "aria-label": `${row.role}: bars of the table below`});
    row.bars.forEach(bar => {
      if (bar.end <= from || bar.begin >= state.to) return;
      const x = Math.max(0, (bar.begin - from) * scale), end = Math.min(width, (bar.end - from) * scale);
      picture.append(element("rect", {x, y: 1, width: Math.max(0.4, end - x), height: 16,
        fill: ACTIVITIES[bar.what][1], pointerenter: () => say(row, bar), pointerdown: () => say(row, bar)}));
    });
    return picture;
  }
  /* Cycles under the rows, at round numbers. */
  function axis(width) {
    const from = Number(state.from), span = state.to - from, rough = 10 ** Math.floor(Math.log10(span / 4));
    const step = [1, 2, 5, 10].map(x => x * rough).find(x => span / x <= 8);
    const picture = element("svg", {viewBox: `0 0 ${width} 16`, width, height: 16, class: "fig-lane fig-cycles",
      role: "img", "aria-label": `cycles ${from} to ${state.to}`});
    for (let at = Math.ceil(from / step) * step; at < state.to; at += step) {
      const x = (at - from) / span * width;
      picture.append(element("line", {x1: x, x2: x, y1: 0, y2: 4, class: "fig-edge"}),
        element("text", {x: x + 2, y: 13}, String(at)));
    }
    return picture;
  }
  function panel(rung, place, width) {
    const rows = rows_of(rung), from = Number(state.from), to = Number(state.to);
    const consumers = rows.filter(row => row.role !== "producer");
    const used = Object.keys(ACTIVITIES).filter(what => rows.some(row => row.bars.some(bar => bar.what === what)));
    const cell = (name, text) => element("td", {"data-cell": `${place}-${name}`}, text);
    const table = element("table", {class: "fig-state"},
      element("tr", {}, element("th", {}, "of the time shown"),
        ...rows.map(row => element("th", {scope: "col"}, row.role))),
      ...used.map(what => element("tr", {}, element("th", {scope: "row"},
        element("span", {class: "fig-key", style: `background:${ACTIVITIES[what][1]}`}),
        " ", ACTIVITIES[what][0]),
        ...rows.map(row => cell(`${row.role}-${what}`,
          percent(all_at_once([row], what, from, to), to - from))))));
    shown.push(...rows);
    const shares = consumers.map(row => all_at_once([row], "s", from, to) / (to - from));
    const chance = 100 * shares.reduce((a, b) => a * b, 1);
    const convoy = 100 * all_at_once(consumers, "s", from, to) / (to - from);
    return element("section", {class: "fig-stage"},
      element("p", {class: "fig-title"}, rungs.find(([key]) => key === rung)[1]),
      ...rows.flatMap(row => [element("div", {class: "fig-role"}, row.role), bars_of(row, width)]), axis(width),
      ...(consumers.length < 2 ? [] : [element("p", {}, "All consumers take exponentials at once: ",
        element("b", {"data-cell": `${place}-convoy`}, `${convoy.toFixed(1)} %`),
        " of the time shown. If they were independent it would be ",
        element("b", {"data-cell": `${place}-chance`}, `${chance.toFixed(1)} %`), ": ",
        element("b", {"data-cell": `${place}-ratio`},
          chance > 0 ? `${(convoy / chance).toFixed(2)} times chance` : "–"), ".")]),
      element("p", {class: "fig-small"}, `Recording made the kernel ${rows[0].slowdown} times as slow.`),
      element("div", {class: "fig-wide"}, table));
  }
  function draw() {
    save();
    shown = [];
    const width = Math.max(240, root.clientWidth - 24);
    const places = [state.rung, ...(state.beside === "none" ? [] : [state.beside])];
    panels.replaceChildren(...places.map((rung, i) => panel(rung, i, width)));
    range.textContent = `cycles ${state.from} to ${state.to}`;
    const [row] = shown;
    source.textContent = `${row.batch} batches of ${row.heads} heads, ${row.seqlen} keys, ` +
      `${row.dtype}; first warp of each warpgroup of block 0; ${row.machine}; ` +
      `${row.compiler}; commit ${row.commit}; ${row.date}`;
  }
  const range = element("output", {class: "fig-step", "data-cell": "range"});
  const source = element("p", {class: "fig-small"});
  const pick = name => value => { state[name] = value; draw(); };
  const choices = {rung: choice("rung", rungs, pick("rung")),
    beside: choice("beside", [["none", "none"], ...rungs], pick("beside")),
    shape: choice("shape", shapes, pick("shape"))};
  /* A state of the address that this recording does not have is the first one that it has. */
  function restore() {
    for (const [name, select] of Object.entries(choices)) {
      select.value = state[name];
      if (select.selectedIndex < 0) select.selectedIndex = 0;
      state[name] = select.value;
    }
    const [from, to] = [Number(state.from), Number(state.to)];
    [state.from, state.to] = to - from > 100 && from >= 0 ? [from, to].map(String)
      : ["8000", "16000"];
    draw();
  }
  root.append(
    element("div", {class: "fig-bar"},
      ...Object.entries(choices).map(([name, select]) => labelled(name, select))),
    element("div", {class: "fig-bar"},
      button("+", "zoom in (+)", () => zoom(0.5)), button("−", "zoom out (-)", () => zoom(2)),
      button("◀", "earlier (left arrow)", () => pan(-0.25)),
      button("▶", "later (right arrow)", () => pan(0.25)),
      button("all", "the whole recording (Home)", () => view(0, Infinity)), range),
    said, panels, source);
  keys(root, {"+": () => zoom(0.5), "-": () => zoom(2), Home: () => view(0, Infinity),
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25)});
  window.addEventListener("resize", draw);
  said.textContent = "Point at a bar.";
  restore();
};
