"""projects.py: four projects, from a program that is right and slow to one that is fast.

    make project EX=online_softmax                    at home: right, and how fast
    make grade-projects SUBMISSIONS=dir OUT=dir [LATE=table]     marks, one program at a time

A project is one file, NN_*/exercises/projects/NAME.c or .cu, whose head comment says

     * Speed: softmax:1024x4096, half of the points at 10 % of copy, all at 25 %.
     * Speed: softmax:8192x65536 in f32, as a share of copy.
     * Judged like: safe_row

the second for a GPU: targets.csv has the shares for each.  It must be right in all cases of the
exercise of that name, with the hidden ones.  Then the judge times it (timing.py).  The points: 0 for
the share of the program as it was handed out, half at the first share named, all at the second, in
between in proportion.

A CUDA project is executed on the CPU for the cases.  With a GPU its own `bench` says the share: that
clock is in its process, so read the code of the fastest.  Writes OUT/projects.json,
OUT/feedback/STUDENT-projects.txt and, for Gradescope, OUT/gradescope/STUDENT/projects.json.  Exit
status: 0 done; 1 at home: not right, or no points; 2 bad usage; 3 this machine cannot grade now."""
import argparse
import csv
import os
import pathlib
import re
import shlex
import subprocess
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"

# pylint: disable=wrong-import-position
import numpy as np

from builder import ROOT, Shortage
from exercises import HEAD, chosen as exercises_of
from grade import add_class, failures_of, grade, read_class, with_grader
from marks import write_class
from submissions import fail, wanted
from timing import MOST, Timer

SPEED = re.compile(r"^ \* Speed: (\w+):(\S+?)(?: in (\w+))?, (?:half of the points at (\S+) % of (\w+), "
                   r"all at (\S+) %|as a share of (\w+))\.$", re.M)
LIKE = re.compile(r"^ \* Judged like: (\w+)$", re.M)
TARGETS = pathlib.Path(__file__).resolve().parent / "targets.csv"
JOB_S = 1800  # of one submission
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
        at = [base, max(self.half_at, base), max(self.all_at, base)]
        part = np.interp(share, at, [0, 0.5, 1]) if share >= base * NOISE else 0
        return int(10 * self.points * part) / 10


def projects():
    return [Project(x) for x in sorted(ROOT.glob("0*/exercises/projects/*.c*"))]


class ProjectGrader(Timer):
    """Marks for the speed of what is right."""

    def __init__(self, options):
        super().__init__(options)
        self.base = {}  # project -> the share of the program as it was handed out

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
        names = ("rows", "cols") if project.op == "softmax" else ("heads-q", "seqlen-q", "head-dim", "batch")
        for name, value in zip(names, [*project.shape, 1]):
            size += [f"--{name}", str(value)]
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
        if project.name not in self.cases:
            self.cases[project.name] = self.write_cases(project, self.seed, self.course.get("draw", 8))
        speed = []
        verdict = self.verdict(project, data, self.cases[project.name], then=lambda folder, verdict: speed.extend(
            self.speed_of(project, folder) if verdict.right else ()))
        total, failed = len(verdict.results), len(verdict.failed)
        if verdict.why:
            return 0.0, verdict.why, verdict.log.splitlines()[:12], None
        if failed:
            return 0.0, (f"{failed} of {total} cases are wrong, so the speed does not count; the smallest: "
                         f"{verdict.smallest[0].name}: {next(verdict.explained())}"), [], None
        timed, why = speed
        if not timed:
            return 0.0, f"right in all {total} cases, but no speed: {why}", [], None
        return project.marks(timed["share"], base), (
            f"right in all {total} cases; {timed['share']:.3g} % of {project.ceiling} "
            f"({timed['ceiling']:.3g} {'GB/s' if project.ceiling == 'copy' else 'GFLOP/s'} in the same "
            "run)" + (f"; as handed out: {base:.3g} %" if base else "") + f"; half of the points at "
            f"{project.half_at:g} %, all at {project.all_at:g} %"), [], timed

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
    right, found = 0, wanted(options.ex.split(), projects(), "project")

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
    found = wanted(options.ex.split(), projects(), "project")
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
