"""handout_test.py: what students get is whole: no link leads nowhere, no verb of `make help` is
missing, nothing tells of what was taken away.

    handout_test.py

Makes courses that end with stages 1, 3 and 5.  Exit status: 0 as it should be; 1 not, with
what is wrong."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG = []
ENVIRONMENT = {x: y for x, y in os.environ.items()
               if x not in ("BUILD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def expect(true, text):
    if not true:
        WRONG.append(text)
        print(text, flush=True)


def make(place, *arguments):
    return subprocess.run(["make", "-s", "NO_INSTALL=1", *arguments], cwd=place, text=True,
                          capture_output=True, env=ENVIRONMENT, check=False)


def pages(repository):
    return [x for x in sorted(repository.rglob("*.md")) if ".git" not in x.parts]


def links_lead_to_files(repository):
    n = 0
    for page in pages(repository):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:|#", target):
                continue
            n += 1
            expect((page.parent / target.split("#")[0]).exists(), f"{page}: no {target}")
    expect(n > 50, f"{repository}: {n} links only")


def nothing_tells_of_the_rest(students):
    for page in pages(students):
        text = page.read_text(encoding="utf-8")
        for word in ("exercises/solutions", "notes/instructor", "planted_bugs]", "\x01"):
            expect(word not in text, f"{page} tells of {word!r}")


def help_names_what_works(students):
    """Each line of `make help`, as a dry run: every file that it needs has a rule.  What judges
    is started even in a dry run; course_test.py does that."""
    said = make(students, "help").stdout
    verbs = re.findall(r"^  make ([\w-]*(?: \w+=\d+| \d)?)  ", said, re.M)
    expect(len(verbs) > 8, f"make help: {said}")
    for verb in verbs:
        verb = re.sub(r" \d$", " 1", verb)
        if verb.split(" ")[0] in ("check", "exercise", "project"):
            continue
        done = make(students, "-n", *verb.split())
        expect("No rule to make" not in done.stderr and "Traceback" not in done.stderr,
               f"{students}: make {verb}: {done.stderr[-400:]}")
    done = subprocess.run([sys.executable, "-B", "-c", "import ladder"], text=True, check=False,
                          cwd=students / "common/reports", capture_output=True)
    expect(done.returncode == 0, f"{students}: reports: {done.stderr[-400:]}")


def the_schedule_has_every_exercise():
    """Its name in both schedules; its points in the first."""
    page = (ROOT / "notes/instructor.md").read_text(encoding="utf-8")
    five, _, twelve = page.partition("## Twelve weeks")
    for solution in sorted(ROOT.glob("0*/exercises/solutions/*.c*")):
        points = re.search(r"exercise of stage \d, (\d+) points", solution.read_text(encoding="utf-8"))
        expect(f"`{solution.stem}` {points[1]}" in five, f"five sessions: no `{solution.stem}` {points[1]}")
        expect(f"`{solution.stem}`" in twelve.split("##")[0], f"twelve weeks: no `{solution.stem}`")


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="handout.")).resolve()
    try:
        the_schedule_has_every_exercise()
        for upto in "135":
            done = make(ROOT, "course", f"OUT={place / upto}", "SEED=any", f"UPTO={upto}")
            expect(done.returncode == 0, f"make course: {done.stderr}")
            links_lead_to_files(place / upto / "students")
            links_lead_to_files(place / upto / "instructor")
            nothing_tells_of_the_rest(place / upto / "students")
            help_names_what_works(place / upto / "students")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
