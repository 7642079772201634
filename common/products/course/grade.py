"""grade.py: marks for a folder of submissions.

    make grade SUBMISSIONS=dir [OUT=build/grades] [EX="3 merge"] [LATE=table] [STRICT=1]
    make grade SUBMISSIONS=dir STUDENT=anna EX=merge          an appeal: every case again

Under SUBMISSIONS lies a folder for each student, with files named like the exercises (online_step.c, at
any depth), or files STUDENT-EXERCISE.c side by side.  The judge (judge.py) is the one of `make
exercise`; the numbers of the cases come from the course's secret and the student's name.

    marks = points (families right) / (families that the skeleton has wrong)
            at most half of the points where a family is wrong that holds the exercise's point

Whatever a submission answers, an exception too, concerns its own mark.  marks.py says what lies in OUT.
A run that was stopped goes on where it stopped (OUT/progress.jsonl).

A lack of memory, room or processes on this machine is no mark: the run stops and says so.  Exit status: 0
graded; 2 bad usage; 3 this machine cannot grade now, or the grader itself failed with some mark, which
it names; 128 + n after signal n."""
import argparse
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import pathlib
import sys

from exercises import add_tools
from judge import ISOLATION, Judge, Shortage, judging
from marks import after_late_days, late_hours, write_class
from source import ROOT, chosen, ended_by, exercises, fail, parts_of
from submissions import collect, contents, printable

COURSE = ROOT / "course.json"  # in an instructor's folder only
ROOM = 64 << 20  # of one submission, bytes


class Grader(Judge):
    """The judge, with what a class needs: which families count, and what each student's cases are."""

    def __init__(self, options):
        super().__init__(options)
        self.course = json.loads(COURSE.read_text(encoding="utf-8")) if COURSE.exists() else {}
        self.counted, self.done = {}, {}
        self.code = "".join(x.read_text(encoding="utf-8") for x in sorted([
            *pathlib.Path(__file__).parent.glob("*.*"), *ROOT.glob("0*/exercises/problems.py")]))
        if self.isolation and options.strict:
            raise Shortage(f"STRICT: {ISOLATION[self.isolation]}")

    def seed(self, student):
        """Each student has cases of their own, which can be made again."""
        return int(hashlib.sha256(f"{self.course.get('secret', '')} {student}".encode()).hexdigest()[:12], 16)

    def prepare(self, exercise):
        """The families that count: the solution must be right, and what the skeleton gets right earns nothing."""
        solution, skeleton = (self.verdict(exercise, x.encode(), self.seed("")) for x in (
            exercise.solution(), exercise.skeleton()))
        if not solution.right or skeleton.why:
            why, lines = (skeleton if solution.right else solution).in_words()
            raise Shortage(f"{exercise.name} cannot be judged on this machine: {why}\n" + "\n".join(lines))
        counted = sorted(x for x, right in skeleton.families().items() if not right)
        if missing := set(exercise.point) - set(counted):
            raise Shortage(f"{exercise.name}: no families {missing} that could be its point")
        return counted

    def mark(self, exercise, name, student):
        """A mark (marks.py), and key: what it rests on."""
        paths = student.files.get(exercise.name)
        if not paths:
            close = student.close.get(exercise.name)
            return {"marks": 0, "details": student.notes[:4], "why": "not handed in" + (
                f": '{close}' is not called {exercise.file.name}" if close else "")}
        data, why = contents(paths[0])
        if why or data.decode(errors="replace") == exercise.skeleton():
            return {"marks": 0, "why": why or "the skeleton, unchanged"}
        seed, parts = self.seed(name), self.parts(exercise, student)
        rests_on = f"{name} {exercise.name} {exercise.text} {seed} {self.nvcc} {self.code} {parts}"
        key = hashlib.sha256(rests_on.encode() + data).hexdigest()
        if key in self.done:  # of a run that was stopped
            return self.done[key]
        verdict = self.verdict(exercise, data, seed, parts)
        why, lines = verdict.in_words()
        mark = {"marks": exercise.points * verdict.right, "why": why, "details": verdict.notes + lines}
        if not verdict.why and not verdict.right:
            if not self.verdict(exercise, exercise.solution().encode(), seed).right:
                raise RuntimeError("the solution is not right on these cases either")
            mark["marks"] = self.weighed(exercise, verdict)
            mark["failing_families"] = [x for x, right in verdict.families().items() if not right]
            mark["details"].append(f"see it at home: make exercise {exercise.number} EX={exercise.name}")
        mark["details"] += [f"{len(paths)} files are called {exercise.file.name}: one counts, in "
                            f"'{paths[0].parent.name}'"] * (len(paths) > 1)
        return mark | {"key": key}

    @staticmethod
    def parts(exercise, student):
        """The student's own files that this one includes."""
        return parts_of(exercise, lambda x: contents(student.files[x.name][0])[0] if x.name in student.files else None)

    def weighed(self, exercise, verdict):
        """The marks of what is right in part: never all of them, and at most half where the point of
        the exercise is missed."""
        counted, families = self.counted[exercise.name], verdict.families()
        tenths = exercise.points * 10 * sum(families[x] for x in counted) // len(counted)
        missed = [x for x in exercise.point or counted if not families[x] and exercise.kind != "puzzle"]
        return min(tenths, exercise.points * 10 - 1, exercise.points * 5 if missed else 10 ** 9) / 10


# --- a class ---

def jobs_here(place):
    """How many submissions at once: one for each core, if there is room for them."""
    room = os.statvfs(place)
    room = room.f_bavail * room.f_frsize
    if room < ROOM:
        raise Shortage(f"{place.parent} has {room >> 20} MiB of room left, a submission may need "
                       f"{ROOM >> 20}; TMPDIR=folder chooses another place")
    return max(1, min(len(os.sched_getaffinity(0)), room // ROOM))


working = {}  # "work": what the processes that mark inherit


def attempt(key):
    """work(key), or why there is no mark: (the kind of failure, words)."""
    try:
        return "done", working["work"](key)
    except (Shortage, MemoryError, OSError) as error:
        return "shortage", str(error) or "no memory"
    except SystemExit as ended:  # a signal: the pool would take it for a result, and go on
        os._exit(ended.code)
    except Exception as error:  # pylint: disable=broad-except
        return "failed", f"{type(error).__name__}: {error}"


def in_processes(work, keys, at_once):
    """Yields (key, kind, result) as they end.  Nothing of them outlives this."""
    working["work"] = work
    with concurrent.futures.ProcessPoolExecutor(at_once, multiprocessing.get_context("fork")) as pool:
        try:
            jobs = {pool.submit(attempt, key): key for key in keys}
            for job in concurrent.futures.as_completed(jobs):
                yield jobs.pop(job), *job.result()
        except concurrent.futures.process.BrokenProcessPool:
            raise Shortage("a process of the grader was ended, for memory perhaps") from None
        except BaseException:  # a signal, or what the caller raised
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def grade(grader, students, found, hours, progress):
    """student -> exercise -> mark; and where the grader itself failed."""
    at_once, table, failures = jobs_here(grader.place), {name: {} for name in students}, []
    for x, kind, result in in_processes(grader.prepare, found, at_once):
        if kind != "done":
            raise Shortage(result)
        grader.counted[x.name] = result
    keys = [(name, x) for name in students for x in found]
    for (name, x), kind, result in in_processes(lambda key: grader.mark(key[1], key[0], students[key[0]]), keys, at_once):
        if kind == "shortage":
            raise Shortage(result)
        if kind == "failed":
            failures.append(f"{name}, {x.name}: {result}")
            result = {"marks": 0, "why": f"the grader failed: {result}"}
        if key := result.pop("key", ""):
            print(json.dumps([key, result]), file=progress, flush=True)
        mark = {"points": x.points, "details": [], "failing_families": [], **result}
        table[name][x.name] = mark | {"why": printable(mark["why"]), "details": [*map(printable, mark["details"])]}
        if len(table[name]) == len(found):
            marks = table[name] = {x.name: table[name][x.name] for x in found}
            print(f"{name:30} {after_late_days(marks, hours.get(name, 0), grader.course)}", flush=True)
    return table, failures


def grade_class(options, found, students):
    """Marks for all, and their files; what cannot be graded is said before the work."""
    out, hours = pathlib.Path(options.out), late_hours(options.late, students)
    if out.resolve().is_relative_to(pathlib.Path(options.submissions).resolve()):
        fail(f"OUT: '{out}' lies in the folder of submissions; it would be a student")
    try:
        out.mkdir(parents=True, exist_ok=True)
        progress = open(out / "progress.jsonl", "a+", encoding="utf-8")
    except OSError as error:
        fail(f"OUT: nothing can be written in '{out}': {error.strerror}")
    for name, note in ((name, x) for name, one in students.items() for x in one.notes):
        print(f"grade: {name}: {printable(note)}")
    with progress, judging(Grader, options) as grader:
        progress.seek(0)
        complete = progress.read().rpartition("\n")[0]  # a run that was stopped may have left half a line
        progress.truncate(len(complete.encode()) + 1 if complete else 0)
        grader.done = dict(json.loads(line) for line in complete.splitlines())
        table, failures = grade(grader, students, found, hours, progress)
    isolation = ISOLATION[grader.isolation]
    write_class(out, table, found, grader.course, hours, "_".join(options.ex.split()), isolation=isolation)
    if grader.isolation:
        print(f"grade: isolation on this machine: {isolation} (STRICT=1 refuses to grade here)")
    counts = (f"{len(all_of)} {word}{'s' * (len(all_of) != 1)}" for all_of, word in ((students, "student"), (found, "exercise")))
    print(f"{', '.join(counts)}: {out}/grades.json")
    for line in failures:
        print(f"grade: the grader failed with {printable(line)}: look at this mark yourself", file=sys.stderr)
    return 3 if failures else 0


def appeal(options, found, students):
    """Every case of one student's files, as they were graded."""
    name = options.appeal
    if name not in students:
        fail(f"STUDENT: nobody is called '{name}'")
    with judging(Grader, options) as grader:
        for x in found:
            data, why = contents(students[name].files[x.name][0]) if x.name in students[name].files else ("", "not handed in")
            verdict = grader.verdict(x, data, grader.seed(name), grader.parts(x, students[name])) if not why else None
            print(f"== {x.name}: {why or verdict.why or f'{len(verdict.results)} cases'}")
            for case, wrong in verdict.results if verdict else []:
                print(f"   {case.name:28} {wrong or 'right'}  {wrong.numbers() if wrong else ''}".rstrip())
    return 0


def main():
    parser = argparse.ArgumentParser(description="marks for a folder of submissions")
    for name in ("submissions", "out", "ex", "late", "appeal"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--strict", action="store_true", help="only where all is in force")
    add_tools(parser)
    options = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")
    found, folder = chosen(options.ex.split()), pathlib.Path(options.submissions)
    if not options.submissions:
        fail("SUBMISSIONS: make grade SUBMISSIONS=dir, one folder for each student")
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        fail(f"SUBMISSIONS: '{folder}' is no folder that can be read")
    students, ignored = collect(folder, exercises())
    for line in ignored:
        print(f"grade: {line}")
    return (appeal if options.appeal else grade_class)(options, found, students)


if __name__ == "__main__":
    ended_by(main)
