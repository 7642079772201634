"""summary.py BUILD: one table of what `make` did, from the logs and the CSV files.

A line a stage: checks passed, failed, skipped; the fastest softmax and the fastest attention
of the quick bench with the share of the ceiling that they reached.  Exits 1 when a check
failed or a measurement could not be made."""
import csv
import os
import re
import sys


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else ""


def checks(build, stage):
    """(passed, failed, skipped) of a stage, or None when it was not run."""
    path = os.path.join(build, "log", stage + ".check")
    if not os.path.exists(path):
        return None
    match = re.search(r"(\d+) checks? passed, (\d+) failed, (\d+) skipped", last_line(path))
    return match.groups() if match else ("?", "?", "?")


def fastest(build, stage, op):
    """The variant with the highest speed on the largest work of this operation."""
    path = os.path.join(build, "results", stage + ".csv")
    if not os.path.exists(path):
        return "-"
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == op]
    if not rows:
        return "-"
    if op == "softmax":
        key = lambda row: int(row["rows"]) * int(row["cols"])
        speed = lambda row: key(row) / float(row["median_s"]) / 1e9
        unit = "Gelem/s"
    else:
        key = lambda row: float(row["flops"])
        speed = lambda row: float(row["gflops"])
        unit = "GFLOP/s"
    # The size that every variant could be measured at tells most.
    sizes = {key(row) for row in rows}
    names = {row["variant"] for row in rows}
    common = [s for s in sizes if {r["variant"] for r in rows if key(r) == s} == names]
    size = max(common or sizes)
    best = max((row for row in rows if key(row) == size), key=speed)
    share = f", {float(best['pct_ceiling']):.0f}% of {best['ceiling_kind']}" \
        if best["pct_ceiling"] else ""
    if share and float(best["pct_ceiling"]) > 105:
        share += {"gemm": " (faster than the library's matrix product)",
                  "copy": " (a cache served some of the passes)"}.get(
                      best["ceiling_kind"], " (an error until explained: measure again)")
    return f"{best['variant']}: {speed(best):.3g} {unit}{share}"


def main():
    build = sys.argv[1]
    stages = sorted(name[:-6] for name in os.listdir(os.path.join(build, "log"))
                    if name.endswith(".check"))
    table = [("stage", "checks: passed", "failed", "skipped", "softmax", "attention")]
    for stage in stages:
        table.append((stage,) + checks(build, stage) +
                     (fastest(build, stage, "softmax"), fastest(build, stage, "attention")))
    width = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    print()
    for row in table:
        print("  ".join(text.ljust(n) if i in (0, 4, 5) else text.rjust(n)
                        for i, (text, n) in enumerate(zip(row, width))).rstrip())
    plots = sorted(os.listdir(os.path.join(build, "plots"))) \
        if os.path.isdir(os.path.join(build, "plots")) else []
    print(f"\n{len(plots)} plots in {build}/plots, CSV in {build}/results, logs in {build}/log")
    if last_line(os.path.join(build, "log", "failed")) != "0":
        sys.exit("a stage failed; see above")


if __name__ == "__main__":
    main()
