"""`make profile` with a stand-in for ncu (tests/profile/): what it asks, and what it makes of
the counters."""
import os
import sys

import pytest

from helpers import ROOT, lines_of, run

sys.path.insert(0, str(ROOT / "common/products/reports"))
from ladder import LAST  # noqa: E402

TOOLS = ROOT / "tests/profile"
BESIDE = {"PATH": f"{TOOLS}:{os.environ['PATH']}"}


def profile(place, roof="", env=None, want=0):
    """What counters.py of stage 5 says, and what it asked ncu."""
    done = run(sys.executable, "-B", "common/products/reports/counters.py", "05_flash_cuda", TOOLS / "program", place, roof,
               cwd=ROOT,
               env={"ASKED": place / "asked"} | (BESIDE if env is None else env), want=want)
    asked = place / "asked"
    return done, asked.read_text() if asked.exists() else ""


def test_counters_of_every_rung_are_in_the_csv(place):
    _, asked = profile(place, roof=TOOLS / "roof")
    known = {(line["variant"], line["head_dim"]): line for line in lines_of("profile_program.csv")}
    for variant, d, column, want in (
            ("lazy_rescaling", "128", "tensor_pct", "71.2"),
            ("lazy_rescaling", "64", "exp_pct", "40.0"),
            ("lazy_rescaling", "64", "bytes_measured", "1700500000"),  # Mbyte and Gbyte
            ("lazy_rescaling", "64", "median_s", "0.0025"),
            ("lazy_rescaling", "64", "gflops", "800000"),
            ("lazy_rescaling", "64", "reps", ""),  # so that it is no measured time
            ("lazy_rescaling", "64", "pct_ceiling", ""),  # as any rate of what bench measured
            ("lazy_rescaling", "64", "conflict_pct", "25.0"), ("tiled", "64", "dtype", "f32"),
            ("lazy_rescaling", "64", "local_bytes", "96"),
            ("lazy_rescaling", "64", "clock_ghz", "1.75"),
            ("split_kv", "128", "median_s", "0.003"), ("split_kv", "128", "registers", "168"),
            ("no_softmax", "128", "stage", "roof")):
        assert known[variant, d][column] == want, (variant, d, column)
    assert ("study", "64") not in known
    # all rungs of a shape in one process, the third launch of each
    assert f"::regex:^(tiled_kernel|lazy_rescaling_kernel|{LAST}_kernel)$:3 {TOOLS}/program bench --quick --csv" in asked
    assert f"{TOOLS}/roof bench --quick --variant {LAST}" in asked


@pytest.mark.parametrize("env, says", [
    (None, "skipped: ncu (Nsight Compute) is not on the PATH"),
    (BESIDE | {"REFUSES": "1"}, "skipped: this machine refuses the counters")])
def test_without_ncu_or_its_permission_is_a_skip_that_says_so(place, env, says):
    if env is None:  # no ncu
        env = {"PATH": place}
    done, _ = profile(place, env=env, want=77)
    assert says in done.err + done.out
    assert not list(place.glob("*.csv"))
