"""test_stages.py: every stage and variant on the whole case suite, through the program that a
reader runs.  Stage 5's teaching kernels are executed on the CPU where there is no GPU."""
import os
import re

import pytest

from helpers import STAGES, stage


def check_passes(number, *words):
    """The last line counts checks, none of them failed."""
    flags = os.environ.get("CHECK_FLAGS", "").split()
    out = stage(number, "check", *flags, *words).out
    counts = re.match(r"(\d+) checks passed, (\d+) failed", out.splitlines()[-1])
    assert counts and int(counts[1]) > 0 and counts[2] == "0", out[-3000:]


@pytest.mark.parametrize("number", range(1, 6), ids=STAGES)
def test_stage_passes_its_cases(number):
    check_passes(number)


@pytest.mark.parametrize("number", range(1, 6), ids=STAGES)
def test_random_problems_pass(number):
    """The same ones every time; `make differential` draws more."""
    check_passes(number, "--random", 200, "--seed", 20261)
