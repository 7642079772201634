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
OUT/junit.xml, OUT/class.html, and for each student OUT/feedback/STUDENT.txt and
OUT/gradescope/STUDENT/results.json.  The same submissions give the same files.

A lack of memory, room or processes on this machine is no mark: the run stops, writes no results,
and says so.  Exit status: 0 graded; 2 bad usage; 3 this machine cannot grade now, or the grader
itself failed with some mark, which it names; 128 + n after signal n."""
import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as many jobs as cores

# pylint: disable=wrong-import-position
from builder import Shortage, kill_group
from exercises import ROOT, add_tools, exercises
from judge import Judge
from marks import late_hours, late_words, total_of, write_class, write_junit, write_text
from submissions import collect, contents, fail, printable, wanted

COURSE = ROOT / "course.json"  # in an instructor's folder only
JOB_S, ROOM, MEMORY = 300, 64 << 20, 1 << 30  # of one submission: seconds, bytes


class Mark:
    """One exercise of one student."""

    def __init__(self, exercise, marks, why, failing=(), details=(), families=0, **more):
        self.exercise, self.marks, self.why = exercise, marks, printable(why)
        self.failing, self.details, self.families = list(failing), [printable(x) for x in details], families
        self.record = {"marks": marks, "points": exercise.points, "why": self.why,
                       **(more or ({"timed": None} if exercise.whole_file else {"failing_families": self.failing}))}

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


# --- jobs: each in a process of its own ---

def in_child(work, path):
    """Does the work in a new process group; its result, or what went wrong, goes into a file."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            result = ["done", work()]
        except (Shortage, MemoryError, OSError) as error:
            result = ["shortage", str(error) or "no memory"]
        except Exception as error:  # pylint: disable=broad-except
            result = ["failed", f"{type(error).__name__}: {error}"]
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(result, file)
    finally:
        os._exit(0)


def run_jobs(jobs, at_once, place, seconds=JOB_S):
    """jobs: key -> work().  Yields (key, kind, result) as they end; kind: done, shortage, failed,
    late.  Nothing of a job outlives this."""
    waiting, running = list(jobs.items())[::-1], {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                key, work = waiting.pop()
                path = pathlib.Path(place, f"job{len(jobs) - len(waiting)}")
                running[in_child(work, path)] = (key, path, time.monotonic() + seconds)
            time.sleep(0.005)
            for pid, (key, path, end) in list(running.items()):
                late = time.monotonic() > end
                if late:
                    kill_group(pid)
                if os.waitpid(pid, 0 if late else os.WNOHANG)[0] != pid:
                    continue
                kill_group(pid)
                del running[pid]
                text = path.read_text(encoding="utf-8") if path.exists() and not late else ""
                path.unlink(missing_ok=True)
                kind, result = json.loads(text) if text else \
                    ("late" if late else "failed", "the judge's process ended")
                yield key, kind, result
    finally:
        for pid in running:
            kill_group(pid)
            os.waitpid(pid, 0)


# --- one exercise ---

class Grader(Judge):
    """The judge, with what a class needs: cases once for all, and what each is worth."""

    def __init__(self, options):
        super().__init__(options)
        self.course = json.loads(COURSE.read_text(encoding="utf-8")) if COURSE.exists() else {}
        self.failures, self.cases, self.counted, self.other = [], {}, {}, {}
        if self.isolation and (options.strict or self.course.get("strict")):
            raise Shortage("the jail is not complete on this machine, and STRICT asks for it: "
                           + ISOLATION.get(self.isolation, "none"))

    @property
    def seed(self):
        return int(self.course.get("secret", "0")[:14], 16)

    def prepare(self, exercise):
        """The solution must be right, and the skeleton wrong where half of the points are."""
        self.known_of(exercise)
        self.cases[exercise.name] = self.write_cases(exercise, self.seed, self.course.get("draw", 0))
        passed = []

        def keep(folder, _):  # the solution's program is the first
            self.other.setdefault(exercise.name, shutil.copy2(folder / "program", self.folder()))

        for text, kind in ((exercise.source.read_text(encoding="utf-8"), "solution"),
                           (exercise.skeleton(), "skeleton")):
            verdict = self.verdict(exercise, text.encode(), self.cases[exercise.name], then=keep)
            if verdict.why:
                raise Shortage(f"the {kind} of {exercise.name} {verdict.why}\n{verdict.log[:2000]}")
            if kind == "solution" and verdict.failed:
                raise Shortage(f"the solution of {exercise.name} is not right on this machine: "
                               f"{verdict.smallest[0].name}: {next(verdict.explained())}")
            passed.append({x for x, right in verdict.families().items() if right})
        self.counted[exercise.name] = sorted(passed[0] - passed[1])
        for recipe in exercise.half:
            if not any(x.endswith("-" + recipe) for x in self.counted[exercise.name]):
                raise Shortage(f"{exercise.name}: no family '{recipe}' that could be half of its points")

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
        details += [verdict.note] if verdict.note else []
        if verdict.why:
            return {"marks": 0, "why": verdict.why, "details": details + verdict.log.splitlines()[:12]}
        if verdict.right:
            return {"marks": exercise.points, "why": "right", "details": details}
        return self.weigh(exercise, verdict, details)

    def weigh(self, exercise, verdict, details):
        families = verdict.families()
        failing, counted = [x for x in families if not families[x]], self.counted[exercise.name]
        point = [x for x in counted if x.split("-", 1)[1] in exercise.half] or counted
        # exact: in units of 1 / (2 * both counts)
        right, right_point = (sum(x not in failing for x in some) for some in (counted, point))
        units = right * len(point) + right_point * len(counted)
        tenths = exercise.points * 10 * units // (2 * len(counted) * len(point))
        case, (why, *lines) = verdict.smallest[0], verdict.explained(with_words=not self.isolation)
        details = [*details, f"{len(verdict.failed)} of {len(verdict.results)} cases fail; above: the smallest",
                   *lines, f"see it at home: make exercise {exercise.number} EX={exercise.name}"]
        return {"marks": min(tenths, exercise.points * 10 - 1) / 10,  # never all of them
                "why": f"{case.name}: {why}", "failing": failing, "details": details,
                "families": len(families)}


# What `jail --complete` says of this kernel.
ISOLATION = {0: "no new processes, no writing, files hidden", 1: "none", 2: "no new processes"}


def jobs_here(place):
    """How many submissions at once: one for each core, if memory and room suffice."""
    room = os.statvfs(place)
    room = room.f_bavail * room.f_frsize
    if room < ROOM:
        raise Shortage(f"{place.parent} has {room >> 20} MiB of room left, a submission may need "
                       f"{ROOM >> 20}; TMPDIR=folder chooses another place")
    try:
        text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
        memory = int(text.split("MemAvailable:")[1].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        memory = MEMORY * 64
    if memory < MEMORY:
        raise Shortage(f"{memory >> 20} MiB of memory are free, a submission may need {MEMORY >> 20}")
    return max(1, min(len(os.sched_getaffinity(0)), room // ROOM, memory // MEMORY))


def grade(grader, students, chosen, show, most=None, seconds=JOB_S):
    """student -> marks in the order of the exercises.  show(student, mark, marks or None until all are
    there); most: so many jobs at once."""
    at_once = jobs_here(grader.place)
    for x in chosen:  # here, so that all jobs have what it finds
        grader.prepare(x)
    jobs = {(name, x.name): (lambda x=x, student=student: grader.mark(x, student))
            for name, student in students.items() for x in chosen}
    by_name, table = {x.name: x for x in chosen}, {name: {} for name in students}
    for (name, exercise), kind, result in run_jobs(jobs, most or at_once, grader.place, seconds):
        if kind == "shortage":
            raise Shortage(result)
        if kind == "failed":
            grader.failures.append(f"{name}, {exercise}: {result}")
            result = {"marks": 0, "why": f"the grader failed: {result}"}
        if kind == "late":
            result = {"marks": 0, "why": f"judging it took longer than {seconds} s"}
        mark = table[name][exercise] = Mark(by_name[exercise], **result)
        if len(table[name]) == len(chosen):
            table[name] = [table[name][x.name] for x in chosen]
        show(name, mark, table[name] if isinstance(table[name], list) else None)
    return table


def print_student(name, student, marks, late, course):
    if not marks:
        return
    words = late_words(late, course)
    print(f"{name:30} {total_of(marks, late, course):6.1f}   {sum(m.full for m in marks)} of "
          f"{len(marks)} right" + (f"   {words}" if words else ""), flush=True)
    for note in student.notes:
        print(f"    {name}: {printable(note)}", flush=True)


def check_out(out, folder):
    """Results must have a place before hours are spent on them."""
    if out.resolve().is_relative_to(folder.resolve()):
        fail(2, f"OUT: '{out}' lies in the folder of submissions; it would be a student")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"x")
    except OSError as error:
        fail(2, f"OUT: nothing can be written in '{out}': {error.strerror}")


def interrupted(number, _):
    sys.exit(128 + number)


def with_grader(options, work, kind=Grader):
    """work(grader); nothing of it stays behind."""
    grader = None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupted)
    try:
        grader = kind(options)
        return work(grader), grader
    except (Shortage, MemoryError, OSError) as error:
        return fail(3, f"stopped, nobody has a mark from this run: {error or 'no memory'}")
    finally:
        if grader:
            grader.close()


def read_class(options, chosen):
    """The students, whose hours are late; what cannot be graded is said before the work."""
    folder, out = pathlib.Path(options.submissions), pathlib.Path(options.out)
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    if not options.submissions:
        fail(2, "SUBMISSIONS: make grade SUBMISSIONS=dir, one folder for each student")
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        fail(2, f"SUBMISSIONS: '{folder}' is no folder that can be read")
    students, ignored = collect(folder, chosen)
    if not students:
        fail(2, f"SUBMISSIONS: nothing in '{folder}' is a student's folder or a file "
             "STUDENT-EXERCISE.c")
    check_out(out, folder)
    hours = late_hours(options.late, students)
    for line in ignored:
        print(f"grade: {line}")
    return students, hours, out


def add_class(parser):
    for name in ("submissions", "out", "ex", "late"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--strict", action="store_true", help="only in a complete jail")
    add_tools(parser)


def failures_of(grader):
    """Says where the grader itself failed; the exit status."""
    for line in grader.failures:
        print(f"grade: the grader failed with {printable(line)}: look at this mark yourself",
              file=sys.stderr)
    return 3 if grader.failures else 0


def main():
    from board import page  # which students do not have
    parser = argparse.ArgumentParser(description="marks for a folder of submissions")
    add_class(parser)
    options = parser.parse_args()
    chosen = wanted(options.ex.split(), exercises(), "exercise")
    students, hours, out = read_class(options, chosen)
    table, grader = with_grader(options, lambda grader: grade(
        grader, students, chosen, lambda name, _, marks: print_student(
            name, students[name], marks, hours.get(name, 0), grader.course)))
    isolation = ISOLATION.get(grader.isolation, "none")
    grades = write_class(out, table, grader.course, hours, isolation=isolation)
    write_junit(out / "junit.xml", table)
    write_text(out / "class.html", page(grades["students"], names=True))
    if grader.isolation:
        print(f"grade: isolation on this machine: {isolation}; submissions could do the rest; read "
              "notes/instructor.md (STRICT=1 refuses to grade here)")
    print(f"{len(students)} students, {len(chosen)} exercises: {out}/grades.json")
    return failures_of(grader)


if __name__ == "__main__":
    sys.exit(main())
