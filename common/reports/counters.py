"""counters.py: from Nsight Compute's counters to lines of results, for counters.sh.

    python3 common/reports/counters.py DIR FILE

DIR holds, for each measurement, NAME.bench (the CSV of `bench`) and NAME.ncu (ncu --csv of
the same run).  Each kernel runs once in a call, so a call moves the sum, over the names of
kernels, of the mean bytes of one launch; a share of something (percent, registers, clock)
is that of the kernel that takes longest.  Kernels of the harness are left out.  FILE gets
the lines of `bench` without repeats, with bytes_measured and the time that ncu saw, and
with these columns more, where they were counted:

    tensor_pct    cycles in which the tensor cores worked     exp_pct    the exponential unit
    fma_pct       the multiply-add units                      issue_pct  an instruction issued
    shared_pct    shared memory delivered                     warps_pct  warps there, of 64
    conflict_pct  passes through shared memory that only bank conflicts made necessary
    clock_ghz     registers (of a thread)      local_bytes  spilled to and read from memory
    active_pct    multiprocessors with a block, the mean over the time of the launch
    sectors_per_load  sectors (32 bytes) of one load of a warp    l1_hit_pct  those that L1 had
    l1_pct        passes through L1's data, of the most, while L1 had something to do

A NAME with _roof- in it becomes stage "roof", variant "no_softmax".
"""
import collections
import csv
import pathlib
import sys

HARNESS = ("read_kernel", "copy_kernel", "gemm", "cutlass", "nvjet")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
         "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0,
         "hz": 1e-9, "Khz": 1e-6, "Mhz": 1e-3, "Ghz": 1.0, "cycle/second": 1e-9,
         "cycle/usecond": 1e-3, "cycle/nsecond": 1.0,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
# column: (words that the counter's name holds, digits); of several the largest
SHARES = {"tensor_pct": (("pipe_tensor",), 1), "exp_pct": (("pipe_xu",), 1),
          "fma_pct": (("pipe_fma",), 1), "issue_pct": (("inst_issued",), 1),
          "shared_pct": ((SHARED, "pct"), 1), "warps_pct": (("warps_active",), 1),
          "clock_ghz": (("cycles_elapsed.avg.per",), 2),
          "registers": (("registers_per_thread",), 0),
          "active_pct": (("sm__cycles_active",), 1),
          "sectors_per_load": (("sectors_per_request",), 1),
          "l1_hit_pct": (("op_ld_hit_rate",), 1), "l1_pct": (("lsu_wavefronts.avg",), 1)}
MORE = list(SHARES) + ["conflict_pct", "local_bytes"]
TIME = "gpu__time_duration.sum"


def number(line):
    """A counter's value in seconds, bytes, GHz or as it is; None if it has none."""
    try:
        value = float(line["Metric Value"].replace(",", ""))
    except (KeyError, ValueError):
        return None
    return value * UNITS.get(line["Metric Unit"], 1.0)


def counters(path):
    """({metric: sum over kernels of the mean over launches}, {metric: mean of the kernel
    that takes longest}) from one ncu CSV."""
    text = path.read_text(encoding="utf-8").splitlines()
    start = next((n for n, line in enumerate(text) if line.startswith('"ID"')), len(text))
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in csv.DictReader(x for x in text[start:] if x.startswith('"')):
        value = number(line)
        if value is not None and not any(word in line["Kernel Name"] for word in HARNESS):
            values[line["Kernel Name"]][line["Metric Name"]].append(value)
    kernels = [{metric: sum(seen) / len(seen) for metric, seen in kernel.items()}
               for kernel in values.values()]
    total = collections.Counter()
    for kernel in kernels:
        total.update(kernel)
    return total, max(kernels, key=lambda kernel: kernel.get(TIME, 0), default={})


def columns(total, main):
    """The columns beyond those of `bench`."""
    out = dict.fromkeys(MORE, "")
    for column, (words, digits) in SHARES.items():
        found = [value for name, value in main.items() if all(w in name for w in words)]
        if found:
            out[column] = f"{max(found):.{digits}f}"
    passes = total.get(SHARED + ".sum", 0)
    if passes:
        conflicts = total.get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 0)
        out["conflict_pct"] = f"{100 * conflicts / passes:.1f}"
    spilled = [value for name, value in total.items() if "mem_local" in name]
    if spilled:
        out["local_bytes"] = f"{32 * sum(spilled):.0f}"
    return out


def measured(name, line, total, main):
    """One line of `bench` with what was counted."""
    seconds = total[TIME]
    moved = total["dram__bytes_read.sum"] + total["dram__bytes_write.sum"]
    flops = float(line["flops"] or 0)
    line.update(columns(total, main), bytes_measured=f"{moved:.0f}",
                median_s=f"{seconds:.9g}", min_s="", reps="", pct_ceiling="", peak_bytes="",
                gbps=f"{moved / seconds * 1e-9:.6g}",
                gflops=f"{flops / seconds * 1e-9:.6g}")
    if "_roof-" in name:
        line.update(stage="roof", variant="no_softmax", max_err="", allowed_err="")
    return line


def main():
    directory, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out, header = [], []
    for path in sorted(directory.glob("*.bench")):
        total, longest = counters(path.with_suffix(".ncu"))
        with path.open(encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames
            for line in reader:
                if not total[TIME]:
                    continue
                out.append(measured(path.stem, line, total, longest))
                line, predicted = out[-1], float(out[-1]["bytes_predicted"])
                print(f"{line['variant']:20} d {line['head_dim']:3}  "
                      f"predicted {predicted:.4g} B, measured {line['bytes_measured']} B  "
                      + "  ".join(f"{c} {line[c]}" for c in MORE if line[c]))
    if not out:
        print("skipped: no counters were read; stage 4 has no GPU variant, other "
              "stages need a GPU. Time ratios stand in: make bench", file=sys.stderr)
        return 77
    with target.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header + MORE, lineterminator="\n")
        writer.writeheader()
        writer.writerows(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
