"""grader.py: the mark of one exercise of one student."""
import hashlib
import json
import pathlib
import shutil
import tempfile

import given
import processes
from compilers import Compiler
from exercises import ROOT, judge, numbers_of, verdict_line
from forms import formed
from machine import LACKING, Shortage
from submissions import contents, printable, same_text

CPU_S, WALL_S, MEMORY_MIB, JUDGE_WALL_S = 3, 20, 1024, 300
COURSE = ROOT / "course.json"  # in an instructor's folder only


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


class Grader(Compiler):
    """Compiles, asks the judge, and weighs its verdict."""

    def __init__(self, options, chosen):
        self.options, self.chosen = options, chosen
        self.failures, self.jailed = [], 2
        self.course = json.loads(COURSE.read_text(encoding="utf-8")) if COURSE.exists() else {}
        super().__init__(options)

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
        why = self.course and self.another_form(
            exercise, formed(exercise.solution.read_text(encoding="utf-8")), data.decode(errors="replace"))
        if why:
            return Mark(exercise, 0, why)
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

    def another_form(self, exercise, solution, submission):
        """Why a submission is not about this form of the task, or ""."""
        def preprocess(text, headers=()):
            return self.preprocessed(text, exercise.file.suffix, headers)

        missing = given.changed_item(given.given_items(solution, preprocess), submission, preprocess)
        if missing:
            return f"the given code was changed: '{missing}' is not in its place"
        word = given.strange_word(given.REGION.sub("", solution), submission, preprocess)
        return f"the given code was changed: '{word}' is written where it was not" if word else ""

    def seed_of(self, data):
        """Of a submission's numbers: from its text, and in a course from the secret."""
        secret = self.course.get("secret", "").encode()
        return int.from_bytes(hashlib.sha256(secret + data).digest()[:7], "big")

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
