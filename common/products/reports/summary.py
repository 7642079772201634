"""summary.py BUILD: one table of what `make` did, from the logs and the CSV files.

A line a stage: checks passed, failed, skipped; the fastest softmax and the fastest attention
of the quick bench with the share of the ceiling that they reached.  Exits 1 when a check
failed or a measurement could not be made.  Without pandas, which `make` does not need."""
import csv
import pathlib
import re
import sys

ABOVE = {"gemm": " (faster than the library's matrix product)",
         "copy": " (a cache served some of the passes)"}


def checks(log):
    """[passed, failed, skipped] of a stage, from the last line of its log."""
    match = re.search(r"(\d+) checks? passed, (\d+) failed, (\d+) skipped", log.read_text(
        encoding="utf-8", errors="replace").strip().split("\n")[-1])
    return list(match.groups()) if match else ["?"] * 3


def fastest(path, op):
    """The variant with the highest speed on the largest work of this operation that every variant
    was measured at."""
    rows = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["op"] == op]
    if not rows:
        return "-"

    def work(row):
        return int(row["rows"]) * int(row["cols"]) if op == "softmax" else float(row["flops"])
    done = {}
    for row in rows:
        done.setdefault(work(row), set()).add(row["variant"])
    size = max(done, key=lambda size: (len(done[size]), size))
    best = min((row for row in rows if work(row) == size), key=lambda row: float(row["median_s"]))
    share, kind = float(best["pct_ceiling"] or 0), best["ceiling_kind"]
    return (f"{best['variant']}: {size / float(best['median_s']) / 1e9:.3g} "
            f"{'Gelem/s' if op == 'softmax' else 'GFLOP/s'}"
            + (f", {share:.0f}% of {kind}" if share else "")
            + (ABOVE.get(kind, " (an error until explained: measure again)") if share > 105 else ""))


def main():
    build = pathlib.Path(sys.argv[1])
    table = [["stage", "checks: passed", "failed", "skipped", "softmax", "attention"]]
    for log in sorted((build / "log").glob("*.check")):
        path = build / f"results/{log.stem}.csv"
        table.append([log.stem, *checks(log), fastest(path, "softmax"), fastest(path, "attention")])
    width = [max(map(len, column)) for column in zip(*table)]
    print()
    for row in table:
        print("  ".join(text.ljust(n) if i in (0, 4, 5) else text.rjust(n)
                        for i, (text, n) in enumerate(zip(row, width))).rstrip())
    plots = len(list((build / "plots").glob("*")))
    print(f"\n{plots} plots in {build}/plots, CSV in {build}/results, logs in {build}/log")
    if (build / "log/failed").read_text(encoding="utf-8").strip() != "0":
        sys.exit("a stage failed; see above")


if __name__ == "__main__":
    main()
