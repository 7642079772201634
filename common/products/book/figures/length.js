/* length.js: the matrix S of one head as an area beside the memories of an H200, and the stages in a race
 * at their measured speeds (RACE: [name, {seqlen: GFLOP/s}, whether S and P are stored]). */
const MEMORIES = [["shared memory, 227 KiB", 227 * 1024], ["L2 cache, 50 MiB", 50 * 2 ** 20], ["main memory, 141 GB", 141e9]];

const bytes_text = x => { const i = Math.min(4, Math.floor(Math.log2(x) / 10)); return `${Number((x / 1024 ** i).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][i]}`; };
const time_text = x => x < 1e-3 ? `${(x * 1e6).toPrecision(3)} µs` : x < 1 ? `${(x * 1e3).toPrecision(3)} ms`
  : x < 3600 ? `${Number(x.toPrecision(3))} s` : `${Number((x / 3600).toPrecision(3))} h`;

FIGURES["length"] = RACE.length && function (root) {
  const {state, save} = figure_state(root, {n: "4096"}, restore);
  const slider = element("input", {type: "range", min: 4, max: 20, step: 1, "aria-label": "keys, as a power of two",
    input: () => { state.n = String(2 ** slider.value); restore(); }});
  const said = element("output", {class: "fig-step", "data-cell": "length"});
  const picture = element("div", {class: "fig-areas"}), lanes = element("div", {class: "fig-lanes"});

  function restore() {
    const n = 2 ** Math.max(4, Math.min(20, Math.round(Math.log2(Number(state.n) || 4096)))), S = 4 * n * n;
    state.n = String(n);
    slider.value = Math.log2(n);
    save();
    const whole = Math.max(S, MEMORIES[0][1]), side = x => 150 * Math.sqrt(x / whole), shown = MEMORIES.filter(([, size]) => size <= whole);
    said.textContent = `${n} queries and keys: S takes ${bytes_text(S)}`;
    const square = (size, kind) => element("rect", {x: 2, y: 158 - side(size), width: side(size), height: side(size), class: kind});
    picture.replaceChildren(element("svg", {viewBox: "0 0 162 162", class: "fig-bars", role: "img",
      "aria-label": `S beside ${shown.map(([name]) => name).join(", ")}`}, square(S, "fig-score"),
    ...shown.map(([, size]) => square(size, "fig-outline"))), element("ul", {}, ...MEMORIES.map(([name, size]) => element("li", {}, `${name}: ` +
      (S <= size ? `holds S ${Number((size / S).toPrecision(3))} times` : `${Number((S / size).toPrecision(3))} times too small`)))));
    const runs = RACE.map(([name, speeds, stores]) => {
      const near = Object.keys(speeds).map(Number).sort((a, b) => Math.abs(Math.log(a / n)) - Math.abs(Math.log(b / n)))[0];
      return {name, near, seconds: stores && 2 * S > 141e9 ? 0 : 4 * n * n * 64 / (speeds[near] * 1e9)};
    });
    const slowest = Math.max(...runs.map(run => run.seconds));
    lanes.replaceChildren(...runs.map(({name, near, seconds}, i) => element("div", {class: "fig-lane-cell"},
      element("span", {class: "fig-fill", style: `width: ${100 * seconds / slowest}%`, "data-seconds": seconds || ""}),
      element("b", {"data-cell": `time-${i + 1}`}, `${name}: ${seconds ? time_text(seconds) : "S and P do not fit into 141 GB"}` +
        (near === n || !seconds ? "" : `, at the speed of ${near} keys`)))));
  }
  /* The last one takes 20 seconds. */
  function race() {
    const fills = [...lanes.querySelectorAll("[data-seconds]")], most = Math.max(...fills.map(fill => Number(fill.dataset.seconds)));
    for (const fill of fills) if (fill.dataset.seconds)
      fill.animate([{width: 0}, {width: "100%"}], {duration: 2e4 * fill.dataset.seconds / most});
  }
  keys(root, {" ": race});
  root.append(element("div", {class: "fig-bar"}, labelled("length", slider), said), picture,
    element("div", {class: "fig-bar"}, button("race", "race (space)", race), "one head of many, head_dim 64, no mask"), lanes);
  restore();
};
