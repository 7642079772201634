"""machine_code.py: do the fast loops use the instructions that they were written with?

    python3 tests/machine_code.py [--out DIR] [--only gcc-x86-64-v4]

Compiles the files with the fast loops of the CPU variants, and the ceilings, for each
compiler and machine below, disassembles them and looks at the innermost loops of the
functions named below:

  - every multiply-add is packed and of the full width of the machine's registers; none is
    scalar, none narrower;
  - there are as many of them as the function has accumulators, and a loop that holds its
    accumulators in registers has no access to the stack;
  - of the files that evaluate exponentials, so many loops hold a whole polynomial and are
    packed throughout.

A compiler that is not installed, or does not know a machine, is a line that starts with
`skipped`.  Exit status: 0 all is well, 1 a loop is not, 77 nothing could be looked at.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

X86 = "x86-64 x86-64-v3 x86-64-v4 skylake-avx512 sapphirerapids znver4".split()
COMPILERS = {  # name: (commands in order of preference, disassembler, -march)
    "gcc": (["gcc"], "objdump", X86),
    "clang": (["clang", "clang-14", "clang-16", "clang-19"], "objdump", X86),
    "gcc-aarch64": (["aarch64-linux-gnu-gcc"], "aarch64-linux-gnu-objdump", ["armv8.2-a"]),
}
FLAGS = ("-std=c11 -D_GNU_SOURCE -O3 -fno-math-errno -fno-trapping-math -fopenmp "
         "-ffp-contract=off -g0 -Icommon -I04_monoid_tiled_cpu").split()

# file: {function: least number of packed multiply-adds in one of its innermost loops, by the
# bytes of a vector}.  A function with a * keeps its accumulators in registers.  A function is
# left out where the compiler has inlined it: then its caller is named instead.
TILED = "04_monoid_tiled_cpu/fast/"
LOOKS = {
    "common/measurement/ceiling.c": {"fma_chains*": {64: 16, 32: 12, 16: 12},
                                     "exp_loop": {64: 48, 32: 24, 16: 24}},
    TILED + "microkernel.c": {"scores_1*": {64: 8, 32: 6, 16: 6},
                              "scores_2*": {64: 16, 32: 12, 16: 12},
                              "scores_3*": {64: 24}, "values_1*": {64: 6, 32: 6, 16: 6},
                              "values_2*": {64: 12, 32: 12, 16: 12},
                              "values_3*": {64: 18}, "values_4*": {64: 24}},
}

# files: how many innermost loops hold at least EXP_FMAS packed multiply-adds and nothing scalar
EXP_FMAS = 6
EXPONENTIALS = {"01_naive/fast/*.c": 2, "02_safe_softmax/fast/*.c": 4,
                "03_online_softmax/fast/*.c": 4, TILED + "tiled.c": 2, TILED + "softmax.c": 3}


def width_of(march):
    if "arm" in march or march == "x86-64":
        return 16
    return 32 if march.endswith("v3") else 64


class Loop:
    """The instructions of an innermost loop: (mnemonic, operands)."""

    def __init__(self, body):
        self.body = body

    def count(self, test):
        return sum(1 for mnemonic, operands in self.body if test(mnemonic, operands))


def functions_of(objdump, path):
    """{name: [(address, mnemonic, operands)]}"""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", str(path)], check=True,
                          capture_output=True, text=True).stdout
    out, current = {}, None
    for line in text.splitlines():
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
    return [Loop([(m, o) for address, m, o in code if a <= address <= b]) for a, b in inner]


def is_scalar(mnemonic, operands):
    """A multiplication or multiply-add of one float."""
    if re.match(r"v?(fn?m(add|sub)\d*|mul)ss$", mnemonic):
        return True
    return mnemonic in ("fmadd", "fmul") and re.match(r"[sd]\d", operands) is not None


def is_packed(mnemonic, operands, width):
    """A multiplication (SSE2 has no multiply-add) or multiply-add of a whole register."""
    register = {64: "%zmm", 32: "%ymm", 16: "%xmm"}[width]
    if mnemonic in ("fmla", "fmls"):
        return ".4s" in operands
    if re.match(r"vfn?m(add|sub)\d+ps$", mnemonic):
        return register in operands
    return width == 16 and mnemonic in ("mulps", "vmulps") and register in operands


def is_narrow(mnemonic, operands, width):
    """A multiply-add of a part of a register."""
    packed = re.match(r"vfn?m(add|sub)\d+ps$", mnemonic) is not None
    return packed and not is_packed(mnemonic, operands, width)


def on_stack(_, operands):
    return re.search(r"\(%r[sb]p|\[sp", operands) is not None


def faults_of(loops, least, width, in_registers):
    """What is wrong with the loops of a function, as sentences."""
    if not loops:
        return ["has no loop"]
    best = max(loops, key=lambda loop: loop.count(lambda m, o: is_packed(m, o, width)))
    packed = best.count(lambda m, o: is_packed(m, o, width))
    faults = []
    if packed < least:
        faults.append(f"its best loop has {packed} packed multiply-adds of {width} bytes, "
                      f"not {least}")
    for what, test in (("scalar multiplications", is_scalar),
                       ("multiply-adds narrower than a register",
                        lambda m, o: is_narrow(m, o, width))):
        number = best.count(test)
        if number:
            faults.append(f"its best loop has {number} {what}")
    if in_registers and best.count(on_stack):
        faults.append(f"its best loop goes to the stack {best.count(on_stack)} times")
    return faults


def compiled(compiler, objdump, march, source, out):
    """The functions of one file: None when the compiler does not know the machine."""
    path = out / f"{pathlib.Path(compiler).name}-{march}-{str(source).replace('/', '_')}.o"
    done = subprocess.run([compiler, *FLAGS, f"-march={march}", "-c", str(source), "-o",
                           str(path)], capture_output=True, text=True)
    if done.returncode:
        if re.search(r"march|target CPU|unknown value", done.stderr):
            return None
        raise RuntimeError(f"{source} does not compile: {done.stderr.splitlines()[0]}")
    return functions_of(objdump, path)


def look_at_functions(compiler, objdump, march, source, out):
    """Faults of the functions named above in one file; None: the machine is unknown."""
    code, width, faults = compiled(compiler, objdump, march, source, out), width_of(march), []
    if code is None:
        return None
    for name, least in LOOKS[source].items():
        if width not in least:
            continue
        function = name.rstrip("*")
        found = [c for f, c in code.items() if f == function or f.startswith(function + ".")]
        if not found:
            faults.append(f"{source}: {function}: no such function; was it inlined?")
            continue
        loops = [loop for c in found for loop in loops_of(c)]
        faults += [f"{source}: {function}: {fault}" for fault in
                   faults_of(loops, least[width], width, name.endswith("*"))]
    return faults


def look_at_exponentials(compiler, objdump, march, pattern, out):
    """The same for the files of a pattern: are there enough packed exponentials?"""
    width, whole, mixed = width_of(march), 0, 0
    for source in sorted(pathlib.Path(".").glob(pattern)):
        code = compiled(compiler, objdump, march, source, out)
        if code is None:
            return None
        for loop in (loop for c in code.values() for loop in loops_of(c)):
            many = loop.count(lambda m, o: is_packed(m, o, width)) >= EXP_FMAS
            other = loop.count(lambda m, o: is_scalar(m, o) or is_narrow(m, o, width))
            whole += many and not other
            mixed += other >= EXP_FMAS * width // 4
    faults = []
    if whole < EXPONENTIALS[pattern]:
        faults.append(f"{pattern}: {whole} loops hold a packed exponential, not "
                      f"{EXPONENTIALS[pattern]}")
    if mixed:
        faults.append(f"{pattern}: {mixed} loops do the work of a vector lane by lane")
    return faults


def jobs_of(only):
    """(name, compiler, disassembler, -march); names of what is not installed."""
    for name, (commands, objdump, machines) in COMPILERS.items():
        compiler = next((c for c in commands if shutil.which(c)), None)
        for march in machines:
            if only and only not in f"{name}-{march}":
                continue
            yield f"{name} -march={march}", compiler, objdump, march


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/machine_code"))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    bad = looked = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = []
        for name, compiler, objdump, march in jobs_of(arguments.only):
            if not compiler or not shutil.which(objdump):
                print(f"skipped  {name}: {objdump if compiler else 'the compiler'} "
                      "is not installed")
                continue
            waiting.append((name, [
                pool.submit(look, compiler, objdump, march, what, arguments.out)
                for look, all_of in ((look_at_functions, LOOKS),
                                     (look_at_exponentials, EXPONENTIALS))
                for what in all_of]))
        for name, futures in waiting:
            results = [future.result() for future in futures]
            if None in results:
                print(f"skipped  {name}: the compiler does not know this machine")
                continue
            faults = [fault for result in results for fault in result]
            looked += 1
            bad += bool(faults)
            print(f"{'FAILED ' if faults else 'passed '}  {name}")
            for fault in faults:
                print(f"    {fault}")
    if not looked:
        return 77
    print(f"{looked} pairs of compiler and machine, {bad} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
