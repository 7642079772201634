/* figure.js: what the interactive figures share.
 *
 * A figure is a function (root, wasm) that fills the element `root`.  The module
 * `wasm` holds the repository's C functions; it arrives as text in figures.wasm.js, because
 * a page opened from a file may not fetch one.  A figure keeps its state in the address. */
"use strict";

const FIGURES = {};

/* What is right in a C program's %.6g. */
function number_text(x) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "-inf" : "inf";
  if (Object.is(x, -0)) return "-0";
  if (x === 0) return "0";
  let [digits, power] = x.toExponential(5).split("e");
  power = Number(power);
  if (power < -4 || power >= 6) {
    if (digits.includes(".")) digits = digits.replace(/\.?0+$/, "");
    const size = String(Math.abs(power)).padStart(2, "0");
    return `${digits}e${power < 0 ? "-" : "+"}${size}`;
  }
  const fixed = x.toFixed(5 - power);
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
}

/* "3, 2, -inf" -> [3, 2, -Infinity]; null where a part is no number. */
function parse_numbers(text, most) {
  const parts = text.split(/[\s,;]+/).filter(part => part !== "");
  const special = {"inf": Infinity, "+inf": Infinity, "-inf": -Infinity, "nan": NaN};
  const numbers = parts.map(part => {
    const low = part.toLowerCase();
    return low in special ? special[low] : Number(low);
  });
  const wrong = numbers.some((x, i) => Number.isNaN(x) && parts[i].toLowerCase() !== "nan");
  return wrong || !numbers.length || numbers.length > most ? null : numbers;
}

/* <tag attributes...>children</tag>; a function among the attributes listens to its event. */
function element(tag, attributes = {}, ...children) {
  const space = ["svg", "rect", "line", "text", "g", "path", "title"].includes(tag)
    ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/* A labelled control. */
function labelled(text, control) {
  return element("label", {class: "fig-label"}, text, " ", control);
}

/* Buttons and keys for a sequence of steps: first, back, play, on, last.
 *   show(step) draws one; steps() says how many there are. */
function stepper(root, steps, show) {
  let at = 0, timer = null;
  const name = element("output", {class: "fig-step"});
  function go(to) {
    at = Math.max(0, Math.min(steps(), to));
    name.textContent = `step ${at} of ${steps()}`;
    if (at === steps()) stop();
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
  const button = (text, help, act) =>
    element("button", {type: "button", title: help, "aria-label": help, click: act}, text);
  const play = button("play", "play or pause (space)", toggle);
  const bar = element("div", {class: "fig-bar"},
    button("|◀", "first step (Home)", () => { stop(); go(0); }),
    button("◀", "one step back (left arrow)", () => { stop(); go(at - 1); }), play,
    button("▶", "one step on (right arrow)", () => { stop(); go(at + 1); }),
    button("▶|", "last step (End)", () => { stop(); go(steps()); }), name);
  root.tabIndex = 0;
  root.addEventListener("keydown", event => {
    if (["INPUT", "SELECT"].includes(event.target.tagName)) return;
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: steps()}[event.key];
    if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else if (to === undefined) return;
    else { stop(); go(to); }
    event.preventDefault();
  });
  return {bar, go, at: () => at};
}

/* State of a figure in the address: #figure=one-row&x=3,2,5,1. */
function address_state(figure, defaults) {
  const state = {...defaults};
  const read = new URLSearchParams(location.hash.slice(1));
  if (read.get("figure") === figure)
    for (const name of Object.keys(defaults))
      if (read.has(name)) state[name] = read.get(name);
  function save() {
    const written = new URLSearchParams({figure, ...state});
    history.replaceState(null, "", "#" + written.toString().replaceAll("%2C", ","));
  }
  return {state, save};
}

function load_module() {
  const bytes = Uint8Array.from(atob(FIGURES_WASM), letter => letter.charCodeAt(0));
  const imports = {env: {logf: x => Math.fround(Math.log(x)), exp: Math.exp,
    tanhf: x => Math.fround(Math.tanh(x))}};
  const made = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports).exports;
  const floats = (address, n) => new Float32Array(made.memory.buffer, address, n);
  return {...made, floats};
}

function draw_figures() {
  let wasm = null;
  for (const root of document.querySelectorAll("[data-figure]")) {
    if (root.dataset.drawn) continue;
    root.dataset.drawn = "yes";
    wasm = wasm || load_module();
    root.textContent = "";
    FIGURES[root.dataset.figure](root, wasm);
  }
}

if (typeof document !== "undefined") {
  if (document.readyState === "loading")
    document.addEventListener("DOMContentLoaded", draw_figures);
  else draw_figures();
}
