"""slides.py FOLDER: a deck for each session, session_1.md to session_5.md, from the lessons themselves.

Plain Markdown, a page between lines `---`, as Marp, pandoc and reveal.js read it.  A page has the first sentence of
each paragraph and at most one figure, listing or table.  The last page has the session's questions
(notes/checkpoints.md).  A deck has at most MOST pages."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]

MOST, MOST_LINES, MOST_POINTS = 15, 24, 5
LEFT_OUT = ("Exercises",)


def plain(text):
    """Without links and line ends."""
    return re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))


def first_sentence(text):
    return re.match(r".*?[.:?]\)?(?=\s+[A-Z`*]|$)|.*", plain(text))[0].rstrip(":")


def is_shown(block):
    """A figure, listing, formula or table, which stands as it is."""
    return block.startswith(("```", "![", "|", "    ", "$$"))


def pages_of(section):
    """The pages of a section: lists of blocks."""
    title, _, body = re.sub(r"<!--.*?-->\n?|</?details>|<summary>.*?</summary>", "", section, flags=re.S).partition("\n")
    points, pages = [], []
    for block in (x.strip("\n") for part in re.split(r"(^```.*?^```)", body, flags=re.S | re.M)
                  for x in ([part] if part.startswith("```") else part.split("\n\n")) if x.strip()):
        if is_shown(block):
            shown = block.splitlines()[:MOST_LINES]
            shown += ["```"] * (block.startswith("```") and shown[-1] != "```")
            pages.append((title, points[:MOST_POINTS], "\n".join(shown)))
            points = []
        else:
            items = re.split(r"^(?:[-*]|\d+\.) ", block, flags=re.M)
            points += [f"- {first_sentence(x)}" for x in items if x.strip()]
    if pages and len(pages[-1][1]) + len(points) <= MOST_POINTS:  # what follows the last figure stands below it
        pages[-1] = title, pages[-1][1], "\n\n".join([pages[-1][2], "\n".join(points)]).strip()
        return pages
    return pages + [(title, points[i:i + MOST_POINTS], "") for i in range(0, len(points), MOST_POINTS)]


def deck(number, stage):
    lesson = (ROOT / stage / "README.md").read_text(encoding="utf-8")
    questions = (ROOT / "notes/checkpoints.md").read_text(encoding="utf-8").split(f"**Session {number}.**")[1]
    asked = [plain(x) for x in re.findall(r"\*([^*]+\?)\*", questions.split("\n\n")[0])]
    head, *sections = lesson.split("\n## ")
    pages = [page for x in sections if not x.startswith(LEFT_OUT) for page in pages_of(x)]
    while len(pages) > MOST - 2:  # the page with least on it goes
        pages.remove(min(pages, key=lambda page: len(page[2]) + sum(map(len, page[1]))))
    title = head.split("\n", 1)[0].removeprefix("# ")
    texts = [f"# {title}\n\nSession {number}"] + ["\n\n".join(x for x in (f"## {title}", "\n".join(points), shown) if x)
                                                 for title, points, shown in pages]
    texts.append("## Questions\n\n" + "\n".join(f"- {x}" for x in asked))
    return re.sub(r"\]\(\.\./notes", f"]({ROOT}/notes", "\n\n---\n\n".join(texts)) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(sorted(x.name for x in ROOT.glob("0*") if x.is_dir()), 1):
        text = deck(number, stage)
        (folder / f"session_{number}.md").write_text(text, encoding="utf-8")
        count = text.count("\n---\n") + 1
        print(f"{folder}/session_{number}.md: {count} pages")


if __name__ == "__main__":
    main()
