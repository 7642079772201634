/* figure.js: what the interactive figures share.
 *
 * A figure is a function (root, wasm) that fills the element `root`.  The module `wasm` holds the
 * repository's C functions, as text, because a page opened from a file may not fetch one.  A figure
 * keeps its state in the address. */
const FIGURES = {};

/* What is right in a C program's %.6g. */
function number_text(x) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "-inf" : "inf";
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const [digits, power] = x.toExponential(5).split("e").map((part, i) => i ? Number(part) : part);
  const short = text => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return power >= -4 && power < 6 ? short(x.toFixed(5 - power))
    : `${short(digits)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/* "3, 2, -inf" -> [3, 2, -Infinity]; null where a part is no number. */
function parse_numbers(text, most) {
  const parts = text.split(/[\s,;]+/).filter(part => part !== "");
  const special = {"inf": Infinity, "+inf": Infinity, "-inf": -Infinity, "nan": NaN};
  const numbers = parts.map(part => special[part.toLowerCase()] ?? Number(part));
  const wrong = numbers.some((x, i) => Number.isNaN(x) && parts[i].toLowerCase() !== "nan");
  return wrong || !numbers.length || numbers.length > most ? null : numbers;
}

/* <tag attributes...>children</tag>; a function among the attributes listens to its event. */
function element(tag, attributes = {}, ...children) {
  const space = ["svg", "rect", "line", "text", "g", "path", "circle", "title"].includes(tag)
    ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const set = (target, attributes) => {
  for (const [name, value] of Object.entries(attributes)) target.setAttribute(name, value);
};

const labelled = (text, control) =>
  element("label", {class: "fig-label"}, element("span", {}, text), " ", control);

const button = (text, help, act) =>
  element("button", {type: "button", title: help, "aria-label": help, click: act}, text);

/* A choice among options [value, text]. */
const choice = (name, options, change) =>
  element("select", {"data-input": name, change: event => change(event.target.value)},
    ...options.map(([key, text]) => element("option", {value: key}, text)));

/* A line that complains about an input, read aloud when it changes. */
function complaint() {
  const line = element("p", {class: "fig-error", role: "alert"});
  return {line, say: (control, text) => {
    line.textContent = text;
    if (control) control.setAttribute("aria-invalid", String(text !== ""));
    return text === "";
  }};
}

/* A figure's keys: {key: action}; none reaches the theme's own, none is taken from an input. */
function keys(root, actions) {
  root.tabIndex = 0;
  root.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.length === 1) event.stopPropagation(); // n and p would leave the page
    if (["INPUT", "SELECT"].includes(event.target.tagName) || !(event.key in actions)) return;
    if (event.target !== root && [" ", "Enter"].includes(event.key)) return;
    actions[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });
}

/* Buttons and keys for a sequence of steps: first, back, play, on, last.
 *   show(step) draws one; steps() says how many there are; the step is a part of the state. */
function stepper(root, {state, save}, steps, show) {
  let at = 0, wanted = 0, timer = null; // a row that is typed anew is shorter for a moment
  const name = element("output", {class: "fig-step"});
  function go(to) {
    wanted = Math.max(0, Math.round(to) || 0);
    at = Math.min(steps(), wanted);
    name.textContent = `step ${at} of ${steps()}`;
    if (at === steps()) stop();
    state.step = String(at);
    save();
    show(at);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "play";
  }
  function toggle() {
    if (timer) return stop();
    if (at === steps()) go(0);
    play.textContent = "pause";
    timer = setInterval(() => go(at + 1), 700);
  }
  const by = to => () => { stop(); go(to()); };
  const play = button("play", "play or pause (space)", toggle);
  const first = by(() => 0), back = by(() => at - 1), on = by(() => at + 1), last = by(steps);
  const bar = element("div", {class: "fig-bar"},
    button("|◀", "first step (Home)", first), button("◀", "one step back (left arrow)", back),
    play, button("▶", "one step on (right arrow)", on), button("▶|", "last step (End)", last),
    name);
  keys(root, {ArrowRight: on, ArrowLeft: back, Home: first, End: last, " ": toggle});
  return {bar, go, wanted: () => wanted};
}

/* State of the figures in the address: #figure=one-row&x=3,2,5,1&figure=tiles&step=2, the one that
 * was touched last first.  What the page says (data-state) comes before the defaults; a link, or an
 * address typed by hand, before both.
 *   changed()  called when the address asks for another state */
const ADDRESS = {figures: {}, written: null, timer: null};

/* {figure: its part of the address} */
function asked_figures() {
  const parts = decodeURIComponent(location.hash.slice(1)).split(/(?:^|&)figure=/).slice(1);
  return Object.fromEntries(parts.map(part => {
    const [name, ...state] = part.split("&");
    return [name, new URLSearchParams(state.join("&"))];
  }));
}

function figure_state(root, defaults, changed) {
  const figure = root.dataset.figure, state = {};
  function read() {
    const asked = asked_figures(), mine = asked[figure];
    Object.assign(state, defaults);
    for (const source of [new URLSearchParams(root.dataset.state || ""), ...(mine ? [mine] : [])])
      for (const [name, value] of source) if (name in defaults) state[name] = value;
    if (mine) ADDRESS.figures[figure] = state;
    return mine && Object.keys(asked)[0] === figure;
  }
  /* A link leads to its figure; a page that is loaded again stays where it was. */
  const [loaded] = performance.getEntriesByType("navigation");
  if (read() && (!loaded || loaded.type !== "reload"))
    setTimeout(() => root.scrollIntoView({block: "start"}), 100);
  window.addEventListener("hashchange", () => {
    if (location.hash === ADDRESS.written || !(figure in asked_figures())) return;
    const first = read();
    changed();
    if (first) root.scrollIntoView({block: "nearest"});
  });
  /* Browsers refuse more than some 200 changes of the address in half a minute. */
  function save() {
    const {[figure]: _, ...others} = ADDRESS.figures;
    ADDRESS.figures = {[figure]: state, ...others};
    clearTimeout(ADDRESS.timer);
    ADDRESS.timer = setTimeout(() => {
      const text = Object.entries(ADDRESS.figures).map(([name, values]) =>
        new URLSearchParams({figure: name, ...values}).toString()).join("&");
      ADDRESS.written = "#" + text.replaceAll("%2C", ",").replaceAll("%3A", ":");
      history.replaceState(null, "", ADDRESS.written);
    }, 200);
  }
  /* The first drawing does not touch the address of the page. */
  let drawn = false;
  return {state, save: () => { if (drawn) save(); drawn = true; }};
}

function load_module() {
  const bytes = Uint8Array.from(atob(FIGURES_WASM), letter => letter.charCodeAt(0));
  const imports = {env: {logf: x => Math.fround(Math.log(x)), exp: Math.exp,
    tanhf: x => Math.fround(Math.tanh(x))}};
  const made = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports).exports;
  const floats = (address, n) => new Float32Array(made.memory.buffer, address, n);
  const doubles = (address, n) => new Float64Array(made.memory.buffer, address, n);
  return {...made, floats, doubles};
}

/* Each figure in place of the picture that stands for it without a script, or without its data. */
function draw_figures() {
  let wasm = null;
  for (const root of document.querySelectorAll("[data-figure]")) {
    if (root.dataset.drawn || !FIGURES[root.dataset.figure]) continue;
    root.dataset.drawn = "yes";
    wasm = wasm || load_module();
    root.textContent = "";
    FIGURES[root.dataset.figure](root, wasm);
  }
}

/* What scrolls sideways is reached by the Tab key. */
function focus_scrolling() {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, pre > code, .formula, .fig-wide"))
    if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
}

window.addEventListener("load", () => setTimeout(focus_scrolling));
window.addEventListener("resize", focus_scrolling);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", draw_figures);
else draw_figures();
