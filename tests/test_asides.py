"""test_asides.py: the asides of the Hopper ladder, which are patches of rung 13."""
import sys

import pytest

from helpers import ROOT, SANITIZED, STAGES, copy_sources, make, run

sys.path.append(str(ROOT / "common/products/reports"))
from asides import ASIDES, SHAPES, plant, text_of  # noqa: E402


@pytest.mark.parametrize("name", ASIDES)
def test_aside_is_a_small_diff_that_make_shows(name):
    shown = run("make", "-s", "-C", ROOT, "diff", f"RUNG={name}").out
    text = text_of(name)
    assert shown == text and len(SHAPES[name]) > 0
    story, lines = text.split("\n--- ")
    assert story.startswith("Aside: ") and len(story.split("\n")[0]) <= 90
    assert 1 <= sum(line[:1] in "+-" for line in lines.split("\n")[2:] if line) <= 80
    listing = run("make", "-s", "-C", ROOT, "diff", "RUNG=14").out
    assert f"  {name:16} {story.splitlines()[0].removeprefix('Aside: ')}\n" in listing


@pytest.mark.long
@pytest.mark.skipif(SANITIZED, reason="the copy is built without sanitizers")
def test_every_aside_computes_attention(place):
    """Each as a kernel of its own, executed on the CPU."""
    copy_sources("common", *STAGES)
    plant(place)
    make("CUDA=0", "build/05_flash_cuda")
    for name in ASIDES:
        run("build/05_flash_cuda", "check", "--quick", "--variant", f"with_{name}")
