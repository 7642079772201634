"""grade.py: marks for a folder of submissions.

    make grade SUBMISSIONS=dir [OUT=build/grades] [EX="3 merge"] [LATE=table]

Under SUBMISSIONS lies a folder for each student, with files named like the exercises
(online_step.c, at any depth), or files STUDENT-EXERCISE.c side by side.  EX picks stages
or exercises; without it all count.

Each file is compiled in a directory of its own, with the system's headers and the
harness's few, and run by the judge (common/grader): in a process without the reference,
limited in time and memory, that cannot write files, start programs or open connections.
The marks come from the judge's comparison, not from anything the submission prints or
returns.  The numbers in the cases are drawn from the submission's own text, so that a
table of right answers is of no use, and the same file always gets the same marks.

    share = (families of cases right) / (families)
    marks = points * share, or where the exercise names the families that hold its point
            points * (share + share among those) / 2

A family is what the names of cases begin with (softmax-mask_row): it counts as right when
all its cases are.  The families that count are those which, with the same numbers, the
solution gets right and the skeleton does not: what vanishes for some numbers, and what is
right without doing anything, earns nothing.  All points are given only when every case passes.

Writes OUT/grades.json, OUT/junit.xml, OUT/class.png, and for each student
OUT/feedback/STUDENT.txt and OUT/gradescope/STUDENT/results.json.  The same submissions
give the same files.

In the instructor's folder of a course (course.py) the numbers depend on the course's secret
too, hidden shapes are drawn from it, and the code that an exercise gives must still be there:
a file for another form of the task earns nothing.  LATE is a table of lines `student,hours`;
course.json says what a late day costs.

A lack of memory, room or processes on this machine is no mark: the run stops, writes no
results, and says so.  Exit status: 0 graded; 2 bad usage; 3 this machine cannot grade now,
or the solutions themselves do not get full marks here, or the grader itself failed with
some mark, which it names; 128 + n after signal n."""
import argparse
import concurrent.futures
import errno
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

import processes
from exercises import ROOT, exercises, judge, numbers_of, verdict_line

HEADERS = ["stage.h", "problem/mask.h", "problem/size.h", "problem/half.h",
           "gpu/cuda_check.h", "cuda_on_cpu/cuda_on_cpu.h",
           "cuda_on_cpu/cuda_types_on_cpu.h"]
OBJECTS = ["grader/worker.o", "cuda_on_cpu/cuda_on_cpu.o"]  # the second for .cu
LARGEST = 256 << 10     # bytes of a source file
DEEPEST = 8             # folders in a student's folder
COMPILE_WALL_S = 120    # the other limits of a compiler: common/grader/judge.c
ROOM, MEMORY = 64 << 20, 2 << 30  # bytes that one submission may need at once
CPU_S, WALL_S, MEMORY_MIB, JUDGE_WALL_S = 3, 20, 1024, 300


def fail(status, text):
    print(f"grade: {text}", file=sys.stderr)
    sys.exit(status)


COURSE = ROOT / "course.json"  # in an instructor's folder only


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


LACKING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
           errno.EIO)
LACKING_WORDS = re.compile(
    "No space left|quota exceeded|Cannot allocate memory|out of memory|memory exhausted|"
    "temporarily unavailable|Too many open files|Input/output error|signal terminated program|"
    "cannot execute")


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
    a file that is nearly called so; notes: what was left out, a line each."""

    def __init__(self):
        self.files, self.close, self.notes = {}, {}, []

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


def walk(folder, notes):
    """Its files, the shallow ones first.  Links are not followed; what is left out is
    noted."""
    for top, folders, inside in os.walk(folder):
        here = pathlib.Path(top)
        links = [x for x in folders if (here / x).is_symlink()]
        notes += [f"'{here.relative_to(folder) / x}' is a link to a folder: not followed; "
                  "hand in the folder itself" for x in sorted(links)]
        if len(here.relative_to(folder).parts) >= DEEPEST:
            if folders:
                notes.append(f"folders more than {DEEPEST} deep are not searched")
            folders[:] = []
        folders[:] = sorted(x for x in folders if x != "__MACOSX" and x not in links)
        yield from (here / name for name in sorted(inside))


def collect(folder, chosen):
    """student -> Student; and what is no student's, a line each."""
    names = {x.file.name: x.name for x in chosen}
    loose = re.compile(r"(.*[^-_])[-_]+(" + "|".join(map(re.escape, names)) + ")", re.S)
    students, taken, ignored = {}, {}, []

    def student(raw):
        name = re.sub(r"[\t\n]", "?", printable(raw))[:60]
        while taken.setdefault(name, raw) != raw:
            name += "~"
        return students.setdefault(name, Student())

    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        if entry.is_dir() and entry.is_symlink():
            student(entry.name).notes.append(
                "the folder is a link: not followed; hand in the folder itself")
        elif entry.is_dir():
            one = student(entry.name)
            for path in walk(entry, one.notes):
                one.add(names, path)
        elif (found := loose.fullmatch(entry.name)):
            student(found[1]).files.setdefault(names[found[2]], []).append(entry)
        else:
            ignored.append(f"'{printable(entry.name)}' is neither a student's folder nor a "
                           "file STUDENT-EXERCISE.c: ignored")
    return students, ignored


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


def same_text(data, text):
    return data.replace(b"\r\n", b"\n").decode(errors="replace") == text


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


def belongs(command):
    """Where a compiler's own parts lie, wherever it was installed."""
    found = [shutil.which(command[0]) or command[0]]
    for question in ("-print-prog-name=cc1", "-print-prog-name=as", "-print-prog-name=ld",
                     "-print-libgcc-file-name"):
        said = subprocess.run([*command, question], text=True, capture_output=True,
                              check=False).stdout.strip()
        found.append(shutil.which(said) or said)
    places = {pathlib.Path(x).resolve().parent for x in found if x.startswith("/")}
    return [x for x in sorted(places) if not ROOT.is_relative_to(x)]


def free_memory():
    """Bytes that this machine, or the group of processes we are in, can still give."""
    try:
        text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
        free = int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) << 10
    except (OSError, TypeError):
        return None
    group = pathlib.Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, most - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    return free


def free_room(place):
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_favail > 64 or not found.f_files else 0


def jobs_here(place):
    """How many submissions at once: one for each core, if memory and room suffice."""
    memory, room = free_memory(), free_room(place)
    if room < ROOM:
        raise Shortage(f"{place.parent} has {room >> 20} MiB of room left, a submission may "
                       f"need {ROOM >> 20}; TMPDIR=folder chooses another place")
    if memory is not None and memory < MEMORY // 2:
        raise Shortage(f"{memory >> 20} MiB of memory are free, a submission may need "
                       f"{MEMORY >> 20}")
    jobs = min(os.cpu_count() or 1, room // ROOM)
    return max(1, jobs if memory is None else min(jobs, memory // MEMORY))


def remove_stale():
    """Places that a grader left which was killed and could not tidy up: ours, and not
    locked by a grader that runs."""
    for place in pathlib.Path(tempfile.gettempdir()).glob("grade.*"):
        try:
            if place.is_symlink() or place.stat().st_uid != os.getuid():
                continue
            with open(place / "lock", "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
        except OSError:
            continue


class Grader:
    def __init__(self, options, chosen):
        self.options, self.chosen = options, chosen
        self.build = pathlib.Path(options.build).resolve()
        self.compile = {".c": shlex.split(options.cc), ".cu": shlex.split(options.cxx)}
        self.link = shlex.split(options.link)
        self.system = {x: system_headers(command) for x, command in self.compile.items()}
        self.readable = sorted({str(x) for command in (*self.compile.values(), self.link)
                                for x in belongs(command)}
                               | {str(x) for some in self.system.values() for x in some})
        self.failures, self.jailed = [], 2
        self.course = json.loads(COURSE.read_text(encoding="utf-8")) if COURSE.exists() else {}
        remove_stale()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="grade.")).resolve()
        self.lock = open(self.place / "lock", "wb")  # pylint: disable=consider-using-with
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.given = self.place / "given"
        for name in HEADERS:
            copy = self.given / "include" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / "common" / name, copy)
        for name in OBJECTS:
            shutil.copy2(self.build / "obj/common" / name, self.given)
        status, _, _ = self.confined([], self.place)
        self.compiler_is_jailed = status == 0

    def confined(self, command, folder, log=None):
        """Runs a compiler, which writes in `folder` only."""
        environment = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder),
                       "LC_ALL": "C", "CCACHE_DISABLE": "1"}
        return processes.run([f"{self.build}/judge", "compile", str(folder), str(self.given),
                              *self.readable, "--", *command], COMPILE_WALL_S, folder,
                             environment, log)

    def call(self, command, folder):
        """Did a compiler succeed, and what did it say?"""
        with open(folder / "log", "w+b") as log:
            status, _, _ = self.confined(command, folder, log)
            log.seek(0)
            said = log.read(20000).decode(errors="replace")
        return status == 0, said + ("killed: took too long" if status == processes.LATE else "")

    def ask(self, exercise, worker, seed=0):
        """The judge's verdict, or why there is none."""
        for attempt in range(2):
            status, verdict, error = judge(
                self.build, f"{self.build}/exercises/solution/{exercise.name}.worker",
                worker, "--quick", "--cpu", str(CPU_S), "--wall", str(WALL_S), "--memory",
                str(MEMORY_MIB), "--seed", str(seed), *(
                    ["--draw", str(self.course["draw"])] if self.course else []),
                timeout=JUDGE_WALL_S)
            if status == processes.LATE:
                return None, "took too long"
            if status == 0 and verdict.complete and verdict.cases:
                self.jailed = min(self.jailed, verdict.jailed)
                return verdict, ""
        raise Shortage(f"{exercise.name}: {error or f'the judge ended with {status}'}")

    def prepare(self, exercise):
        """The solution must be right, and the skeleton wrong where half of the points are."""
        folder = f"{self.build}/exercises"
        solution, why = self.ask(exercise, f"{folder}/solution/{exercise.name}.worker")
        if not solution or solution.failed:
            raise Shortage(f"the solution of {exercise.name} is not right on this machine: "
                           + (why or solution.smallest.name))
        wrong = self.worth(exercise, 0)
        for recipe in exercise.half:
            if not any(x.endswith("-" + recipe) for x in wrong):
                raise Shortage(f"{exercise.name}: no family '{recipe}' that could be half of "
                               "its points")
        try:
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
            why, log = self.build_worker(exercise, exercise.solution.read_bytes(), folder)
            if why:
                raise Shortage(f"the solution of {exercise.name} {why}\n{log[:2000]}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def worth(self, exercise, seed):
        """The families that earn something with this seed's numbers: they ran, the solution
        has them right and the skeleton has not."""
        solution, skeleton = (self.ask(
            exercise, f"{self.build}/exercises/{kind}/{exercise.name}.worker", seed)[0]
            for kind in ("solution", "skeleton"))
        if not solution or not skeleton:
            raise Shortage(f"{exercise.name}: its solution or skeleton took too long")
        right, begun = solution.families(), skeleton.families()
        return [x for x in right if right[x] and not begun[x]]

    def build_once(self, exercise, data, folder):
        """Compiles and links in `folder`; returns "" or why not, and what was said."""
        source = folder / exercise.file.name
        source.write_bytes(data)
        command = self.compile[source.suffix] + ["-w", f"-I{self.given}/include", source.name]
        ok, log = self.call([*command, "-c", "-MD", "-MF", "depends", "-o", "object.o"], folder)
        if not ok:
            denied = re.search(r"fatal error: (.*): Permission denied", log)
            if denied:
                return f"includes {denied[1]}, which is not allowed", ""
            if not self.compiler_is_jailed:  # it may quote files that nobody should read
                return "does not compile (make exercise says why)", ""
            return "does not compile: " + first_error(log), log
        word = strange(folder / "depends", folder,
                       [folder, self.given, *self.system[source.suffix]])
        if word:
            return f"includes {word}, which is not allowed", ""
        objects = ["object.o", *(str(self.given / pathlib.Path(x).name) for x in OBJECTS[
            :1 if source.suffix == ".c" else 2])]
        ok, log = self.call(self.link + objects + ["-lm", "-lpthread", "-o", "worker"], folder)
        return ("", "") if ok else ("does not link: " + first_error(log), log)

    def build_worker(self, exercise, data, folder):
        """The same, and it is the submission's fault: where this machine may have lacked
        something, the solution must compile at the same time, and the submission fail again."""
        why, log = self.build_once(exercise, data, folder)
        if not why or why.startswith("includes"):
            return why, log
        if free_room(self.place) < ROOM:
            raise Shortage(f"{self.place.parent} has {free_room(self.place) >> 20} MiB of room "
                           "left")
        if log and "CPU time limit" not in log and \
                (LACKING_WORDS.search(log) or "error" not in log):
            for text in (exercise.solution.read_bytes(), data):
                shutil.rmtree(folder)
                folder.mkdir()
                why, log = self.build_once(exercise, text, folder)
                if why and text is not data:
                    raise Shortage(f"the solution of {exercise.name} {why}")
        return why, log

    def mark(self, exercise, student):
        """One exercise of one student; nothing that goes wrong with it stops the rest."""
        try:
            return self.try_to_mark(exercise, student)
        except (Shortage, processes.Stopped, MemoryError):
            raise
        except Exception as error:  # pylint: disable=broad-except
            if getattr(error, "errno", None) in LACKING:
                raise Shortage(str(error)) from error
            self.failures.append(f"{exercise.name}: {type(error).__name__}: {error}")
            return Mark(exercise, 0, f"the grader failed: {type(error).__name__}: {error}")

    def try_to_mark(self, exercise, student):
        paths = student.files.get(exercise.name)
        if not paths:
            close = student.close.get(exercise.name)
            return Mark(exercise, 0, "not handed in" + (
                f": '{close}' is not called {exercise.file.name}" if close else ""),
                        (), student.notes[:4])
        data, why = contents(paths[0])
        if why:
            return Mark(exercise, 0, why)
        if same_text(data, exercise.skeleton()):
            return Mark(exercise, 0, "the skeleton, unchanged")
        missing = self.course and exercise.changed_line(data.decode(errors="replace"))
        if missing:
            return Mark(exercise, 0, f"the given code was changed: '{missing}' is not in its place")
        seed = self.seed_of(data)
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            why, log = self.build_worker(exercise, data, folder)
            if why:
                why, log = (self.without_places(text, folder) for text in (why, log))
                return Mark(exercise, 0, why, (), log.splitlines()[:12])
            verdict, why = self.ask(exercise, str(folder / "worker"), seed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        mark = self.weigh(exercise, verdict, seed) if verdict else Mark(exercise, 0, why)
        if len(paths) > 1:
            mark.details.append(printable(
                f"{len(paths)} files are called {exercise.file.name}: one counts, in "
                f"'{paths[0].parent.name}'"))
        return mark

    def seed_of(self, data):
        """Of a submission's numbers: from its text, and in a course from the secret."""
        secret = self.course.get("secret", "").encode()
        return int.from_bytes(hashlib.sha256(secret + data).digest()[:7], "big")

    def without_places(self, text, folder):
        """What a compiler said, but for the names that differ from run to run."""
        for place in (folder, self.place, self.build):
            text = text.replace(f"{place}/", "")
        return re.sub(r"\bcc\w{6}\.([so])\b", r"compiled.\1", text)

    def weigh(self, exercise, verdict, seed):
        failing = [family for family, ok in verdict.families().items() if not ok]
        if not failing:
            return Mark(exercise, exercise.points, "right")
        # with the same numbers, so that the same families are there
        counted = self.worth(exercise, seed)
        if not counted:
            raise Shortage(f"{exercise.name}: the skeleton is right with seed {seed}")
        point = [x for x in counted if x.split("-", 1)[1] in exercise.half] or counted
        # exact: in units of 1 / (2 * both counts)
        right, right_point = (sum(x not in failing for x in some)
                              for some in (counted, point))
        units = right * len(point) + right_point * len(counted)
        tenths = exercise.points * 10 * units // (2 * len(counted) * len(point))
        marks = min(tenths, exercise.points * 10 - 1) / 10  # never all of them
        return Mark(exercise, marks, verdict_line(verdict), failing,
                    details_of(exercise, verdict), len(verdict.families()))


def details_of(exercise, verdict):
    """The smallest case that fails, in numbers, and how to see one like it."""
    case = verdict.smallest
    lines = [f"{len(verdict.failed)} of {len(verdict.cases)} cases fail; above: the "
             "smallest"]
    if case.where:
        lines.append(f"got {case.got}  want {case.want}  error {case.err}  "
                     f"allowed {case.allowed}")
    lines += numbers_of(case)
    if verdict.jailed == 2:  # what it says cannot be from files that it should not read
        lines += [f"it said: {line}" for line in verdict.said[:4]]
    return lines + [f"see it at home: make exercise {exercise.number} EX={exercise.name}"]


def first_error(log):
    if re.search("signal terminated program|memory exhausted|out of memory|^killed: ", log, re.M):
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


def late_hours(path, students):
    """student -> hours, from a table of lines `student,hours`."""
    hours = {}
    for number_, line in enumerate(pathlib.Path(path).read_text(
            encoding="utf-8").splitlines() if path else [], 1):
        name, _, text = line.rpartition(",")
        if not line.strip() or (number_ == 1 and text.strip() == "hours"):
            continue
        try:
            hours[name.strip()] = float(text)
        except ValueError:
            fail(2, f"LATE: '{path}', line {number_}: '{line}' is not 'student,hours'")
        if not 0 <= hours[name.strip()] < 1e6:
            fail(2, f"LATE: '{path}', line {number_}: {text} is no number of hours")
        if name.strip() not in students:
            fail(2, f"LATE: '{path}', line {number_}: nobody is called '{name.strip()}'")
    return hours


def late_share(hours, course):
    """What is left of the marks: each day begun costs late_per_day, up to late_days."""
    days = math.ceil(hours / 24)
    return 1.0 if not days else 0.0 if days > course.get("late_days", 3) else \
        max(0.0, 1 - days * course.get("late_per_day", 0.1))


def alias(student, course):
    """Under which name a student is on the board, unless names are shown."""
    return hashlib.sha256((course.get("secret", "") + "/" + student).encode()).hexdigest()[:6]


def gradescope(marks, total, points):
    """One student in Gradescope's form."""
    return {"score": total, "output": f"{number(total)} of {points} points",
            "visibility": "visible", "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}: {m.exercise.title}",
                 "number": f"{m.exercise.number}.{i}", "score": m.marks,
                 "max_score": m.exercise.points,
                 "status": "passed" if m.full else "failed", "output": m.words,
                 "visibility": "visible"} for i, m in enumerate(marks, 1)]}


def write_results(out, table, chosen, jailed, grader, hours):
    points = sum(x.points for x in chosen)
    isolation = ISOLATION[min(jailed, 1 + grader.compiler_is_jailed)]
    grades = {"points": points, "isolation": isolation, "students": {}}
    for student, marks in table.items():
        total = round(sum(m.marks for m in marks), 1)
        if hours.get(student):
            share = late_share(hours[student], grader.course)
            marks[0].details.append(f"{hours[student]:g} hours late: {share:.0%} of all marks "
                                    "count")
            total = math.floor(total * share * 10 + 1e-9) / 10
        if grader.course:
            marks[0].details.append(f"on the board you are {alias(student, grader.course)}")
        grades["students"][student] = {"marks": total, "alias": alias(student, grader.course),
                                       "late_hours": hours.get(student, 0), "exercises": {
            m.exercise.name: {"marks": m.marks, "points": m.exercise.points, "why": m.why,
                              "failing_families": m.failing} for m in marks}}
        write_text(out / "feedback" / f"{student}.txt",
                   feedback(student, marks, total, points))
        write_json(out / "gradescope" / student / "results.json",
                   gradescope(marks, total, points))
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


def result(job):
    """Of a job of the pool.  Looks up now and then: Python handles a signal only then."""
    while True:
        try:
            return job.result(timeout=0.2)
        except concurrent.futures.TimeoutError:
            if job.done():
                raise


def grade(grader, students):
    """student -> marks in the order of the exercises; a job a core."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs_here(grader.place))
    try:
        for job in [pool.submit(grader.prepare, x) for x in grader.chosen]:
            result(job)
        jobs = {name: [pool.submit(grader.mark, x, student) for x in grader.chosen]
                for name, student in students.items()}
        table = {}
        for student, marks in jobs.items():
            table[student] = [result(job) for job in marks]
            total = sum(m.marks for m in table[student])
            right = sum(m.full for m in table[student])
            print(f"{student:30} {total:6.1f}   {right} of {len(grader.chosen)} right",
                  flush=True)
            for note in students[student].notes:
                print(f"    {student}: {printable(note)}", flush=True)
    except BaseException:
        processes.kill_all()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return table


def check_out(out, folder):
    """Results must have a place before hours are spent on them."""
    if out.resolve().is_relative_to(folder.resolve()):
        fail(2, f"OUT: '{out}' lies in the folder of submissions; it would be a student")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"x")
        for name in ("feedback", "gradescope"):
            (out / name).mkdir(exist_ok=True)
        if any((out / name).is_dir() for name in ("grades.json", "junit.xml", "class.png")):
            fail(2, f"OUT: '{out}' holds a folder where a result belongs")
    except OSError as error:
        fail(2, f"OUT: nothing can be written in '{out}': {error.strerror}")


def read_options():
    parser = argparse.ArgumentParser(description="marks for a folder of submissions")
    for name in ("submissions", "out", "build", "cc", "cxx", "link"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ex", default="")
    parser.add_argument("--late", default="")
    return parser.parse_args()


def interrupted(number):
    processes.kill_all()
    sys.exit(128 + number)


def graded(options, chosen, work, kind=Grader):
    """What work(grader) returns, and the grader; nothing of the work stays behind."""
    grader = None
    processes.on_signals(interrupted)
    try:
        grader = kind(options, chosen)
        return work(grader), grader
    except (Shortage, MemoryError) as error:
        fail(3, f"stopped, nobody has a mark from this run: {error or 'no memory'}")
    except (OSError, RuntimeError) as error:  # no thread, no room, no process
        fail(3, f"stopped, nobody has a mark from this run: {error}")
    finally:
        if grader:
            shutil.rmtree(grader.place, ignore_errors=True)


def main():
    options = read_options()
    folder, out = pathlib.Path(options.submissions), pathlib.Path(options.out)
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    if not folder.is_dir():
        fail(2, f"SUBMISSIONS: '{folder}' is no folder of submissions")
    if not os.access(folder, os.R_OK | os.X_OK):
        fail(2, f"SUBMISSIONS: '{folder}' cannot be read")
    chosen = wanted(options.ex.split())
    students, ignored = collect(folder, chosen)
    if not students:
        fail(2, f"SUBMISSIONS: nothing in '{folder}' is a student's folder or a file "
             "STUDENT-EXERCISE.c")
    check_out(out, folder)
    try:
        hours = late_hours(options.late, students)
    except OSError as error:
        fail(2, f"LATE: '{options.late}' cannot be read: {error.strerror}")
    for line in ignored:
        print(f"grade: {line}")
    table, grader = graded(options, chosen, lambda grader: grade(grader, students))
    write_results(out, table, chosen, grader.jailed, grader, hours)
    draw(out / "class.png", table, chosen)
    if grader.jailed == 0:
        print("grade: this kernel has no system-call filter (seccomp): submissions could "
              "write files and start processes; read notes/instructor.md")
    elif grader.jailed == 1 or not grader.compiler_is_jailed:
        print("grade: this kernel cannot hide files (Landlock): submissions could read "
              "what you can; read notes/instructor.md")
    print(f"{len(students)} students, {len(chosen)} exercises: {out}/grades.json")
    for line in grader.failures:
        print(f"grade: the grader failed with {printable(line)}: look at this mark yourself",
              file=sys.stderr)
    return 3 if grader.failures else 0


if __name__ == "__main__":
    sys.exit(main())
