"""The book in a real browser: its pages, its search, and the figures, whose numbers are compared
with the trace of the C programs on the same input."""
import fcntl
import hashlib
import os
import re

import numpy as np
import pytest

import webdriver
from helpers import BUILD, OUTSIDE, ROOT, run

FIGURE = "[data-figure]"


@pytest.fixture(scope="session")
def site():
    """The site that BOOK names, or one that is built, once for all processes of a run; the tools
    are looked for, never installed."""
    found = run("sh", "common/core/make/require.sh", "wasm", "venv", "browser", cwd=ROOT, want=None,
                env={"NO_INSTALL": "1"})
    if found.code:
        pytest.skip("the book needs " + found.err.split("\n")[0])
    this, mark = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())), BUILD / "book.run"
    with open(BUILD / "book.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if "BOOK" not in os.environ and (not mark.exists() or mark.read_text() != this):
            done = run("make", f"BUILD={os.environ.get('BUILD', 'build')}", "book", cwd=ROOT,
                       env=OUTSIDE, want=None)
            if "No matching distribution" in done.err + done.out:
                pytest.skip("MkDocs cannot be installed here")
            assert done.code == 0, done
            mark.write_text(this)
    return (ROOT / os.environ.get("BOOK", BUILD / "book")).resolve()


@pytest.fixture(scope="session")
def window(site):
    window = webdriver.Browser()
    yield window
    window.close()


@pytest.fixture
def browser(window):
    window.faults()
    yield window
    assert not window.faults()


@pytest.fixture
def show(browser, site):
    """show(figure, state...): opens a page with nothing but a figure in a state."""
    start = (site / "index.html").read_text(encoding="utf-8")

    def show(name, width=1280, height=900, **state):
        page = site / f"alone_{os.getpid()}_{name}.html"
        page.write_text(re.sub(r"(<article[^>]*>).*(?=</article>)", rf'\1<div data-figure="{name}"></div>',
                               start, flags=re.S), encoding="utf-8")
        text = "&".join(f"{key}={value}" for key, value in state.items())
        browser.open(f"{page.as_uri()}#figure={name}&{text}" if state else page.as_uri(), width, height)
        browser.focus(FIGURE)
        return browser
    yield show
    for page in site.glob(f"alone_{os.getpid()}_*.html"):
        page.unlink()


# --- Pages ---

def test_the_site_is_small(site):
    """Its links are checked when it is built."""
    size = sum(path.stat().st_size for path in site.rglob("*") if not path.name.startswith("alone") and path.is_file())
    assert size < 10e6, f"{size / 1e6:.1f} MB"


def test_pages_are_quiet_and_no_wider_than_the_window(browser, site):
    pages = sorted((path for path in site.rglob("*.html") if not path.name.startswith("alone")),
                   key=lambda path: path.stat().st_size, reverse=True)
    sources = [path for path in pages if path.is_relative_to(site / "source")]
    for path in {*pages} - {*sources[9:]}:  # sources have one form: the longest will do
        browser.open(path.as_uri())
        for width in (1280, 390):
            browser.resize(width)
            wide = browser.run("return document.documentElement.scrollWidth")
            assert wide <= width + 1, f"{path.relative_to(site)}: {wide} pixels wide"
        assert not browser.faults(), path


def test_search_works_from_a_file_and_finds_numbers(browser, site):
    for words, page in ("88.72", "softmax_and_overflow.html"), ("associative unit", "monoid.html"):
        browser.open((site / "01_naive/index.html").as_uri())
        assert browser.until("return document.querySelector('iframe')")  # the theme is at work
        browser.type("/", *words)
        assert browser.until("return [...document.querySelectorAll('.md-search-result__link')].some("
                             "a => a.href.includes(arguments[0]))", page), words


def test_formulas_keep_their_signs(browser, site):
    for page in ("01_naive/index.html", "notes/many_machines.html"):
        browser.open((site / page).as_uri())
        assert browser.run("const all = [...document.querySelectorAll('math')];"
                           "return all.length && all.every(m => !m.textContent.includes('\\\\'))")
    browser.open((site / "01_naive/index.html").as_uri())
    assert browser.run("const root = document.querySelector('msqrt'), wide = part => part.getBoundingClientRect().width;"
                       "return wide(root) - wide(root.firstElementChild)") > 5  # the shipped font has the sign


AXE = next(BUILD.glob("book.venv/lib/python*/site-packages/axe_playwright_python/axe.min.js"), None)


@pytest.mark.skipif(not AXE, reason="make book has not fetched axe")
@pytest.mark.parametrize("page", ["index", "01_naive/index", "04_monoid_tiled_cpu/index"])
def test_axe_finds_nothing_serious_in_light_and_dark(browser, site, page):
    """AXE=all make book-test: of every page, which takes minutes."""
    for path in [site / f"{page}.html"] if os.environ.get("AXE") != "all" else sorted(site.glob("[0n]*/**/*.html")):
        browser.open(path.as_uri())
        browser.run(AXE.read_text(encoding="utf-8"))
        for scheme in ("default", "slate"):
            browser.run("document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important }"
                        "</style>'); document.body.setAttribute('data-md-color-scheme', arguments[0])", scheme)
            browser.run("window.found = null; axe.run({resultTypes: ['violations']}).then(all => { found = all.violations"
                        ".filter(one => /serious|critical/.test(one.impact)).map(one => one.nodes[0].html); })")
            browser.until("return !!window.found")
            assert browser.run("return found") == [], (path, scheme)


def test_a_figure_stands_in_its_chapter_at_its_beginning(browser, site):
    """Its picture shows more, for a reader without scripts."""
    for page, cell, want in (("index", "said", "“conversations” attends"), ("01_naive/index", "naive-l", "–"),
                             ("02_safe_softmax/index", "safe-l", "–"), ("03_online_softmax/index", "online-l", "–"),
                             ("04_monoid_tiled_cpu/index", "3-main", "0")):
        browser.open((site / f"{page}.html").as_uri())
        assert browser.cell(cell).startswith(want), page
    assert "/* loop 3" in browser.run("return SOURCES['2']")
    browser.open((site / "01_naive/index.html").as_uri())
    assert browser.box(".fig-terms")[2] < 450  # the only stage does not fill the page
    browser.run("document.querySelector('a[href*=\"x=89&\"]').click()")
    assert browser.until("return document.querySelector('[data-cell=naive-l]').textContent === 'inf'")


@pytest.mark.parametrize("name", ["one-row", "gradient"])
def test_a_figure_is_reached_and_driven_without_a_mouse(browser, site, name):
    page = {"one-row": "01_naive/index", "gradient": "notes/gradient"}[name]
    browser.open((site / f"{page}.html").as_uri())
    inside = "return !!document.activeElement.closest(`[data-figure=${arguments[0]}]`)"
    presses = 0
    browser.focus("article a")
    while not browser.run(inside, name) and presses < 60:
        browser.type("Tab")
        presses += 1
    assert presses <= 40, presses
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.run(outline) != "none"
    while browser.run("return document.activeElement.tagName") != "INPUT":
        browser.type("Tab")
    assert browser.run(outline) != "none"


def test_on_a_phone_a_figure_fits_on_two_screens(show):
    for name in ("tiles", "parentheses", "gradient"):
        browser = show(name, width=390, height=844)
        assert browser.box(FIGURE)[3] <= 2 * 844, name
        assert browser.run("return [...document.querySelectorAll('.fig-wide')].every("
                           "x => x.scrollWidth <= x.clientWidth + 1)"), f"{name} is cut off"
        assert name != "tiles" or browser.box(".fig-grid")[2] > 30  # its text speaks of squares


# --- One row ---

KEYS = ("naive", "safe", "online")


def traced(stage, row):
    """[{column: text}] as the program's trace prints softmax, by loop; without the last loop, and
    without the masked scores of stage 3, which its loop passes over."""
    out = run(next(BUILD.glob(f"0{stage}_*[a-z]")), "trace", f"--row={row}").out
    lines, columns = [], []
    for line in out.split("\n"):
        words = line.split()
        if words[:1] == ["j"]:
            columns = words
        elif columns and words and words[0].isdigit():
            lines += [dict(zip(columns, words))] * (len(words) == len(columns))
        elif columns and not line.startswith("softmax"):
            break
    return [line for line in lines if {"m", "l"} & {*line}]


def weights_of(stage, row):
    """The weights that the program's trace prints."""
    out = run(next(BUILD.glob(f"0{stage}_*[a-z]")), "trace", f"--row={row}").out
    lines = re.search(r"x +y\n((?: +\d.*\n)+)", out)[1].splitlines()
    return [line.split()[-1] for line in lines]


@pytest.mark.parametrize("row", ["0.5,-inf,12,-7,12", "89,1", "-110,-111", "-104,-103.9", "inf,1,2", "nan,1"])
def test_one_row_is_the_trace_of_the_programs(show, row):
    browser = show("one-row", x=row, type="f32", step=0)
    for stage, key in enumerate(KEYS, 1):
        browser.focus(FIGURE)
        browser.type("Home")
        lines = traced(stage, row)
        assert lines
        for at, score in enumerate(row.split(",") * (2 if key == "safe" else 1), 1):
            browser.type("ArrowRight")
            if score == "-inf" and key == "online":
                continue  # nothing to watch: the loop goes on to the next score
            line = lines.pop(0)
            for column in {"m", "l", "correction"} & {*line}:
                assert browser.cell(f"{key}-{column}") == line[column], (key, at, column)
            assert browser.cell(f"{key}-score") == line["x"]
        browser.type("End")
        assert browser.cell(f"{key}-weights").split() == weights_of(stage, row), key


def test_the_address_sets_a_figure_and_holds_its_state(show):
    browser = show("one-row", x="3,2,5,1", step=1)
    browser.run("location.hash = 'figure=one-row&x=11.1&type=f16&step=1'")
    assert browser.until("return document.querySelector(\"[data-cell='naive-l']\").textContent"
                         " === 'inf'")
    browser.run("const input = document.querySelector('[data-figure] input');"
                "for (let i = 0; i < 600; i++) {"
                "  input.value = '1, ' + i; input.dispatchEvent(new Event('input')); }")
    assert browser.until("return location.hash.includes('x=1,599')")  # rapid edits do not lose it
    browser.fill("[data-figure] input", "3, x")
    assert "Give 1 to 16 numbers" in browser.text(".fig-error")


# --- Parentheses ---

def test_parentheses_do_not_matter_up_to_the_last_bits(show):
    answers = set()
    for tree in ("0.0.0.0.0", "4.3.2.1.0", "0.1.2.0.0", "2.2.0.1.0"):
        browser = show("parentheses", tree=tree)
        far = [abs(float(x)) for x in browser.cell("distance from float64").split(",")]
        assert all(x <= 1e-6 for x in far), tree
        assert browser.cell("mean with its count").endswith(" of 5")  # the unit is not counted
        answers.add(browser.cell("o / l"))
    assert len(answers) <= 2
    browser.type("a")
    assert browser.cell("bit patterns").startswith("42 trees, ")


# --- The gradient ---

def gradient(browser):
    return {name: np.array([float(x) for x in browser.run(
        f"return document.querySelector('[data-figure]').dataset.{name}").split(",")])
        for name in ("P", "dS", "D", "sum")}


@pytest.mark.parametrize("s, v", [("1,3,2,0", "2,1,-2,4"), ("0,20,0", "1,2,3"), ("1,-inf,2", "5,9,-4"),
                                  ("3", "7")])
def test_the_gradient_of_a_row_is_that_of_the_definition(show, s, v):
    got = gradient(show("gradient", s=s, v=v))
    scores, values = (np.array([float(x) for x in text.split(",")]) for text in (s, v))
    P = np.exp(scores - scores.max())
    P /= P.sum()
    small = 1e-4  # the rate of change of o = sum P v, by differences
    nudged = scores + small * np.eye(len(scores))
    weights = np.exp(nudged - scores.max())
    slope = ((weights @ values) / weights.sum(axis=1) - P @ values) / small
    assert got["P"] == pytest.approx(P, abs=1e-5) and got["dS"] == pytest.approx(slope, abs=2e-3)
    assert got["D"] == pytest.approx([P @ values], abs=1e-4) and abs(got["sum"][0]) < 1e-5


# --- Tiles ---


def moved(browser, lane):
    return [int(browser.cell(f"{stage}-{lane}")) for stage in range(1, 6)]


@pytest.mark.parametrize("nq, nk, d, causal", [(6, 7, 4, 0), (5, 3, 2, 1), (1, 1, 1, 0),
                                               (12, 12, 8, 1)])
def test_tiles_move_what_the_cost_models_say(show, nq, nk, d, causal):
    browser = show("tiles", nq=nq, nk=nk, d=d, causal=causal, step=999)
    model = browser.run("const wasm = load_module();"
                        "return [1, 2, 3].map(s => wasm.stage_bytes(s, ...arguments[0]))",
                        [nq, nk, d, causal])
    main = moved(browser, "main")
    outputs = [[float(x) for x in browser.cell(f"{stage}-o of query 0").split(",")]
               for stage in range(1, 6)]
    assert main[:2] == model[:2] and (causal or main[2] == model[2])
    assert main[3] == main[4] == main[2]
    for values in outputs:
        assert values == pytest.approx(outputs[0], abs=1e-5)


@pytest.mark.parametrize("state, word", [({"nq": -3}, "queries"), ({"br": 99}, "Br"),
                                         ({"d": "x"}, "head_dim")])
def test_a_size_that_cannot_be_is_complained_about(show, state, word):
    browser = show("tiles", step=99, **state)
    assert browser.text(".fig-error").startswith(f"{word}: give a whole number")
    assert moved(browser, "main")[0] > 0
    browser.fill("[data-input='nk']", "99")
    assert browser.text(".fig-error") == "keys: give a whole number from 1 to 12."


# --- The opening scene ---

@pytest.mark.parametrize("factor, stage", [(1, 1), (13, 1), (32, 1), (32, 3)])
def test_the_sentence_is_attended_to_as_numpy_does(show, factor, stage):
    browser = show("opening", factor=factor, stage=stage, head=9, word=66)
    q, k = (np.load(ROOT / f"tests/fixture/{name}.npy")[9] for name in "qk")
    scores = np.float32(np.round(q.astype(float) @ k.T / 32 ** 0.5, 3) * factor)
    with np.errstate(over="ignore"):
        lost = 0 if stage > 1 else int(np.isinf(np.exp(scores).sum(axis=1, dtype=np.float32)).sum())
    assert browser.cell("said").endswith(f"Words without an answer: {lost} of 70.")
    assert browser.run("return document.querySelectorAll('.fig-dead').length") == lost
    if "no answer" not in browser.cell("said"):
        weights = np.exp(scores[66].astype(float) - scores[66].max())
        best = sorted(weights / weights.sum(), reverse=True)[:3]
        assert re.findall(r" (\d\.\d{3})[,.]", browser.cell("said")) == [f"{x:.3f}" for x in best]


# --- Pictures for the repository's own pages ---

def frozen():
    """(page, figure, state, picture) of every figure's mark in the sources."""
    for page in [ROOT / "common/products/book/start.md", *sorted(ROOT.glob("0*/README.md")),
                 *sorted(ROOT.glob("notes/**/*.md"))]:
        marks = re.findall(r"<!-- figure: (\S+) ?([^\s|]*)(?: \| (\S+))? -->\n(?:!\[[^\]]*\]\(([^)]+)\))?",
                           page.read_text(encoding="utf-8"))
        for name, first, more, picture in marks:
            yield page, name, f"{first}&{more}", picture and (page.parent / picture).resolve()


SAID = """
  const f = document.querySelector(`[data-figure=${arguments[0]}]`), seen = f.cloneNode(true);
  f.id = 'frozen';
  f.scrollIntoView();
  seen.querySelectorAll('select').forEach((select, i) => select.replaceWith(
    f.querySelectorAll('select')[i].selectedOptions[0].text));
  return seen.textContent"""


def test_pictures_are_of_the_figures_as_they_are(browser, site):
    """Each mark has a picture, and what the figure says now is what it said then: its hash stands
    in the file.  PICTURES=1 (make book-pictures) draws them anew."""
    image = pytest.importorskip("PIL.Image")
    png = pytest.importorskip("PIL.PngImagePlugin")
    for page, figure, state, path in frozen():
        assert path, f"{page}: no picture after the mark of {figure}"
        name = re.sub("README|common/products/book/start", "index", str(page.relative_to(ROOT).with_suffix(".html")))
        browser.open(f"{(site / name).as_uri()}#figure={figure}&{state}", 1280, 1600)
        said = browser.run(SAID, figure)
        about = hashlib.sha256(said.encode()).hexdigest()[:16]
        if os.environ.get("PICTURES"):
            browser.picture("shot.png", "#frozen")
            note = png.PngInfo()
            note.add_text("figure", about)
            image.open("shot.png").convert("RGB").quantize(64).save(path, optimize=True, pnginfo=note)
        assert image.open(path).text.get("figure") == about, \
            f"{path.relative_to(ROOT)} does not show {figure} {state} any more: make book-pictures"
