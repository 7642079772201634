"""projects.py: four projects, from a program that is right and slow to one that is fast.

    make project EX=online_softmax                    at home: right, and how fast
    make grade-projects SUBMISSIONS=dir OUT=dir [LATE=table]     marks, one program at a time

A project is one file, NN_*/exercises/projects/NAME.c or .cu, whose head comment says

     * Speed: softmax:1024x4096, half of the points at 10 % of copy, all at 25 %.
     * Speed: softmax:8192x65536 in f32, as a share of copy.
     * Judged like: safe_row

the second for a GPU: targets.csv has the shares for each.  It must be right in all cases of the
exercise of that name, with the hidden ones.  Then the judge times it:

    work      a problem of about that shape, drawn anew for each run from the system's random
              numbers, its scores shifted by a random number in each row, some of them -infinity
    clock     the judge's, from the start of the process to its end, on one core.  What reading and
              writing the files takes is measured with a program that does no more, on the same
              files, and taken off
    answers   all of them are compared, after each run
    ceiling   the memory's copy or multiply-adds, measured between the runs; and where the solution
              is, it runs in turn too.  As long as the copy takes no time, or the solution does not
              reach the share for all points, more is measured; if that does not help, the machine
              is too busy, and nobody gets marks
    marks     0 for the share of the program as it was handed out, half at the first share named,
              all at the second, in between in proportion

A CUDA project is executed on the CPU for the cases.  With a GPU its program reads and writes the
large problem there, and its own `bench` says the share: that clock is in its process, so read the
code of the fastest.  Writes OUT/projects.json, OUT/feedback/STUDENT-projects.txt and, for
Gradescope, OUT/gradescope/STUDENT/projects.json.  Exit status: 0 done; 1 at home: not right, or no
points; 2 bad usage; 3 this machine cannot grade now."""
import argparse
import csv
import os
import pathlib
import re
import select
import shlex
import shutil
import subprocess
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

# pylint: disable=wrong-import-position
import numpy as np

from cases import attention_case, rows_case
from exercises import chosen as exercises_of
from grade import Grader, add_class, failures_of, grade, read_class, with_grader
from judge import ROOT, Shortage, kill_group
from marks import write_class
from submissions import fail

HEAD = re.compile(r"project of stage (\d), (\d+) points: (.*)\.")
SPEED = re.compile(r"^ \* Speed: (\w+):(\S+?)(?: in (\w+))?, (?:half of the points at (\S+) % of (\w+), "
                   r"all at (\S+) %|as a share of (\w+))\.$", re.M)
LIKE = re.compile(r"^ \* Judged like: (\w+)$", re.M)
TARGETS = pathlib.Path(__file__).resolve().parent / "targets.csv"
SHOWN = 208  # a row of the round of such a byte, or a larger one, is compared (rounds.c)
LEAST_ROUNDS, RUNS, MOST_RUNS, TIMED_CPU_S, TIMED_MIB, JOB_S, MOST = 16, 5, 20, 60, 3072, 1800, 110
NOISE = 1.25  # a share that is not this many times the first program's earns nothing


def gpu_name():
    """'NVIDIA H200', or '' without a GPU."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "-i", "0"],
                              capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def targets(project, gpu):
    """The shares for half and all points: those of the first line that is about this GPU."""
    with open(TARGETS, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["project"] == project and re.search(line["pattern"], gpu or "any"):
                return float(line["half_at"]), float(line["all_at"])
    return fail(2, f"{TARGETS}: no line for {project} on '{gpu}'")


class Project:
    """What an exercise is to the grader, with the work that is timed."""
    whole_file, any_call = True, True
    unchanged = "the program as it was handed out"

    def __init__(self, file):
        text = file.read_text(encoding="utf-8")
        head, like, speed = HEAD.search(text), LIKE.search(text), SPEED.search(text)
        if not head or not speed or not like:
            fail(2, f"{file}: no project's head comment")
        self.file, self.name, self.stage = file, file.stem, file.parents[2].name
        self.on_gpu = file.suffix == ".cu"
        self.number, self.points, self.title = int(head[1]), int(head[2]), head[3]
        self.op, self.shape = speed[1], [int(x) for x in speed[2].split("x")]
        self.dtype, self.ceiling = speed[3] or "f32", speed[5] or speed[7]
        self.half_at, self.all_at = targets(self.name, gpu_name()) if self.on_gpu else \
            (float(speed[4]), float(speed[6]))
        self.flags = ["--variant", self.name, "--dtype", self.dtype] if self.on_gpu else []
        self.like = exercises_of(None, like[1])[0]
        self.promises = self.like.promises
        solution = file.parent / "solutions" / file.name
        self.solution = solution if solution.exists() else None

    def skeleton(self):
        return self.file.read_text(encoding="utf-8")

    def marks(self, share, base):
        """The points for a share of the ceiling; base: the program as handed out."""
        if share < base * NOISE:
            return 0.0
        low, middle, high = base, max(self.half_at, base), max(self.all_at, base)
        part = 1.0 if share >= high else \
            0.5 + 0.5 * (share - middle) / (high - middle) if share >= middle else \
            0.5 * (share - low) / (middle - low)
        return int(10 * self.points * part) / 10

    def fresh(self):
        """Inputs that nobody has seen."""
        rng = np.random.default_rng()
        if self.op == "softmax":
            rows, cols = self.shape[0] + rng.integers(16), self.shape[1] + rng.integers(-64, 64)
            x = rng.uniform(-6, 6, (rows, cols)) + rng.uniform(-300, 300, (rows, 1))
            x[rng.random((rows, cols)) < 0.01] = -np.inf
            return {"x": x.astype(np.float32)}
        heads, n, d = self.shape
        n += int(rng.integers(-24, 24))
        q, k, v = (rng.standard_normal((1, heads, n, d)).astype(np.float32) for _ in range(3))
        q[..., 0], k[..., 0] = rng.uniform(-300, 300, (1, heads, n)), np.sqrt(d) + 0.01 * k[..., 0]
        return {"q": q, "k": k, "v": v}


def hashes(seed, n):
    """The numbers by which rounds.c decides."""
    with np.errstate(over="ignore"):
        r = (np.uint64(seed * 1000003 + 1) + np.arange(n, dtype=np.uint64)) * np.uint64(0x9e3779b97f4a7c15)
        return (r ^ r >> np.uint64(29)) * np.uint64(0xbf58476d1ce4e5b9)


def change(x, seed):
    """What rounds.c does to an input before a round."""
    rows = x.reshape(-1, x.shape[-1])
    r = hashes(seed, len(rows))
    rows[np.arange(len(rows)), (r >> np.uint64(40)) % np.uint64(rows.shape[1])] = \
        (r >> np.uint64(8) & np.uint64(0xffff)).astype(np.float32) * np.float32(2 ** -13) - np.float32(4)


def row_of(inputs, row, scale):
    """The case of one row alone."""
    if "x" in inputs:
        return rows_case("timed", "softmax", inputs["x"][row:row + 1])
    head, i = divmod(row, inputs["q"].shape[2])
    one = slice(head, head + 1)
    return attention_case("timed", inputs["q"][:, one, i:i + 1], inputs["k"][:, one], inputs["v"][:, one],
                          None, 0, scale)


def conversation(rounds):
    """Says the bytes: one that begins a round, and, when that has been answered, one that may show it."""
    def talk(process, seconds):
        end = time.monotonic() + seconds
        with process.stdin, process.stdout:
            for i, byte in enumerate(rounds):
                try:
                    os.write(process.stdin.fileno(), bytes([byte]))
                except BrokenPipeError:
                    return
                if i % 2:
                    continue
                ready = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]
                if not ready or len(os.read(process.stdout.fileno(), 1)) != 1:
                    kill_group(process.pid)
                    return
    return talk


def projects(names):
    found = [Project(x) for x in sorted(ROOT.glob("0*/exercises/projects/*.c*"))]
    for name in names:
        if name not in [x.name for x in found]:
            fail(2, f"EX: no project '{name}'; there are " + ", ".join(x.name for x in found))
    return [x for x in found if not names or x.name in names]


def secret_rounds(length):
    """Two bytes for each round.  Two neighbours are shown whatever the others are, so that work in
    every other round is seen."""
    rounds = bytearray(os.urandom(2 * length))
    at = os.urandom(1)[0] % (length - 2)
    for i in (2 * at + 1, 2 * at + 3):
        rounds[i] = SHOWN + rounds[i] % (256 - SHOWN)
    return bytes(rounds)


class ProjectGrader(Grader):
    """One program at a time: nothing else may run beside what is timed."""

    def __init__(self, options):
        super().__init__(options)
        self.base, self.others, self.yardstick = {}, {}, self.folder()
        self.rounds = f"{self.yardstick}/rounds.o"
        ok, log = self.call([*self.compile[".c"], "-w", f"-I{ROOT}/common", "-c",
                             f"{ROOT}/common/grader/rounds.c", "-o", self.rounds], self.yardstick)
        self.readable.append(self.rounds)
        ok, log = self.linked([self.rounds], "timed", self.yardstick) if ok else (ok, log)
        if not ok:
            raise Shortage(f"rounds.c: {log[:800]}")

    def timeable(self, folder):
        """Links the object there with rounds.c, whose main() it gets.  Why not, or None."""
        ok, log = self.call(["objcopy", "--localize-symbol=main", "object.o"], folder)
        ok, log = self.linked(["object.o", self.rounds], "timed", folder) if ok else (ok, log)
        return None if ok else "does not end with PROGRAM(...) as it was handed out: " + log[:200]

    def fma(self):
        status, said, _ = self.jailed(["--core", "--cpu", "30", "--memory", str(TIMED_MIB)],
                                      [f"{self.yardstick}/timed", "fma"], self.yardstick, 60)
        if status:
            raise Shortage(f"the ceiling cannot be measured: {said[:200]}")
        return float(said)

    def seconds(self, project, folder, what, inputs, rounds):
        """Processor time of so many rounds; its results, or what went wrong."""
        out = self.folder()
        for name, array in inputs.items():
            array.tofile(out / name)
        shape = inputs["x"].shape if "x" in inputs else inputs["q"].shape[1:]
        words = [f"{folder}/timed", project.op, *map(str, shape), str(out), what]
        status, said, taken = self.jailed(["--core", "--cpu", str(TIMED_CPU_S), "--memory", str(TIMED_MIB)],
                                          words, out, TIMED_CPU_S + 300, (), conversation(rounds))
        try:
            got = {x: np.fromfile(out / x, np.float32) for x in ("y", "o", "lse", "rows") if (out / x).exists()}
        except (OSError, MemoryError):
            got = {}
        shutil.rmtree(out, ignore_errors=True)
        return taken, got, "" if status == 0 else self.died(status) or f"ended with status {status}: {said[-200:]}"

    @staticmethod
    def right(project, inputs, rounds, got):
        """What is wrong with the last round, or with those that were shown, or None."""
        inputs = {name: array.copy() for name, array in inputs.items()}
        scale = 1 / np.sqrt(np.float32(project.shape[2])) if project.op == "attention" else 0
        first = next(iter(inputs.values()))
        width, shown = first.shape[-1], got.pop("rows", np.zeros(0))
        shown = list(shown[:shown.size // width * width].reshape(-1, width))  # it may have ended early
        for i, (byte, show) in enumerate(zip(rounds[::2], rounds[1::2])):
            for k, name in enumerate(x for x in "xqk" if x in inputs):
                change(inputs[name], byte + 256 * (2 * i + k))
            if show < SHOWN:
                continue
            row = int(hashes(show + 512 * i, 1)[0] % np.uint64(first.size // width))
            case, y = row_of(inputs, row, scale), "y" if "x" in inputs else "o"
            case.outputs = {y: case.outputs[y]}
            wrong = case.wrong({y: shown.pop(0).reshape(case.outputs[y][0].shape)}) if shown else \
                ("a round was not shown", y, 0, 0, 0)
            if wrong:
                return wrong
        case = rows_case("timed", "softmax", inputs["x"]) if "x" in inputs else \
            attention_case("timed", *inputs.values(), None, 0, scale)
        for name, (want, _) in case.outputs.items():
            if name not in got or got[name].size != want.size:
                return f"no {name} was written", "", 0, 0, 0
            got[name] = got[name].reshape(want.shape)
        return case.wrong(got)

    def one_run(self, project, who, length):
        """Seconds of each for a byte or a flop, how many there were, and what is wrong with `it`."""
        inputs, rounds, found = project.fresh(), secret_rounds(length), {}
        n = next(iter(inputs.values())).size
        work = length * (8.0 * n if "copy" in who else 4.0 * n * inputs["q"].shape[2])
        for name in sorted(who, reverse=bool(length & 1)):
            taken, got, why = self.seconds(project, *who[name], inputs, rounds)
            if name in ("it", "solution") and not why:
                wrong = self.right(project, inputs, rounds, got)
                why = wrong and f"{wrong[1]}: {wrong[0]}"
            if why and name != "it":
                raise Shortage(f"{project.name}, {name}, timed: {why}")
            if why:
                return found, work, why
            found[name] = taken / work
        return found, work, ""

    def timed(self, project, folder):
        """{share, solution, ...} or why there is none."""
        why = self.timeable(folder)
        if why:
            return None, why
        who = {"nothing": (self.yardstick, "nothing"), "it": (folder, "it")}
        if project.op == "softmax":
            who["copy"] = self.yardstick, "copy"
        if project.name in self.others:
            who["solution"] = self.others[project.name], "it"
        least, fma, length = dict.fromkeys(who, np.inf), 0.0, LEAST_ROUNDS + os.urandom(1)[0] % 16
        for run in range(1, MOST_RUNS + 1):
            fma = fma if "copy" in who else max(fma, self.fma())
            found, work, why = self.one_run(project, who, length)
            if why:
                return None, f"timed: {why}"
            least = {name: min(least[name], found[name]) for name in who}
            net = {name: least[name] - least["nothing"] for name in who}
            best = net["copy"] if "copy" in who else 1e-9 / fma
            share, solution = (100 * best / net[x] if net.get(x, 0) > 0 else np.inf for x in ("it", "solution"))
            busy = f"a copy takes no longer than nothing ({best:.2g} s for a byte)" if best <= 0 else \
                f"the solution reaches {solution:.3g} % of {project.ceiling} here and now, and should reach " \
                f"{project.all_at:g} %" if "solution" in who and not project.all_at <= solution <= MOST else ""
            if run >= RUNS and not busy and share <= MOST:
                return {"share": round(share, 3), "solution": round(solution, 3) if "solution" in who else 0,
                        "least": round(net["it"] * work, 6), "name": project.ceiling,
                        "ceiling": round(1e-9 / best, 3), "runs": run}, ""
        if busy:
            raise Shortage(f"{project.name}: {busy}: this machine is too busy, or none for speed marks")
        return None, f"faster than possible: more than {MOST} % of {project.ceiling}"

    def on_gpu(self, project, folder):
        """The same source by nvcc: right on the GPU, and the share that its bench says."""
        for command in ([*shlex.split(self.options.nvcc), "-w", f"-I{ROOT}/common", "-c", project.file.name,
                         "-o", "gpu.o"],
                        [*shlex.split(self.options.link), "object.o", "gpu.o",
                         f"{self.build}/libharness.a", *shlex.split(self.options.libs), "-o", "program"]):
            status, log, _ = self.jailed(["--compiler", "--cpu", "120", "--memory", "8192"], command, folder, 240,
                                      [*self.readable, str(pathlib.Path(command[0]).resolve().parents[1])])
            if status:
                return None, f"does not compile for the GPU: {log[:300]}"
        size = ["--op", project.op, "--dtype", project.dtype, "--csv", "bench.csv"]
        names = ("rows", "cols") if project.op == "softmax" else ("heads-q", "seqlen-q", "head-dim")
        for name, value in zip(names, project.shape):
            size += [f"--{name}", str(value)]
        if project.op != "softmax":
            size += ["--batch", "1", "--heads-kv", str(project.shape[0]), "--seqlen-k", str(project.shape[1]),
                     "--head-dim-v", str(project.shape[2])]
        status, said, _ = self.jailed(["--gpu", "--cpu", "300", "--memory", "4096"],
                                   ["./program", "bench", *size], folder, 600, [str(folder)])
        if status or not (folder / "bench.csv").exists():
            return None, f"bench on the GPU: {said[-300:]}"
        with open(folder / "bench.csv", newline="", encoding="utf-8") as file:
            rows = [x for x in csv.DictReader(file) if "cpu" not in x["device"].lower()]
        share = float(rows[0]["pct_ceiling"]) if rows else 0.0
        if not 0 < share <= 1.2 * MOST:
            return None, f"no speed on the GPU: {share} % of {project.ceiling}"
        return {"share": share, "solution": 0, "least": float(rows[0]["min_s"]), "name": project.ceiling,
                "ceiling": float(rows[0]["ceiling"]), "runs": int(float(rows[0]["reps"]))}, ""

    def speed_of(self, project, folder):
        if not project.on_gpu:
            return self.timed(project, folder)
        return self.on_gpu(project, folder) if self.options.nvcc else (None, "no GPU was found")

    def judged(self, project, data, base):
        """marks, why, the compiler's words, timed"""
        folder = self.folder()
        try:
            why, log, _ = self.program(project, data, folder)
            if why:
                return 0.0, why, log.splitlines()[:12], None
            if project.name not in self.cases:
                self.cases[project.name] = self.write_cases(project, self.seed, self.course.get("draw", 8))
            results = self.run_cases(folder / "program", self.cases[project.name])
            failed = [x for x in results if x[1]]
            if failed:
                case, wrong, _ = min(failed, key=lambda x: x[0].size)
                return 0.0, (f"{len(failed)} of {len(results)} cases are wrong, so the speed does not count; "
                             f"the smallest: {case.name}: {wrong[1] + ': ' if wrong[1] else ''}{wrong[0]}"), [], None
            timed, why = self.speed_of(project, folder)
            if not timed:
                return 0.0, f"right in all {len(results)} cases, but no speed: {why}", [], None
            share = timed["share"]
            return project.marks(share, base), (
                f"right in all {len(results)} cases; {share:.3g} % of {project.ceiling} "
                f"({timed['ceiling']:.3g} {'GB/s' if project.ceiling == 'copy' else 'GFLOP/s'} in the same "
                "run)" + (f"; as handed out: {base:.3g} %" if base else "") + f"; half of the points at "
                f"{project.half_at:g} %, all at {project.all_at:g} %"), [], timed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prepare(self, project):
        """The solution, where there is one, and the share of the program as it was handed out."""
        if project.solution:
            folder = self.folder()
            why, log, _ = self.built(project, project.solution.read_text(encoding="utf-8"), folder)
            why = why or self.timeable(folder)
            if why:
                raise Shortage(f"the solution of {project.name} {why}\n{log[:800]}")
            self.others[project.name] = folder
        marks, why, _, timed = self.judged(project, project.file.read_bytes(), 0)
        if not timed:
            raise Shortage(f"{project.name} as handed out: {marks} points: {why}")
        self.base[project.name] = timed["share"]

    def mark_of(self, project, data, details):
        marks, why, log, timed = self.judged(project, data, self.base[project.name])
        return {"marks": marks, "why": why, "details": details + log, "timed": timed}


def at_home(options):
    """make project.  Without a GPU a CUDA project is right or wrong, and no more."""
    right, found = 0, projects(options.ex.split())

    def work(judge):
        count = 0
        for project in found:
            print(f"== {project.file.relative_to(ROOT)}: {project.title} ({project.points} points)", flush=True)
            marks, why, log, _ = judge.judged(project, project.file.read_bytes(), 0)
            print("\n".join([f"   {why}", *("       " + x for x in log)]), flush=True)
            count += marks > 0 or why.endswith("no GPU was found")
        return count

    options.strict = False
    right, _ = with_grader(options, work, ProjectGrader)
    return 0 if right == len(found) else 1


def grade_all(options):
    found = projects(options.ex.split())
    if not options.nvcc:
        for project in [x for x in found if x.on_gpu]:
            print(f"grade: {project.name} is not graded here: it needs a GPU and nvcc")
        found = [x for x in found if not x.on_gpu]
        if not found:
            fail(3, "no project can be graded without a GPU")
    students, hours, out = read_class(options, found)

    def show(name, mark, _):
        print(f"{name:30} {mark.exercise.name:16} {mark.marks:5.1f}   {mark.why}", flush=True)

    table, grader = with_grader(
        options, lambda grader: grade(grader, students, found, show, 1, JOB_S), ProjectGrader)
    write_class(out, table, grader.course, hours, "projects")
    print(f"{len(students)} students, {len(found)} projects: {out}/projects.json")
    return failures_of(grader)


def main():
    parser = argparse.ArgumentParser(description="projects that are graded for speed")
    parser.add_argument("verb", choices=["run", "grade"])
    add_class(parser)
    options = parser.parse_args()
    return at_home(options) if options.verb == "run" else grade_all(options)


if __name__ == "__main__":
    sys.exit(main())
