"""machines.py: the fast CPU variants on machines other than this one.

    QUICK=1 python3 -m pytest -rs tests/machines.py     make machines: without QUICK

`check --quick` of stages 1 to 4, built for each kind of machine that this one can run, with gcc
and with clang, and of stages 1 and 4 for 64-bit ARM under qemu.  QUICK=1: gcc and stage 4 alone, under
qemu its fastest variant, and programs for x86-64 take common/ from the build of this machine.  What
cannot be done here is skipped by name.  Their machine code: machine_code.py."""
import os
import pathlib
import shutil

import pytest

from helpers import BUILD, OUTSIDE, ROOT, STAGES, run

QUICK = bool(os.environ.get("QUICK"))
X86 = "CC=gcc CXX=g++ ARCH_FLAGS=-march="
# name: (what make gets, the instructions or programs that this machine must have)
MACHINES = {
    "gcc-x86-64": (X86 + "x86-64", "sse2"),
    "gcc-x86-64-v3": (X86 + "x86-64-v3", "avx2 fma"),
    "gcc-skylake-avx512": (X86 + "skylake-avx512", "avx512vl avx512bw avx512dq"),
    "clang-native": ("CC=clang", "clang"),
    "gcc-aarch64": ("CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ ARCH_FLAGS=-march=armv8.2-a",
                    "aarch64-linux-gnu-g++ qemu-aarch64"),
}


def processor():
    try:
        return pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return []


def take_harness(here):
    """The objects of common/ of this machine's build, without what its instructions decide.  Returns
    the options with which make takes their configuration for unchanged."""
    shutil.rmtree(ROOT / here, ignore_errors=True)
    shutil.copytree(BUILD / "obj/common", ROOT / here / "obj/common")
    for name in ("measurement/ceiling.o", "program/built_for.o"):
        (ROOT / here / "obj/common" / name).unlink(missing_ok=True)
    configs = [shutil.copy2(path, ROOT / here) for path in BUILD.glob("config*")]
    return [word for path in configs for word in ("-o", os.path.relpath(path, ROOT))]


if QUICK:  # where it can run, the build of this machine has its instructions; clang reads all files in .ci/run
    del MACHINES["gcc-skylake-avx512"], MACHINES["clang-native"]


@pytest.mark.parametrize("name", MACHINES)
def test_checks_pass_on(name):
    words, needs = MACHINES[name]
    emulated = "aarch64" in name
    run("sh", "common/core/make/require.sh", *(n for n in ("clang", "aarch64") if n in name),
        cwd=ROOT, want=None)
    for need in needs.split():
        if not shutil.which(need) and need not in processor():
            pytest.skip(f"this machine has no {need}")
    stages = STAGES[3:4] if QUICK else [STAGES[0], STAGES[3]] if emulated else STAGES[:4]
    here = os.path.relpath(BUILD / "machines" / name, ROOT)
    old = take_harness(here) if QUICK and X86 in words else []
    run("make", "-s", "-j2", *old, f"BUILD={here}", "CUDA=0", *words.split(),
        *(f"{here}/{stage}" for stage in stages), cwd=ROOT, env=OUTSIDE, timeout=3600)
    for stage in stages:
        run(*(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"] if emulated else []),
            f"{here}/{stage}", "check", "--quick", "--device", "cpu",
            *(["--variant", "all_cores"] if QUICK and emulated else []), cwd=ROOT, timeout=3600)
