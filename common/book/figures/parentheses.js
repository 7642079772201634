/* parentheses.js: a row of leaves, merged in any order of parentheses. */
"use strict";

const PARENTHESES_LEAVES = "1.3:1:0, 4.1:0:1, -inf:9:9, 2.2:1:0.7, 4.6:0.1:2, 3.9:1:0";

/* "score:v0:v1, ..." -> leaves, or null. */
function parse_leaves(text) {
  const leaves = text.split(",").map(part => part.trim()).filter(part => part)
    .map(part => parse_numbers(part.replaceAll(":", " "), 3));
  return leaves.length && leaves.length <= 12 &&
    leaves.every(leaf => leaf && leaf.length === 3) ? leaves : null;
}

/* The bits of a float32, as hexadecimal digits. */
function float_bits(x) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  return view.getUint32(0).toString(16).padStart(8, "0");
}

FIGURES["parentheses"] = function (root, wasm) {
  const {state, save} = address_state("parentheses", {leaves: PARENTHESES_LEAVES, tree: ""});
  let leaves = parse_leaves(state.leaves) || parse_leaves(PARENTHESES_LEAVES);
  let items = [], merges = [], picked = -1;
  const seen = new Map();
  const input = element("input", {value: state.leaves, size: 44, spellcheck: "false",
    "aria-label": "leaves, each as score:v0:v1", change: () => {
      const read = parse_leaves(input.value);
      error.textContent = read ? "" : "Give 1 to 12 leaves such as 1:1:0, 4:0:1, -inf:9:9.";
      if (!read) return;
      leaves = read;
      state.leaves = input.value;
      seen.clear();
      restart();
    }});
  const error = element("p", {class: "fig-error", role: "alert"});
  const row = element("div", {class: "fig-items"}), result = element("div");
  const history = element("div");

  function restart() {
    items = leaves.map(([score, v0, v1], i) => {
      wasm.node_leaf(i, score, v0, v1);
      return {node: i, text: String(i + 1), masked: score === -Infinity};
    });
    merges = [];
    picked = -1;
    draw();
  }
  /* Merges item i with its right neighbour. */
  function merge(i) {
    const node = leaves.length + merges.length;
    wasm.node_merge(node, items[i].node, items[i + 1].node);
    merges.push(i);
    items.splice(i, 2, {node, text: `(${items[i].text} ${items[i + 1].text})`});
    picked = -1;
    draw();
  }
  function click(i) {
    if (picked === i) picked = -1;
    else if (picked >= 0 && Math.abs(picked - i) === 1) return merge(Math.min(picked, i));
    else picked = i;
    draw();
  }
  function finish(choose) {
    restart();
    while (items.length > 1) merge(choose(items.length - 1));
  }
  function values(node) {
    const [m, l] = wasm.floats(wasm.node_address(node), 2);
    wasm.node_finish(node);
    const o = [...wasm.floats(wasm.arena_address(), 4)];
    const [count, mean, bare] = wasm.floats(wasm.node_contrast(node), 3);
    return {m, l, o, count, mean, bare};
  }
  function draw() {
    state.tree = merges.join(".");
    save();
    row.replaceChildren(...items.map((item, i) => {
      const {m, l} = values(item.node);
      return element("button", {type: "button", click: () => click(i),
        class: "fig-item" + (i === picked ? " fig-now" : "") + (m === -Infinity ? " fig-unit" : ""),
        "aria-pressed": String(i === picked)}, element("b", {}, item.text),
        m === -Infinity ? "the unit" : `m ${number_text(m)}  l ${number_text(l)}`);
    }));
    if (items.length > 1) {
      result.replaceChildren(element("p", {}, picked < 0
        ? "Choose an item, then its neighbour." : "Now choose its neighbour."));
      return;
    }
    const it = values(items[0].node);
    const bits = `${float_bits(it.l)} ${float_bits(it.o[0])} ${float_bits(it.o[1])}`;
    seen.set(bits, [...(seen.get(bits) || []), items[0].text].slice(-3));
    const cell = (name, text) => element("tr", {}, element("th", {scope: "row"}, name),
      element("td", {"data-cell": name}, text));
    result.replaceChildren(element("table", {class: "fig-state"},
      cell("m", number_text(it.m)), cell("l", number_text(it.l)),
      cell("o / l", it.o.slice(0, 2).map(number_text).join(", ")),
      cell("distance from float64", it.o.slice(2).map(number_text).join(", ")),
      cell("bits of l, o", bits),
      cell("mean with its count", `${number_text(it.mean)} of ${number_text(it.count)}`),
      cell("mean without a count", `${number_text(it.bare)} (depends on the tree)`)));
    history.replaceChildren(element("p", {"data-cell": "bit patterns"},
      `${seen.size} bit pattern${seen.size > 1 ? "s" : ""} from the trees tried so far`));
  }
  const button = (text, act) => element("button", {type: "button", click: act}, text);
  root.tabIndex = 0;
  root.addEventListener("keydown", event => {
    if (event.target.tagName === "INPUT") return;
    if (event.key === "r") restart();
    else if (event.key === "s") finish(n => Math.floor(Math.random() * n));
    else return;
    event.preventDefault();
  });
  root.append(element("div", {class: "fig-bar"}, labelled("leaves score:v0:v1", input)), error,
    element("div", {class: "fig-bar"}, button("start again (r)", restart),
      button("from the left", () => finish(() => 0)),
      button("from the right", () => finish(n => n - 1)),
      button("in pairs", () => finish(n => merges.length % Math.max(1, n))),
      button("shuffle (s)", () => finish(n => Math.floor(Math.random() * n)))),
    row, result, history);
  const tree = state.tree;
  restart();
  if (tree) for (const at of tree.split(".").map(Number))
    if (at >= 0 && at < items.length - 1) merge(at);
};
