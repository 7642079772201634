#!/usr/bin/env python3
"""counters.py: what the kernels of a stage do on a GPU, counted by the hardware.

    python3 common/products/reports/counters.py STAGE PROGRAM RESULTS [ROOF_PROGRAM]
    python3 common/products/reports/counters.py stalls build/05_flash_cuda RESULTS

The variants run under Nsight Compute (ncu) on a shape or two, in as few processes as can be; the
third launch of each kernel is counted.  Writes RESULTS/profile_STAGE.csv: the lines of `bench`
without repeats, with bytes_measured and the time that ncu saw, and with these columns more, where
they were counted:

    tensor_pct    cycles in which the tensor cores worked     exp_pct    the exponential unit
    fma_pct       the multiply-add units                      issue_pct  an instruction issued
    shared_pct    shared memory delivered                     warps_pct  warps there, of 64
    conflict_pct  passes through shared memory that only bank conflicts made necessary
    clock_ghz     registers (of a thread)      local_bytes  spilled to and read from memory
    active_pct    multiprocessors with a block, the mean over the time of the launch
    sectors_per_load  sectors (32 bytes) of one load of a warp    l1_hit_pct  those that L1 had
    l1_pct        passes through L1's data, of the most, while L1 had something to do

Each kernel runs once in a call, so a call moves the sum, over the names of kernels, of the mean
bytes of one launch; a share of something (percent, registers, clock) is that of the kernel that
takes longest.  Kernels of the harness are left out.  ROOF_PROGRAM is the last rung built without
softmax: stage "roof".  `stalls` writes RESULTS/hopper/stalls.csv: for what the warps of each rung
wait, in cycles between two instructions of a warp.  Ends with 77 where ncu is missing or may not read the counters.
"""
import collections
import csv
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from ladder import LAST, ROOF, RUNGS
from measurements import KINDS

HARNESS = ("read_kernel", "copy_kernel", "gemm", "cutlass", "nvjet")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
         "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0,
         "hz": 1e-9, "Khz": 1e-6, "Mhz": 1e-3, "Ghz": 1.0, "cycle/second": 1e-9,
         "cycle/usecond": 1e-3, "cycle/nsecond": 1.0,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
SPILLED = [f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")]
BYTES = [READ, WRITE, TIME]
ACCESS = [*BYTES, "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
          "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
          "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
          "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"]
BUSY = [*BYTES, "smsp__cycles_elapsed.avg.per_second", "launch__registers_per_thread",
        "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
        "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        f"{SHARED}.sum", f"{SHARED}.avg.pct_of_peak_sustained_elapsed", CONFLICTS, *SPILLED]
# Of the cycles between two instructions of a warp: one to issue, and the reasons to wait.
STALLS = ("selected", "wait", "long_scoreboard", "short_scoreboard", "barrier", "gmma",
          "math_pipe_throttle", "mio_throttle", "not_selected")
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio".format
# column: (what the counter's name holds, digits); of several the largest
SHARES = {"tensor_pct": ("pipe_tensor", 1), "exp_pct": ("pipe_xu", 1), "fma_pct": ("pipe_fma", 1),
          "issue_pct": ("inst_issued", 1), "shared_pct": (SHARED + ".avg.pct", 1),
          "warps_pct": ("warps_active", 1), "clock_ghz": ("cycles_elapsed.avg.per", 2),
          "registers": ("registers_per_thread", 0), "active_pct": ("sm__cycles_active", 1),
          "sectors_per_load": ("sectors_per_request", 1), "l1_hit_pct": ("op_ld_hit_rate", 1),
          "l1_pct": ("lsu_wavefronts.avg", 1)}
MORE = [*SHARES, "conflict_pct", "local_bytes"]
KEPT = "ceiling", "max_err", "allowed_err"  # of what `bench` measured: the times and rates are ncu's


class Refused(Exception):
    """This machine refuses the counters."""


# --- What is counted ---

def variants(program, op, dtype=""):
    """Those of `list` that run on a GPU."""
    listed = subprocess.run([program, "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines()
            if op in line and dtype in line and " gpu sm_" in line]


def ladder(program, roof):
    """Every rung on 16k tokens and 2048 columns of heads, the roof and split-KV."""
    for dtype, head_dim in itertools.product(("bf16", "f32"), (128, 64)):
        heads, rungs = 2048 // head_dim, variants(program, "attention", dtype)
        shape = heads_shape(dtype, heads, 16384, 16384, head_dim)
        yield program, BUSY, {name: f"{name}_kernel" for name in rungs if name in RUNGS}, shape
        if roof and dtype == "bf16":
            yield roof, BUSY, {LAST: f"{LAST}_kernel"}, shape
    yield program, BUSY, {"split_kv": "split_kv_kernel|merge_parts_kernel"}, \
        heads_shape("bf16", 16, 1, 65536, 128)


def stalls(program):
    """The rungs in 16 bits, 4k keys, head_dim 128."""
    yield program, [TIME, *map(STALLED, STALLS)], {
        name: f"{name}_kernel" for name in variants(program, "attention", "bf16") if name in RUNGS}, \
        heads_shape("bf16", 16, 4096, 4096, 128) | {"batch": 4}


def heads_shape(dtype, heads, queries, keys, head_dim):
    return {"op": "attention", "dtype": dtype, "batch": 1, "heads-q": heads, "heads-kv": heads,
            "seqlen-q": queries, "seqlen-k": keys, "head-dim": head_dim, "head-dim-v": head_dim}


def rows(program):
    """Stage 1's kernels on as many elements each time.  A block takes 256 rows of
    gpu_thread_per_row or one of gpu_block_per_row, so the first and the last shape are 16 blocks."""
    for dtype in ("f32", "f16"):
        for name in variants(program, "softmax", dtype):
            for n, cols in [(4096, 65536), (262144, 1024)] + \
                    [(16, 16777216)] * (name == "gpu_block_per_row"):
                yield program, ACCESS, {name: name.removeprefix("gpu_") + "_kernel"}, {
                    "op": "softmax", "dtype": dtype, "rows": n, "cols": cols}


def others(program):
    """The bytes of a softmax, whatever kernels it launches."""
    for name in variants(program, "softmax"):
        yield program, BYTES, {name: ""}, {"op": "softmax", "rows": 4096, "cols": 65536}


# --- Counting ---

def count(place, program, metrics, kernels, shape):
    """({variant: line of `bench`}, what ncu says) on one shape; kernels: {variant: a regular expression
    of its kernels, or '' for all}.  Refused where ncu may not count."""
    names = "|".join(filter(None, kernels.values()))
    only = ["--kernel-id", f"::regex:^({names})$:3"] if names else []
    one = ["--variant", *kernels] if len(kernels) == 1 else []
    bench = pathlib.Path(place, "bench.csv")
    done = subprocess.run(
        ["ncu", "--clock-control", "none", "--csv", "--metrics", ",".join(metrics), *only, program,
         "bench", "--quick", *one, "--csv", bench,
         *(text for name, value in shape.items() for text in (f"--{name}", str(value)))],
        capture_output=True, text=True, check=False)
    if done.returncode == 0 and '"ID"' in done.stdout:
        with bench.open(encoding="utf-8") as file:
            lines = {line["variant"]: line for line in csv.DictReader(file)}
        bench.unlink()
        return lines, done.stdout.splitlines()
    why = next((line for line in (done.stderr + done.stdout).splitlines()
                if re.search("ERR|rror|ailed", line)), "no counters")
    print(f"profile: {', '.join(kernels)}: {why}", file=sys.stderr)
    if re.search("ERR_NVGPUCTRPERM|initialize|LibraryNotLoaded", why):
        raise Refused
    return {}, []


def number(line):
    """A counter's value in seconds, bytes, GHz or as it is; None if it has none."""
    try:
        value = float(line["Metric Value"].replace(",", ""))
    except (KeyError, ValueError):
        return None
    return value * UNITS.get(line["Metric Unit"], 1.0)


def launches(text):
    """{kernel: {metric: mean over its launches}} from what ncu printed."""
    start = next((n for n, line in enumerate(text) if line.startswith('"ID"')), len(text))
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in csv.DictReader(x for x in text[start:] if x.startswith('"')):
        value = number(line)
        if value is not None and not any(word in line["Kernel Name"] for word in HARNESS):
            values[line["Kernel Name"]][line["Metric Name"]].append(value)
    return {name: {metric: sum(seen) / len(seen) for metric, seen in kernel.items()}
            for name, kernel in values.items()}


def of_variant(kernels, pattern):
    """({metric: sum over its kernels}, {metric: of the kernel that takes longest})."""
    mine = [kernel for name, kernel in kernels.items()
            if re.search(rf"\b({pattern})\b" if pattern else "", name)]
    total = collections.Counter()
    for kernel in mine:
        total.update(kernel)
    return total, max(mine, key=lambda kernel: kernel.get(TIME, 0), default={})


def measured(line, total, longest, is_roof):
    """One line of `bench` with what was counted."""
    seconds, moved = total[TIME], total[READ] + total[WRITE]
    for column, (word, digits) in SHARES.items():
        found = [value for name, value in longest.items() if word in name]
        line[column] = f"{max(found):.{digits}f}" if found else ""
    passes = total[SHARED + ".sum"]
    line["conflict_pct"] = f"{100 * total[CONFLICTS] / passes:.1f}" if passes else ""
    line["local_bytes"] = f"{32 * sum(total[name] for name in SPILLED):.0f}" \
        if SPILLED[0] in total else ""
    line.update({name: "" for name in line if KINDS.get(name) == "SHARE" and name not in KEPT})
    line.update(bytes_measured=f"{moved:.0f}", median_s=f"{seconds:.9g}", reps="", peak_bytes="",
                gbps=f"{moved / seconds * 1e-9:.6g}",
                gflops=f"{float(line['flops'] or 0) / seconds * 1e-9:.6g}")
    if is_roof:
        line.update(stage="roof", variant=ROOF, max_err="", allowed_err="")
    print(f"{line['variant']:20} predicted {float(line['bytes_predicted']):.4g} B, measured {moved:.4g} B  "
          + "  ".join(f"{name} {line[name]}" for name in MORE if line[name]), flush=True)
    return line


def stalled(line, total, longest, _):
    """For what the warps of a kernel wait."""
    return {"variant": line["variant"], "head_dim": 128, "seqlen": 4096, "us": f"{1e6 * total[TIME]:.1f}",
            **{stall: f"{longest[STALLED(stall)]:.2f}" for stall in STALLS},
            **{key: line[key] for key in ("date", "commit", "machine", "compiler")}}


def main():
    """Counts a stage; returns the exit status."""
    stage, program, results, *roof = [text for text in sys.argv[1:] if text]
    line_of, path = measured, pathlib.Path(results, f"profile_{os.path.basename(program)}.csv")
    if not shutil.which("ncu"):
        print("skipped: ncu (Nsight Compute) is not on the PATH; bench gives time, not counters",
              file=sys.stderr)
        return 77
    if stage == "stalls":
        asked, line_of, path = stalls(program), stalled, pathlib.Path(results, "hopper/stalls.csv")
    else:
        asked = ladder(program, *(roof or [None])) if stage.startswith("05") else \
            rows(program) if stage.startswith("01") else others(program)
    lines, why = [], "no counters were read; stage 4 has no GPU variant, other stages need a GPU"
    try:
        with tempfile.TemporaryDirectory() as place:
            for program_of, metrics, kernels, shape in asked:
                known, text = count(place, program_of, metrics, kernels, shape)
                seen = launches(text)
                for name in [name for name in kernels if name in known]:
                    total, longest = of_variant(seen, kernels[name])
                    if total[TIME]:
                        lines.append(line_of(known[name], total, longest, program_of in roof))
                if lines:  # each time, so that what was counted is not lost
                    with path.open("w", encoding="utf-8") as file:
                        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
                        writer.writeheader()
                        writer.writerows(lines)
    except Refused:
        lines, why = [], "this machine refuses the counters"
    if not lines:
        print(f"skipped: {why}. Time ratios stand in: make bench", file=sys.stderr)
    return 0 if lines else 77


if __name__ == "__main__":
    sys.exit(main())
