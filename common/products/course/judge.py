"""judge.py: is a file that somebody wrote right?  The same at home and for marks.

builder.py makes a stage's program of it.  The jail (jail.c) runs that, once for each case:
`run --q q.npy ... --o o.npy`.  The cases and the right answers (cases.py) are never in that process.
Nothing that the program prints or returns counts.

    judge = Judge(options);  verdict = judge.verdict(exercise, bytes, cases)"""
import re
import shutil
import signal

import numpy as np

from builder import Builder, Refused, Shortage, text_of
from cases import Wrong, cases_of

CASE_S, WALL_S, MEMORY_MIB, MOST_HANGS = 3, 20, 1024, 2


class Verdict:
    """why: "" or why nothing was run; log: the compiler's words; note: what does not count;
    results: (case, Wrong or None, what the program said)."""

    def __init__(self, note="", why="", log=""):
        self.note, self.why, self.log, self.results = note, why, log, []

    @property
    def failed(self):
        return [x for x in self.results if x[1]]

    @property
    def right(self):
        return bool(self.results) and not self.failed and not self.why

    @property
    def smallest(self):
        """Of the failures that ran the one with the fewest elements."""
        return min(self.failed, key=lambda x: (x[1].why == "not run", x[0].size))

    def families(self):
        """Family -> are all its cases right?"""
        found = {}
        for case, wrong, _ in self.results:
            found[case.family] = found.get(case.family, True) and not wrong
        return found

    def in_words(self, with_words=True):
        """Why it is not right, in a line, and the lines behind it.  with_words: what the program said;
        where files are not hidden from it, it could say what stands in them."""
        if self.why:
            return self.why, self.log.splitlines()[:12]
        case, wrong, said = self.smallest
        families = [name for name, right in self.families().items() if not right]
        lines = [f"got {wrong.got:.9g}  want {wrong.want:.9g}  allowed error {wrong.allowed:.3g}"] * bool(wrong.where)
        lines += numbers_of(case)
        if with_words:
            lines += [f"it said: {line}" for line in said_by_program(said)]
        lines.append(f"{len(self.failed)} of {len(self.results)} cases fail, this is the smallest; wrong are "
                     f"{len(families)} of {len(self.families())} families: "
                     + ", ".join([*families[:4], *["..."] * (len(families) > 4)]))
        return f"{case.name}: {wrong}", lines


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

    @staticmethod
    def died(status):
        """Why there are no results, or None."""
        return "took too long" if status in (None, -signal.SIGXCPU, -signal.SIGKILL) else \
            f"crashed: {signal.strsignal(-status)}" if status < 0 else None

    def run_case(self, program, case, out):
        """What is wrong with the results, or None; and what the program said."""
        status, said, _ = self.jailed(["--cpu", str(CASE_S), "--memory", str(MEMORY_MIB)],
                                      [str(program), *self.words_of(case, out)], out, WALL_S + CASE_S,
                                      [str(case.folder)])
        if self.died(status):
            return Wrong(self.died(status)), said
        try:
            got = {name: np.load(out / f"{name}.npy", allow_pickle=False) for name in case.outputs}
        except (OSError, ValueError, SyntaxError, EOFError, MemoryError):
            return Wrong(f"ended with status {status} and without a result"), said
        return case.wrong(got), said

    def run_cases(self, program, found, other=None):
        """Results of all cases.  other: the solution's program; where it has no result either, this
        machine is to blame."""
        results, hangs, out = [], 0, self.folder()
        for case in found:
            wrong, said = self.run_case(program, case, out) if hangs < MOST_HANGS else (Wrong("not run"), "")
            if wrong and other and re.match("crashed|took|ended", wrong.why):
                failed, _ = self.run_case(other, case, out)
                if failed:
                    raise Shortage(f"{case.name}: the solution {failed} too")
            hangs += bool(wrong) and wrong.why == "took too long"
            results.append((case, wrong, said))
        shutil.rmtree(out, ignore_errors=True)
        return results

    def verdict(self, exercise, data, found, other=None, then=None):
        """then(folder, verdict): what else is to be done with the program that lies there."""
        folder, text = self.folder(), text_of(data)
        verdict = Verdict(self.note(exercise, text))
        try:
            self.program(exercise, text, folder)
            verdict.results = self.run_cases(folder / "program", found, other)
            if then:
                then(folder, verdict)
        except Refused as error:
            verdict.why, verdict.log = str(error), error.log
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return verdict


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
