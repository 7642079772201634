#!/usr/bin/env python3
"""peers_cpu.py: PyTorch's softmax, attention and its gradient on the CPU, on the shapes of a CSV file.

    python3 common/products/reports/peers_cpu.py --csv FILE

For every shape in FILE that a CPU variant was measured on, with each number of threads that
was used for it, times torch.softmax, scaled_dot_product_attention or its backward pass alone, calls back to back as
`bench` makes them, and appends a line, as stage `peer`, with the ceiling of that run.  A time
whose median exceeds its minimum by more than 5 % is taken again, up to three times.  Causal
shapes are square, where PyTorch's alignment of the mask is ours.  A result that is not finite
is not written.  Exit status: 0 done, also when there is no such shape; 1 a wrong result; 77
no PyTorch.
"""
import csv
import os
import pathlib
import sys

from measurements import command_line, now, torch_or_skip
from rounds import CpuClock, cold

SHAPE = ("op dtype rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v causal "
         "threads").split()
DONE = [("softmax", "f32"), ("attention", "f32"), ("backward", "f32"), ("attention", "bf16")]


def read(path):
    """The column names, and the fastest line of each shape, type and number of threads."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = [line for line in reader if line["device"] == "cpu" and line["stage"] != "peer"
                 and (line["op"], line["dtype"]) in DONE]
    lines.sort(key=lambda line: -float(line["median_s"]))
    return reader.fieldnames, {tuple(line[c] for c in SHAPE): line for line in lines}


def call_of(torch, line):
    """What PyTorch is to do for a line of the file."""
    n = {c: int(float(line[c])) for c in SHAPE if c not in ("op", "dtype")}
    if line["op"] == "softmax":
        x, y = torch.randn(n["rows"], n["cols"]), torch.empty(n["rows"], n["cols"])
        return lambda: torch.softmax(x, -1, out=y)
    kind = torch.bfloat16 if line["dtype"] == "bf16" else torch.float32
    q, k, v = (torch.randn(n["batch"], n[heads], n[length], n[dim]).to(kind) for heads, length, dim in (
        ("heads_q", "seqlen_q", "head_dim"), ("heads_kv", "seqlen_k", "head_dim"),
        ("heads_kv", "seqlen_k", "head_dim_v")))

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=bool(n["causal"]), enable_gqa=n["heads_q"] != n["heads_kv"])
    if line["op"] == "attention":
        return attend
    for x in (q, k, v):
        x.requires_grad_()
    o = attend()
    d_o = torch.randn_like(o)
    return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)[0]


def measured(torch, line, clock):
    """line with PyTorch's time in place of the variant's, or None when PyTorch's result is
    not finite: inputs are normal random numbers."""
    torch.set_num_threads(int(line["threads"]))
    call = call_of(torch, line)
    if not bool(torch.isfinite(call()).all()):
        return None
    times = cold(clock, {"": call}, 1, least=3)[""]
    ratio = float(line["median_s"]) / times.median
    scaled = {c: f"{float(line[c]) * ratio:.6g}" for c in ("gbps", "gflops", "pct_ceiling")
              if line[c]}
    name = "pytorch-softmax" if line["op"] == "softmax" else "pytorch-flash"
    return dict(line, stage="peer", variant=name, median_s=f"{times.median:.9g}",
                min_s=f"{times.least:.9g}", reps=times.calls, bytes_measured="",
                peak_bytes="", max_err="", allowed_err="", date=now(),
                compiler=f"torch {torch.__version__}",
                flags="sustained" + ("" if times.stable else "; unstable"), **scaled)


def append(path, torch, clock=CpuClock):
    """Measures and writes; returns the exit status."""
    columns, shapes = read(path)
    status = 0
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        for line in shapes.values():
            peer = measured(torch, line, clock)
            shape = " ".join(f"{c}={line[c]}" for c in SHAPE if line[c] not in ("0", ""))
            if peer is None:
                print(f"peers_cpu.py: WRONG, not written: PyTorch's result is not finite: "
                      f"{shape}", file=sys.stderr)
                status = 1
                continue
            writer.writerow(peer)
            file.flush()
            print(f"{peer['variant']} {shape} {1e3 * float(peer['median_s']):.3f} ms, "
                  f"{float(line['median_s']) / float(peer['median_s']):.2f} times as fast as "
                  f"{line['variant']}", flush=True)
    return status


def main():
    """Runs the measurements; returns the exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    path = parser.parse_args().csv
    # large pages, as the bench's arrays have
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    return append(path, torch_or_skip("peers_cpu.py", gpus=0))


if __name__ == "__main__":
    sys.exit(main())
