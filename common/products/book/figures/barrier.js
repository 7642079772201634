/* barrier.js: an mbarrier of rung 9: what is missing, the phase bit, and whom a wait lets through. */
const BARRIER_ACTS = {a: "arrive", e: "arrive.expect_tx 16 KiB", b: "8 KiB land"};

FIGURES["mbarrier"] = function (root) {
  const {state, save} = figure_state(root, {kind: "full", acts: ""}, show);
  const cells = Object.fromEntries(["arrivals missing", "bytes missing", "phase bit", "wait for parity 0", "wait for parity 1"]
    .map(name => [name, element("td", {"data-cell": name})]));
  const said = element("p", {class: "fig-spoken", "aria-live": "polite"});
  const kind = choice("kind", [["full", "full: the producer arrives, TMA brings bytes"], ["empty", "empty: two consumers arrive"]],
    value => { state.kind = value; state.acts = ""; show(); });
  const act = letter => () => { state.acts += letter; show(); };
  const acts = element("span", {class: "fig-bar"});

  /* The barrier after all acts; a phase is complete when nothing is missing. */
  function show() {
    save();
    if (kind.value !== state.kind) kind.value = state.kind = state.kind === "empty" ? "empty" : "full";
    const arrivals = state.kind === "full" ? 1 : 2;
    let missing = arrivals, bytes = 0, phase = 0, flipped = false;
    for (const letter of state.acts) {
      if (letter === "b") bytes -= 8;
      else missing--;
      if (letter === "e") bytes += 16;
      flipped = missing === 0 && bytes === 0;
      if (flipped) [missing, phase] = [arrivals, 1 - phase];
    }
    const wait = parity => phase !== parity ? "lets through: that phase is complete" : "waits";
    Object.values(cells).forEach((cell, i) => { cell.textContent =
      [missing, `${bytes} KiB`, phase, wait(0), wait(1)][i]; });
    const now = acts.contains(document.activeElement);
    acts.replaceChildren(...(state.kind === "empty" ? ["a"] : missing ? ["e"] : ["b"])
      .map(letter => button(BARRIER_ACTS[letter], BARRIER_ACTS[letter], act(letter))));
    if (now) acts.firstChild.focus();
    said.textContent = flipped ? "Nothing is missing: the phase bit flips, and the count of arrivals starts again."
      : state.acts ? "Something is still missing." : "A fresh barrier: a wait for parity 1 passes, as if an earlier phase had ended.";
  }
  keys(root, {r: () => { state.acts = ""; show(); }});
  root.append(element("div", {class: "fig-bar"}, labelled("barrier", kind), acts,
    button("start again", "start again (r)", () => { state.acts = ""; show(); })),
  element("table", {class: "fig-state"}, ...Object.entries(cells).map(([name, cell]) =>
    element("tr", {}, element("th", {scope: "row"}, name), cell))), said);
  show();
};
