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
import os
import pathlib
import shutil
import sys
import tempfile

import processes
from grader import Grader
from machine import Shortage, jobs_here
from marks import draw, late_hours, late_words, total_of, write_results
from submissions import collect, fail, printable, wanted


def result(job):
    """Of a job of the pool.  Looks up now and then: Python handles a signal only then."""
    while True:
        try:
            return job.result(timeout=0.2)
        except concurrent.futures.TimeoutError:
            if job.done():
                raise


def grade(grader, students, hours):
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
            total = total_of(table[student], hours.get(student, 0), grader.course)
            right, late = sum(m.full for m in table[student]), late_words(
                hours.get(student, 0), grader.course)
            print(f"{student:30} {total:6.1f}   {right} of {len(grader.chosen)} right"
                  + (f"   {late}" if late else ""), flush=True)
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
    hours = late_hours(options.late, students)
    for line in ignored:
        print(f"grade: {line}")
    table, grader = graded(options, chosen, lambda grader: grade(grader, students, hours))
    write_results(out, table, chosen, grader.jailed, grader, hours)
    draw(out / "class.png", table, chosen,
         {x: total_of(table[x], hours.get(x, 0), grader.course) for x in table})
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
