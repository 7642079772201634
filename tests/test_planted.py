"""test_planted.py: the planted bugs of `make gallery` still fit the code they are planted in."""
import sys

import pytest

from helpers import ROOT, SANITIZED, lines_of, run

PATCHES = sorted((ROOT / "tests/planted").glob("*.patch"))
STORIES = ROOT / "notes/results/planted/stories.csv"


@pytest.mark.parametrize("patch", [
    *PATCHES, *sorted((ROOT / "tests/mpi/planted").glob("*.patch")),
    *sorted((ROOT / "05_flash_cuda").glob("*/asides/*.patch")),
    *sorted((ROOT / "05_flash_cuda").glob("*/mistakes/*.patch")),
    *sorted((ROOT / "05_flash_cuda").glob("*/steps/*.patch"))], ids=lambda path: path.stem)
def test_patch_applies_to_the_sources(patch):
    """A step is what a rung has already: it can be taken out.  A planted bug has just as much around the
    lines that it changes as tells them from others, and a mistake may be off by two: neighbours change."""
    kind = patch.parent.name
    run("patch", "--dry-run", "-p1", "-s", *["--fuzz=0"] * (kind != "mistakes"), *["-R"] * (kind == "steps"),
        "-i", patch, cwd=ROOT)


def test_every_patch_tells_its_story_and_was_caught():
    for patch in PATCHES:
        lines = patch.read_text(encoding="utf-8").splitlines()
        for word in ("Story", "Family", "Program", "Variant", "Caught by"):
            assert any(line.startswith(f"{word}: ") for line in lines), f"{patch.name}: {word}"
    caught = {row["bug"]: row["first of those meant for it"] for row in lines_of(STORIES)}
    assert all(caught.values()) and len(caught) >= 54
    assert set(caught) <= {patch.stem for patch in PATCHES}


@pytest.mark.long
def test_every_bug_is_caught_by_the_case_that_was_written_for_it():
    if SANITIZED:
        pytest.skip("the gallery builds without sanitizers")
    run(sys.executable, ROOT / "tests/planted/gallery.py", "--quick", cwd=ROOT, timeout=3600)
