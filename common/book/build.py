"""build.py: the book: every README and note of the tree as pages of one site.

    build.py --build BUILD --wasm figures.wasm     writes BUILD/book/

The pages are the Markdown files that the repository shows.  They are copied to
BUILD/book.src with three changes: a link to a source file leads to a page that shows the
file, a code block that is an excerpt names its file and line, and a figure's mark
(<!-- figure: one-row -->, with the picture that stands for it in the repository) becomes the
figure.  MkDocs with its Material theme does the rest: navigation, search, light and dark.
Formulas become MathML (hooks.py), which browsers draw without a script."""
import argparse
import base64
import html
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import PIL.Image
import pygments
from pygments import lexers, token
from pygments.filter import simplefilter
from pygments.formatters import HtmlFormatter

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"\]\(([^)\s]+\.(?:png|svg))\)")
FIGURE = re.compile(r"<!-- figure: ([\w-]+) -->\n(?:\[?!\[([^\]]*)\]\([^\n]*\n)?")
LANGUAGES = {".c": "c", ".h": "c", ".cu": "cuda", ".cc": "cpp", ".py": "python", ".sh": "sh",
             ".mk": "make", ".patch": "diff", ".csv": "text", ".js": "js"}
SCRIPTS = ["figures.wasm.js", "figure.js", "one_row.js", "parentheses.js", "tiles.js"]
LADDER = "common/book/figures/ladder.md"  # a page of the book where a recording is at hand
LADDER_SCRIPTS = ["timeline.data.js", "ladder.js"]
COLOURED = (token.Comment, token.Keyword, token.Literal)
SOURCE_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{top}/figures/source.css"></head>
<body><p><a href="{top}/index.html">Softmax to FlashAttention</a> / {name}</p>
{body}</body></html>
"""
UNUSED = ["assets/javascripts/lunr", "search/search_index.json", "sitemap.xml", "sitemap.xml.gz", "404.html"]
BUNDLED = ["mkdocs", "mkdocs-material", "latex2mathml", "pymdown-extensions"]


def tracked():
    """The files of the repository, without what is built."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            text=True, stdout=subprocess.PIPE, check=False)
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else: # an archive without its history
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                 if "build" not in path.relative_to(ROOT).parts]
    return sorted(name for name in names if name and (ROOT / name).is_file())


class Book:
    def __init__(self, source):
        self.source = source
        self.files = tracked()
        self.pages = [name for name in self.files if name.endswith(".md")]
        self.shown = set()     # source files that get a page
        self.broken = []

    def code_page(self, name):
        self.shown.add(name)
        return f"source/{name}.html"

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
            name = self.folder_page(name)
        elif name not in self.files:
            self.broken.append(f"{page}: {link}")
            return None
        else:
            return None
        return os.path.relpath(name, here) + (f"#{anchor}" if anchor else "")

    def folder_page(self, name):
        self.shown.add(name + "/")
        return f"source/{name}/index.html"

    def excerpt(self, page, code):
        """The source file that holds the code, and its first line; None where none does."""
        directory = page.split("/")[0] if page[0].isdigit() else None
        for name in self.files:
            if not name.endswith((".c", ".h", ".cu")) or "exercises/" in name \
                    or name.startswith("tests/"):
                continue
            if directory and not name.startswith(directory):
                continue
            text = (ROOT / name).read_text(encoding="utf-8")
            at = text.find(code)
            if at >= 0:
                return name, text.count("\n", 0, at) + 1
        return None

    def blocks(self, page, text):
        here = pathlib.PurePosixPath(page).parent

        def block(match):
            language, code = match[1], match[2]
            found = self.excerpt(page, code) if language in ("c", "cuda") else None
            if not found or code.count("\n") < 2:
                return match[0]
            name, line = found
            link = os.path.relpath(self.code_page(name), here)
            return (f"{match[0]}\n[{name}, line {line}]({link}#L-{line})"
                    "{ .excerpt }\n")
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
        text = FIGURE.sub(r'<div data-figure="\1" role="application" '
                          r'aria-label="\2"></div>\n\n', text)
        text = self.blocks(name, self.links(name, text))
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for image in IMAGE.findall(text):
            at = os.path.normpath(pathlib.PurePosixPath(name).parent / image)
            if at in self.files:
                (self.source / at).parent.mkdir(parents=True, exist_ok=True)
                copy_image(ROOT / at, self.source / at)
            elif not image.startswith("http"):
                self.broken.append(f"{name}: {image}")

    def source_page(self, name, site):
        """A file with its lines, or a folder with its files, as a page without the theme."""
        path = site / (f"source/{name}index.html" if name.endswith("/") else f"source/{name}.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            inside = [file for file in self.files if file.startswith(name)]
            body = "<ul>" + "".join(
                f'<li><a href="{file.removeprefix(name)}.html">{file.removeprefix(name)}</a></li>'
                if file in self.shown else f"<li>{file.removeprefix(name)}</li>"
                for file in inside) + "</ul>"
        else:
            body = highlighted((ROOT / name).read_text(encoding="utf-8", errors="replace"),
                               LANGUAGES.get(pathlib.PurePosixPath(name).suffix, "text"))
        top = os.path.relpath(site, path.parent)
        path.write_text(SOURCE_PAGE.format(name=html.escape(name), top=top, body=body),
                        encoding="utf-8")


def highlighted(text, language):
    """Code with its lines as anchors L-1, L-2, ...; only what guides the eye is coloured:
    comments, keywords, strings, numbers and the preprocessor."""
    @simplefilter
    def plain(_, lexer, stream, options):
        del lexer, options
        for kind, value in stream:
            coloured = any(kind in wanted for wanted in COLOURED)
            yield (kind if coloured else token.Text), value
    lexer = lexers.get_lexer_by_name(language, stripnl=False)
    lexer.add_filter(plain())
    formatter = HtmlFormatter(linespans="L")  # source.css counts the lines
    return pygments.highlight(text, lexer, formatter)


def copy_image(path, to):
    """A figure has few colours: with a palette it takes a third of the bytes."""
    if path.suffix != ".png":
        shutil.copy2(path, to)
        return
    with PIL.Image.open(path) as image:
        image.convert("RGB").quantize(96, dither=PIL.Image.Dither.NONE).save(to, optimize=True)


def title(name):
    for line in (ROOT / name).read_text(encoding="utf-8").split("\n"):
        if line.startswith("# "):
            return line[2:].replace('"', "'")
    return name


def navigation(pages):
    """The road first, then the figures, then the notes in the order of their contents page."""
    listed = re.findall(r"\]\(([\w.]+\.md)\)", (ROOT / "notes/README.md").read_text())
    order = list(dict.fromkeys(f"notes/{name}" for name in listed))
    figures = sorted(name for name in pages if name.startswith("notes/figures/") or name == LADDER)
    notes = [name for name in order if name in pages]
    notes += [name for name in pages if name.startswith("notes/") and name not in notes
              and name not in figures]
    rest = [name for name in pages if not re.match(r"notes/|0\d_|README", name) and name != LADDER]
    out = ["nav:", "  - Start: README.md", "  - The road:"]
    out += [f'    - "{title(name)}": {name}' for name in pages if re.match(r"0\d_\w+/README", name)]
    for heading, names in (("Figures", figures), ("Notes", notes), ("About the code", rest)):
        if names:
            out += [f"  - {heading}:"] + [f'    - "{title(name)}": {name}' for name in names]
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


def keep_inside(site):
    """The theme lets a page from a file fetch a script for its search; ours stands in."""
    outside = "https://unpkg.com/iframe-worker/shim"
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if outside in text:
            ours = os.path.relpath(site / "figures/search_frame.js", path.parent)
            path.write_text(text.replace(outside, ours), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Builds the book.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--wasm", type=pathlib.Path, required=True)
    parser.add_argument("--timeline", type=pathlib.Path,
                        default=ROOT / "notes/results/hopper/timeline.csv",
                        help="time stamps of the Hopper rungs; without them no such figure")
    arguments = parser.parse_args()
    build, timeline = arguments.build.resolve(), arguments.timeline.is_file()
    source, site = build / "book.src", build / "book"
    shutil.rmtree(source, ignore_errors=True)
    book = Book(source)
    if not timeline:
        book.pages.remove(LADDER)
    for name in book.pages:
        book.page(name)
    if book.broken:
        sys.exit("book: links that lead nowhere:\n  " + "\n  ".join(book.broken))
    figures = source / "figures"
    shutil.copytree(HERE / "figures", figures, ignore=shutil.ignore_patterns("*.md"))
    coded = base64.b64encode(arguments.wasm.read_bytes()).decode()
    (figures / "figures.wasm.js").write_text(f'const FIGURES_WASM = "{coded}";\n')
    if timeline:
        recorded = json.dumps(arguments.timeline.read_text(encoding="utf-8"))
        (figures / "timeline.data.js").write_text(f"const TIMELINE_CSV = {recorded};\n")
    config = build / "book.yml"
    settings = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
    scripts = "".join(f"  - figures/{name}\n" for name in SCRIPTS + LADDER_SCRIPTS * timeline)
    config.write_text(f"{settings}docs_dir: {source}\nsite_dir: {site}\n"
                      f"hooks:\n  - {HERE}/hooks.py\nextra_css:\n  - figures/figures.css\n"
                      f"extra_javascript:\n{scripts}{navigation(book.pages)}", encoding="utf-8")
    status = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-c", "-f", config],
                            check=False).returncode
    if status:
        sys.exit(status)
    for name in sorted(book.shown):
        book.source_page(name, site)
    for unused in [site / name for name in UNUSED] + list(site.rglob("*.map")):
        shutil.rmtree(unused) if unused.is_dir() else unused.unlink(missing_ok=True)
    keep_inside(site)
    bundle_licences(site)


if __name__ == "__main__":
    main()
