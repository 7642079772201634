"""judge.py: what is right of a file that somebody wrote.

The file is compiled as it is, in a jail that sees no solutions, and linked with child.c into a static
program.  That runs under a filter of system calls (jail.c); this process holds inputs and right answers
and sends it one call at a time (child.py).  A kernel runs under three orders of its threads.

    judge = Judge(options);  verdict = judge.verdict(exercise, bytes, seed)"""
import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as many jobs as cores
# pylint: disable=wrong-import-position
import numpy as np  # noqa: E402

import gpu  # noqa: E402
from child import Child, Died, Wrong  # noqa: E402
from source import ROOT, fail, parts_of, problems_of  # noqa: E402

COURSE = ROOT / "common/products/course"
INCLUDE = [f"-I{ROOT}/common/core", f"-I{ROOT}/common/products"]
COMPILE_S, MOST_DEATHS, ALL_CASES_S, GPU_S = 30, 12, 30, 60  # seconds, of the processor but the last
UNREADABLE = ArithmeticError, LookupError, ValueError, TypeError  # what comes of an answer that is no answer
ORDERS = ["forward", "backward", "random:7"]
NO_GPU = "this machine has no GPU with nvcc: judged by the execution on the CPU alone"
# What `jail -k` says of this kernel.
ISOLATION = {0: "memory and two descriptors; the compiler sees no solutions", 1: "none",
             2: "memory and two descriptors; the compiler sees all files"}


class Refused(Wrong):
    """By a compiler, whose words are the log."""


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


class Verdict:
    """why: "" or why nothing was run; log: the compiler's words; results: (case, Wrong or None); shares: of a
    family that is timed, percent of the ceiling; notes: what else its author should know."""

    def __init__(self):
        self.why, self.log, self.printed, self.results, self.shares, self.notes = "", [], "", [], {}, []

    @property
    def failed(self):
        return [x for x in self.results if x[1]]

    @property
    def right(self):
        return bool(self.results) and not self.failed and not self.why

    def families(self):
        """Family -> are all its cases right?"""
        found = {}
        for case, wrong in self.results:
            found[case.family] = found.get(case.family, True) and not wrong
        return found

    def in_words(self):
        """Why it is not right, in a line, and the lines behind it."""
        if self.right:
            return "right", []
        if self.why:
            return self.why, self.log[:12]
        case, wrong = min(self.failed, key=lambda x: (x[1].why == "not run", x[0].size))
        lines = [wrong.numbers()] * bool(wrong.where)
        if case.size <= 16:
            lines += [f"{x} = {' '.join(f'{float(e):.9g}' for e in np.ravel(y))}" for x, y in case.show.items()]
        lines += [f"it said: {x}" for x in self.printed.splitlines()[:4] if x.strip()]
        families = [name for name, right in self.families().items() if not right]
        lines.append(f"{len(self.failed)} of {len(self.results)} cases fail, this is the smallest; wrong are "
                     f"{len(families)} of {len(self.families())} families: "
                     + ", ".join([*families[:4], *["..."] * (len(families) > 4)]))
        return f"{case.name}: {wrong}", lines


class Judge:
    """options: build, cc, cxx, nvcc (commands; nvcc "": kernels are executed on the CPU only)."""

    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="judge.")).resolve()
        self.cc, self.cxx = shlex.split(options.cc), shlex.split(options.cxx)
        self.nvcc = options.nvcc if options.nvcc and gpu.architecture() else ""
        found = [pathlib.Path(x).resolve().parents[1] for x in map(shutil.which, (*self.cc, *self.cxx, self.nvcc)) if x]
        self.toolchains = {x for x in found if x != pathlib.Path("/usr") and not ROOT.is_relative_to(x)}
        self.jail, self.linked = str(self.build / "jail"), [self.build / x for x in ("child.o", "libharness.a")]
        if missing := [x for x in (pathlib.Path(self.jail), self.build / "ceiling", *self.linked) if not x.exists()]:
            raise Shortage(f"no {missing[0]}: make exercises-built")
        self.isolation = subprocess.run([self.jail, "-k"], check=False).returncode
        if self.isolation not in (0, 2):
            raise Shortage("no filter of system calls (seccomp) on this machine")

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)

    def compile(self, command, folder):
        """Runs a compiler in its jail.  Raises Refused."""
        read = [x for path in (f"{ROOT}/common/core", COURSE, *self.linked, "/usr/lib/gcc", *self.toolchains)
                for x in ("-r", str(path))]
        env = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C",
               "CCACHE_DISABLE": "1"}
        with open(folder / "log", "w+b") as log, subprocess.Popen(
                [self.jail, "-c", "-s", str(COMPILE_S), *read, "-w", str(folder), *map(str, command)],
                cwd=folder, env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                status = process.wait(4 * COMPILE_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            log.seek(0)
            said = log.read(20000).decode("utf-8", errors="replace").replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        if status != 0:
            lines = [x for x in said.splitlines() if "statically linked applications" not in x]
            why = next((x for x in lines if "error" in x or "undefined" in x), lines[0] if lines else "the compiler took too long")
            error = Refused("does not compile: " + ("answer() is missing" if "reference to `answer'" in why else why))
            error.log = lines
            raise error

    def program(self, exercise, files, folder):
        """folder/program, of the file as it was handed in.  Raises Refused."""
        for name, data in files.items():
            (folder / name).write_bytes(data)
        compiler = self.cxx if exercise.cuda else [*self.cc, "-Werror=implicit-function-declaration"]
        linker = self.cxx[:next(i for i, word in enumerate(self.cxx) if word.startswith("-"))]
        self.compile([*compiler, "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter", *INCLUDE,
                      "-c", exercise.file.name, "-o", "object.o"], folder)
        self.compile([*linker, "-static", "-fopenmp", "object.o", *self.linked,
                      "-lm", "-lpthread", "-o", "program"], folder)

    def verdict(self, exercise, data, seed, parts=None):
        """All cases of that seed.  parts: the student's other files that this one includes, name -> bytes;
        if None, those of the solutions.  What is made of a solution is kept: it comes again."""
        if parts is None:
            parts = parts_of(exercise, lambda x: x.solution().encode())
        verdict, files = Verdict(), {**parts, exercise.file.name: data}
        kept = self.place / hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        folder = kept if kept.exists() else pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            if folder != kept:
                self.program(exercise, files, folder)
            rng = np.random.default_rng([seed, zlib.crc32(exercise.name.encode())])
            with np.errstate(all="ignore"):
                self.run(verdict, list(problems_of(exercise)(rng)), folder, exercise)
            if exercise.uses and not verdict.right:
                verdict.notes.append(f"it includes {' and '.join(f'{x}.c' for x in exercise.uses)}: see first that each is right by itself")
            if data == exercise.solution().encode():
                with contextlib.suppress(OSError):  # another process was first
                    folder.rename(kept)
        except Refused as error:
            verdict.why, verdict.log = error.why, error.log
        finally:
            if folder != kept:
                shutil.rmtree(folder, ignore_errors=True)
        return verdict

    def ceiling(self, threads):
        """Multiply-adds a second that so many threads do now."""
        with Child(self.jail, self.build / "ceiling", threads=True) as child:
            _, seconds = child.timed(threads, [threads, 100000], [], [threads])
        return threads * 112e5 / seconds

    def cubin(self, source, folder):
        """Its code for this machine's GPU, made once."""
        made = folder / f"{source.name}bin"
        if not made.exists():
            self.compile([self.nvcc, "-cubin", f"-arch={gpu.architecture()}", "-std=c++20", "-O3", *INCLUDE, source,
                          "-o", made.name], folder)
        return made

    def on_gpu(self, source, **inputs):
        """What gpu.py finds of the kernels in a file: o, lse, share."""
        folder = source.parent
        with open(self.place / "gpu", "w", encoding="ascii") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            words = [*(self.cubin(x, folder) for x in (source, COURSE / "peak.cu")), folder / "in.npz", folder / "out.npz"]
            np.savez(words[2], **inputs)
            try:
                done = subprocess.run([sys.executable, COURSE / "gpu.py", *words], capture_output=True, text=True,
                                      timeout=GPU_S, check=False)
            except subprocess.TimeoutExpired:
                raise Died("took too long on the GPU") from None
            if done.returncode:
                raise Wrong(f"on the GPU: {(done.stderr.splitlines() or ['no answer'])[-1]}")
            return dict(np.load(words[3]))

    def run(self, verdict, cases, folder, exercise):
        """One process for all cases, and another one after a failure.  Whatever the answers are, this
        ends with a result for every case; of a family that ended the process the rest is not run."""
        used, died = 0.0, []
        with contextlib.ExitStack() as children:
            for order in ORDERS if exercise.cuda else [""]:
                child = None
                for case in cases:
                    wrong = None
                    if case.on_gpu and (not self.nvcc or order != ORDERS[0]):
                        verdict.notes = verdict.notes if self.nvcc else [NO_GPU]
                        continue
                    if case.family in died or len(died) > MOST_DEATHS or used > ALL_CASES_S:
                        verdict.results.append((case, Wrong("not run")))
                        continue
                    child = child or children.enter_context(Child(
                        self.jail, folder / "program", order, exercise.threads, self.ceiling,
                        functools.partial(self.on_gpu, folder / exercise.file.name)))
                    begin = child.cpu()
                    try:
                        case.judge(child)
                    except Wrong as error:
                        wrong = error
                        died += [case.family] * (5 * ("too long" in error.why) or isinstance(error, Died))
                        if order and case.family not in died and not case.on_gpu:
                            wrong.why += f" (threads in the order {order})"
                    except UNREADABLE as error:
                        wrong = Wrong(f"gave what cannot be read ({type(error).__name__})")
                    used += max(0.0, child.cpu() - begin)
                    if child.share is not None:
                        verdict.shares[case.family], child.share = child.share, None
                    if wrong:
                        verdict.printed = verdict.printed or child.printed()
                        child.__exit__()
                        child = None
                    verdict.results.append((case, wrong))


@contextlib.contextmanager
def judging(kind, options):
    """A judge.  Nothing of its work stays behind, also after a signal; where this machine lacks
    something, that ends the program."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda which, _: sys.exit(128 + which))
    judge = None
    try:
        judge = kind(options)
        yield judge
    except BrokenPipeError:
        raise
    except (Shortage, MemoryError, OSError) as error:
        fail(f"stopped without a mark: {error or 'no memory'}", 3)
    finally:
        if judge:
            judge.close()
