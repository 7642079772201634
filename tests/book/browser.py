"""browser.py: the book in a real browser (headless Chromium, driven over WebDriver).

    browser.py --site build/book --native build/book.native --programs build --timeline FILE
               [--shots DIR]

Every page is opened at two widths: no message on the console, no request that leaves the
folder, nothing wider than the window.  Links and anchors must lead somewhere.  Each figure
is driven, and its numbers are compared with the trace of the C programs on the same input;
1000 random rows must give the bits of the same functions compiled for this machine.
Exit status 0, 1 with a line for each fault, or 77 where there is no browser."""
import argparse
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import ladder_figure

FAULTS = []


def fault(text):
    FAULTS.append(text)
    print(f"book: {text}")


class Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])


def check_links(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"(https?|mailto|data|javascript):", link):
                continue
            name, _, anchor = link.partition("#")
            to = (path.parent / urllib.parse.unquote(name)).resolve() if name else path
            here = path.relative_to(site)
            if not to.exists():
                fault(f"{here}: {link} leads nowhere")
            elif anchor and to.suffix == ".html" and not anchor.startswith("__") \
                    and not anchor.startswith("figure=") \
                    and urllib.parse.unquote(anchor) not in pages[to].anchors:
                fault(f"{here}: {link} has no such anchor")
    return sorted(pages)


def open_browser():
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        print("skipped: selenium is not installed")
        sys.exit(77)
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not driver or not chromium:
        print("skipped: there is no Chromium with its driver (apt: chromium chromium-driver)")
        sys.exit(77)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def listen(browser, page):
    """Messages and requests since the last call."""
    for entry in browser.get_log("browser"):
        fault(f"{page}: console: {entry['message'][:200]}")
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:")):
                fault(f"{page}: asks for {url}")


def check_pages(browser, site, pages):
    for width in (390, 1280):
        browser.set_window_size(width, 900)
        for path in pages:
            if width == 1280 and path.is_relative_to(site / "source"):
                continue # plain pages without a layout that depends on the width
            name = f"{path.relative_to(site)} at {width}"
            browser.get(path.as_uri())
            wide, window = browser.execute_script(
                "return [document.documentElement.scrollWidth, window.innerWidth]")
            if wide > window + 1:
                fault(f"{name}: {wide} pixels wide in a window of {window}")
            listen(browser, name)


def cell(browser, name):
    return browser.execute_script(
        "return document.querySelector(`[data-cell='${arguments[0]}']`).textContent.trim()", name)


def traced(program, row):
    """[(x, m, l, correction)] as the program's trace prints them, by loop."""
    out = subprocess.run([program, "trace", f"--row={row}"], text=True, check=True,
                         stdout=subprocess.PIPE).stdout
    return [line.split()[2:6] for line in out.split("\n") if line.startswith("element")]


def check_one_row(browser, site, programs):
    page = (site / "notes/figures/one_row.html").as_uri()
    keys = ["naive", "safe", "online"]
    for row in ("3,2,5,1", "0.5,-inf,12,-7,12", "89,1", "-110,-111", "1"):
        browser.get("about:blank")
        browser.get(f"{page}#figure=one-row&x={row}&type=f32&step=0")
        for program, key in zip(programs, keys):
            browser.find_element("css selector", "[data-figure]").send_keys("\ue011") # Home
            for at, (x, m, l, correction) in enumerate(traced(program, row), 1):
                browser.find_element("css selector", "[data-figure]").send_keys("\ue014")
                got = [cell(browser, f"{key}-{name}") for name in ("score", "m", "l", "correction")]
                want = [x, "–" if m == "-" or key == "naive" else m, "–" if l == "-" else l, correction]
                if got != want:
                    fault(f"one row {row}, {key}, step {at}: {got}, the program's trace {want}")
    box = browser.find_element("css selector", "[data-figure] input")
    box.clear()
    box.send_keys("89")
    browser.find_element("css selector", "[data-figure]").send_keys("\ue014")
    if cell(browser, "naive-l") != "inf":
        fault(f"one row: exp(89) is {cell(browser, 'naive-l')} in stage 1, not inf")
    if "x=89" not in browser.current_url:
        fault("one row: the address does not hold the typed scores")
    box.clear()
    box.send_keys("3, x")
    if not browser.find_element("css selector", ".fig-error").text:
        fault("one row: a wrong number is not complained about")
    listen(browser, "one row")


DRAW = """
let state = 1;
const draw = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0);
const wasm = load_module(), view = new DataView(new ArrayBuffer(4)), lines = [];
const bits = x => { view.setFloat32(0, x); return view.getUint32(0).toString(16).padStart(8, "0"); };
const hex = x => Number.isNaN(x) ? "7fc00000" : bits(x);
for (let r = 0; r < arguments[0]; r++) {
  const n = 1 + (draw() >>> 28), x = [];
  for (let j = 0; j < n; j++) {
    const value = ((draw() >>> 8) % 4001 - 2000) / 16;
    x.push(draw() >>> 28 === 0 ? -Infinity : value);
  }
  for (let s = 0; s < 3; s++)
    for (let type = 0; type < 3; type++) {
      const run = one_row_run(wasm, ONE_ROW_STAGES[s], x, ["f32", "f16", "bf16"][type] && type);
      const last = run.steps[run.steps.length - 1];
      lines.push([r, s, type, bits(last.l), bits(last.m), ...run.weights.map(hex)].join(" "));
    }
}
return lines;
"""


def check_bits(browser, site, native, rows):
    browser.get((site / "notes/figures/one_row.html").as_uri())
    got = browser.execute_script(DRAW, rows)
    want = subprocess.run([native, str(rows)], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.split("\n")[:-1]
    nan = re.compile(r"\b[7f]fc00000\b")
    different = [(a, b) for a, b in zip(got, want)
                 if nan.sub("nan", a) != nan.sub("nan", b)]
    if len(got) != len(want) or different:
        fault(f"{len(different)} of {len(want)} rows differ from the native functions: "
              f"{different[:1]}")
    print(f"book: {len(want)} rows of three stages and types compared bit for bit")


def check_parentheses(browser, site):
    page = (site / "notes/figures/parentheses.html").as_uri()
    answers = set()
    for tree in ("0.0.0.0.0", "4.3.2.1.0", "0.1.2.0.0", "2.2.0.1.0"):
        browser.get("about:blank")
        browser.get(f"{page}#figure=parentheses&tree={tree}")
        far = [abs(float(x)) for x in cell(browser, "distance from float64").split(",")]
        if not all(x <= 1e-6 for x in far):
            fault(f"parentheses {tree}: {far} from float64")
        answers.add(cell(browser, "o / l"))
        if not cell(browser, "mean with its count").endswith(" of 5"):
            fault(f"parentheses {tree}: the masked leaf is counted")
    if len(answers) > 2:
        fault(f"parentheses: answers {answers}")
    browser.get("about:blank")
    browser.get(page)
    for _ in range(5):
        items = browser.find_elements("css selector", ".fig-item")
        items[0].click()
        browser.find_elements("css selector", ".fig-item")[1].click()
    if cell(browser, "bit patterns") != "1 bit pattern from the trees tried so far":
        fault("parentheses: clicking does not merge")
    listen(browser, "parentheses")


def check_tiles(browser, site):
    page = (site / "notes/figures/tiles.html").as_uri()
    for nq, nk, d, causal in ((6, 7, 4, 0), (5, 3, 2, 1), (1, 1, 1, 0), (12, 12, 8, 1)):
        browser.get("about:blank")
        browser.get(f"{page}#figure=tiles&nq={nq}&nk={nk}&d={d}&causal={causal}&step=999")
        moved, outputs = [], set()
        for stage in range(1, 6):
            moved.append(sum(int(cell(browser, f"{stage}-bytes {way}"))
                             for way in ("read", "written")))
            outputs.add(cell(browser, f"{stage}-o of query {0}"))
        model = browser.execute_script(
            "const wasm = load_module();"
            "return [1, 2, 3].map(s => wasm.stage_bytes(s, ...arguments[0]))", [nq, nk, d, causal])
        if moved[:3] != model:
            fault(f"tiles {nq}x{nk}: the plans move {moved[:3]} bytes, the cost models {model}")
        if moved[3] != moved[2]:
            fault(f"tiles {nq}x{nk}: stage 4 moves {moved[3]} bytes, stage 3 {moved[2]}")
        values = [[float(x) for x in text.split(",")] for text in outputs]
        if any(abs(a - b) > 1e-5 for other in values for a, b in zip(values[0], other)):
            fault(f"tiles {nq}x{nk} causal {causal}: the stages disagree: {outputs}")
    listen(browser, "tiles")


def check_search(browser, site):
    from selenium.webdriver.support.ui import WebDriverWait
    browser.set_window_size(1280, 900)
    browser.get((site / "index.html").as_uri())
    box = browser.find_element("css selector", ".md-search__input")
    browser.execute_script("arguments[0].focus()", box)
    box.send_keys("monoid")
    try:
        WebDriverWait(browser, 20).until(lambda _: browser.execute_script(
            "return document.querySelectorAll('.md-search-result__item').length"))
    except Exception:
        fault("search: nothing is found for 'monoid'")
    listen(browser, "search")


def take_shots(browser, site, folder):
    states = {"one_row": "figure=one-row&x=3,2,5,89&type=f32&step=4",
              "parentheses": "figure=parentheses&tree=0.1.2.0.0",
              "tiles": "figure=tiles&step=5", "ladder": "figure=ladder"}
    pages = {name: f"notes/figures/{name}.html" for name in states}
    pages["ladder"] = ladder_figure.PAGE
    folder.mkdir(parents=True, exist_ok=True)
    for name, state in states.items():
        for width, suffix in ((1280, ""), (390, "_390")):
            browser.set_window_size(width, 1400)
            browser.get("about:blank")
            browser.get((site / pages[name]).as_uri() + "#" + state)
            browser.find_element("css selector", "[data-figure]").screenshot(
                str(folder / f"{name}{suffix}.png"))
        browser.get(site.joinpath("index.html").as_uri())
        browser.save_screenshot(str(folder / f"index_{width}.png"))


def main():
    parser = argparse.ArgumentParser(description="Tests the book in a browser.")
    parser.add_argument("--site", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--native", required=True)
    parser.add_argument("--timeline", type=pathlib.Path, required=True)
    parser.add_argument("--shots", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    programs = [str(next(arguments.programs.glob(f"0{n}_*"))) for n in (1, 2, 3)]
    browser = open_browser()
    try:
        pages = check_links(site)
        check_pages(browser, site, pages)
        check_one_row(browser, site, programs)
        check_bits(browser, site, arguments.native, arguments.rows)
        check_parentheses(browser, site)
        check_tiles(browser, site)
        ladder_figure.check(browser, site, arguments.timeline, fault, cell, listen)
        check_search(browser, site)
        if arguments.shots:
            take_shots(browser, site, arguments.shots)
    finally:
        browser.quit()
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if size > 6e6:
        fault(f"the book has {size / 1e6:.1f} MB, more than 6")
    print(f"book: {len(pages)} pages, {size / 1e6:.1f} MB, {len(FAULTS)} faults")
    sys.exit(1 if FAULTS else 0)


if __name__ == "__main__":
    main()
