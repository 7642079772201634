"""grade.py: marks for a folder of submissions.

    make grade SUBMISSIONS=dir [OUT=build/grades] [EX="3 merge"]

Under SUBMISSIONS lies a folder for each student, with files named like the exercises
(online_step.c, at any depth), or files STUDENT-EXERCISE.c side by side.  EX picks stages
or exercises; without it all count.

Each file is compiled in a directory of its own, with the system's headers and the
harness's few, and run by the judge (common/grader): in a process without the reference,
limited in time and memory, that cannot write files, start programs or open connections.
The marks come from the judge's comparison, not from anything the submission prints or
returns.  The numbers in the cases are drawn from the submission's own text, so that a
table of right answers is of no use, and the same file always gets the same marks.

    share = (families of cases right) / (families that the skeleton gets wrong)
    marks = points * share, or where the exercise names the families that hold its point
            points * (share + share among those) / 2

A family is what the names of cases begin with (softmax-mask_row): it counts as right when
all its cases are.  All points are given only when every case passes.

Writes OUT/grades.json, OUT/junit.xml, OUT/class.png, and for each student
OUT/feedback/STUDENT.txt and OUT/gradescope/STUDENT/results.json.  The same submissions
give the same files.  Exit status: 0 graded; 2 bad usage; 3 the solutions themselves do
not get full marks here."""
import argparse
import concurrent.futures
import errno
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from exercises import ROOT, exercises, judge

HEADERS = ["stage.h", "gpu/cuda_check.h", "cuda_on_cpu/cuda_on_cpu.h",
           "cuda_on_cpu/cuda_types_on_cpu.h", "problem/half.h"]
LARGEST = 256 << 10     # bytes of a source file
DEEPEST = 8             # folders in a student's folder
COMPILE_S, COMPILE_WALL_S, COMPILE_BYTES = 30, 120, 2 << 30
CPU_S, WALL_S, MEMORY_MIB, JUDGE_WALL_S = 3, 20, 1024, 300


def fail(status, text):
    print(f"grade: {text}", file=sys.stderr)
    sys.exit(status)


def printable(text):
    """Without what a terminal, a file name, JSON or XML cannot hold."""
    return re.sub(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd]", "?", text)


class Mark:
    """One exercise of one student."""

    def __init__(self, exercise, marks, why, failing=(), details=(), families=0):
        self.exercise, self.marks, self.why = exercise, marks, printable(why)
        self.failing, self.details = list(failing), [printable(x) for x in details]
        self.families = families

    @property
    def full(self):
        return self.marks == self.exercise.points

    @property
    def words(self):
        """What the student reads."""
        lines = [self.why, *self.details]
        if self.failing:
            lines.append(f"{len(self.failing)} of {self.families} families of cases are "
                         "wrong: " + ", ".join(self.failing[:8])
                         + (", ..." if len(self.failing) > 8 else ""))
        return "\n".join(lines)


class Student:
    """files: exercise name -> paths, the one that counts first; close: exercise name ->
    a file that is nearly called so."""

    def __init__(self):
        self.files, self.close = {}, {}

    def add(self, names, path):
        """names: file name -> exercise name."""
        if path.name in names:
            self.files.setdefault(names[path.name], []).append(path)
            return
        letters = re.sub(r"[^a-z]", "", path.stem.lower())
        for name in names.values():
            if name.replace("_", "") in letters:
                self.close.setdefault(name, path.name)


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


def walk(folder):
    """Its files, the shallow ones first.  Links are not followed."""
    for top, folders, inside in os.walk(folder):
        here = pathlib.Path(top)
        deep = len(here.relative_to(folder).parts) >= DEEPEST
        folders[:] = [] if deep else sorted(x for x in folders if x != "__MACOSX")
        yield from (here / name for name in sorted(inside))


def collect(folder, chosen):
    """student -> Student."""
    names = {x.file.name: x.name for x in chosen}
    loose = re.compile(r"(.*[^-_])[-_]+(" + "|".join(map(re.escape, names)) + ")", re.S)
    students, taken = {}, {}

    def student(raw):
        name = re.sub(r"[\t\n]", "?", printable(raw))[:60]
        while taken.setdefault(name, raw) != raw:
            name += "~"
        return students.setdefault(name, Student())

    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() or entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        if entry.is_dir():
            for path in walk(entry):
                student(entry.name).add(names, path)
            student(entry.name)
        elif (found := loose.fullmatch(entry.name)):
            student(found[1]).files.setdefault(names[found[2]], []).append(entry)
    return students


def contents(path):
    """The bytes of a file, or why it has none.  A pipe or a device is not read, nor more
    of a file than may be."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return b"", "is a link: hand in the file itself" if error.errno == errno.ELOOP \
            else f"cannot be read: {error.strerror}"
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return b"", "is no file"
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        return data, f"the file is larger than {LARGEST >> 10} KiB"
    if not data.strip():
        return data, "the file is empty"
    if b"\0" in data:
        return data, "the file is no plain text (UTF-16? save it as UTF-8)"
    return data, ""


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


def system_headers(command):
    """The folders in which a compiler looks for <...>."""
    said = subprocess.run([*command, "-E", "-v", "-x", "c++" if "c++" in command else "c",
                           "/dev/null"], env={**os.environ, "LC_ALL": "C"}, text=True,
                          capture_output=True, check=False).stderr
    listed = said.partition("search starts here:\n#include <...>")[2] or \
        said.partition("#include <...> search starts here:")[2]
    folders = [x.strip() for x in listed.partition("End of search list")[0].split("\n")]
    return [pathlib.Path(x).resolve() for x in folders if x.startswith("/")]


def strange(depends, folder, allowed):
    """The first included file that lies in no allowed folder."""
    text = depends.read_text(errors="replace").replace("\\\n", " ").split(":", 1)[-1]
    for word in text.split():
        path = pathlib.Path(folder, word)
        forms = path.resolve(), pathlib.Path(os.path.normpath(path))
        if not any(form.is_relative_to(root) for form in forms for root in allowed):
            return word
    return None


class Grader:
    def __init__(self, options, chosen):
        self.options, self.chosen = options, chosen
        self.build = pathlib.Path(options.build).resolve()
        self.compile = {".c": shlex.split(options.cc), ".cu": shlex.split(options.cxx)}
        self.system = {x: system_headers(command) for x, command in self.compile.items()}
        self.link = shlex.split(options.link)
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="grade.")).resolve()
        self.include = self.place / "include"
        self.include.mkdir()
        for name in HEADERS:
            (self.include / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / "common" / name, self.include / name)
        self.counted = {}   # exercise -> families that the skeleton gets wrong
        self.jailed = 2

    def ask(self, exercise, worker, seed=0):
        """The judge's verdict, or why there is none."""
        try:
            status, verdict, error = judge(
                self.build, f"{self.build}/exercises/solution/{exercise.name}.worker",
                worker, "--quick", "--cpu", str(CPU_S), "--wall", str(WALL_S), "--memory",
                str(MEMORY_MIB), "--seed", str(seed), timeout=JUDGE_WALL_S)
        except subprocess.TimeoutExpired:
            return None, "took too long"
        if status or not verdict.complete or not verdict.cases:
            return None, error or f"the judge ended with {status}"
        self.jailed = min(self.jailed, verdict.jailed)
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
        for recipe in exercise.half:
            if not any(x.endswith("-" + recipe) for x in self.counted[exercise.name]):
                fail(3, f"{exercise.name}: no family '{recipe}' that could be half of its "
                     "points")

    def build_worker(self, exercise, data, folder):
        """Compiles and links in `folder`; returns "" or why not, and what was said."""
        source = folder / exercise.file.name
        source.write_bytes(data)
        command = self.compile[source.suffix] + ["-w", f"-I{self.include}", source.name]
        ok, log = call([*command, "-E", "-MD", "-MF", "depends", "-o", "text"], folder)
        if ok:
            word = strange(folder / "depends", folder,
                           [folder, self.include, *self.system[source.suffix]])
            if word:
                return f"includes {word}, which is not allowed", ""
            ok, log = call([*command, "-c", "-o", "object.o"], folder)
        if not ok:
            return "does not compile: " + first_error(log), log
        objects = ["object.o", f"{self.build}/obj/common/grader/worker.o"]
        if source.suffix == ".cu":
            objects.append(f"{self.build}/obj/common/cuda_on_cpu/cuda_on_cpu.o")
        ok, log = call(self.link + objects + ["-lm", "-lpthread", "-o", "worker"], folder)
        return ("", "") if ok else ("does not link: " + first_error(log), log)

    def mark(self, exercise, student):
        """One exercise of one student; nothing that goes wrong with it stops the rest."""
        try:
            return self.try_to_mark(exercise, student)
        except Exception as error:  # pylint: disable=broad-except
            return Mark(exercise, 0, f"the grader failed: {type(error).__name__}: {error}")

    def try_to_mark(self, exercise, student):
        paths = student.files.get(exercise.name)
        if not paths:
            close = student.close.get(exercise.name)
            return Mark(exercise, 0, "not handed in" + (
                f": '{close}' is not called {exercise.file.name}" if close else ""))
        data, why = contents(paths[0])
        if why:
            return Mark(exercise, 0, why)
        if data.replace(b"\r\n", b"\n").decode(errors="replace") == exercise.skeleton():
            return Mark(exercise, 0, "the skeleton, unchanged")
        seed = int.from_bytes(hashlib.sha256(data).digest()[:7], "big")
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            why, log = self.build_worker(exercise, data, folder)
            if why:
                why, log = (self.without_places(text, folder) for text in (why, log))
                return Mark(exercise, 0, why, (), log.splitlines()[:12])
            verdict, why = self.ask(exercise, str(folder / "worker"), seed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        mark = self.weigh(exercise, verdict) if verdict else Mark(exercise, 0, why)
        if len(paths) > 1:
            mark.details.append(printable(
                f"{len(paths)} files are called {exercise.file.name}: one counts, in "
                f"'{paths[0].parent.name}'"))
        return mark

    def without_places(self, text, folder):
        """What a compiler said, but for the names that differ from run to run."""
        for place in (folder, self.place, self.build):
            text = text.replace(f"{place}/", "")
        return re.sub(r"\bcc\w{6}\.([so])\b", r"compiled.\1", text)

    def weigh(self, exercise, verdict):
        failing = [family for family, ok in verdict.families().items() if not ok]
        if not failing:
            return Mark(exercise, exercise.points, "right")
        counted = self.counted[exercise.name]
        point = [x for x in counted if x.split("-", 1)[1] in exercise.half] or counted
        # exact: in units of 1 / (2 * both counts)
        right, right_point = (sum(x not in failing for x in some)
                              for some in (counted, point))
        units = right * len(point) + right_point * len(counted)
        tenths = exercise.points * 10 * units // (2 * len(counted) * len(point))
        marks = min(tenths, exercise.points * 10 - 1) / 10  # never all of them
        return Mark(exercise, marks, verdict_words(verdict), failing,
                    details_of(exercise, verdict), len(verdict.families()))


def verdict_words(verdict):
    case = verdict.smallest
    return f"{case.name}: {case.where + ': ' if case.where else ''}{case.why}"


def details_of(exercise, verdict):
    """The smallest case that fails, in numbers, and how to see one like it."""
    case = verdict.smallest
    lines = [f"{len(verdict.failed)} of {len(verdict.cases)} cases fail; above: the "
             "smallest"]
    if case.where:
        lines.append(f"got {case.got}  want {case.want}  error {case.err}  "
                     f"allowed {case.allowed}")
    if verdict.jailed == 2:  # what it says cannot be from files that it should not read
        lines += [f"it said: {line}" for line in verdict.said[:4]]
    return lines + [f"see it at home: make exercise {exercise.number} EX={exercise.name}"]


def first_error(log):
    if re.search("signal terminated program|memory exhausted|out of memory", log):
        return "the compiler needs too much time, memory or room"
    for line in log.splitlines():
        if "error" in line or "undefined" in line or "multiple definition" in line:
            return line.strip()[:200]
    return (log.strip().splitlines() or ["killed: too much time or memory"])[-1][:200]


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path, value):
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def number(marks):
    return f"{marks:g}"


def feedback(student, marks, total, points):
    """What one student reads."""
    lines = [f"{student}: {number(total)} of {points} points",
             "(what the names of the cases mean: enum recipe in common/verification/cases.h)", ""]
    for m in marks:
        lines.append(f"{m.exercise.stage}/{m.exercise.file.name}: {m.exercise.title}: "
                     f"{number(m.marks)} of {m.exercise.points}")
        lines += ["    " + line for line in m.words.split("\n")] + [""]
    return "\n".join(lines)


ISOLATION = ["none", "no new processes, no writing",
             "no new processes, no writing, files hidden"]


def write_results(out, table, chosen, jailed):
    points = sum(x.points for x in chosen)
    grades = {"points": points, "isolation": ISOLATION[jailed], "students": {}}
    for student, marks in table.items():
        total = round(sum(m.marks for m in marks), 1)
        grades["students"][student] = {"marks": total, "exercises": {
            m.exercise.name: {"marks": m.marks, "points": m.exercise.points, "why": m.why,
                              "failing_families": m.failing} for m in marks}}
        write_text(out / "feedback" / f"{student}.txt",
                   feedback(student, marks, total, points))
        write_json(out / "gradescope" / student / "results.json", {
            "score": total, "output": f"{number(total)} of {points} points",
            "visibility": "visible", "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}: {m.exercise.title}",
                 "number": f"{m.exercise.number}.{i}", "score": m.marks,
                 "max_score": m.exercise.points,
                 "status": "passed" if m.full else "failed", "output": m.words,
                 "visibility": "visible"} for i, m in enumerate(marks, 1)]})
    write_json(out / "grades.json", grades)
    top = xml.Element("testsuites", name="exercises", **counts(sum(table.values(), [])))
    for student, marks in table.items():
        suite = xml.SubElement(top, "testsuite", name=student, **counts(marks))
        for m in marks:
            case = xml.SubElement(suite, "testcase", classname=student,
                                  name=f"{m.exercise.stage}/{m.exercise.name}")
            if not m.full:
                failure = xml.SubElement(case, "failure", message=m.why,
                                         type=f"{number(m.marks)} of {m.exercise.points}")
                failure.text = m.words
    xml.indent(top)
    document = xml.ElementTree(top)
    document.write(out / "junit.xml", encoding="utf-8", xml_declaration=True)


def counts(marks):
    return {"tests": str(len(marks)), "errors": "0",
            "failures": str(sum(not m.full for m in marks))}


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
    axis.set_yticks(range(len(rows)), [label(s, table[s]) for s in rows], fontsize=7)
    axis.set_xticks([i + 0.5 for i in range(len(chosen) - 1)], minor=True)
    axis.set_yticks([i + 0.5 for i in range(len(rows) - 1)], minor=True)
    axis.grid(which="minor", color="white", linewidth=0.6)
    for i in range(1, len(chosen)):
        if chosen[i].number != chosen[i - 1].number:
            axis.axvline(i - 0.5, color="white", linewidth=3)
    axis.tick_params(which="minor", length=0)
    axis.set_title(f"Share of the points of each exercise\n(right of a name: marks of "
                   f"{sum(x.points for x in chosen)})", fontsize=9, loc="left")
    figure.colorbar(image, ax=axis, fraction=0.05).ax.tick_params(labelsize=7)
    figure.savefig(path, metadata={"Software": None}, bbox_inches="tight")


def label(student, marks):
    short = student if len(student) <= 32 else student[:30] + "…"
    return short.replace("$", r"\$") + f"  {number(round(sum(m.marks for m in marks), 1))}"


def grade(grader, students):
    """student -> marks in the order of the exercises; a job a core."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(grader.prepare, grader.chosen))
        jobs = {name: [pool.submit(grader.mark, x, student) for x in grader.chosen]
                for name, student in students.items()}
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
    sys.stdout.reconfigure(errors="replace")
    if not folder.is_dir():
        fail(2, f"SUBMISSIONS: '{folder}' is no folder of submissions")
    if out.resolve().is_relative_to(folder.resolve()):
        fail(2, f"OUT: '{out}' lies in the folder of submissions; it would be a student")
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
    write_results(out, table, chosen, grader.jailed)
    draw(out / "class.png", table, chosen)
    if grader.jailed == 0:
        print("grade: this kernel has no system-call filter (seccomp): submissions could "
              "write files and start processes; read notes/instructor.md")
    elif grader.jailed == 1:
        print("grade: this kernel cannot hide files (Landlock): submissions could read "
              "what you can; read notes/instructor.md")
    print(f"{len(students)} students, {len(chosen)} exercises: {out}/grades.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
