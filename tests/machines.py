"""machines.py: stage 4 and the other CPU variants on machines other than this one: machine code, and checks.

    QUICK=1 python3 -m pytest -rs tests/machines.py     make machines: without QUICK

Do the fast loops use the instructions that they were written with?  Compiles the files with the fast loops of
the CPU variants, and the ceilings, for each compiler and machine below, disassembles them and counts the
innermost loops that hold enough multiply-adds, all of them packed and of the full width of the machine's
registers; where a file has a * none of them may touch the stack either.  A loop that does the work of a vector
lane by lane is a fault.

Are they right?  `check --quick` of stages 1 to 4, built for each kind of machine that this one can run, with gcc
and with clang, and of stages 1 and 4 for 64-bit ARM under qemu.

QUICK=1: one machine for each width of registers; gcc and stage 4 alone, under qemu its fastest variant, and
programs for x86-64 take common/ from the build of this machine.  What cannot be done here is skipped by name."""
import os
import pathlib
import re
import shutil

import pytest

from helpers import BUILD, OUTSIDE, ROOT, STAGES, run

QUICK = bool(os.environ.get("QUICK"))

# --- Machine code. ---

MARCHES = "x86-64 x86-64-v3 skylake-avx512".split()
MARCHES += [] if QUICK else "x86-64-v4 sapphirerapids znver4".split()
PAIRS = [(compiler, march) for compiler in ("gcc", "clang") for march in MARCHES]
PAIRS += [("aarch64-linux-gnu-gcc", "armv8.2-a")]
FLAGS = ("-std=c11 -D_GNU_SOURCE -O3 -fno-math-errno -fno-trapping-math -fopenmp "
         "-ffp-contract=off -g0").split() + [f"-I{ROOT}/common/core", f"-I{ROOT}/04_monoid_tiled_cpu"]

TILED = "04_monoid_tiled_cpu/fast/"
# files: (packed multiply-adds that a loop holds at least, how many loops do; with AVX-512)
EXPONENTIAL = 6
LOOPS = {
    "common/core/measurement/ceiling.c": (12, 2, 2), TILED + "microkernel.c*": (6, 4, 8),
    "01_naive/fast/*.c": (EXPONENTIAL, 2, 2), "02_safe_softmax/fast/*.c": (EXPONENTIAL, 4, 4),
    "03_online_softmax/fast/*.c": (EXPONENTIAL, 4, 4), TILED + "tiled.c": (EXPONENTIAL, 2, 2),
    TILED + "softmax.c": (EXPONENTIAL, 3, 3), TILED + "gradient_tiled.c": (EXPONENTIAL, 1, 1)}


def width_of(march):
    if "arm" in march or march == "x86-64":
        return 16
    return 32 if march.endswith("v3") else 64


def loops_of(objdump, path):
    """[(mnemonic, operands)] of the innermost loops: backward jumps that contain no other one."""
    code, spans = [], []
    for line in run(objdump, "-d", "--no-show-raw-insn", path).out.splitlines():
        if found := re.match(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line):
            code.append((int(found[1], 16), found[2], found[3]))
    for address, mnemonic, operands in code:
        target = re.search(r"([0-9a-f]+) <", operands)
        if re.match(r"(j|b\.|b$|cbn?z|tbn?z)", mnemonic) and target and int(target[1], 16) <= address:
            spans.append((int(target[1], 16), address))
    inner = [(a, b) for a, b in spans
             if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)]
    return [[(m, o) for address, m, o in code if a <= address <= b] for a, b in inner]


def product(mnemonic, operands, width):
    """How many bytes an instruction multiplies at once: 4 are one float, 0 no multiplication.  SSE2,
    with 16 bytes, has no multiply-add."""
    if re.match(r"v?(fn?m(add|sub)\d*|mul)ss$", mnemonic) or (
            mnemonic in ("fmadd", "fmul") and re.match(r"[sd]\d", operands)):
        return 4
    if mnemonic in ("fmla", "fmls"):
        return 16 * (".4s" in operands)
    if re.match(r"vfn?m(add|sub)\d+ps$", mnemonic) or (
            width == 16 and mnemonic in ("mulps", "vmulps")):
        return next(size for size in (64, 32, 16) if f"%{'xyz'[size // 32]}mm" in operands)
    return 0


def compiled(compiler, march, source):
    """The loops of one file."""
    done = run(compiler, *FLAGS, f"-march={march}", "-c", source, "-o", "code.o", want=None)
    if re.search(r"march|target CPU|unknown value", done.err):
        pytest.skip(f"{compiler} does not know {march}")
    assert done.code == 0, done
    return loops_of(compiler.replace("gcc", "objdump").replace("clang", "objdump"), "code.o")


def faults(compiler, march, width):
    for files, (products, narrower, widest) in LOOPS.items():
        whole = mixed = 0
        for source in sorted(ROOT.glob(files.rstrip("*"))):
            for loop in compiled(compiler, march, source):
                sizes = [product(*code, width) for code in loop]
                other = len(sizes) - sizes.count(width) - sizes.count(0)
                stack = files.endswith("*") and any(re.search(r"\(%r[sb]p|\[sp", o) for _, o in loop)
                whole += sizes.count(width) >= products and not other and not stack
                mixed += other >= EXPONENTIAL * width // 4
        least = widest if width == 64 else narrower
        if whole < least:
            yield f"{files}: {whole} loops hold {products} packed multiply-adds, not {least}"
        if mixed:
            yield f"{files}: {mixed} loops do the work of a vector lane by lane"


@pytest.mark.parametrize("compiler, march", PAIRS)
def test_fast_loops_are_packed(compiler, march):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    found = [*faults(compiler, march, width_of(march))]
    assert not found, "\n".join(found)


# --- Checks. ---

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
    for name in ("measurement/ceiling.o", "program/processor.o"):
        (ROOT / here / "obj/common/core" / name).unlink()
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
