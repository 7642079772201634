"""test_on_ramp.py: the four programs of the on-ramp are right, and say so when they are not."""
import re

import pytest

from helpers import BUILD, ROOT, SANITIZED, run

RAMP = ROOT / "01_naive/gpu/on_ramp"
MISTAKES = {"1_threads": (r"y\[i\] = expf\(x\[i\]\)", "y[i] = x[i]"),
            "2_block": (r".*__syncthreads\(\); .. all 256.*\n", ""),
            "3_warp": (r"away = WARP / 2", "away = WARP / 4"),
            "4_coalescing": (r"\(size_t\)i \* stride;", "(size_t)i;")}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_program_is_right(name):
    out = run(BUILD / "on_ramp" / name).out
    assert "right: all" in out and "WRONG" not in out


@pytest.mark.skipif(SANITIZED, reason="an executor with a sanitizer links with that one only")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_kernel_is_seen(name, place):
    text, changes = re.subn(*MISTAKES[name], (RAMP / f"{name}.cu").read_text(encoding="utf-8"))
    assert changes
    (place / "x.cu").write_text(text, encoding="utf-8")
    run("c++", "-x", "c++", "-std=c++20", "-D_GNU_SOURCE", "-w", "-O1", "-fopenmp",
        f"-I{ROOT}/common/core", f"-I{RAMP}", "x.cu", "-x", "none",
        *(BUILD / "obj/common/core/cuda_on_cpu").glob("*.o"),
        BUILD / "obj/common/core/gpu/cuda_failed.o", "-lm", "-lpthread", "-o", "x")
    run(place / "x", want=1)


def test_the_first_lesson_names_it_before_the_first_gpu_file():
    text = (ROOT / "01_naive/README.md").read_text(encoding="utf-8")
    assert 0 < text.find("notes/gpu_on_ramp.md") < text.find(".cu")
