/* parentheses.js: a row of leaves, merged in any order of parentheses, as a tree. */
const PARENTHESES_LEAVES = "0.4:1.3:0.5, 5.1:0.2:0.4, -inf:9:9, 3.5:0.9:1.3, 4.3:0.6:1.2, 3.6:0.4:1.1";
const MOST_LEAVES = 12;

/* "score:v0:v1, ..." -> leaves, or null. */
function parse_leaves(text) {
  const leaves = text.split(",").map(part => part.trim()).filter(part => part)
    .map(part => parse_numbers(part.replaceAll(":", " "), 3));
  return leaves.length && leaves.length <= MOST_LEAVES &&
    leaves.every(leaf => leaf && leaf.length === 3) ? leaves : null;
}

/* The bits of a float32, as hexadecimal digits. */
function float_bits(x) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  return view.getUint32(0).toString(16).padStart(8, "0");
}

/* The distance of x from `exact`, in units of the last place of float32. */
const ulps = (x, exact) => exact === 0 ? (x === 0 ? 0 : Infinity)
  : (x - exact) / 2 ** (Math.floor(Math.log2(Math.abs(exact))) - 23);

/* All trees of the nodes 0 .. n - 1: {bits: how many trees give them}.  Results of the keys i .. j
 * are kept once for each bit pattern, so twelve leaves and their 58,786 trees take a moment. */
function all_trees(wasm, n) {
  const [a, b, z] = [61, 62, 63], get = node => [...wasm.floats(wasm.node_address(node), 4)];
  const put = (node, values) => wasm.floats(wasm.node_address(node), 4).set(values);
  const found = {};
  for (let i = 0; i < n; i++) found[`${i} ${i}`] = new Map([["", {values: get(i), trees: 1}]]);
  for (let size = 1; size < n; size++)
    for (let i = 0; i + size < n; i++) {
      const all = found[`${i} ${i + size}`] = new Map();
      for (let cut = i; cut < i + size; cut++)
        for (const left of found[`${i} ${cut}`].values())
          for (const right of found[`${cut + 1} ${i + size}`].values()) {
            put(a, left.values);
            put(b, right.values);
            wasm.node_merge(z, a, b);
            const values = get(z), bits = values.map(float_bits).join(" ");
            const old = all.get(bits) || {values, trees: 0};
            all.set(bits, {values, trees: old.trees + left.trees * right.trees});
          }
    }
  return found[`0 ${n - 1}`];
}

/* Neighbours in pairs, then the pairs, until one is left. */
function in_pairs(n) {
  const merges = [];
  for (; n > 1; n = Math.ceil(n / 2))
    for (let i = 0; i < Math.floor(n / 2); i++) merges.push(i);
  return merges;
}

FIGURES["parentheses"] = function (root, wasm) {
  const {state, save} = figure_state(root,
    {leaves: PARENTHESES_LEAVES, tree: ""}, restore);
  let leaves = [], nodes = [], roots = [];
  const wrong = complaint();
  const input = element("input", {size: 58, spellcheck: "false",
    "aria-label": "leaves, each as score:v0:v1", change: () => {
      const read = parse_leaves(input.value);
      if (!wrong.say(input, read ? "" : "Give 1 to 12 leaves such as 1:1:0, 4:0:1, -inf:9:9.")) return;
      state.leaves = input.value;
      leaves = read;
      restart();
    }});
  const picture = element("div", {class: "fig-wide"}), result = element("div");
  const history = element("p", {"data-cell": "bit patterns", "aria-live": "polite"});

  function value(node) {
    const [m, l, o0, o1] = wasm.floats(wasm.node_address(node), 4);
    const [, exact_l, e0, e1] = wasm.doubles(wasm.node_exact(node), 4);
    wasm.node_finish(node);
    const o = [...wasm.floats(wasm.arena_address(), 4)];
    const [count, mean, bare] = wasm.floats(wasm.node_contrast(node), 3);
    const off = [ulps(l, exact_l), ulps(o0, e0), ulps(o1, e1)];
    return {m, l, o, count, mean, bare, off: off.reduce((a, b) => Math.abs(a) > Math.abs(b) ? a : b),
      bits: `${float_bits(l)} ${float_bits(o[0])} ${float_bits(o[1])}`};
  }
  function restart() {
    nodes = leaves.map(([score, v0, v1], i) => {
      wasm.node_leaf(i, score, v0, v1);
      return {text: String(i + 1), x: i, y: 0, children: []};
    });
    roots = nodes.map((_, i) => i);
    state.tree = "";
    history.textContent = "";
    draw();
  }
  /* Merges root i with its right neighbour. */
  function merge(i, quiet) {
    const [a, b] = [roots[i], roots[i + 1]], node = nodes.length;
    wasm.node_merge(node, a, b);
    nodes.push({text: `(${nodes[a].text} ${nodes[b].text})`, children: [a, b],
      x: (nodes[a].x + nodes[b].x) / 2, y: 1 + Math.max(nodes[a].y, nodes[b].y)});
    roots.splice(i, 2, node);
    state.tree += (state.tree ? "." : "") + i;
    if (!quiet) draw(Math.min(i, roots.length - 2));
  }
  function build(merges) {
    restart();
    for (const i of merges) if (i >= 0 && i + 1 < roots.length) merge(i, true);
    draw();
  }
  function try_all() {
    const found = [...all_trees(wasm, leaves.length).values()];
    const trees = found.reduce((sum, {trees: n}) => sum + n, 0);
    build(in_pairs(leaves.length));
    history.textContent = `${trees} tree${trees > 1 ? "s" : ""}, ${found.length} bit pattern` +
      `${found.length > 1 ? "s" : ""}: the law holds up to the last bits.`;
  }
  function node_view(node, at) {
    const {m, l, off, bits} = value(node), {x, y} = at(node), unit = m === -Infinity;
    const size = Math.min(1, Math.abs(off) / 3);
    return element("g", {"data-node": nodes[node].text, class: unit ? "fig-unit" : ""},
      element("circle", {cx: x, cy: y, r: 5, class: "fig-node",
        style: `fill-opacity: ${(0.15 + 0.85 * size).toFixed(2)}`}),
      element("text", {x, y: y - 9, "text-anchor": "middle"},
        unit ? "unit" : `${number_text(Math.round(l * 1e4) / 1e4)}`),
      element("text", {x, y: y + 16, "text-anchor": "middle", class: "fig-off"},
        unit || off === 0 ? "" : `${off > 0 ? "+" : "−"}${Math.abs(off).toFixed(2)}`),
      element("title", {}, unit ? "the unit" : `m ${number_text(m)}, l ${number_text(l)}, ` +
        `${off.toFixed(2)} units of the last place; bits ${bits}`));
  }
  /* Leaves at the foot, each merge above its two parts; between neighbours a button. */
  function draw(focus = -1) {
    save();
    const step = 74, level = 46, tall = Math.max(...nodes.map(node => node.y));
    const width = step * leaves.length, height = 40 + level * tall + 34;
    const at = node => ({x: step / 2 + step * nodes[node].x, y: height - 34 - level * nodes[node].y});
    const svg = element("svg", {viewBox: `0 0 ${width} ${height}`, class: "fig-tree",
      style: `max-width: ${width}px; min-width: ${50 * leaves.length}px`, role: "group",
      "aria-label": roots.map(node => nodes[node].text).join(" ")});
    nodes.forEach((node, i) => node.children.forEach(child => {
      const [from, to] = [at(child), at(i)];
      svg.append(element("path", {class: "fig-edge", d: `M ${from.x} ${from.y} L ${to.x} ${to.y}`}));
    }));
    nodes.forEach((_, i) => svg.append(node_view(i, at)));
    roots.slice(1).forEach((right, i) => {
      const a = at(roots[i]), b = at(right), act = () => merge(i);
      svg.append(element("g", {class: "fig-merge", role: "button", tabindex: 0, "data-merge": i,
        "aria-label": `merge ${nodes[roots[i]].text} and ${nodes[right].text}`, click: act, keydown: event => {
          if ([" ", "Enter"].includes(event.key)) { event.preventDefault(); act(); }
        }}, element("circle", {cx: (a.x + b.x) / 2, cy: Math.min(a.y, b.y), r: 33, class: "fig-reach"}),
        element("circle", {cx: (a.x + b.x) / 2, cy: Math.min(a.y, b.y), r: 11}),
        element("text", {x: (a.x + b.x) / 2, y: Math.min(a.y, b.y) + 4, "text-anchor": "middle"}, "·")));
    });
    const inside = root.contains(document.activeElement);
    picture.replaceChildren(svg);
    const next = svg.querySelector(`[data-merge="${focus}"]`);
    if (next) next.focus();
    else if (inside && !root.contains(document.activeElement)) root.focus();
    conclude();
  }
  function conclude() {
    if (roots.length > 1) return result.replaceChildren();
    const it = value(roots[0]);
    const cell = (name, text) => element("tr", {}, element("th", {scope: "row"}, name),
      element("td", {"data-cell": name}, text));
    result.replaceChildren(element("table", {class: "fig-state"},
      cell("tree", nodes[roots[0]].text), cell("m", number_text(it.m)), cell("l", number_text(it.l)),
      cell("o / l", it.o.slice(0, 2).map(number_text).join(", ")),
      cell("distance from float64", it.o.slice(2).map(number_text).join(", ")),
      cell("bits of l, o", it.bits),
      cell("mean with its count", `${number_text(it.mean)} of ${number_text(it.count)}`),
      cell("mean without a count", `${number_text(it.bare)} (depends on the tree)`)));
  }
  function restore() {
    const read = parse_leaves(state.leaves), tree = state.tree;
    wrong.say(input, read ? "" : `${state.leaves} are no leaves.`);
    leaves = read || parse_leaves(PARENTHESES_LEAVES);
    input.value = read ? state.leaves : PARENTHESES_LEAVES;
    build(tree.split(".").filter(part => part !== "").map(Number));
  }
  keys(root, {r: restart, a: try_all});
  root.append(element("div", {class: "fig-bar"}, labelled("keys, each score:value:value", input)), wrong.line,
    element("div", {class: "fig-bar"}, button("start again", "start again (r)", restart),
      button("from the left", "from the left", () => build(leaves.slice(1).map(() => 0))),
      button("from the right", "from the right", () => build(leaves.slice(1).map((_, i) => leaves.length - 2 - i))),
      button("in pairs", "in pairs", () => build(in_pairs(leaves.length))),
      button("all trees", "all trees (a)", try_all)),
    picture, result, history);
  restore();
};
