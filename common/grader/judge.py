"""judge.py: is a file that somebody wrote right?  The same at home and for marks.

builder.py makes a stage's program of it.  The jail (jail.c) runs that, once for each case:
`run --q q.npy ... --o o.npy`.  The cases and the right answers (cases.py) are never in that process.
Nothing that the program prints or returns counts.

    judge = Judge(options);  verdict = judge.verdict(exercise, bytes, cases)"""
import re
import shutil
import signal

import numpy as np

from builder import Builder, Shortage
from cases import cases_of

CASE_S, WALL_S, MEMORY_MIB, MOST_HANGS = 3, 20, 1024, 2


class Verdict:
    """why: "" or why nothing was run; log: the compiler's words; results: (case, wrong or None,
    what the program said).  wrong: (why, where, got, want, allowed)."""

    def __init__(self, why="", log="", note=""):
        self.why, self.log, self.note, self.results = why, log, note, []

    @property
    def failed(self):
        return [x for x in self.results if x[1]]

    @property
    def right(self):
        return bool(self.results) and not self.failed

    @property
    def smallest(self):
        """Of the failures that ran the one with the fewest elements."""
        return min(self.failed, key=lambda x: (x[1][0] == "not run", x[0].size))

    def explained(self, with_words=True):
        """The smallest failure, line by line.  with_words: what the program said; where files are not
        hidden from it, it could say what stands in them."""
        case, (why, where, got, want, allowed), said = self.smallest
        yield f"{where}: {why}" if where else why
        if where:
            yield f"got {got:.9g}  want {want:.9g}  allowed error {allowed:.3g}"
        yield from numbers_of(case)
        if with_words:
            yield from (f"it said: {line}" for line in said_by_program(said))

    def families(self):
        """Family -> are all its cases right?"""
        found = {}
        for case, wrong, _ in self.results:
            found[case.family] = found.get(case.family, True) and not wrong
        return found


class Judge(Builder):
    """The cases, and what is right of them."""

    def write_cases(self, exercise, seed, draw=0):
        """The cases and their files, once for all submissions."""
        found, top = cases_of(*exercise.promises, seed, draw, "f16" in exercise.flags), self.folder()
        for i, case in enumerate(found):
            case.flags = case.flags + exercise.flags
            self.write_case(case, top / str(i))
        return found

    @staticmethod
    def write_case(case, folder):
        case.folder = folder
        folder.mkdir(exist_ok=True)
        for name, array in case.inputs.items():
            np.save(folder / f"{name}.npy", array)

    @staticmethod
    def words_of(case, out):
        """The command line of a case; results that lie there already go."""
        words = ["run", *case.flags]
        for name in case.inputs:
            words += [f"--{name}", str(case.folder / f"{name}.npy")]
        for name in case.outputs:
            words += [f"--{name}", str(out / f"{name}.npy")]
            (out / f"{name}.npy").unlink(missing_ok=True)
        return words

    def run_case(self, program, case, out):
        """Exit status (LATE: None), what it said, and its processor time."""
        return self.jailed(["--cpu", str(CASE_S), "--memory", str(MEMORY_MIB)],
                           [str(program), *self.words_of(case, out)], out, WALL_S + CASE_S, [str(case.folder)])

    @staticmethod
    def died(status):
        """Why there are no results, or None."""
        return "took too long" if status in (None, -signal.SIGXCPU, -signal.SIGKILL) else \
            f"crashed: {signal.strsignal(-status)}" if status < 0 else None

    def compare(self, case, out, status):
        """What is wrong with the results of a run, or None."""
        if self.died(status):
            return self.died(status), "", 0, 0, 0
        got = {}
        for name in case.outputs:
            try:
                got[name] = np.load(out / f"{name}.npy", allow_pickle=False)
            except (OSError, ValueError, SyntaxError, EOFError, MemoryError):
                return f"ended with status {status} and without a result", "", 0, 0, 0
        return case.wrong(got)

    def run_cases(self, program, found, other=None):
        """Results of all cases.  other: the solution's program; where it has no result either, this
        machine is to blame."""
        results, hangs, out = [], 0, self.folder()
        for case in found:
            if hangs >= MOST_HANGS:
                results.append((case, ("not run", "", 0, 0, 0), ""))
                continue
            status, said, _ = self.run_case(program, case, out)
            wrong = self.compare(case, out, status)
            if wrong and other and re.match("crashed|took|ended", wrong[0]):
                failed = self.compare(case, out, self.run_case(other, case, out)[0])
                if failed:
                    raise Shortage(f"{case.name}: the solution {failed[0]} too")
            hangs += bool(wrong) and wrong[0] == "took too long"
            results.append((case, wrong, said))
        shutil.rmtree(out, ignore_errors=True)
        return results

    def verdict(self, exercise, data, found, other=None, then=None):
        """then(folder, verdict): what else is to be done with the program that lies there."""
        folder = self.folder()
        try:
            why, log, note = self.program(exercise, data, folder)
            verdict = Verdict(why, log, note)
            if not why:
                verdict.results = self.run_cases(folder / "program", found, other)
                if then:
                    then(folder, verdict)
            return verdict
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def said_by_program(said):
    """Its own words, without the harness's lines."""
    return [x for x in said.split("\n") if x.strip() and
            not re.match(r"variant \S+ \(|\w+ of (x|q) \[|wrote |no GPU is used|  ", x)][:4]


def numbers_of(case, most=8):
    """A small case that can be computed by hand, a line for each array."""
    arrays = [(x, "=", y) for x, y in case.inputs.items()] + \
        [(x, "should be", y) for x, (y, _) in case.outputs.items()]
    if any(y.size > most for _, _, y in arrays):
        return []
    return [f"{x} {word} {' '.join(f'{float(e):.9g}' for e in y.flat)}" for x, word, y in arrays]
