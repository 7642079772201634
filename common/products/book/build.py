"""build.py: the book: every README and note of the tree as pages of one site.

    build.py BUILD     writes BUILD/book/, with the functions in BUILD/figures.wasm

The pages are the Markdown files that the repository shows.  They are copied to
BUILD/book.src with three changes: a link to a source file leads to a page that shows the
file, a code block that is an excerpt names its file and line, and a figure's mark
(<!-- figure: one-row x=89,1 | step=1 -->, with the picture that stands for it in the repository)
becomes the figure in that state, which keeps the picture for a browser without scripts; the picture
shows what stands behind the bar.  start.md is the first page, the repository's own README a later one.
MkDocs with its Material theme does the rest: navigation, search, light and dark, source pages.
Formulas become MathML (hooks.py), which browsers draw without a script."""
import array
import base64
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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"\]\(([^)\s]+\.(?:png|svg))\)")
FIGURE = re.compile(r"<!-- figure: ([\w-]+) ?([^\s|]*)(?: \| \S+)? -->\n(!\[([^\]]*)\]\([^\n]*\n)?")
START = "common/products/book/start.md"
MOVED = {START: "README.md", "README.md": "repository.md"}  # in the book
PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.(?:png|svg))\)$", re.M)
BEFORE_LIST = re.compile(r"^(?![-*+] |\d+\. |[\s|])(.+)\n(?=(?:[-*+]|1\.) )", re.M)
LANGUAGES = {"h": "c", "cc": "cpp", "mk": "make", "patch": "diff"}  # the others are their suffix
SCRIPTS = ["figure", "one_row", "parentheses", "tiles", "gradient", "opening"]
UNUSED = ["assets/javascripts/lunr", "sitemap.xml", "sitemap.xml.gz", "404.html"]
BUNDLED = ["mkdocs", "mkdocs-material", "latex2mathml", "pymdown-extensions", "ziamath"]
AFTER_THE_ROAD = ["gradient", "gradient_on_gpus", "tensor_cores", "hopper_asynchrony", "hopper",
                  "serving", "eight_bits", "porting", "many_machines"]
LETTERS = "20-7e,a0-ff,391-3f5,2010-203a,2070-209f,2190-21ff,2200-22ff,1d400-1d7ff"  # of formulas, in Unicode


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

    def code_page(self, name):
        self.shown.add(name)
        return f"source/{name}index.md" if name.endswith("/") else f"source/{name}.md"

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
        else:  # a picture, or nothing, of which MkDocs complains
            return None
        return os.path.relpath(name, here) + (f"#{anchor}" if anchor else "")

    def excerpt(self, page, match):
        """Under an excerpt of a source file its name and line."""
        directory = page.split("/")[0] if page[0].isdigit() else ""
        language, code = match[1], match[2]
        for name in self.files if language in ("c", "cuda") and code.count("\n") > 1 else []:
            if name.startswith(directory) and re.match(r"(?!tests/|.*exercises/).*\.(c|h|cu)$", name):
                before, found, _ = (ROOT / name).read_text(encoding="utf-8").partition(code)
                if found:
                    line = before.count("\n") + 1
                    link = os.path.relpath(f"source/{name}.html", pathlib.PurePosixPath(page).parent)
                    self.shown.add(name)
                    return f'{match[0]}\n<a class="excerpt" href="{link}#L-0-{line}">{name}, line {line}</a>\n'
        return match[0]

    def prose(self, page, text):
        """Between listings: a picture opens in full, links lead into the book, and a list has an empty
        line before it, which Python's Markdown wants."""
        def link(match):
            if match[2].startswith("#figure="):  # no anchor: what the figure is to show
                return f'<a href="{html.escape(match[2])}">{match[1]}</a>'
            to = self.target(page, match[2])
            return match[0] if to is None else f"[{match[1]}]({to})"
        return LINK.sub(link, PICTURE.sub(r"[![\1](\2)](\2){ .zoom }", BEFORE_LIST.sub(r"\1\n\n", text)))

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
        text = "".join(FENCE.sub(lambda match: self.excerpt(name, match), part) if part.startswith("```")
                       else self.prose(name, part) for part in re.split(r"(^```.*?^```\n)", text, flags=re.M | re.S))
        self.write(name, text)
        for image in IMAGE.findall(text):
            at = os.path.normpath(pathlib.PurePosixPath(name).parent / image)
            if at in self.files:
                (self.source / at).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / at, self.source / at)

    def write(self, name, text):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def source_page(self, name):
        """A file as one listing, or a folder with its files; theme/source.html is its form."""
        if name.endswith("/"):
            inside = [file.removeprefix(name) for file in self.files if file.startswith(name)]
            body = "\n".join(f"- [{x}]({x}.md)" if name + x in self.shown else f"- {x}" for x in inside)
        else:
            suffix = pathlib.PurePosixPath(name).suffix[1:]
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            body = f"~~~~~ {LANGUAGES.get(suffix, suffix)}\n{text}\n~~~~~"
        self.write(self.code_page(name), f"---\ntitle: {name}\ntemplate: source.html\nsearch:\n  exclude: true\n---\n{body}\n")


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


def navigation(pages):
    """The road with the on-ramp before its GPU stage, what comes after the road, then the other notes under
    the headings of their contents page, as JSON, which YAML holds."""
    stages = [name for name in pages if re.fullmatch(r"0\d_\w+/README.md", name)]
    groups = {"The road": [*stages[:-1], "notes/gpu_on_ramp.md", stages[-1]],
              "After the road": [f"notes/{name}.md" for name in AFTER_THE_ROAD], "Notes": ["repository.md", "notes/README.md"]}
    rest = [name for name in pages if name not in ("README.md", START, *sum(groups.values(), []))]
    heading = "Notes"
    for line in (ROOT / "notes/README.md").read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            heading = re.sub(r"^Stage (\d): .*", r"Notes on stage \1", line[3:])
        for name in re.findall(r"\]\(([\w.]+\.md)\)", line):
            if f"notes/{name}" in rest:
                rest.remove(f"notes/{name}")
                groups.setdefault(heading, []).append(f"notes/{name}")
    groups["Notes"][0] = {"The repository": "repository.md"}  # whose own title is the book's
    return json.dumps([{"Start": "README.md"}, *({x: y} for x, y in (groups | {"About the code": rest}).items())])


def bundle(site):
    """What the pages carry: STIX Two Math with the letters of formulas, as figures/math.woff2; and, beside
    them, the licence of everything."""
    whole = importlib.metadata.distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf")
    subset.main([str(whole), "--flavor=woff2", f"--output-file={site / 'figures/math.woff2'}", "--notdef-outline",
                 f"--unicodes={LETTERS}", "--layout-features=ssty,math,kern,dtls,flac"])
    names, folder = ttLib.TTFont(whole)["name"], site / "licences"
    folder.mkdir(exist_ok=True)
    (folder / "STIX_Two_Math.txt").write_text(
        "\n\n".join(names.getDebugName(number) for number in (0, 13, 14)), encoding="utf-8")
    shutil.copy2(ROOT / "LICENSE", folder / "five_steps.txt")
    for name in BUNDLED:
        for file in importlib.metadata.files(name) or []:
            if re.search(r"(?i)licen[cs]e", file.name):
                shutil.copyfile(file.locate(), folder / f"{name}.txt")


def write_figures(folder, wasm):
    """The scripts of the figures as one, behind their data: a page from a file may fetch nothing."""
    shutil.copytree(HERE / "figures", folder, ignore=lambda _, names: [f"{name}.js" for name in SCRIPTS])
    data = {"FIGURES_WASM": base64.b64encode(wasm.read_bytes()).decode(), "SOURCES": functions(),
            "SENTENCE": sentence()}
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
    for name in sorted(book.shown):
        book.source_page(name)
    write_figures(source / "figures", build / "figures.wasm")
    config = build / "book.yml"
    settings = (HERE / "mkdocs.yml").read_text(encoding="utf-8").replace("HERE", str(HERE))
    config.write_text(f"{settings}docs_dir: {source}\nsite_dir: {site}\nnav: {navigation(book.pages)}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-s", "-c", "-f", config], text=True, check=False,
                          stderr=subprocess.PIPE)
    if done.returncode:  # also where a link leads nowhere
        sys.exit(done.stderr)
    for unused in [site / name for name in UNUSED] + list(site.rglob("*.map")):
        shutil.rmtree(unused) if unused.is_dir() else unused.unlink(missing_ok=True)
    bundle(site)


if __name__ == "__main__":
    main()
