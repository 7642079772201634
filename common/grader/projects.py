"""projects.py: four projects, from a program that is right and slow to one that is fast.

    make project EX=online_softmax                    at home: right, and how fast
    make grade-projects SUBMISSIONS=dir OUT=dir [LATE=table]     marks, one program at a time

A project is one file, NN_*/exercises/projects/NAME.c or .cu, whose head comment says

     * Speed: softmax:1024x4096, half of the points at 10 % of copy, all at 25 %.
     * Speed: softmax:8192x65536 in f32, as a share of copy.
     * Judged like: safe_row

the second for a GPU: targets.csv has the shares for each.  It must be right in all cases of the
exercise of that name, with the hidden ones; then the judge times it (speed.c).  A CUDA project is
judged twice: its kernel executed on the CPU, in the strict jail, then on the GPU, with the clock.
Without a GPU it is judged right or wrong at home, and not graded.  The marks follow the share of the
ceiling that was measured in the same run: 0 for the share of the program as it was handed out, half
at the first share named, all at the second, in between in proportion.  A speed above the ceiling is
an error and earns nothing.

Writes OUT/projects.json, OUT/feedback/STUDENT-projects.txt and, for Gradescope,
OUT/gradescope/STUDENT/projects.json.  Exit status: 0 done; 1 at home: not right, or no points;
2 bad usage; 3 this machine cannot grade now."""
import argparse
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import grade
import processes
from exercises import ROOT, SOLVED, Verdict, verdict_line
from grader import Grader, Mark
from machine import Shortage, jobs_here
from marks import (alias, feedback, gradescope, late_hours, late_words, total_of, write_json,
                   write_text)
from submissions import collect, contents, fail, same_text

HEAD = re.compile(r"project of stage (\d), (\d+) points: (.*)\.")
SPEED = re.compile(r"^ \* Speed: (\S+), half of the points at (\S+) % of (\w+), all at (\S+) %\.$",
                   re.M)
GPU_SPEED = re.compile(r"^ \* Speed: (\S+) in (\w+), as a share of (\w+)\.$", re.M)
TARGETS = pathlib.Path(__file__).resolve().parent / "targets.csv"
LIKE = re.compile(r"^ \* Judged like: (\w+)$", re.M)
RUNS, TIMED_S, CASE_S = 15, 600, 5
OF_GPU = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")  # which GPU, and its libraries
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
    fixed_form = False

    def __init__(self, file):
        text = file.read_text(encoding="utf-8")
        self.on_gpu, self.dtype = file.suffix == ".cu", "f32"
        head, like = HEAD.search(text), LIKE.search(text)
        speed = (GPU_SPEED if self.on_gpu else SPEED).search(text)
        if not head or not speed or not like:
            fail(2, f"{file}: no project's head comment")
        self.file, self.name, self.stage = file, file.stem, file.parents[2].name
        self.number, self.points, self.title = int(head[1]), int(head[2]), head[3]
        if self.on_gpu:
            self.work, self.dtype, self.ceiling = speed.groups()
            self.half_at, self.all_at = targets(self.name, gpu_name())
        else:
            self.work, self.half_at, self.ceiling, self.all_at = (
                speed[1], float(speed[2]), speed[3], float(speed[4]))
        self.like, self.half = like[1], []
        self.solution = file  # as handed out it is right

    def skeleton(self):
        return self.file.read_text(encoding="utf-8")

    def marks(self, share, base):
        """For a share of the ceiling, in tenths; base: what the first program gets."""
        if share < base * NOISE:
            return 0.0
        low, high = (base, self.half_at) if share < self.half_at else (self.half_at, self.all_at)
        part = min(1.0, (share - low) / max(high - low, 1e-9)) / 2
        return int(self.points * 10 * (part + (share >= self.half_at) / 2) + 1e-6) / 10


def projects(names=()):
    found = [Project(x) for x in sorted(ROOT.glob("0*/exercises/projects/*.c*"))]
    for name in names:
        if name not in [x.name for x in found]:
            fail(2, f"EX: no project '{name}'; there are " + ", ".join(x.name for x in found))
    return [x for x in found if not names or x.name in names]


def judged(build, project, worker, seed, draw, *options):
    """The judge's verdict on a worker; why there is none."""
    environment = {"PATH": os.environ.get("PATH", ""), "OMP_WAIT_POLICY": "passive",
                   "OMP_NUM_THREADS": "1", **{x: os.environ[x] for x in OF_GPU if x in os.environ}}
    status, out, err = processes.run(
        [f"{build}/judge", f"{build}/exercises/solution/{project.like}.worker", worker,
         "--quick", "--cpu", str(CASE_S), "--memory", "1024", "--seed", str(seed), "--draw",
         str(draw), "--dtype", project.dtype, *options,
         *([] if SOLVED and not project.on_gpu else ["--skeleton"])], TIMED_S, env=environment)
    verdict = Verdict(out)
    if status == processes.LATE:
        return None, "took too long"
    if status or not verdict.complete or not verdict.cases:
        return None, err.strip() or f"the judge ended with {status}"
    return verdict, ""


def timed(build, project, worker, seed, draw, gpu_worker=None):
    """The verdict on cases and time.  gpu_worker: the same program, compiled for the GPU."""
    clock = ["--timed", project.work, "--runs", str(RUNS)]
    if not project.on_gpu:
        return judged(build, project, worker, seed, draw, *clock)
    verdict, why = judged(build, project, worker, seed, draw, "--executed")
    if not verdict or verdict.failed or not gpu_worker:
        if verdict:
            verdict.untimed = "no GPU was found"
        return verdict, why
    return judged(build, project, gpu_worker, seed, draw, "--gpu",
                  f"{build}/exercises/projects/copier.gpu_worker", *clock)


def words(project, verdict, base):
    """What a student reads, and the marks."""
    if verdict.failed:
        return f"{len(verdict.failed)} of {len(verdict.cases)} cases are wrong, so the speed does " \
            f"not count; the smallest: {verdict_line(verdict)}", 0.0
    if not verdict.timed:
        return f"right in all {len(verdict.cases)} cases, but no speed: {verdict.untimed}", 0.0
    share, marks = verdict.timed["share"], project.marks(verdict.timed["share"], base)
    return (f"right in all {len(verdict.cases)} cases; {verdict.timed['median'] * 1e3:.3g} ms, "
            f"{share:.3g} % of {project.ceiling} ({verdict.timed['ceiling']:.3g} "
            f"{'GB/s' if project.ceiling == 'copy' else 'GFLOP/s'} in the same run); as handed out: "
            f"{base:.3g} %; half of the points at {project.half_at:g} %, all at "
            f"{project.all_at:g} %"), marks


class ProjectGrader(Grader):
    """One program at a time: nothing else may run beside what is timed."""

    def __init__(self, options, chosen):
        super().__init__(options, chosen)
        self.base = {}

    def worker(self, project, data, seed):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            why, log = self.build_worker(project, data, folder)
            if not why and project.on_gpu:
                why, log = self.build_for_gpu(project, folder)
            if why:
                return None, self.without_places(why + "\n" + log, folder).strip()
            for _ in range(2):
                verdict, why = timed(self.build, project, str(folder / "worker"), seed,
                                     self.course.get("draw", 8), str(folder / "gpu_worker"))
                if verdict or why == "took too long":
                    return verdict, why
            raise Shortage(f"{project.name}: {why}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def first(self, project):
        """The share of the program as it was handed out."""
        verdict, why = self.worker(project, project.file.read_bytes(), 0)
        if not verdict or not verdict.timed:
            raise Shortage(f"{project.name} as handed out: {why or verdict.untimed}")
        self.base[project.name] = verdict.timed["share"]

    def marked(self, project, student):
        paths = student.files.get(project.name)
        if not paths:
            return Mark(project, 0, "not handed in", (), student.notes[:4])
        data, why = contents(paths[0])
        if not why and same_text(data, project.skeleton()):
            why = "the program as it was handed out"
        if why:
            return Mark(project, 0, why)
        verdict, why = self.worker(project, data, self.seed_of(data))
        if not verdict:
            first, *rest = why.split("\n")
            return Mark(project, 0, first, (), rest[:12])
        text, marks = words(project, verdict, self.base[project.name])
        mark = Mark(project, marks, text)
        mark.timed = verdict.timed
        return mark


def at_home(build, names, make, gpu):
    """make project: builds each with make, and says how fast it is.  Without a GPU a CUDA project
    is right or wrong, and no more."""
    from exercises import sub_make  # pylint: disable=import-outside-toplevel
    right, chosen = 0, projects(names)
    for project in chosen:
        print(f"== {project.file.relative_to(ROOT)}: {project.title} ({project.points} points)",
              flush=True)
        worker = f"{build}/exercises/projects/{project.name}.worker"
        on_gpu = worker.replace(".worker", ".gpu_worker") if gpu and project.on_gpu else None
        if not sub_make(make, [f"{build}/judge", worker, *([on_gpu] if on_gpu else []),
                               f"{build}/exercises/solution/{project.like}.worker"]):
            print("   FAILED: it does not compile")
            continue
        verdict, why = timed(build, project, worker, 0, 8, on_gpu)
        text, marks = words(project, verdict, 0) if verdict else (why, 0)
        print(f"   {text.replace('; as handed out: 0 %', '')}", flush=True)
        right += marks > 0 or bool(project.on_gpu and not gpu and verdict and not verdict.failed)
    return 0 if right == len(chosen) else 1


def write(out, table, grader, hours):
    results = {"points": sum(x.points for x in grader.chosen), "students": {}}
    for student, marks in table.items():
        total, late = total_of(marks, hours.get(student, 0), grader.course), late_words(
            hours.get(student, 0), grader.course)
        if late:
            marks[0].details.append(late)
        results["students"][student] = {
            "marks": total, "alias": alias(student, grader.course),
            "late_hours": hours.get(student, 0), "exercises": {
                m.exercise.name: {"marks": m.marks, "points": m.exercise.points, "why": m.why,
                                  "timed": getattr(m, "timed", None)} for m in marks}}
        write_text(out / "feedback" / f"{student}-projects.txt",
                         feedback(student, marks, total, results["points"]))
        write_json(out / "gradescope" / student / "projects.json",
                         gradescope(marks, total, results["points"], late))
    write_json(out / "projects.json", results)


def grade_all(options):
    folder, out = pathlib.Path(options.submissions), pathlib.Path(options.out)
    chosen = projects(options.ex.split())
    if not options.nvcc:
        for project in [x for x in chosen if x.on_gpu]:
            print(f"grade: {project.name} is not graded here: it needs a GPU and nvcc")
        chosen = [x for x in chosen if not x.on_gpu]
        if not chosen:
            fail(3, "no project can be graded without a GPU")
    if not folder.is_dir():
        fail(2, f"SUBMISSIONS: '{folder}' is no folder of submissions")
    students, ignored = collect(folder, chosen)
    if not students:
        fail(2, f"SUBMISSIONS: no student in '{folder}'")
    grade.check_out(out, folder)
    hours = late_hours(options.late, students)
    for line in ignored:
        print(f"grade: {line}")

    def work(grader):
        table = {}
        jobs_here(grader.place)  # is there room and memory?
        for project in chosen:
            grader.first(project)
        for name, student in students.items():
            table[name] = [grader.marked(x, student) for x in chosen]
            total = total_of(table[name], hours.get(name, 0), grader.course)
            print(f"{name:30} {total:6.1f}", flush=True)
        return table
    table, grader = grade.graded(options, chosen, work, ProjectGrader)
    write(out, table, grader, hours)
    print(f"{len(students)} students, {len(chosen)} projects: {out}/projects.json")
    return 0


def main():
    parser = argparse.ArgumentParser(description="projects that are graded for speed")
    parser.add_argument("verb", choices=["run", "grade"])
    for name in ("submissions", "out", "cc", "cxx", "link", "nvcc", "gpu-link", "ex", "late"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--build", default="build")
    parser.add_argument("--make", default="make")
    parser.add_argument("--gpu", action="store_true", help="CUDA projects on the GPU as well")
    options = parser.parse_args()
    if options.verb == "run":
        return at_home(options.build, options.ex.split(), options.make, options.gpu)
    return grade_all(options)


if __name__ == "__main__":
    sys.exit(main())
