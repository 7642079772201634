/* schedule.js: two consumers share the tensor cores and the exponential units of a multiprocessor.  Each
 * has blocks of Q K^T, softmax and P V to issue; the order is the reader's. */
const SCHEDULE_BLOCKS = 3, SCHEDULE_UNITS = {q: 2, s: 3, v: 2}; /* of time */
const SCHEDULE_NAMES = {q: "Q Kᵀ", s: "softmax", v: "P V"};
const SCHEDULE_TURNS = "aq as bq bs av aq as bv bq bs av aq as bv bq bs av bv"; /* ping-pong */

FIGURES["schedule"] = function (root) {
  const {state, save} = figure_state(root, {order: ""}, restore);
  const picture = element("div", {class: "fig-wide"}), acts = element("div", {class: "fig-bar"});
  const said = element("p", {class: "fig-spoken", "aria-live": "polite", "data-cell": "schedule"});

  /* [{who, what, block, begin, end}] of an order, each as soon as its unit and what it needs are free. */
  function placed(order) {
    const free = {tensor: 0, exp: 0}, done = {}, count = {};
    return order.flatMap(word => {
      const [who, what] = word, block = count[word] = (count[word] ?? -1) + 1;
      const needs = what === "q" ? [`${who}v${block - 2}`] : what === "s" ? [`${who}q${block}`] : [`${who}s${block}`];
      if (block >= SCHEDULE_BLOCKS || needs.some(name => !(name in done) && !/-/.test(name))) { count[word]--; return []; }
      const unit = what === "s" ? "exp" : "tensor";
      const begin = Math.max(free[unit], ...needs.map(name => done[name] ?? 0)), end = begin + SCHEDULE_UNITS[what];
      free[unit] = done[`${who}${what}${block}`] = end;
      return [{who, what, block, begin, end}];
    });
  }
  const length = list => Math.max(0, ...list.map(({end}) => end));
  const words = () => state.order.split(".").filter(word => /^[ab][qsv]$/.test(word));
  const turns = length(placed(SCHEDULE_TURNS.split(" ")));
  function restore() {
    save();
    const order = words(), list = placed(order), all = 6 * SCHEDULE_BLOCKS, scale = 12;
    picture.replaceChildren(element("svg", {viewBox: `0 0 ${60 + scale * 44} 70`, class: "fig-bars", style: "min-width: 420px",
      role: "img", "aria-label": "tensor cores above, exponentials below"},
    element("text", {x: 0, y: 22}, "tensor"), element("text", {x: 0, y: 56}, "exp"),
    ...list.flatMap(({who, what, block, begin, end}) => [element("rect", {x: 50 + begin * scale, width: (end - begin) * scale - 1,
      y: what === "s" ? 40 : 6, height: 26, class: who === "a" ? "fig-score" : "fig-now"}),
    element("text", {x: 52 + begin * scale, y: what === "s" ? 56 : 22, class: "fig-on"}, `${what}${block}`)])));
    acts.replaceChildren(...["aq", "as", "av", "bq", "bs", "bv"].filter(word => placed([...order, word]).length > list.length)
      .map(word => button(`${word[0].toUpperCase()}: ${SCHEDULE_NAMES[word[1]]}`, `consumer ${word[0]} issues ${SCHEDULE_NAMES[word[1]]}`,
        () => set_order([...order, word]))),
    ...(order.length ? [button("undo", "undo", () => set_order(order.slice(0, -1)))] : []),
    button("ping-pong", "the order of rung 10", () => set_order(SCHEDULE_TURNS.split(" "))), button("start again", "start again", () => set_order([])));
    said.textContent = list.length < all ? `${list.length} of ${all} blocks placed, ${length(list)} units of time so far.`
      : `${length(list)} units of time; ping-pong takes ${turns}.` + (length(list) < turns ? " You have beaten it: that is the idea of rung 11." : "");
  }
  function set_order(order) {
    state.order = order.join(".");
    restore();
    if (!root.contains(document.activeElement)) root.focus();
  }
  keys(root, {});
  root.append(acts, picture, said);
  restore();
};
