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
import types
import zlib

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as many jobs as cores
# pylint: disable=wrong-import-position
import numpy as np  # noqa: E402

import gpu  # noqa: E402
from child import Child, Died, Wrong  # noqa: E402
from source import ROOT, fail, parts_of, problems_of  # noqa: E402

COURSE = ROOT / "common/products/course"
COMPILE_S, MOST_DEATHS, ALL_CASES_S = 30, 12, 30  # processor seconds
GPU_S, KEPT = 60, 200  # seconds; programs
UNREADABLE = ArithmeticError, LookupError, ValueError, TypeError  # what comes of an answer that is no answer
ORDERS = ["forward", "backward", "random:7"]
NO_GPU = "this machine has no GPU with nvcc: judged by the execution on the CPU alone"
# What `jail --complete` says of this kernel.
ISOLATION = {0: "memory and two descriptors; the compiler sees no solutions", 1: "none",
             2: "memory and two descriptors; the compiler sees all files"}


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


class Verdict:
    """why: "" or why nothing was run; log: the compiler's words; results: (case, Wrong or None); shares: of a
    family that is timed, percent of the ceiling; notes: what else its author should know."""

    def __init__(self):
        self.why, self.log, self.printed, self.results, self.shares, self.notes = "", "", "", [], {}, []

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
        if self.why:
            return self.why, self.log.splitlines()[:12]
        case, wrong = min(self.failed, key=lambda x: (x[1].why == "not run", x[0].size))
        lines = [f"got {wrong.got:.9g}  want {wrong.want:.9g}  allowed error {wrong.allowed:.3g}"] * bool(wrong.where)
        if case.size <= 16:
            lines += [f"{x} = {' '.join(f'{float(e):.9g}' for e in np.ravel(y))}" for x, y in case.show.items()]
        lines += [f"it said: {x}" for x in self.printed.splitlines()[:4] if x.strip()]
        families = [name for name, right in self.families().items() if not right]
        lines.append(f"{len(self.failed)} of {len(self.results)} cases fail, this is the smallest; wrong are "
                     f"{len(families)} of {len(self.families())} families: "
                     + ", ".join([*families[:4], *["..."] * (len(families) > 4)]))
        return f"{case.name}: {wrong}", lines


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Judge:
    """options: build, cc, cxx, nvcc (commands; nvcc "": kernels are executed on the CPU only), libs."""

    def __init__(self, options):
        self.build, self.libs = pathlib.Path(options.build).resolve(), shlex.split(options.libs)
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="judge.")).resolve()
        self.cc, self.cxx = shlex.split(options.cc), shlex.split(options.cxx)
        self.nvcc = options.nvcc if options.nvcc and gpu.architecture() else ""
        found = [pathlib.Path(x).resolve().parents[1] for x in map(shutil.which, (*self.cc, *self.cxx, self.nvcc)) if x]
        self.toolchains = {x for x in found if x != pathlib.Path("/usr") and not ROOT.is_relative_to(x)}
        self.include = [f"-I{ROOT}/common/core", f"-I{ROOT}/common/products"]
        self.jail, self.child = str(self.build / "jail"), self.place / "child.o"
        self.isolation = subprocess.run([self.jail, "--complete"], check=False).returncode
        if self.isolation not in (0, 2):
            raise Shortage("no filter of system calls (seccomp) on this machine")
        done = subprocess.run([*self.cc, *self.include, "-c", str(COURSE / "child.c"), "-o", str(self.child)],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Shortage(f"child.c does not compile: {done.stderr[:500]}")

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)

    def call(self, command, folder, verdict):
        """A compiler in its jail; whether it did its work."""
        read = [x for path in (f"{ROOT}/common/core", COURSE, self.build / "libharness.a",
                               self.child, "/usr/lib/gcc", *self.toolchains) for x in ("--read", str(path))]
        env = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C",
               "CCACHE_DISABLE": "1"}
        with open(folder / "log", "w+b") as log, subprocess.Popen(
                [self.jail, "--compiler", "--cpu", str(COMPILE_S), *read, "--write", str(folder), "--", *command],
                cwd=folder, env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                status = process.wait(4 * COMPILE_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                kill_group(process.pid)
            log.seek(0)
            said = log.read(20000).decode("utf-8", errors="replace").replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        lines = [x for x in said.splitlines() if "statically linked applications" not in x]
        verdict.log = "\n".join([verdict.log] * bool(verdict.log) + lines)
        if status != 0:
            first = next((x for x in lines if "error" in x or "undefined" in x), lines[0] if lines else
                         "the compiler took too long")
            verdict.why = f"does not compile: {first}"
        return status == 0

    def built(self, exercise, data, parts, folder, verdict):
        """folder/program, of the file as it was handed in.  One that comes again is not compiled again."""
        name = exercise.file.name
        for file, its in {**parts, name: data}.items():
            (folder / file).write_bytes(its)
        kept = self.place / hashlib.sha256(repr((name, data, sorted(parts.items()))).encode()).hexdigest()
        if kept.exists():
            (folder / "program").hardlink_to(kept)
            verdict.log = kept.with_suffix(".log").read_text(encoding="utf-8")
            return True
        compiler = [*(self.cxx if exercise.cuda else [*self.cc, "-Werror=implicit-function-declaration"]),
                    "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter"]
        linker = self.cxx[:next(i for i, word in enumerate(self.cxx) if word.startswith("-"))]
        link = [*linker, "-static", "-fopenmp", "object.o", str(self.child), str(self.build / "libharness.a"),
                *self.libs, "-o", "program"]
        if not (self.call([*compiler, *self.include, "-c", name, "-o", "object.o"], folder, verdict)
                and self.call(link, folder, verdict)):
            return False
        if len(os.listdir(self.place)) < KEPT:
            kept.with_suffix(".log").write_text(verdict.log, encoding="utf-8")
            with contextlib.suppress(FileExistsError):  # another process was first
                kept.hardlink_to(folder / "program")
        return True

    def verdict(self, exercise, data, seed, parts=None):
        """All cases of that seed.  parts: the student's other files that this one includes, name -> bytes;
        if None, those of the solutions."""
        verdict, folder = Verdict(), pathlib.Path(tempfile.mkdtemp(dir=self.place))
        if parts is None:
            parts = parts_of(exercise, lambda x: x.solution().encode())
        try:
            if self.built(exercise, data, parts, folder, verdict):
                rng = np.random.default_rng([seed, zlib.crc32(exercise.name.encode())])
                with np.errstate(all="ignore"):
                    self.run(verdict, list(problems_of(exercise)(rng)), folder, exercise)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return verdict

    def ceiling(self, folder, threads):
        """Multiply-adds a second that so many threads do now."""
        folder = folder / "ceiling"
        if not folder.exists():
            folder.mkdir()
            source, verdict = types.SimpleNamespace(file=pathlib.Path("ceiling.c"), cuda=False), Verdict()
            if not self.built(source, (COURSE / "ceiling.c").read_bytes(), {}, folder, verdict):
                raise Shortage(f"ceiling.c: {verdict.why}")
        with Child(self.jail, folder / "program", folder, ["--threads"]) as child:
            _, seconds = child.timed(threads, [threads, 100000], [], [threads])
        return threads * 112e5 / seconds

    def cubin(self, source, folder):
        """Its code for this machine's GPU, made once."""
        path, verdict = folder / f"{source}bin", Verdict()
        if not path.exists() and not self.call([
                self.nvcc, "-cubin", f"-arch={gpu.architecture()}", "-std=c++20", "-O3", *self.include, source,
                "-o", path.name], folder, verdict):
            raise Wrong(f"nvcc: {verdict.why}")
        return path

    def on_gpu(self, folder, source, **inputs):
        """What gpu.py finds of the kernels in a file: o, lse, share."""
        shutil.copy(COURSE / "ceiling.cu", folder)
        words = [self.cubin(source, folder), self.cubin("ceiling.cu", folder), folder / "in.npz", folder / "out.npz"]
        np.savez(words[2], **inputs)
        try:
            with open(self.place / "gpu", "w", encoding="ascii") as alone:
                fcntl.flock(alone, fcntl.LOCK_EX)
                done = subprocess.run([sys.executable, COURSE / "gpu.py", *words], capture_output=True, text=True,
                                      timeout=GPU_S, check=False)
        except subprocess.TimeoutExpired:
            raise Died("took too long on the GPU") from None
        if done.returncode:
            raise Wrong(f"on the GPU: {(done.stderr.splitlines() or ['no answer'])[-1]}")
        return np.load(words[3])

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
                        self.jail, folder / "program", folder, ["--order", order] if order else
                        ["--threads"] * exercise.threads, functools.partial(self.ceiling, folder),
                        functools.partial(self.on_gpu, folder, exercise.file.name)))
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
    except (Shortage, MemoryError, OSError) as error:
        fail(f"stopped without a mark: {error or 'no memory'}", 3)
    finally:
        if judge:
            judge.close()
