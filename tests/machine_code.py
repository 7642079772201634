"""machine_code.py: do the fast loops use the instructions that they were written with?

    python3 -m pytest -rs tests/machine_code.py     part of make machines
    QUICK=1 ...     one machine for each width of its registers

Compiles the files with the fast loops of the CPU variants, and the ceilings, for each compiler and
machine below, disassembles them and counts the innermost loops that hold enough multiply-adds, all of
them packed and of the full width of the machine's registers; where a file has a * none of them may touch
the stack either.  A loop that does the work of a vector lane by lane is a fault."""
import os
import re
import shutil

import pytest

from helpers import ROOT, run

X86 = "x86-64 x86-64-v3 skylake-avx512".split()
X86 += [] if os.environ.get("QUICK") else "x86-64-v4 sapphirerapids znver4".split()
PAIRS = [(compiler, march) for compiler in ("gcc", "clang") for march in X86]
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
    TILED + "softmax.c": (EXPONENTIAL, 3, 3), TILED + "gradient.c": (EXPONENTIAL, 1, 1)}


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
