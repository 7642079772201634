"""build.py: the book: every README and note of the tree as pages of one site.

    build.py BUILD     writes BUILD/book/, with the functions in BUILD/figures.wasm

The pages are the Markdown files that the repository shows.  They are copied to
BUILD/book.src with three changes: a link to a source file leads to a page that shows the
file, a code block that is an excerpt names its file and line, and a figure's mark
(<!-- figure: one-row x=89,1 | step=1 -->, with the picture that stands for it in the repository)
becomes the figure in that state, which keeps the picture for a browser without scripts; the picture
shows what stands behind the bar.  start.md is the first page, the repository's own README a later one.
MkDocs with its Material theme does the rest: navigation, search, light and dark.
Formulas become MathML (hooks.py), which browsers draw without a script."""
import array
import base64
import csv
import html
import importlib.metadata
import json
import operator
import os
import pathlib
import re
import shutil
import subprocess
import sys

from fontTools import subset, ttLib
import pygments
from pygments import lexers
from pygments.formatters import HtmlFormatter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "reports"))
from ladder import ROOT, RUNGS  # noqa: E402
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"\]\(([^)\s]+\.(?:png|svg))\)")
FIGURE = re.compile(r"<!-- figure: ([\w-]+) ?([^\s|]*)(?: \| \S+)? -->\n(!\[([^\]]*)\]\([^\n]*\n)?")
START = "common/products/book/start.md"
MOVED = {START: "README.md", "README.md": "repository.md"}  # in the book
PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.(?:png|svg))\)$", re.M)
ITEM, FIRST = re.compile(r"(?:[-*+]|\d+\.) "), re.compile(r"(?:[-*+]|1\.) ")
LANGUAGES = {".c": "c", ".h": "c", ".cu": "cuda", ".cc": "cpp", ".py": "python", ".sh": "sh",
             ".mk": "make", ".patch": "diff", ".csv": "text", ".js": "js"}
SCRIPTS = ["figure", "one_row", "parentheses", "tiles", "gradient", "ladder", "opening", "plane",
           "record", "schedule", "barrier", "length", "search"]
UNCOLOURED = re.compile(r'<span class="[^cksm"][^"]*">([^<]*)</span>')  # source.css has no colour for it
AFTER_THE_ROAD = ["gradient", "gradient_on_gpus", "tensor_cores", "hopper_asynchrony", "hopper",
                  "serving", "eight_bits", "porting", "many_machines"]
SOURCE_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{top}/figures/source.css"></head>
<body><nav><a href="{top}/index.html">Softmax to FlashAttention</a></nav>
<main><h1>{name}</h1>
{body}</main></body></html>
"""
UNUSED = ["assets/javascripts/lunr", "assets/javascripts/workers", "sitemap.xml", "sitemap.xml.gz", "404.html"]
BUNDLED = ["mkdocs", "mkdocs-material", "latex2mathml", "pymdown-extensions", "ziamath"]


def tracked():
    """The files of the repository, without what is built."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            text=True, stdout=subprocess.PIPE, check=True).stdout
    return sorted(name for name in listed.split("\n") if name and (ROOT / name).is_file())


class Book:
    def __init__(self, source):
        self.source = source
        self.files = tracked()
        # those of common/products/course become pages of a student's repository, their links hold there
        self.pages = [name for name in self.files if name.endswith(".md")
                      and not name.startswith("common/products/course/pages/")] + ["repository.md"]
        self.shown = set()     # source files, and folders with a / behind, that get a page
        self.broken = []

    def code_page(self, name):
        self.shown.add(name)
        return f"source/{name}index.html" if name.endswith("/") else f"source/{name}.html"

    def target(self, page, link):
        """Where a link of a page leads in the book, or None to leave it alone."""
        if re.match(r"[a-z]+:|#", link):
            return None
        path, _, anchor = link.partition("#")
        here = pathlib.PurePosixPath(page).parent
        name = os.path.normpath(here / path).removesuffix("/")
        if name in self.pages:
            return None
        if f"{name}/README.md" in self.pages or (name == "." and page != "README.md"):
            name = os.path.normpath(f"{name}/README.md")
        elif name in self.files and not re.search(r"\.(png|svg)$", name):
            name = self.code_page(name)
        elif (ROOT / name).is_dir():
            name = self.code_page(name + "/")
        elif name not in self.files:
            self.broken.append(f"{page}: {link}")
            return None
        else:
            return None
        return os.path.relpath(name, here) + (f"#{anchor}" if anchor else "")

    def blocks(self, page, text):
        """Under each excerpt of a source file its name and line."""
        directory = page.split("/")[0] if page[0].isdigit() else ""

        def block(match):
            language, code = match[1], match[2]
            for name in self.files if language in ("c", "cuda") and code.count("\n") > 1 else []:
                if name.startswith(directory) and re.match(r"(?!tests/|.*exercises/).*\.(c|h|cu)$", name):
                    before, found, _ = (ROOT / name).read_text(encoding="utf-8").partition(code)
                    if found:
                        line = before.count("\n") + 1
                        link = os.path.relpath(self.code_page(name), pathlib.PurePosixPath(page).parent)
                        return f"{match[0]}\n[{name}, line {line}]({link}#L-{line}){{ .excerpt }}\n"
            return match[0]
        return FENCE.sub(block, text)

    def links(self, page, text):
        def link(match):
            to = self.target(page, match[2])
            return match[0] if to is None else f"[{match[1]}]({to})"
        parts = re.split(r"(^```.*?^```\n)", text, flags=re.M | re.S)
        return "".join(part if part.startswith("```") else LINK.sub(link, part)
                       for part in parts)

    def page(self, name):
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text.replace("*The figure computes in the book (`make book`).*", "")
        text = text.replace("<details>", '<details markdown="1">')  # its inside is Markdown too
        if name == START:
            text = text.replace("](../../../README.md", "](repository.md").replace("](../../../", "](")
        name = MOVED.get(name, name)
        text = FIGURE.sub(lambda mark: f'<div markdown="1" data-figure="{mark[1]}" role="group" '
                          f'data-state="{html.escape(mark[2])}" aria-label="{mark[4] or ""}">\n\n'
                          f'{mark[3] or ""}\n</div>\n\n', text)
        text = PICTURE.sub(r"[![\1](\2)](\2){ .zoom }", spaced_lists(text))
        text = self.blocks(name, self.links(name, text))
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for image in IMAGE.findall(text):
            at = os.path.normpath(pathlib.PurePosixPath(name).parent / image)
            if at in self.files:
                (self.source / at).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / at, self.source / at)
            else:
                self.broken.append(f"{name}: {image}")

    def source_page(self, name, site):
        """A file with its lines, or a folder with its files, as a page without the theme."""
        path = site / self.code_page(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            inside = [(file in self.shown, file.removeprefix(name)) for file in self.files if file.startswith(name)]
            body = "".join(f'<li><a href="{file}.html">{file}</a></li>' if shown else f"<li>{file}</li>"
                           for shown, file in inside).join(("<ul>", "</ul>"))
        else:
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            language = LANGUAGES.get(pathlib.PurePosixPath(name).suffix, "text")
            body = UNCOLOURED.sub(r"\1", pygments.highlight(
                text, lexers.get_lexer_by_name(language, stripnl=False), HtmlFormatter(linespans="L")))
        top = os.path.relpath(site, path.parent)
        path.write_text(SOURCE_PAGE.format(name=html.escape(name), top=top, body=body),
                        encoding="utf-8")


def spaced_lists(text):
    """Lists as the repository's pages are read, for Python's Markdown: a blank line before a list
    that follows a line of text, and before what follows an item of several paragraphs; four
    blanks before what belongs to an item.  A number that begins a line inside a paragraph begins
    no list."""
    out, fenced, before, inside, long = [], False, "", 0, False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        item = not (fenced or fence) and ITEM.match(line)
        number = not fenced and re.match(r"( +)(\d+)\. ", line)
        if number and before.strip() and not re.match(rf"{number[1]}\d+\. ", before):
            line = line.replace(".", "\\.", 1)
        if item and before.strip() and not inside:
            if FIRST.match(line):
                out.append("")
            else:
                item = None
        if item:
            out += [""] * bool(long and before.strip())
            inside, long = len(item[0]), False
        elif inside and line.startswith(" " * inside):
            line = " " * (4 - inside) + line
            long |= not before.strip()
        elif not before.strip() and line.strip() and not fenced:
            inside = 0
        fenced ^= fence
        out.append(line)
        before = line
    return "\n".join(out)


def functions():
    """The body of softmax_row in stages 1 to 3, as the figures show it: {stage: lines}."""
    out = {}
    for path in sorted(ROOT.glob("0[1-3]_*/stage.c")):
        text = path.read_text(encoding="utf-8")
        body = text[text.index("static float softmax_row"):]
        body = body[body.index("{\n") + 2:body.index("\n}")]
        lines = [line.removeprefix("    ") for line in body.split("\n") if "watch" not in line]
        out[path.parent.name[1]] = "\n".join(line for line in lines if line)
    return out


def measured():
    """Traffic of the last rung, predicted and counted, in a sentence; "" without a profile."""
    path = ROOT / "notes/results/profile_05_flash_cuda.csv"
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["stage"] != "roof"
                 and line["seqlen_q"] == line["seqlen_k"] and line["head_dim"] == "128"
                 and line["dtype"] == "bf16"]
    if not lines:
        return ""
    last = lines[-1]
    megabytes = [float(last[name]) / 1e6 for name in ("bytes_predicted", "bytes_measured")]
    return (f"Measured on an {last['machine'].replace('NVIDIA ', '')}, {last['seqlen_k']} keys, "
            f"head_dim 128: the blocks of {last['variant']} ask for {megabytes[0]:.0f} MB. Main "
            f"memory moved {megabytes[1]:.0f} MB; the L2 cache served the rest.")


def attention_rows(name):
    """The lines of a CSV of results that measured attention without a mask, at head_dim 64 and 128."""
    path = ROOT / "notes/results" / name
    with path.open(encoding="utf-8") as file:
        return [line for line in csv.DictReader(file) if line["op"] == "attention" and line["causal"] == "0"]


def race():
    """[name, {seqlen: GFLOP/s}, whether S and P are stored] of each stage at head_dim 64."""
    cpu, gpu = attention_rows("cpu.csv"), attention_rows("h200_attention.csv")
    out = []
    for stage, variant, lines, note in (
            (1, "naive", cpu, "one core"), (2, "recompute", cpu, "one core"), (3, "online", cpu, "one core"),
            (4, "microkernel", cpu, "one core"), (5, "tuned", gpu, "H200, bf16")):
        speeds = {line["seqlen_k"]: float(line["gflops"]) for line in lines
                  if line["variant"] == variant and line["head_dim"] == "64" and line["seqlen_q"] == line["seqlen_k"]}
        out += [[f"{stage} {variant} ({note})", speeds, stage < 3]] * bool(speeds)
    return out


def record():
    """How many times as fast as the fastest library `tuned` is without a repair and with all, d = 128."""
    lines = [line for line in attention_rows("hopper/hard.csv") if line["head_dim"] == "128"]
    out = {"machine": lines[0]["machine"]}
    for data in ("normal", "steep"):
        seconds = {line["variant"]: float(line["median_s"]) for line in lines if line["flags"].endswith(data)}
        peers = [line["variant"] for line in lines if line["stage"] == "peer"]
        out[data] = min(seconds[peer] for peer in peers if peer in seconds) / seconds["tuned"]
    return out


def sentence():
    """The fixture's words, and the scores of four of its heads, to three decimals."""
    words = (ROOT / "tests/fixture/tokens.txt").read_text(encoding="utf-8").split()
    n, d, data = len(words), 32, {}
    for name in "qk":
        data[name] = array.array("f", (ROOT / f"tests/fixture/{name}.npy").read_bytes()[128:])
        assert len(data[name]) == 12 * n * d
    rows = {name: [values[at:at + d] for at in range(0, len(values), d)] for name, values in data.items()}
    return {"words": words, "scores": {
        head: [round(sum(map(operator.mul, rows["q"][head * n + i], rows["k"][head * n + j])) / d ** 0.5, 3)
               for i in range(n) for j in range(n)] for head in (4, 8, 9, 11)}}


def title(name):
    name = {to: of for of, to in MOVED.items()}.get(name, name)
    for line in (ROOT / name).read_text(encoding="utf-8").split("\n"):
        if line.startswith("# "):
            return line[2:].replace('"', "'")
    return name


def navigation(pages):
    """The road with the on-ramp before its GPU stage, what comes after the road, then the other notes
    under the headings of their contents page; the exercises of a stage are with its notes."""
    stages = [name for name in pages if re.fullmatch(r"0\d_\w+/README.md", name)]
    after = [f"notes/{name}.md" for name in AFTER_THE_ROAD]
    groups = {"The road": [*stages[:-1], "notes/gpu_on_ramp.md", stages[-1]], "After the road": after,
              "Notes": ["repository.md", "notes/README.md"]}
    listed = {"README.md", START, *sum(groups.values(), [])}
    heading = "Notes"
    for line in (ROOT / "notes/README.md").read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            heading = re.sub(r"^Stage (\d): .*", r"Notes on stage \1", line[3:])
            own = [name for name in pages if name.startswith(f"0{heading[-1]}_") and name not in listed]
            groups.setdefault(heading, []).extend(own)
            listed.update(own)
        for name in re.findall(r"\]\(([\w./]+\.md)\)", line):
            name = os.path.normpath(f"notes/{name}")
            if name in pages and name not in listed:
                groups[heading].append(name)
                listed.add(name)
    groups["About the code"] = [name for name in pages if name not in listed]
    out = ["nav:", "  - Start: README.md"]
    for heading, names in groups.items():
        out += [f'  - "{heading}":'] * bool(names) + [f'    - "{title(name)}": {name}' for name in names]
    return "\n".join(out) + "\n"


def bundle_licences(site):
    """The licence of what the pages carry, beside them."""
    folder = site / "licences"
    folder.mkdir(exist_ok=True)
    shutil.copy2(ROOT / "LICENSE", folder / "five_steps.txt")
    for name in BUNDLED:
        for file in importlib.metadata.files(name) or []:
            if re.search(r"(?i)licen[cs]e", file.name):
                text = file.locate().read_text(encoding="utf-8")
                (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def write_font(site):
    """STIX Two Math with the letters of our formulas and the root, as figures/math.woff2."""
    whole = importlib.metadata.distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf")
    used = {letter for path in site.rglob("*.html") if "source" not in path.parts
            for part in re.findall(r"<math.*?</math>", path.read_text(encoding="utf-8"), re.S)
            for letter in html.unescape(part)}
    italic = {chr(0x1D44E + i) for i in range(26)} | {chr(0x1D434 + i) for i in range(26)} | {"\u210e"}
    greek = {chr(0x1D6FC + i) for i in range(32)} | {chr(0x1D6E2 + i) for i in range(26)}
    names = ttLib.TTFont(whole)["name"]
    (site / "licences").mkdir(exist_ok=True)
    (site / "licences/STIX_Two_Math.txt").write_text(
        "\n\n".join(names.getDebugName(number) for number in (0, 13, 14)), encoding="utf-8")
    subset.main([str(whole), "--flavor=woff2", f"--output-file={site / 'figures/math.woff2'}", "--notdef-outline",
                 f"--text={''.join(used | italic | greek | {chr(0x221A)})}", "--layout-features=ssty,math,kern,dtls,flac"])


def write_search(site, pages):
    """The plain text of every page, section by section, as a script that the search loads when it is
    needed: [address, page, heading, text]."""
    sections = []
    for name in pages:
        path = site / re.sub(r"(README)?\.md$", lambda end: "index.html" if end[1] else ".html", name)
        body = re.search(r"<article.*?</article>", path.read_text(encoding="utf-8"), re.S)[0]
        parts = re.split(r'<h[1-4] id="([^"]+)">(.*?)</h[1-4]>', body, flags=re.S)
        plain = [html.unescape(re.sub(r"<!--.*?-->|<[^>]*>", "", part, flags=re.S)).replace("\u00b6", "").split() for part in parts]
        page = " ".join(plain[2]) if len(plain) > 2 else name
        for at in range(1, len(parts), 3):
            sections.append([f"{path.relative_to(site)}#{parts[at]}", page, " ".join(plain[at + 1]),
                             " ".join(plain[at + 2])])
    (site / "figures/search_text.js").write_text(
        f"const SEARCH_TEXT = {json.dumps(sections, ensure_ascii=False)};\n", encoding="utf-8")


def write_figures(folder, wasm):
    """The scripts of the figures as one, behind their data: a page from a file may fetch nothing."""
    folder.mkdir(parents=True)
    for style in (HERE / "figures").glob("*.css"):
        shutil.copy2(style, folder)
    timeline = ROOT / "notes/results/hopper/timeline.csv"  # the ladder's; without it its picture stays
    data = {"FIGURES_WASM": base64.b64encode(wasm.read_bytes()).decode(), "SOURCES": functions(),
            "MEASURED": measured(), "SENTENCE": sentence(), "RACE": race(), "RECORD": record(), "RUNGS": RUNGS,
            "TIMELINE_CSV": timeline.read_text(encoding="utf-8") if timeline.is_file() else ""}
    parts = [f"const {name} = {json.dumps(value)};\n" for name, value in data.items()] + [
        (HERE / f"figures/{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    (folder / "figures.js").write_text('"use strict";\n' + "".join(parts), encoding="utf-8")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    source, site = build / "book.src", build / "book"
    shutil.rmtree(source, ignore_errors=True)
    book = Book(source)
    for name in book.pages[:-1]:  # repository.md is a name in the book alone
        book.page(name)
    if book.broken:
        sys.exit("book: links that lead nowhere:\n  " + "\n  ".join(book.broken))
    write_figures(source / "figures", build / "figures.wasm")
    config = build / "book.yml"
    settings = (HERE / "mkdocs.yml").read_text(encoding="utf-8").replace("THEME", str(HERE / "theme"))
    config.write_text(f"{settings}docs_dir: {source}\nsite_dir: {site}\n"
                      f"hooks:\n  - {HERE}/hooks.py\nextra_css:\n  - figures/figures.css\n"
                      f"extra_javascript:\n  - figures/figures.js\n{navigation(book.pages)}", encoding="utf-8")
    status = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-c", "-f", config],
                            check=False).returncode
    if status:
        sys.exit(status)
    for name in sorted(book.shown):
        book.source_page(name, site)
    for unused in [site / name for name in UNUSED] + list(site.rglob("*.map")):
        shutil.rmtree(unused) if unused.is_dir() else unused.unlink(missing_ok=True)
    write_font(site)
    write_search(site, [name for name in book.pages if name != START])
    bundle_licences(site)


if __name__ == "__main__":
    main()
