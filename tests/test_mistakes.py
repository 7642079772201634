"""test_mistakes.py: what the CPU execution says of the Hopper exercises (notes/from_profile_to_rung.md)."""
import re

import pytest
from helpers import ROOT, SANITIZED, copy_sources, make, run

MISTAKES = sorted((ROOT / "05_flash_cuda/hopper/mistakes").glob("*.patch"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in MISTAKES}


@pytest.mark.skipif(SANITIZED, reason="a sanitizer finds nothing that the executor has not found")
def test_executor_names_each_mistake_as_the_page_says():
    """Each is in a rung of its own, so that one build has all."""
    page = " ".join((ROOT / "notes/from_profile_to_rung.md").read_text(encoding="utf-8").split())
    copy_sources("05_flash_cuda", "04_monoid_tiled_cpu", "common")
    for path in MISTAKES:
        run("patch", "-p1", "-s", "-i", path)
    make("CUDA=0", "WERROR=", "build/05_flash_cuda")
    for name, text in TEXTS.items():
        rung, says = re.search(r"b/.*/\d+_(\w+)\.cu", text)[1], re.search("^Says: (.*)$", text, re.M)[1]
        assert f"| `{name}` |" in page and says in page
        said = run("build/05_flash_cuda", "check", "--quick", "--device", "cpu", "--variant", rung, want=1).err
        assert says in said, name
