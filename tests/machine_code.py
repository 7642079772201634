"""machine_code.py: do the fast loops use the instructions that they were written with?

    python3 -m pytest -rs tests/machine_code.py     part of make machines
    QUICK=1 ...     one machine for each width of its registers

Compiles the files with the fast loops of the CPU variants, and the ceilings, for each compiler and
machine below, disassembles them and looks at the innermost loops of the functions named below:

  - every multiply-add is packed and of the full width of the machine's registers; none is scalar,
    none narrower;
  - there are as many of them as the function has accumulators, and a loop that holds its
    accumulators in registers has no access to the stack;
  - of the files that evaluate exponentials, so many loops hold a whole polynomial and are packed
    throughout."""
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
         "-ffp-contract=off -g0").split() + [f"-I{ROOT}/common", f"-I{ROOT}/04_monoid_tiled_cpu"]

# file: {function: least number of packed multiply-adds in one of its innermost loops, by the
# bytes of a vector}.  A function with a * keeps its accumulators in registers.  A function is
# left out where the compiler has inlined it: then its caller is named instead.
TILED = "04_monoid_tiled_cpu/fast/"
LOOKS = {
    "common/measurement/ceiling.c": {"fma_chains*": {64: 16, 32: 12, 16: 12},
                                     "exp_loop": {64: 48, 32: 24, 16: 24}},
    TILED + "microkernel.c": {f"{way}_{n}*": {64: n * (8 if n % 2 else 6)} |
                              ({32: 6 * n, 16: 6 * n} if n < 3 else {})
                              for way in ("along", "across") for n in (1, 2, 3, 4)},
}

# files: how many innermost loops hold at least EXP_FMAS packed multiply-adds and nothing scalar
EXP_FMAS = 6
EXPONENTIALS = {"01_naive/fast/*.c": 2, "02_safe_softmax/fast/*.c": 4,
                "03_online_softmax/fast/*.c": 4, TILED + "tiled.c": 2, TILED + "softmax.c": 3,
                TILED + "gradient.c": 1}


def width_of(march):
    if "arm" in march or march == "x86-64":
        return 16
    return 32 if march.endswith("v3") else 64


def functions_of(objdump, path):
    """{name: [(address, mnemonic, operands)]}"""
    out, current = {}, None
    for line in run(objdump, "-d", "--no-show-raw-insn", path).out.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.+)>:$", line)
        if head:
            current = out.setdefault(head[1], [])
            continue
        code = re.match(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line)
        if code and current is not None:
            current.append((int(code[1], 16), code[2], code[3]))
    return out


def loops_of(code):
    """The innermost loops: backward jumps that contain no other backward jump."""
    spans = []
    for address, mnemonic, operands in code:
        if not re.match(r"(j|b\.|b$|cbn?z|tbn?z)", mnemonic):
            continue
        target = re.search(r"([0-9a-f]+) <", operands)
        if target and int(target[1], 16) <= address:
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


def products(loop, width):
    """How many products of a loop are packed and of full width, of one float, and between."""
    sizes = [product(*code, width) for code in loop]
    return sizes.count(width), sizes.count(4), sum(4 < size < width for size in sizes)


def faults_of(loops, least, width, in_registers):
    """What is wrong with the loops of a function, as sentences."""
    if not loops:
        return ["has no loop"]
    best = max(loops, key=lambda loop: products(loop, width)[0])
    packed, scalar, narrow = products(best, width)
    stack = sum(re.search(r"\(%r[sb]p|\[sp", operands) is not None for _, operands in best)
    return [f"its best loop has {number} {what}" for number, what, bad in (
        (packed, f"packed multiply-adds of {width} bytes, not {least}", packed < least),
        (scalar, "scalar multiplications", scalar),
        (narrow, "multiply-adds narrower than a register", narrow),
        (stack, "accesses to the stack", in_registers and stack)) if bad]


def compiled(compiler, march, source):
    """The functions of one file."""
    done = run(compiler, *FLAGS, f"-march={march}", "-c", source, "-o", "code.o",
               want=None)
    if re.search(r"march|target CPU|unknown value", done.err):
        pytest.skip(f"{compiler} does not know {march}")
    assert done.code == 0, done
    return functions_of(compiler.replace("gcc", "objdump").replace("clang", "objdump"), "code.o")


def faults_of_functions(compiler, march, width):
    for source, functions in LOOKS.items():
        code = compiled(compiler, march, ROOT / source)
        for name, least in functions.items():
            if width not in least:
                continue
            function = name.rstrip("*")
            found = [c for f, c in code.items() if f == function or f.startswith(function + ".")]
            if not found:
                yield f"{source}: {function}: no such function; was it inlined?"
                continue
            loops = [loop for c in found for loop in loops_of(c)]
            for fault in faults_of(loops, least[width], width, name.endswith("*")):
                yield f"{source}: {function}: {fault}"


def faults_of_exponentials(compiler, march, width):
    """Are there enough packed exponentials?"""
    for pattern, least in EXPONENTIALS.items():
        whole = mixed = 0
        for source in sorted(ROOT.glob(pattern)):
            code = compiled(compiler, march, source)
            for loop in (loop for c in code.values() for loop in loops_of(c)):
                packed, scalar, narrow = products(loop, width)
                whole += packed >= EXP_FMAS and not scalar + narrow
                mixed += scalar + narrow >= EXP_FMAS * width // 4
        if whole < least:
            yield f"{pattern}: {whole} loops hold a packed exponential, not {least}"
        if mixed:
            yield f"{pattern}: {mixed} loops do the work of a vector lane by lane"


@pytest.mark.parametrize("compiler, march", PAIRS)
def test_fast_loops_are_packed(compiler, march):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    width = width_of(march)
    faults = [*faults_of_functions(compiler, march, width),
              *faults_of_exponentials(compiler, march, width)]
    assert not faults, "\n".join(faults)
