"""peers_cpu.py: PyTorch's softmax and attention on the CPU, on the shapes of a CSV file.

    python3 common/reports/peers_cpu.py --csv FILE

For every shape in FILE that a CPU variant was measured on, with each number of threads that
was used for it, times torch.softmax or scaled_dot_product_attention and appends a line, as
stage `peer`, with the ceiling of that run.  Causal shapes are square, where PyTorch's
alignment of the mask is ours.  Exit status: 0 done, also when there is no such shape; 77 no
PyTorch.
"""
import argparse
import csv
import datetime
import os
import pathlib
import sys
import time

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages, as the bench's arrays have
try:
    import torch
except ImportError:
    print("peers_cpu.py: no PyTorch here; skipped", file=sys.stderr)
    sys.exit(77)

SHAPE = ("op rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v causal "
         "threads").split()


def read(path):
    """The column names, and one line of each shape and number of threads."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = [line for line in reader if line["device"] == "cpu" and line["stage"] != "peer"
                 and line["op"] in ("softmax", "attention") and line["dtype"] == "f32"]
        return reader.fieldnames, {tuple(line[c] for c in SHAPE): line for line in lines}


def call_of(line):
    """What PyTorch is to do for a line of the file."""
    n = {c: int(float(line[c])) for c in SHAPE if c != "op"}
    if line["op"] == "softmax":
        x, y = torch.randn(n["rows"], n["cols"]), torch.empty(n["rows"], n["cols"])
        return lambda: torch.softmax(x, -1, out=y)
    q = torch.randn(n["batch"], n["heads_q"], n["seqlen_q"], n["head_dim"])
    k = torch.randn(n["batch"], n["heads_kv"], n["seqlen_k"], n["head_dim"])
    v = torch.randn(n["batch"], n["heads_kv"], n["seqlen_k"], n["head_dim_v"])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=bool(n["causal"]),
                          **({} if n["heads_q"] == n["heads_kv"] else {"enable_gqa": True}))


def seconds_of(call):
    """Sorted times after a warm-up: 20 repeats or a second, at least 3."""
    call()
    times, until = [], time.perf_counter() + 1
    while len(times) < 3 or len(times) < 20 and time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)


def measured(line):
    """line with PyTorch's time in place of the variant's."""
    torch.set_num_threads(int(line["threads"]))
    times = seconds_of(call_of(line))
    median = times[len(times) // 2]
    ratio = float(line["median_s"]) / median
    scaled = {c: f"{float(line[c]) * ratio:.6g}" for c in ("gbps", "gflops", "pct_ceiling")
              if line[c]}
    name = "pytorch-softmax" if line["op"] == "softmax" else "pytorch-flash"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return dict(line, stage="peer", variant=name, median_s=f"{median:.9g}",
                min_s=f"{times[0]:.9g}", reps=len(times), bytes_measured="", peak_bytes="",
                max_err="", allowed_err="", date=now, compiler=f"torch {torch.__version__}",
                flags="", **scaled)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    path = parser.parse_args().csv
    columns, shapes = read(path)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        for line in shapes.values():
            peer = measured(line)
            writer.writerow(peer)
            file.flush()
            print(peer["variant"], *(f"{c}={peer[c]}" for c in SHAPE[1:] if peer[c] not in ("0", "")),
                  f"{1e3 * float(peer['median_s']):.3f} ms,",
                  f"{float(line['median_s']) / float(peer['median_s']):.2f}x the speed of "
                  f"{line['variant']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
