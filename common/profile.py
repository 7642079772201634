"""profile.py: from Nsight Compute's counters to lines of results, for profile.sh.

    python3 common/profile.py DIR FILE

DIR holds, for each variant, NAME.bench (the CSV of `bench`) and NAME.ncu (ncu --csv of the
same run).  Each kernel runs once in a call, so a call moves the sum, over the names of
kernels, of the mean bytes of one launch.  Kernels of the harness are left out.  FILE gets
the lines of `bench` with bytes_measured filled in, and the time that ncu saw.
"""
import collections
import csv
import pathlib
import sys

HARNESS = ("read_kernel", "copy_kernel", "gemm", "cutlass", "nvjet")


def counters(path):
    """{metric: sum over kernels of the mean over launches} from one ncu CSV."""
    text = path.read_text(encoding="utf-8").splitlines()
    start = next((n for n, line in enumerate(text) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    values = collections.defaultdict(list)
    for line in csv.DictReader(text[start:]):
        if not any(word in line["Kernel Name"] for word in HARNESS):
            values[line["Metric Name"], line["Kernel Name"]].append(
                float(line["Metric Value"].replace(",", "")))
    total = collections.Counter()
    for (metric, _), launches in values.items():
        total[metric] += sum(launches) / len(launches)
    return total


def main():
    directory, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out, header = [], None
    for path in sorted(directory.glob("*.bench")):
        counted = counters(path.with_suffix(".ncu"))
        moved = counted.get("dram__bytes_read.sum", 0) + counted.get("dram__bytes_write.sum", 0)
        with path.open(encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames
            for line in reader:
                if not moved:
                    continue
                seconds = counted["gpu__time_duration.sum"] * 1e-9
                line.update(bytes_measured=f"{moved:.0f}", median_s=f"{seconds:.9g}",
                            min_s="", reps="", gbps=f"{moved / seconds * 1e-9:.6g}",
                            pct_ceiling="")
                out.append(line)
                predicted = float(line["bytes_predicted"])
                print(f"{line['variant']:20} predicted {predicted:.4g} B, "
                      f"measured {moved:.4g} B ({100 * (moved / predicted - 1):+.1f} %)")
    if not out:
        print("profile: no counters were read; this machine may refuse them (ncu says "
              "ERR_NVGPUCTRPERM, or cannot start). Time ratios stand in: make bench",
              file=sys.stderr)
        return 77
    with target.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
