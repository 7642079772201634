"""course_shares.py CSV: what share of the judge's ceilings the course's own solutions reach on this machine, and slow
ones (SLOW of students.py): a4_tiled of the processor's multiply-adds; a5_fused, where there is a GPU with nvcc, of the
GPU's from shared memory.  The lines of this machine are replaced."""
import copy
import csv
import pathlib
import shutil
import statistics
import sys

from helpers import ROOT
from students import EXERCISES, SLOW, TOOLS

from judge import Judge

sys.path.append(str(ROOT / "common/products/reports"))
from measurements import commit_here, cpu_name, now, output_of  # noqa: E402  pylint: disable=wrong-import-position

RUNS = 3


def write_lines(path, lines):
    """The lines of this machine are replaced."""
    machine = f"{cpu_name()}; {output_of('nvidia-smi', '--query-gpu=name', '--format=csv,noheader') or 'no GPU'}"
    header, *old = csv.reader(path.read_text(encoding="utf-8").splitlines())
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *(x for x in old if x[0] != machine), *(
            [machine, *x, now()[:10], commit_here()] for x in lines)])


def main():
    TOOLS.nvcc, lines = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc") or "", []
    judge = Judge(TOOLS)
    try:
        for name, which in [(x, "solution") for x in ("a4_tiled", "a5_fused")] + [(x[0], which) for which, x in SLOW.items()]:
            exercise = copy.copy(EXERCISES[name])
            if which != "solution":
                exercise.text = exercise.text.replace(*SLOW[which][1:])
            verdicts = [judge.verdict(exercise, exercise.solution().encode(), seed) for seed in range(RUNS)]
            assert which != "solution" or all(x.right for x in verdicts), [x.in_words() for x in verdicts if not x.right]
            if found := [max(x.shares.values()) for x in verdicts if x.shares]:
                lines.append([name, which, f"{statistics.median(found):.0f}", len(found)])
                print(*lines[-1], flush=True)
    finally:
        judge.close()
    write_lines(pathlib.Path(sys.argv[1]), lines)


if __name__ == "__main__":
    main()
