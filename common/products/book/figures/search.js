/* search.js: search in the text of all pages, which is loaded when somebody first looks for something. */
{
  const top = document.currentScript.src.replace(/figures\/figures\.js.*/, "");
  const found = element("ol", {id: "fig-found", hidden: ""});
  const input = element("input", {type: "search", placeholder: "Search", "aria-label": "Search the book",
    "aria-controls": "fig-found", spellcheck: "false", input: look, focus: look});
  const said = element("p", {role: "status", class: "fig-unseen"});
  let asked = false;

  /* The sections that hold all words, those with a word in a heading first. */
  function look() {
    if (!asked) document.head.append(element("script", {src: `${top}figures/search_text.js`, load: look}));
    asked = true;
    if (typeof SEARCH_TEXT === "undefined") return;
    const words = input.value.toLowerCase().split(/\s+/).filter(word => word);
    const hits = !words.length ? [] : SEARCH_TEXT.flatMap(([link, page, heading, text], place) => {
      const named = `${page} ${heading}`.toLowerCase(), low = text.toLowerCase();
      const rank = words.filter(word => named.includes(word)).length;
      return words.every(word => low.includes(word) || named.includes(word))
        ? [{link, page, heading, text, rank, place, at: Math.max(0, low.indexOf(words[0]))}] : [];
    }).sort((a, b) => b.rank - a.rank || a.place - b.place);
    said.textContent = words.length ? `${hits.length} sections found` : "";
    found.hidden = !words.length;
    found.replaceChildren(...hits.slice(0, 30).map(({link, page, heading, text, at}) => element("li", {},
      element("a", {href: top + link}, page === heading ? page : `${page}: ${heading}`),
      element("p", {}, `${at > 40 ? "… " : ""}${text.slice(Math.max(0, at - 40), at)}`,
        element("mark", {}, text.slice(at, at + words[0].length).toLowerCase() === words[0]
          ? text.slice(at, at + words[0].length) : ""),
        text.slice(at + words[0].length, at + 120)))),
      ...(hits.length ? [] : [element("li", {}, "Nothing found.")]));
  }
  const form = element("search", {class: "fig-search"}, input, found, said);
  document.querySelector(".md-header__inner").append(form);
  document.addEventListener("keydown", event => {
    const busy = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName) || event.ctrlKey || event.metaKey;
    if (event.key === "Escape") { found.hidden = true; }
    if (busy || !["/", "s", "f"].includes(event.key)) return;
    event.preventDefault();
    input.focus();
  });
  document.addEventListener("click", event => { if (!form.contains(event.target)) found.hidden = true; });
}
