"""test_lessons.py: what the lessons quote is in the code, what they print is printed, and they keep their
form.  MkDocs checks their links (make book)."""
import re
import shlex

import pytest

from helpers import BUILD, OUTSIDE, ROOT, STAGES, run

LESSONS = [ROOT / "README.md", *sorted(ROOT.glob("0*/README.md")),
           *sorted(ROOT.glob("notes/*.md")), *sorted(ROOT.glob("tests/*/README.md"))]
TEXT = {path: path.read_text(encoding="utf-8") for path in LESSONS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
EIGHT = ["## Problem", "## Idea", "## What changes", "## Reading the code", "## Run it", "## Cost",
         "## Limits", "## Exercises"]


def name_of(path):
    return str(path.relative_to(ROOT))


def sources(lesson):
    """The code that a lesson may quote: its stage's, or everything for a note."""
    folders = [lesson.parent] if lesson.parent.name in STAGES else \
        [ROOT / name for name in STAGES] + [ROOT / "common"]
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in (".c", ".h", ".cu", ".cuh"):
                yield path.read_text(encoding="utf-8")


def test_excerpts_are_exactly_in_the_code():
    quoted = [(path, body) for path in LESSONS for language, body in BLOCK.findall(TEXT[path])
              if language in ("c", "cuda")]
    assert len(quoted) >= 6
    for path, body in quoted:
        assert any(body in source for source in sources(path)), f"{name_of(path)} quotes\n{body}"


def transcripts():
    """(lesson, command, lines) of each transcript that is the same every time and everywhere."""
    for path in LESSONS:
        for _, body in BLOCK.findall(TEXT[path]):
            command, _, shown = body.partition("\n")
            if re.match(r"\$ (build/\S+ (trace|run)\b|build/on_ramp/|make trace|make stage$)", command):
                yield pytest.param(command[2:], shown, id=f"{name_of(path)}: {command[2:]}")


def printed_by(command):
    """The lines of a command.  `make trace 3` runs without make, which might find that something is
    to be rebuilt while other tests use it."""
    words = shlex.split(command)
    if words[:2] == ["make", "trace"]:
        words = [f"build/{STAGES[int(words[2]) - 1]}", "trace"]
    if words[0].startswith("build/"):
        words[0] = BUILD / words[0].removeprefix("build/")
    result = run(*words, cwd=ROOT, env=OUTSIDE, want=None)
    return [line.rstrip() for line in (result.out + result.err).splitlines() if line.strip()]


@pytest.mark.parametrize("command, shown", transcripts())
def test_transcripts_are_what_the_programs_print(command, shown):
    """In a transcript '...' stands for any lines."""
    parts = [[line.rstrip() for line in part.splitlines() if line.strip()]
             for part in re.split(r"^\.\.\.$", shown, flags=re.M)]
    got = printed_by(command)
    if len(parts) == 1:
        assert got == parts[0]
        return
    text, at = "\n" + "\n".join(got) + "\n", 0
    for part in parts:
        block = "\n" + "\n".join(part) + "\n" if part else ""
        assert block in text[at:], f"not printed, or not in this order:\n{block}"
        at = text.index(block, at) + len(block.rstrip("\n"))
    assert text.startswith("\n" + "\n".join(parts[0])), "the transcript begins elsewhere"


def diff(number):
    return run("sh", "common/core/make/diff.sh", STAGES[number - 1], "stage.c", *STAGES, cwd=ROOT).out


def test_neighbours_differ_by_one_idea():
    """What does the same job keeps its name and form from stage to stage."""
    second, third = diff(2), diff(3)
    for text in (second, third):
        added, removed = map(int, re.search(r"(\d+) lines added, (\d+) removed", text).groups())
        assert added <= 40 and removed <= 40
    assert "+++ 04_monoid_tiled_cpu/stage.c" in diff(4)


@pytest.mark.parametrize("stage", STAGES[:3])
def test_a_lesson_is_read_in_one_sitting(stage):
    """At most 3 files with 250 lines, stage.c with 80 of them; nothing of the harness."""
    out = run("cc", "-MM", "-I", "common/core", f"{stage}/stage.c", cwd=ROOT).out
    files = [*dict.fromkeys(out.replace("\\\n", " ").split()[1:])]
    lines = [len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files]
    assert files[0] == f"{stage}/stage.c" and lines[0] <= 80
    assert len(files) <= 3 and sum(lines) <= 250, files


def test_every_stage_has_the_eight_headings_within_120_lines():
    for stage in STAGES:
        text = TEXT[ROOT / stage / "README.md"]
        assert re.findall("^## .*", text, re.M) == EIGHT, stage
        own = re.sub(r"<!-- table:\S+ begin -->.*?<!-- table:\S+ end -->", "", text, flags=re.S)
        own = re.sub(r"<!-- figure:.*?-->\n.*\n\n.*?\n\n", "", own, flags=re.S)  # with its caption
        assert len([line for line in own.splitlines() if line]) <= 120, stage
