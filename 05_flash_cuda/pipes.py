#!/usr/bin/env python3
"""pipes.py: what keeps the units of a multiprocessor busy, rung by rung.

    python3 05_flash_cuda/pipes.py --csv build/results/hopper/pipes.csv

One launch of each rung under ncu (Nsight Compute): the share of cycles in which the
tensor cores and the exponential unit worked and in which an instruction was issued, and
the clock that the power limit left.  --figure draws the CSV.  Exit status 77 where ncu or
its counters are missing.
"""
import argparse
import csv
import os
import shutil
import subprocess
import sys

RUNGS = ("tensor_cores pipelined wgmma specialised ping_pong overlapped lean persistent "
         "fitted optimistic").split()
METRICS = ("gpu__time_duration.sum,smsp__cycles_elapsed.avg.per_second,"
           "sm__inst_issued.avg.pct_of_peak_sustained_elapsed,"
           "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
         "hz": 1e-9, "Mhz": 1e-3, "Ghz": 1.0,
         "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0,
         "cycle/nsecond": 1.0, "cycle/usecond": 1e-3, "cycle/second": 1e-9}


def counters(program, rung, shape, raw):
    """{metric: value} of one launch of a rung; raw keeps ncu's own output."""
    seqlen, head_dim, heads = shape
    command = ["ncu", "--clock-control", "none", "--csv", "--metrics", METRICS,
               "-k", f"regex:{rung}_kernel", "--launch-skip", "2", "--launch-count", "1",
               program, "bench", "--quick", "--variant", rung, "--op", "attention",
               "--dtype", "bf16", "--batch", "1", "--heads-q", heads, "--heads-kv", heads,
               "--seqlen-q", seqlen, "--seqlen-k", seqlen, "--head-dim", head_dim,
               "--head-dim-v", head_dim]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True,
                          check=False)
    if raw:
        with open(raw, "w", encoding="utf-8") as file:
            file.write(done.stdout + done.stderr)
    lines = [x for x in done.stdout.splitlines() if x.startswith('"')]
    values = {}
    for row in csv.DictReader(lines):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except (KeyError, ValueError):
            continue
        values[row["Metric Name"]] = value * UNITS.get(row["Metric Unit"], 1.0)
    return values


def largest(values, word):
    """The largest counter with `word` in its name, or nothing."""
    found = [v for name, v in values.items() if word in name]
    return f"{max(found):.1f}" if found else ""


def draw(path, figure):
    """The ladder as a staircase: what each rung reached, and how busy the units were."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sizes = sorted({int(row["head_dim"]) for row in rows})
    page, axes = plt.subplots(1, len(sizes), figsize=(9, 3.6), sharey=True)
    for axis, size in zip(axes, sizes):
        mine = [row for row in rows if int(row["head_dim"]) == size]
        places = range(len(mine))
        axis.step(places, [float(row["tflops"]) for row in mine], where="mid",
                  color="black", label="TFLOP/s")
        axis.set_ylim(0, 1000)
        axis.set_xticks(list(places))
        axis.set_xticklabels([row["variant"] for row in mine], rotation=60, ha="right",
                             fontsize=8)
        axis.set_title(f"head_dim {size}", fontsize=10)
        share = axis.twinx()
        for column, name, colour in (("tensor_pct", "tensor cores", "#1f77b4"),
                                     ("exp_pct", "exponentials", "#d62728"),
                                     ("issue_pct", "issue slots", "#7f7f7f")):
            share.plot(places, [float(row[column]) for row in mine], "o-", markersize=3,
                       linewidth=1, color=colour, label=f"{name}, % busy")
        share.set_ylim(0, 100)
        if size == sizes[-1]:
            share.set_ylabel("percent of cycles", fontsize=9)
            share.legend(fontsize=7, loc="lower right")
    axes[0].set_ylabel("TFLOP/s (staircase)", fontsize=9)
    page.tight_layout()
    page.savefig(figure, dpi=150, metadata={"Software": None})


def main():
    """Runs the measurements; returns the exit status."""
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--csv", default="build/results/hopper/pipes.csv")
    p.add_argument("--program", default="build/05_flash_cuda")
    p.add_argument("--variants", default=",".join(RUNGS))
    p.add_argument("--figure", help="draw the CSV into this file, measure nothing")
    p.add_argument("--raw", help="a directory for ncu's own output")
    args = p.parse_args()
    if args.figure:
        draw(args.csv, args.figure)
        return 0
    if not shutil.which("ncu"):
        print("pipes: ncu (Nsight Compute) is not on the PATH; skipped")
        return 77
    os.makedirs(os.path.dirname(os.path.abspath(args.csv)), exist_ok=True)
    rows = []
    for head_dim, heads in ((64, 32), (128, 16)):
        for rung in args.variants.split(","):
            raw = args.raw and os.path.join(args.raw, f"{rung}-{head_dim}.txt")
            v = counters(args.program, rung, (16384, head_dim, heads), raw)
            if "gpu__time_duration.sum" not in v:
                print(f"pipes: no counters for {rung}")
                continue
            time = v["gpu__time_duration.sum"]
            speed = 4 * 16384**2 * 2048 / time / 1e12
            rows.append([rung, head_dim, 16384, f"{speed:.0f}",
                         largest(v, "pipe_tensor"), largest(v, "pipe_xu"),
                         largest(v, "inst_issued"), largest(v, "cycles_elapsed.avg.per")])
            print("  " + "  ".join(str(x) for x in rows[-1]), flush=True)
    if not rows:
        return 77
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("variant head_dim seqlen tflops tensor_pct exp_pct issue_pct "
                        "clock_ghz".split())
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
