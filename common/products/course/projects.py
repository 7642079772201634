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
import pathlib
import re
import subprocess
import sys

from builder import ROOT, Refused, Shortage, judging
from exercises import Exercise, chosen
from forms import fail
from grade import add_class, grade_class
from submissions import wanted
from timing import MOST, Timer  # and NumPy, after builder.py
import numpy as np

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
        return next((float(line["half_at"]), float(line["all_at"])) for line in csv.DictReader(file)
                    if line["project"] == project and re.search(line["pattern"], gpu or "any"))


class Project(Exercise):
    """An exercise of a whole file, with the work that is timed."""
    whole_file = True
    unchanged = "the program as it was handed out"

    def __init__(self, file):
        super().__init__(file)
        speed, self.file, self.on_gpu = SPEED.search(self.text), file, file.suffix == ".cu"
        self.op, self.shape = speed[1], [int(x) for x in speed[2].split("x")]
        self.dtype, self.ceiling = speed[3] or "f32", speed[5] or speed[7]
        self.half_at, self.all_at = targets(self.name, gpu_name()) if self.on_gpu else \
            (float(speed[4]), float(speed[6]))
        self.flags = ["--variant", self.name, "--dtype", self.dtype] if self.on_gpu else []
        solution = file.parent / "solutions" / file.name
        self.solution = solution if solution.exists() else None

    @property
    def promises(self):
        return chosen(None, self.said(LIKE))[0].promises

    def skeleton(self):
        return self.text

    def marks(self, share, base):
        """The points for a share of the ceiling; base: the program as handed out."""
        at = [base, max(self.half_at, base), max(self.all_at, base)]
        part = np.interp(share, at, [0, 0.5, 1]) if share >= base * NOISE else 0
        return int(10 * self.points * part) / 10


def projects():
    return [Project(x) for x in sorted(ROOT.glob("0*/exercises/projects/*.c*"))]


class ProjectGrader(Timer):
    """Marks for the speed of what is right."""
    of, at_once, job_s = "projects", 1, JOB_S

    def __init__(self, options):
        super().__init__(options)
        self.base = {}  # project -> the share of the program as it was handed out

    def on_gpu(self, project, folder):
        """The same source by nvcc: right on the GPU, and the share that its bench says."""
        if not self.options.nvcc:
            raise Refused("no GPU was found")
        for command in self.gpu_commands(project.file.name, "program"):
            status, log, _ = self.jailed(["--compiler", "--cpu", "120", "--memory", "8192"], command, folder, 240,
                                         [*self.readable, str(pathlib.Path(command[0]).resolve().parents[1])])
            if status != 0:
                raise Refused(f"does not compile for the GPU: {log[:300]}")
        size = ["--op", project.op, "--dtype", project.dtype, "--csv", "bench.csv"]
        names = ("rows", "cols") if project.op == "softmax" else ("heads-q", "seqlen-q", "head-dim", "batch")
        for name, value in zip(names, [*project.shape, 1]):
            size += [f"--{name}", str(value)]
        status, said, _ = self.jailed(["--gpu", "--cpu", "300", "--memory", "4096"],
                                      ["./program", "bench", *size], folder, 600, [str(folder)])
        if status != 0 or not (folder / "bench.csv").exists():
            raise Refused(f"bench on the GPU: {said[-300:]}")
        with open(folder / "bench.csv", newline="", encoding="utf-8") as file:
            rows = [x for x in csv.DictReader(file) if "cpu" not in x["device"].lower()]
        share = float(rows[0]["pct_ceiling"]) if rows else 0.0
        if not 0 < share <= 1.2 * MOST:
            raise Refused(f"no speed on the GPU: {share} % of {project.ceiling}")
        return {"share": share, "solution": 0, "ceiling": float(rows[0]["ceiling"])}

    def judged(self, project, data, base):
        """What Mark wants to know; base: the share of the program as it was handed out."""
        if project.name not in self.cases:
            self.cases[project.name] = self.write_cases(project, self.seed, self.course.get("draw", 8))
        speed = []

        def then(folder, verdict):
            if verdict.right:
                speed.append((self.on_gpu if project.on_gpu else self.timed)(project, folder))

        verdict = self.verdict(project, data, self.cases[project.name], then=then)
        cases, timed = f"right in all {len(verdict.results)} cases", speed[0] if speed else None
        if timed:
            why = (f"{cases}; {timed['share']:.3g} % of {project.ceiling} ({timed['ceiling']:.3g} "
                   f"{'GB/s' if project.ceiling == 'copy' else 'GFLOP/s'} in the same run)"
                   + (f"; as handed out: {base:.3g} %" if base else "") + f"; half of the points at "
                   f"{project.half_at:g} %, all at {project.all_at:g} %")
            return {"marks": project.marks(timed["share"], base), "why": why, "details": [], "timed": timed}
        why, lines = verdict.in_words()
        why = f"the speed does not count: {why}" if verdict.failed else \
            f"{cases}, but no speed: {why}" if verdict.results else why
        return {"marks": 0.0, "why": why, "details": lines, "timed": None}

    def prepare(self, exercise):
        """The solution, where there is one, and the share of the program as it was handed out."""
        if exercise.solution:
            folder = self.folder()
            try:
                self.built(exercise, exercise.solution.read_text(encoding="utf-8"), folder)
                self.make_timeable(folder)
            except Refused as error:
                raise Shortage(f"the solution of {exercise.name} {error}\n{error.log[:800]}") from error
            self.others[exercise.name] = folder
        found = self.judged(exercise, exercise.file.read_bytes(), 0)
        if not found["timed"]:
            raise Shortage(f"{exercise.name} as handed out: {found['why']}")
        self.base[exercise.name] = found["timed"]["share"]

    def mark_of(self, exercise, data, details):
        found = self.judged(exercise, data, self.base[exercise.name])
        return {**found, "details": details + found["details"]}


def at_home(options, found):
    """make project.  Without a GPU a CUDA project is right or wrong, and no more."""
    right = 0
    with judging(ProjectGrader, options) as judge:
        for project in found:
            print(f"== {project.file.relative_to(ROOT)}: {project.title} ({project.points} points)", flush=True)
            mark = judge.judged(project, project.file.read_bytes(), 0)
            print("\n       ".join([f"   {mark['why']}", *mark["details"]]), flush=True)
            right += mark["marks"] > 0 or mark["why"].endswith("no GPU was found")
    return 0 if right == len(found) else 1


def main():
    parser = argparse.ArgumentParser(description="projects that are graded for speed")
    parser.add_argument("verb", choices=["run", "grade"])
    add_class(parser)
    options = parser.parse_args()
    found = wanted(options.ex.split(), projects(), "project")
    if options.verb == "run":
        return at_home(options, found)
    for project in [x for x in found if x.on_gpu and not options.nvcc]:
        print(f"grade: {project.name} is not graded here: it needs a GPU and nvcc")
        found.remove(project)
    return grade_class(options, found, ProjectGrader, "projects")[1] if found else \
        fail("no project can be graded without a GPU", 3)


if __name__ == "__main__":
    sys.exit(main())
