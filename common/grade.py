"""grade.py: marks for a folder of submissions.

    make grade SUBMISSIONS=dir [OUT=build/grades] [EX="3 merge"]

Under SUBMISSIONS lies a folder for each student, with files named like the exercises
(online_step.c, at any depth), or files STUDENT-EXERCISE.c side by side.  EX picks stages
or exercises; without it all count.

Each file is compiled in a directory of its own, with no headers but the harness's few,
and run by the judge (common/grader): in a process without the reference, limited in time
and memory, that cannot write files, start processes or open connections.  The marks come
from the judge's comparison, not from anything the submission prints or returns.

    marks = points * (families of cases right) / (families that the skeleton gets wrong)

A family is what the names of cases begin with (softmax-mask_row): it counts as right when
all its cases are.  All points are given only when every case passes.

Writes OUT/grades.json, OUT/junit.xml, OUT/gradescope/STUDENT/results.json, OUT/class.png.
The same submissions give the same files.  Exit status: 0 graded; 2 bad usage; 3 the
solutions themselves do not get full marks here."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from exercises import ROOT, exercises, judge

HEADERS = ["stage.h", "cuda_check.h", "cuda_on_cpu.h", "cuda_types_on_cpu.h", "half.h"]
LARGEST = 256 << 10     # bytes of a source file
COMPILE_S, COMPILE_WALL_S, COMPILE_BYTES = 30, 120, 2 << 30
CPU_S, WALL_S, MEMORY_MIB, JUDGE_WALL_S = 3, 20, 1024, 300


def fail(status, text):
    print(f"grade: {text}", file=sys.stderr)
    sys.exit(status)


class Mark:
    """One exercise of one student."""

    def __init__(self, exercise, marks, why, failing=(), cases=0):
        self.exercise, self.marks, self.why = exercise, marks, why
        self.failing, self.cases = list(failing), cases

    @property
    def full(self):
        return self.marks == self.exercise.points


def wanted(words):
    """The exercises that count."""
    found = exercises()
    if not words:
        return found
    for word in words:
        if not any(word in (x.name, str(x.number), x.stage) for x in found):
            fail(2, f"EX: no stage or exercise '{word}'; there are "
                 + ", ".join(x.name for x in found))
    return [x for x in found if {x.name, str(x.number), x.stage} & set(words)]


def collect(folder, chosen):
    """student -> exercise name -> path.  Links are not followed."""
    names = {x.file.name: x.name for x in chosen}
    loose = re.compile(r"(.+)[-_]+(" + "|".join(re.escape(n) for n in names) + ")$")
    students = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() or entry.name.startswith("."):
            continue
        if entry.is_dir():
            files = students.setdefault(entry.name, {})
            for top, folders, inside in os.walk(entry):
                folders.sort()
                for name in sorted(inside):
                    path = pathlib.Path(top, name)
                    if name in names and not path.is_symlink():
                        files.setdefault(names[name], path)
        elif (found := loose.match(entry.name)):
            students.setdefault(found[1].rstrip("-_"), {})[names[found[2]]] = entry
    return students


def limits():
    """Of the compiler, in its own process."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_S, COMPILE_S))
    resource.setrlimit(resource.RLIMIT_AS, (COMPILE_BYTES, COMPILE_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, 32 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def call(command, folder):
    """Runs a compiler; its group dies with it.  Did it succeed, and what did it say?"""
    environment = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder),
                   "LC_ALL": "C"}
    with open(folder / "log", "w+b") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment,
                                   preexec_fn=limits, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
        try:
            status = process.wait(COMPILE_WALL_S)
        except subprocess.TimeoutExpired:
            status = -1
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        log.seek(0)
        return status == 0, log.read(20000).decode(errors="replace")


def forbidden(depends, folder, allowed, closed):
    """The first included file that lies in a closed folder and not in an allowed one."""
    text = depends.read_text(errors="replace").replace("\\\n", " ").split(":", 1)[-1]
    for word in text.split():
        path = pathlib.Path(folder, word).resolve()
        if not any(path.is_relative_to(root) for root in allowed) and \
                any(path.is_relative_to(root) for root in closed):
            return word
    return None


class Grader:
    def __init__(self, options, chosen):
        self.options, self.chosen = options, chosen
        self.build = pathlib.Path(options.build).resolve()
        self.compile = {".c": shlex.split(options.cc), ".cu": shlex.split(options.cxx)}
        self.link = shlex.split(options.link)
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="grade.")).resolve()
        self.include = self.place / "include"
        self.include.mkdir()
        for name in HEADERS:
            shutil.copy2(ROOT / "common" / name, self.include / name)
        self.counted = {}   # exercise -> families that the skeleton gets wrong
        self.jailed = True

    def ask(self, exercise, worker):
        """The judge's verdict, or why there is none."""
        try:
            status, verdict, error = judge(
                self.build, f"{self.build}/exercises/solution/{exercise.name}.worker",
                worker, "--quick", "--cpu", str(CPU_S), "--wall", str(WALL_S), "--memory",
                str(MEMORY_MIB), timeout=JUDGE_WALL_S)
        except subprocess.TimeoutExpired:
            return None, "took too long"
        if status or not verdict.complete or not verdict.cases:
            return None, error or f"the judge ended with {status}"
        self.jailed &= verdict.jailed
        return verdict, ""

    def prepare(self, exercise):
        """Which families count; the solution must be right in all."""
        folder = f"{self.build}/exercises"
        solution, why = self.ask(exercise, f"{folder}/solution/{exercise.name}.worker")
        if not solution or solution.failed:
            fail(3, f"the solution of {exercise.name} is not right on this machine: "
                 + (why or solution.smallest.name))
        skeleton, why = self.ask(exercise, f"{folder}/skeleton/{exercise.name}.worker")
        if not skeleton:
            fail(3, f"the skeleton of {exercise.name}: {why}")
        families = skeleton.families()
        self.counted[exercise.name] = [x for x in families if not families[x]]

    def build_worker(self, exercise, path, folder):
        """Compiles and links in `folder`; returns "" or why not."""
        source = folder / exercise.file.name
        if path.stat().st_size > LARGEST:
            return f"the file is larger than {LARGEST >> 10} KiB"
        shutil.copyfile(path, source)
        command = self.compile[source.suffix] + [
            "-w", "-MD", "-MF", "depends", f"-I{self.include}", "-c", source.name, "-o",
            "object.o"]
        ok, log = call(command, folder)
        if not ok:
            return "does not compile: " + first_error(log)
        word = forbidden(folder / "depends", folder, [folder, self.include],
                         [ROOT, pathlib.Path(self.options.submissions).resolve(),
                          self.place, pathlib.Path("/proc")])
        if word:
            return f"includes {word}, which is not allowed"
        objects = ["object.o", f"{self.build}/obj/common/grader/worker.o"]
        if source.suffix == ".cu":
            objects.append(f"{self.build}/obj/common/cuda_on_cpu.o")
        ok, log = call(self.link + objects + ["-lm", "-lpthread", "-o", "worker"], folder)
        return "" if ok else "does not link: " + first_error(log)

    def mark(self, exercise, path):
        if path is None:
            return Mark(exercise, 0, "not handed in")
        text = path.read_bytes()[:LARGEST + 1].decode(errors="replace")
        if text == exercise.skeleton():
            return Mark(exercise, 0, "the skeleton, unchanged")
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            why = self.build_worker(exercise, path, folder)
            if why:
                return Mark(exercise, 0, why)
            verdict, why = self.ask(exercise, str(folder / "worker"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not verdict:
            return Mark(exercise, 0, why)
        return self.weigh(exercise, verdict)

    def weigh(self, exercise, verdict):
        failing = [family for family, ok in verdict.families().items() if not ok]
        if not failing:
            return Mark(exercise, exercise.points, "right", (), len(verdict.cases))
        counted = self.counted[exercise.name]
        right = sum(family not in failing for family in counted)
        tenths = exercise.points * 10 * right // len(counted)
        marks = min(tenths, exercise.points * 10 - 1) / 10  # never all of them
        case = verdict.smallest
        why = f"{case.name}: {case.where + ': ' if case.where else ''}{case.why}"
        return Mark(exercise, marks, why, failing, len(verdict.cases))


def first_error(log):
    for line in log.splitlines():
        if "error" in line or "undefined" in line or "multiple definition" in line:
            return line.strip()[:200]
    return (log.strip().splitlines() or ["killed: too much time or memory"])[-1][:200]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def words(mark):
    lines = [mark.why]
    if mark.failing:
        lines.append("wrong in the families " + ", ".join(mark.failing))
    return "\n".join(lines)


def write_results(out, table, chosen):
    points = sum(x.points for x in chosen)
    grades = {"points": points, "students": {}}
    for student, marks in table.items():
        total = round(sum(m.marks for m in marks), 1)
        grades["students"][student] = {"marks": total, "exercises": {
            m.exercise.name: {"marks": m.marks, "points": m.exercise.points, "why": m.why,
                              "failing_families": m.failing} for m in marks}}
        write_json(out / "gradescope" / student / "results.json", {
            "score": total, "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}", "score": m.marks,
                 "max_score": m.exercise.points, "output": words(m),
                 "visibility": "visible"} for m in marks]})
    write_json(out / "grades.json", grades)
    top = xml.Element("testsuites")
    for student, marks in table.items():
        suite = xml.SubElement(top, "testsuite", name=student, tests=str(len(marks)),
                               failures=str(sum(not m.full for m in marks)))
        for m in marks:
            case = xml.SubElement(suite, "testcase", classname=student,
                                  name=f"{m.exercise.stage}/{m.exercise.name}")
            if not m.full:
                failure = xml.SubElement(case, "failure", message=printable(m.why))
                failure.text = printable(words(m))
    xml.indent(top)
    document = xml.ElementTree(top)
    document.write(out / "junit.xml", encoding="utf-8", xml_declaration=True)


def printable(text):
    """Without what XML cannot hold."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", text)


def draw(path, table, chosen):
    """The class: who has what share of which exercise.  Students by their marks."""
    try:
        import matplotlib
    except ImportError:
        print("grade: no matplotlib, class.png not drawn")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    rows = sorted(table, key=lambda s: (-sum(m.marks for m in table[s]), s))
    shares = [[m.marks / m.exercise.points for m in table[s]] for s in rows]
    figure, axis = plt.subplots(figsize=(2.2 + 0.42 * len(chosen), 1.8 + 0.2 * len(rows)),
                                dpi=120)
    image = axis.imshow(shares, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axis.set_xticks(range(len(chosen)), [x.name for x in chosen], rotation=90, fontsize=7)
    axis.set_yticks(range(len(rows)), [f"{s[:24]}  {sum(m.marks for m in table[s]):.4g}"
                                       for s in rows], fontsize=7)
    axis.set_title(f"Share of the points of each exercise\n(right of a name: marks of "
                   f"{sum(x.points for x in chosen)})", fontsize=9, loc="left")
    figure.colorbar(image, ax=axis, fraction=0.05)
    figure.savefig(path, metadata={"Software": None}, bbox_inches="tight")


def grade(grader, students):
    """student -> marks in the order of the exercises; a job a core."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(grader.prepare, grader.chosen))
        jobs = {student: [pool.submit(grader.mark, x, files.get(x.name))
                          for x in grader.chosen] for student, files in students.items()}
        table = {}
        for student, marks in jobs.items():
            table[student] = [job.result() for job in marks]
            total = sum(m.marks for m in table[student])
            right = sum(m.full for m in table[student])
            print(f"{student:30} {total:6.1f}   {right} of {len(grader.chosen)} right",
                  flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description="marks for a folder of submissions")
    for name in ("submissions", "out", "build", "cc", "cxx", "link"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ex", default="")
    options = parser.parse_args()
    folder, out = pathlib.Path(options.submissions), pathlib.Path(options.out)
    if not folder.is_dir():
        fail(2, f"SUBMISSIONS: '{folder}' is no folder of submissions")
    chosen = wanted(options.ex.split())
    students = collect(folder, chosen)
    if not students:
        fail(2, f"SUBMISSIONS: nothing in '{folder}' is a student's folder or a file "
             "STUDENT-EXERCISE.c")
    grader = Grader(options, chosen)
    try:
        table = grade(grader, students)
    finally:
        shutil.rmtree(grader.place, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_results(out, table, chosen)
    draw(out / "class.png", table, chosen)
    if not grader.jailed:
        print("grade: this kernel has no system-call filter (seccomp): submissions could "
              "write files and start processes; read notes/instructor.md")
    print(f"{len(students)} students, {len(chosen)} exercises: {out}/grades.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
