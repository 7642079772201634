"""grade.py: marks for a folder of submissions.

    make grade SUBMISSIONS=dir [OUT=build/grades] [EX="3 merge"] [LATE=table] [STRICT=1]

Under SUBMISSIONS lies a folder for each student, with files named like the exercises
(online_step.c, at any depth), or files STUDENT-EXERCISE.c side by side.  EX picks stages or
exercises; without it all count.  The judge (judge.py) is the one of `make exercise`; in the
instructor's folder of a course (course.py) the numbers of the cases come from the course's
secret, and hidden shapes are added.

    share = (families of cases right) / (families)
    marks = points * share, or where the exercise names the families that hold its point
            points * (share + share among those) / 2

A family is what the names of cases begin with (softmax-mask_row): it counts as right when all
its cases are.  The families that count are those which the solution gets right and the skeleton
does not.  All points are given only when every case passes.

Each submission is judged in a process of its own, within JOB_S seconds.  Writes OUT/grades.json,
OUT/class.html, and for each student OUT/feedback/STUDENT.txt and
OUT/gradescope/STUDENT/results.json.  The same submissions give the same files.

A lack of memory, room or processes on this machine is no mark: the run stops, writes no results,
and says so.  Exit status: 0 graded; 2 bad usage; 3 this machine cannot grade now, or the grader
itself failed with some mark, which it names; 128 + n after signal n."""
import argparse
import functools
import json
import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from builder import Shortage, judging, kill_group
from exercises import ROOT, add_tools, exercises
from forms import fail
from judge import Judge
from marks import Mark, late_hours, late_words, total_of, write_class, write_text
from submissions import collect, contents, printable, wanted

COURSE = ROOT / "course.json"  # in an instructor's folder only
JOB_S, ROOM, MEMORY = 300, 64 << 20, 1 << 30  # of one submission: seconds, bytes
# What `jail --complete` says of this kernel.
ISOLATION = {0: "no new processes, no writing, files hidden", 1: "none", 2: "no new processes"}


# --- jobs: each in a process of its own ---

def in_child(work, pipe):
    """Does the work in a new process group; sends its result, or what went wrong."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        result = "done", work()
    except (Shortage, MemoryError, OSError) as error:
        result = "shortage", str(error) or "no memory"
    except Exception as error:  # pylint: disable=broad-except
        result = "failed", f"{type(error).__name__}: {error}"
    pipe.send(result)


def run_jobs(jobs, at_once, seconds):
    """jobs: key -> work().  Yields (key, kind, result) as they end; kind: done, shortage, failed,
    late.  Nothing of a job outlives this."""
    waiting, running, fork = list(jobs.items())[::-1], {}, multiprocessing.get_context("fork")

    def end(pipe):
        _, process, _ = running.pop(pipe)
        kill_group(process.pid)
        process.kill()
        process.join()
        process.close()
        pipe.close()

    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                key, work = waiting.pop()
                ours, its = fork.Pipe(duplex=False)
                process = fork.Process(target=in_child, args=(work, its))
                process.start()
                its.close()
                running[ours] = key, process, time.monotonic() + seconds
            ready = multiprocessing.connection.wait(list(running), 0.1)
            for pipe, (key, _, until) in list(running.items()):
                if pipe in ready:
                    try:
                        kind, result = pipe.recv()
                    except (EOFError, OSError):
                        kind, result = "failed", "the judge's process ended"
                elif time.monotonic() > until:
                    kind, result = "late", f"judging it took longer than {seconds} s"
                else:
                    continue
                end(pipe)
                yield key, kind, result
    finally:
        for pipe in list(running):
            end(pipe)


# --- one exercise ---

class Grader(Judge):
    """The judge, with what a class needs: cases once for all, and what each is worth."""
    of, at_once, job_s = "exercises", None, JOB_S  # so many jobs at once; None: as many as fit

    def __init__(self, options):
        super().__init__(options)
        self.course = json.loads(COURSE.read_text(encoding="utf-8")) if COURSE.exists() else {}
        self.seed = int(self.course.get("secret", "0")[:14], 16)
        self.cases, self.counted, self.other = {}, {}, {}
        if self.isolation and options.strict:
            raise Shortage("the jail is not complete on this machine, and STRICT asks for it: "
                           + ISOLATION.get(self.isolation, "none"))

    def prepare(self, exercise):
        """The solution must be right, and the skeleton wrong where half of the points are."""
        name = exercise.name
        self.cases[name] = self.write_cases(exercise, self.seed, self.course.get("draw", 0))
        passed = []

        def keep(folder, _):  # the solution's program is the first
            self.other.setdefault(name, shutil.copy2(folder / "program", self.folder()))

        for text, kind in ((exercise.source.read_text(encoding="utf-8"), "solution"),
                           (exercise.skeleton(), "skeleton")):
            verdict = self.verdict(exercise, text.encode(), self.cases[name], then=keep)
            if verdict.why or (kind == "solution" and verdict.failed):
                why, lines = verdict.in_words()
                raise Shortage(f"the {kind} of {name} is not right on this machine: {why}\n" + "\n".join(lines))
            passed.append({x for x, right in verdict.families().items() if right})
        self.counted[name] = sorted(passed[0] - passed[1])
        for recipe in exercise.half:
            if not any(x.endswith("-" + recipe) for x in self.counted[name]):
                raise Shortage(f"{name}: no family '{recipe}' that could be half of its points")

    def mark(self, exercise, student):
        """What Mark wants to know."""
        paths = student.files.get(exercise.name)
        if not paths:
            close = student.close.get(exercise.name)
            return {"marks": 0, "details": student.notes[:4], "why": "not handed in" + (
                f": '{close}' is not called {exercise.file.name}" if close else "")}
        data, why = contents(paths[0])
        if why:
            return {"marks": 0, "why": why}
        details = [] if len(paths) == 1 else [f"{len(paths)} files are called {exercise.file.name}: one "
                                              f"counts, in '{paths[0].parent.name}'"]
        if data.replace(b"\r\n", b"\n").decode(errors="replace") == exercise.skeleton():
            return {"marks": 0, "why": exercise.unchanged, "details": details}
        return self.mark_of(exercise, data, details)

    def mark_of(self, exercise, data, details):
        verdict = self.verdict(exercise, data, self.cases[exercise.name], self.other[exercise.name])
        details += [verdict.note] * bool(verdict.note)
        if verdict.right:
            return {"marks": exercise.points, "why": "right", "details": details, "failing_families": []}
        why, lines = verdict.in_words(with_words=not self.isolation)
        if verdict.why:
            return {"marks": 0, "why": why, "details": details + lines}
        lines.append(f"see it at home: make exercise {exercise.number} EX={exercise.name}")
        return {"marks": self.weighed(exercise, verdict), "why": why, "details": details + lines,
                "failing_families": [x for x, right in verdict.families().items() if not right]}

    def weighed(self, exercise, verdict):
        """The marks of what is right in part: never all of them."""
        counted = self.counted[exercise.name]
        point = [x for x in counted if x.split("-", 1)[1] in exercise.half] or counted
        # exact: in units of 1 / (2 * both counts)
        right, right_point = (sum(verdict.families()[x] for x in some) for some in (counted, point))
        units = right * len(point) + right_point * len(counted)
        tenths = exercise.points * 10 * units // (2 * len(counted) * len(point))
        return min(tenths, exercise.points * 10 - 1) / 10


# --- a class ---

def jobs_here(place):
    """How many submissions at once: one for each core, if memory and room suffice."""
    room = os.statvfs(place)
    room = room.f_bavail * room.f_frsize
    if room < ROOM:
        raise Shortage(f"{place.parent} has {room >> 20} MiB of room left, a submission may need "
                       f"{ROOM >> 20}; TMPDIR=folder chooses another place")
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    memory = int(text.split("MemAvailable:")[1].split()[0]) << 10
    if memory < MEMORY:
        raise Shortage(f"{memory >> 20} MiB of memory are free, a submission may need {MEMORY >> 20}")
    return max(1, min(len(os.sched_getaffinity(0)), room // ROOM, memory // MEMORY))


def grade(grader, students, chosen, show):
    """student -> marks in the order of the exercises; and where the grader itself failed.
    show(student, marks): when all of them are there."""
    at_once, table, failures = jobs_here(grader.place), {name: {} for name in students}, []
    for x in chosen:  # here, so that all jobs have what it finds
        grader.prepare(x)
    jobs = {(name, x): functools.partial(grader.mark, x, student)
            for name, student in students.items() for x in chosen}
    for (name, x), kind, result in run_jobs(jobs, grader.at_once or at_once, grader.job_s):
        if kind == "shortage":
            raise Shortage(result)
        if kind == "failed":
            failures.append(f"{name}, {x.name}: {result}")
            result = f"the grader failed: {result}"
        table[name][x] = Mark(x, **(result if kind == "done" else {"marks": 0, "why": result}))
        if len(table[name]) == len(chosen):
            table[name] = [table[name][x] for x in chosen]
            show(name, table[name])
    return table, failures


def check_out(out, folder):
    """Results must have a place before hours are spent on them."""
    if out.resolve().is_relative_to(folder.resolve()):
        fail(f"OUT: '{out}' lies in the folder of submissions; it would be a student")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"x")
    except OSError as error:
        fail(f"OUT: nothing can be written in '{out}': {error.strerror}")


def grade_class(options, chosen, kind, file):
    """Marks for all, and their files; what cannot be graded is said before the work."""
    folder, out = pathlib.Path(options.submissions), pathlib.Path(options.out)
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    if not options.submissions:
        fail("SUBMISSIONS: make grade SUBMISSIONS=dir, one folder for each student")
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        fail(f"SUBMISSIONS: '{folder}' is no folder that can be read")
    students, ignored = collect(folder, chosen)
    if not students:
        fail(f"SUBMISSIONS: nothing in '{folder}' is a student's folder or a file STUDENT-EXERCISE.c")
    check_out(out, folder)
    hours = late_hours(options.late, students)
    for line in ignored:
        print(f"grade: {line}")

    with judging(kind, options) as grader:
        def show(name, marks):
            words = late_words(hours.get(name, 0), grader.course)
            print(f"{name:30} {total_of(marks, hours.get(name, 0), grader.course):6.1f}   "
                  f"{sum(m.full for m in marks)} of {len(marks)} right" + (f"   {words}" if words else ""))
            for note in students[name].notes:
                print(f"    {name}: {printable(note)}")
            sys.stdout.flush()

        table, failures = grade(grader, students, chosen, show)
    isolation = ISOLATION.get(grader.isolation, "none")
    grades = write_class(out, table, grader.course, hours, file, isolation=isolation)
    if grader.isolation:
        print(f"grade: isolation on this machine: {isolation}; submissions could do the rest; read "
              "notes/instructor.md (STRICT=1 refuses to grade here)")
    print(f"{len(students)} students, {len(chosen)} {kind.of}: {out}/{file}.json")
    for line in failures:
        print(f"grade: the grader failed with {printable(line)}: look at this mark yourself", file=sys.stderr)
    return grades, 3 if failures else 0


def add_class(parser):
    for name in ("submissions", "out", "ex", "late"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--strict", action="store_true", help="only in a complete jail")
    add_tools(parser)


def main():
    from board import page  # which students do not have
    parser = argparse.ArgumentParser(description="marks for a folder of submissions")
    add_class(parser)
    options = parser.parse_args()
    chosen = wanted(options.ex.split(), exercises(), "exercise")
    grades, status = grade_class(options, chosen, Grader, "grades")
    write_text(pathlib.Path(options.out) / "class.html", page(grades["students"], names=True))
    return status


if __name__ == "__main__":
    sys.exit(main())
