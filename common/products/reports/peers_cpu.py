#!/usr/bin/env python3
"""peers_cpu.py: PyTorch beside our CPU kernels, in one run.

    python3 common/products/reports/peers_cpu.py --csv FILE
    python3 common/products/reports/peers_cpu.py --package [--threads 1,16] --csv notes/results/library/cpu.csv

Without --package: torch.softmax, scaled_dot_product_attention or its backward pass alone, for every
shape in FILE that a CPU variant was measured on, with each number of threads that was used for it,
calls back to back as `bench` makes them; a line of stage `peer` each, with the ceiling of that run.
Causal shapes are square, where PyTorch's alignment of the mask is ours.

--package: the Python package and PyTorch in turn on the same tensors, PROBLEMS below, with one thread
and with all, or as --threads says; of each the least time of the rounds counts, because a neighbour of the
machine only adds to it.  A result that differs from PyTorch's is not written.

Exit status: 0 done, also when there is no such shape; 1 a wrong result of the package; 77 no PyTorch.
"""
import csv
import itertools
import os
import pathlib
import subprocess
import sys

from measurements import ROOT, Writer, command_line, cpu_name, now, torch_or_skip
from peers_run import TYPES
from peers_shapes import Shape, shape_of
from rounds import CpuClock, cold, sustained

SHAPE = ("op dtype rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v causal "
         "threads").split()
DONE = [("softmax", "f32"), ("attention", "f32"), ("backward", "f32"), ("attention", "bf16")]


def tensors(torch, shape, dtype, grad=False):
    """q, k and v, normal numbers."""
    return shape.arrays(lambda *sizes: torch.randn(sizes).to(getattr(torch, TYPES[dtype])).requires_grad_(grad))


# --- The variants of a file ---

def call_of(torch, line):
    """What PyTorch is to do for a line of the file."""
    n = {c: int(float(line[c])) for c in SHAPE if c not in ("op", "dtype")}
    if line["op"] == "softmax":
        x, y = torch.randn(n["rows"], n["cols"]), torch.empty(n["rows"], n["cols"])
        return lambda: torch.softmax(x, -1, out=y)
    shape = Shape(*(n[c] for c in Shape._fields[:-1]), n["head_dim_v"])
    q, k, v = tensors(torch, shape, line["dtype"], line["op"] == "backward")

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=bool(shape.causal), enable_gqa=shape.heads_q != shape.heads_kv)
    if line["op"] == "attention":
        return attend
    o = attend()
    d_o = torch.randn_like(o)
    return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)[0]


def measured(torch, line):
    """line with PyTorch's time in place of the variant's."""
    torch.set_num_threads(int(line["threads"]))
    times = cold(CpuClock, {"": call_of(torch, line)}, 1, least=3)[""]
    ratio = float(line["median_s"]) / times.median
    scaled = {c: f"{float(line[c]) * ratio:.6g}" for c in ("gbps", "gflops", "pct_ceiling")
              if line[c]}
    name = "pytorch-softmax" if line["op"] == "softmax" else "pytorch-flash"
    return dict(line, stage="peer", variant=name, median_s=f"{times.median:.9g}",
                min_s=f"{times.least:.9g}", reps=times.calls, bytes_measured="",
                peak_bytes="", max_err="", allowed_err="", date=now(),
                compiler=f"torch {torch.__version__}",
                flags="sustained" + ("" if times.stable else "; unstable"), **scaled)


def append(path, torch):
    """Measures the shapes of a file, beside the fastest variant of each, and appends to it."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = [line for line in reader if line["device"] == "cpu" and line["stage"] != "peer"
                 and (line["op"], line["dtype"]) in DONE]
    lines.sort(key=lambda line: -float(line["median_s"]))
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames, lineterminator="\n")
        for line in {tuple(line[c] for c in SHAPE): line for line in lines}.values():
            peer = measured(torch, line)
            shape = " ".join(f"{c}={line[c]}" for c in SHAPE if line[c] not in ("0", ""))
            writer.writerow(peer)
            file.flush()
            print(f"{peer['variant']} {shape} {1e3 * float(peer['median_s']):.3f} ms, "
                  f"{float(line['median_s']) / float(peer['median_s']):.2f} times as fast as "
                  f"{line['variant']}", flush=True)
    return 0


# --- The package ---

KEYS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
ALLOWED = {"f32": 2e-5, "bf16": 3e-2, "f16": 4e-3}
# whole attention, causal or not; then what a model does beside it: (shape, what else)
SQUARES = [(Shape(1, heads, heads, n, n, d, causal), "") for d, n, causal in itertools.product((64, 128), KEYS, (0, 1))
           for heads in [8 if n <= 1024 else 2]]
PROBLEMS = [(shape_of(text), what) for text, what in (
    ("1,1,1,16,16,64,0", "plain"), ("1,8,8,16,16,64,0", "plain"), ("1,4,4,64,64,64,0", "plain"),
    ("1,8,8,128,128,64,1", "plain"), ("1,4,4,1024,1024,128,0", "plain"),
    ("1,32,8,1,16,128,0", "plain"), ("1,32,8,1,4096,128,0", "plain"),
    ("1,32,32,1,1024,128,0", "plain"), ("1,8,8,1,4096,64,0", "plain"),
    ("2,8,8,1024,1024,64,0", "mask"), ("2,8,8,1024,1024,64,0", "padding"),
    ("8,8,8,64,64,64,1", "train"), ("1,8,2,512,512,128,1", "train"))]


def calls_of(torch, shape, what, q, k, v):
    """{name: call} of the package and of PyTorch."""
    import five_steps
    n, ours, theirs = shape.seqlen_k, {"causal": bool(shape.causal)}, {"is_causal": bool(shape.causal)}
    if what in ("mask", "padding"):
        seen = torch.rand(shape.seqlen_q, n) < 0.9 if what == "mask" else \
            torch.arange(n) < torch.tensor([n, 3 * n // 4])[:, None, None, None]
        ours, theirs = {"bias": seen}, {"attn_mask": seen}
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {"five_steps": lambda: five_steps.attention(q, k, v, **ours),
             "pytorch": lambda: sdpa(q, k, v, enable_gqa=shape.heads_q != shape.heads_kv, **theirs)}
    if what != "train":
        return calls
    d_o = torch.randn_like(q)
    return {name: lambda call=call: torch.autograd.grad(call(), (q, k, v), d_o)[0]
            for name, call in calls.items()}


def package(args):
    """All problems; the exit status."""
    torch = torch_or_skip("peers_cpu", gpus=0)
    threads = sorted({1, os.cpu_count()}) if not args.threads else [int(n) for n in args.threads.split(",")]
    if os.environ.get("OMP_NUM_THREADS") != str(threads[0]) or len(threads) > 1:  # OpenMP reads it once
        return max(subprocess.run([sys.executable, *sys.argv, "--threads", str(n)],
                                  env=dict(os.environ, OMP_NUM_THREADS=str(n)), check=False).returncode
                   for n in threads)
    sys.path.insert(0, str(ROOT / "common/products/library/python"))
    writer = Writer(args.csv, cpu_name(), f"torch {torch.__version__}")
    torch.set_num_threads(threads[0])
    for dtype, (shape, what) in [*itertools.product(("f32", "bf16"), SQUARES),
                                 *itertools.product(ALLOWED, PROBLEMS)]:
        calls = calls_of(torch, shape, what, *tensors(torch, shape, dtype, what == "train"))
        results = [call().float() for call in calls.values()]
        error = (results[0] - results[1]).abs().max().item()
        times = sustained(CpuClock, calls, args.seconds, blocks=5)
        for name, t in times.items():
            writer.write(
                stage="peer" if name == "pytorch" else "04_monoid_tiled_cpu", variant=name,
                **shape.fields(dtype), device="cpu", threads=threads[0], median_s=t.median,
                min_s=t.least, reps=t.calls, max_err=error, allowed_err=ALLOWED[dtype],
                flops=shape.flops(), flags="; ".join(filter(None, ("sustained", what))))
        ours, theirs = (1e6 * times[name].least for name in calls)
        print(f"{dtype:4s} {threads[0]} threads, {shape.text()} {what} {ours:10.1f} us, PyTorch "
              f"{theirs:10.1f}: {theirs / ours:.2f}", flush=True)
    return writer.status("peers_cpu")


def main():
    """The exit status."""
    p = command_line(__doc__)
    p.add_argument("--csv", type=pathlib.Path, required=True, help="append the measurements to this file")
    p.add_argument("--package", action="store_true", help="the Python package, not a file's variants")
    p.add_argument("--seconds", type=float, default=0.5, help="--package: for each problem")
    p.add_argument("--threads", help="--package: with so many; n,m: with so many each")
    args = p.parse_args()
    if args.package:
        return package(args)
    # large pages, as the bench's arrays have
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    return append(args.csv, torch_or_skip("peers_cpu.py", gpus=0))


if __name__ == "__main__":
    sys.exit(main())
