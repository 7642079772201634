"""summary.py BUILD STAGE...: what `make` does with the programs: checks and measures each stage, draws the figures, and
prints one table.

A line a stage: checks passed, failed, skipped; the fastest softmax and the fastest attention of the quick bench with the
share of the ceiling that they reached.  The reports go into BUILD/log.  Goes on after a failure; then the exit status is 1."""
import os
import pathlib
import re
import subprocess
import sys

import plot
from results import Malformed, guarded, read_file
from words import MARKS, mark_of


def logged(log, *command, **env):
    """The exit status of a command, and the lines of its report."""
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | env, check=False)
    return done.returncode, log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]


def fastest(rows, op):
    """The variant with the highest speed on the largest work of this operation that every variant
    was measured at."""
    rows = rows[rows.op == op]
    if rows.empty:
        return "-"
    rows = rows.assign(work=rows.rows * rows.cols if op == "softmax" else rows.flops)
    variants = rows.groupby("work").variant.nunique()
    size = max(variants.index, key=lambda work: (variants[work], work))
    best = next(rows[rows.work == size].nsmallest(1, "median_s").itertuples())
    why = MARKS.get(mark_of(best))
    return f"{best.variant}: {size / best.median_s / 1e9:.3g} {'Gelem/s' if op == 'softmax' else 'GFLOP/s'}" + (
        f", {best.pct_ceiling:.0f}% of {best.ceiling_kind}" * (best.pct_ceiling > 0)) + (f" ({why})" if why else "")


def of_stage(build, stage):
    """The cells of a stage's line, and whether something failed."""
    log, results = build / "log", build / f"results/{stage}.csv"
    print(f"== {stage}: check", flush=True)
    checked, said = logged(log / f"{stage}.check", build / stage, "check", OMP_WAIT_POLICY="passive")
    print(said[-1])
    counts = re.search(r"(\d+) checks? passed, (\d+) failed, (\d+) skipped", said[-1])
    if checked not in (0, 77):
        first = next((at for at, line in enumerate(said) if "FAIL" in line), 0)
        print(*said[first:first + 20], f"{stage} failed: the whole report is in {log}/{stage}.check", sep="\n")
    print(f"== {stage}: bench", flush=True)
    results.unlink(missing_ok=True)
    measured, said = logged(log / f"{stage}.bench", build / stage, "bench", "--quick", "--csv", results)
    print(*said[1:], sep="\n")
    try:
        rows = read_file(results)
        speeds = [fastest(rows, op) for op in ("softmax", "attention")]
    except Malformed as error:
        print(f"summary.py: {error}")
        speeds = ["-", "-"]
    return [stage, *(counts.groups() if counts else "???"), *speeds], checked not in (0, 77) or measured != 0


def main():
    build, *stages = map(pathlib.Path, sys.argv[1:])
    for folder in ("log", "results"):
        (build / folder).mkdir(parents=True, exist_ok=True)
    lines, failed = zip(*(of_stage(build, stage.name) for stage in stages))
    guarded("plot.py", lambda: plot.main([
        f"--results={build}/results", f"--out={build}/plots", f"--program={build}/03_online_softmax"]))
    table = [["stage", "checks: passed", "failed", "skipped", "softmax", "attention"], *lines]
    width = [max(map(len, column)) for column in zip(*table)]
    print()
    for row in table:
        print("  ".join(text.ljust(n) if i in (0, 4, 5) else text.rjust(n)
                        for i, (text, n) in enumerate(zip(row, width))).rstrip())
    plots = len(list((build / "plots").glob("*")))
    print(f"\n{plots} plots in {build}/plots, CSV in {build}/results, logs in {build}/log")
    if any(failed):
        sys.exit("a stage failed; see above")


if __name__ == "__main__":
    main()
