#!/usr/bin/env python3
"""peers.py: our GPU kernels and the libraries beside them, in turn, in one process.

    python3 common/products/reports/peers.py --variants all --csv build/results/peers.csv
    python3 common/products/reports/peers.py --parts backward --csv build/results/backward.csv

Each shape is measured cold and, where its part says so, sustained (rounds.py); the ceiling, a
matrix product or a read, takes part in the rounds, and its best repeat counts.  Inputs are
normal random numbers.  The libraries' lines have the stage "peer".  A result
whose error is above the allowed one, or NaN, is not written; then the exit status is 1.

    lengths    16k tokens, 128 to 16k keys, d = 64, 128, 256      decode   one query
    untuned    lengths, groups and d that nothing was tuned on    float    rungs 1 and 2
    layouts    arrays stored as [batch, length, heads, head_dim]
    hard       4k keys that make the last rung repair its result: x30, scores 30 times as large;
               growing, every key's score above the last one's; spike, one late key far above
               all others; steep, scores rise by 70 every 64 keys, so that every block is repaired
    backward   the backward pass alone; flops are 2 (3 head_dim + 2 head_dim_v) per pair
    caches     one query per sequence over caches of different lengths (peers_caches.py)
    serving    windows, packed sequences, sinks and a soft cap (peers_serving.py)
    eight_bits attention in 8 bits, caches of 8 bits, numbers to codes (peers_eight_bits.py)
    softmax    PyTorch's, at the shapes of the GPU variants that `bench` wrote into FILE; the ceiling is a copy
    multi_gpu  PyTorch's context_parallel on all GPUs (peers_multi_gpu.py)

`flags` of a line says regime, layout, whether the method writes lse, and what data; power
limit and clocks stand in STEM.machine.txt beside the CSV (measurements.py).  peak_bytes is what
bench means by it: inputs, outputs and all that one call took beside them, here from PyTorch's
allocator.  Exit status: 0; 1 a wrong result; 77 without PyTorch or GPU.
"""
import csv
import functools
import importlib
import itertools
import math
import os
import sys

from accept import compare, gradients_reference, nearest, reference
from ladder import IN_FLOAT, LAST, RUNGS, SPLIT
from peers_methods import ALL_PEERS, FLASH, PEERS, WRITES_LSE, Library, peer
from peers_run import TYPES, Problem, Run
from peers_shapes import planned, shape_of, tokens

ROOMS = ("caches", "serving", "eight_bits", "multi_gpu")  # parts with a file of their own
HARD = ("normal", "x30", "growing", "spike", "steep")
# the last rungs of the backward ladder, by head_dim
UP_TO_64, UP_TO_128, WIDER = "gradient_narrow_heads", "gradient_overlap", "gradient_wide_heads"
BACKWARD = ["gradient_in_order", UP_TO_64, UP_TO_128, WIDER]


def harden(torch, data, q, k, v):
    """The same with data that make the last rung repair its result."""
    seqlen, head_dim = k.shape[2:]
    q, k = q.float(), k.float()

    def rise(to):
        return torch.linspace(0, to, seqlen, device="cuda")[None, None, :, None]
    if data == "x30":
        q *= 30
    if data == "growing":
        q, k = q.abs() * 3, 0.1 * k + rise(4)
    if data == "spike":
        k[:, :, seqlen * 3 // 4] *= 60
    if data == "steep":
        q, k = 1 + 0.01 * q, 0.01 * k + rise(70 / 64 * seqlen / math.sqrt(head_dim))
    return q.to(v.dtype), k.to(v.dtype), v


def sustained_names(times):
    """The last rung, the two fastest and the libraries that keep up with them."""
    rungs = sorted((n for n in times if n not in PEERS), key=lambda n: (n != LAST, times[n].median))[:3]
    return rungs + [n for n in ("pytorch-cudnn", "pytorch-flash", *FLASH) if n in times]


def refuses(name, op, dtype, shape):
    """Methods that are not meant for a problem."""
    if op == "backward":
        return name == (UP_TO_128 if shape.head_dim > 128 else WIDER)
    return dtype != "f32" and (name in IN_FLOAT or name.endswith("_f32"))


def measure(run, problem, names, libraries, data=""):
    """Measures one problem with every method that supports it.  libraries: {name of a kernel of ours:
    its library}."""
    torch, (shape, dtype, regimes, layout, op) = run.torch, problem
    backward, kind = op == "backward", "read" if shape.is_decode() else "gemm"
    once, flops = shape.bytes(dtype) * (1 + backward), shape.flops(*(6, 4) if backward else ())
    q, k, v = run.tensors(shape, dtype, layout)
    if data:
        q, k, v = harden(torch, data, q, k, v)
    arrays = [q, k, v]
    if backward:
        arrays = [*(x.requires_grad_() for x in arrays), torch.randn_like(q)]
    p = run.problem(shape, dtype, layout, kind, op=op, flops=flops, work=once if kind == "read" else flops,
                    peak_bytes=once if backward else q.nbytes + k.nbytes + v.nbytes)
    for name in names:
        if refuses(name, op, dtype, shape):
            continue
        library = libraries.get(name)
        lse = "" if backward else "lse" if library or name in WRITES_LSE else "no lse"
        p.add(name, lambda library=library, name=name:
              library.method(torch, op, name, dtype, shape, *arrays) if library else
              peer(torch, name, shape, *arrays), library,
              note="; ".join(filter(None, (layout, lse, data))),
              bytes_predicted=lambda library=library, name=name: library.predicted(name, dtype, shape)
              if library and not backward else once)
    if backward:
        known = gradients_reference(torch, shape, dtype, arrays)
        p.check(lambda got: nearest([x[0, 0] for x in got], known))
    else:
        known = reference(torch, shape, dtype, q, k, v)
        p.check(lambda o: compare(shape, o, known))
    run.measure(p, [name for name in regimes if name in run.args.regimes], None if backward else sustained_names)


def softmax(run):
    """PyTorch's softmax beside a copy of the same array."""
    torch, name = run.torch, "pytorch-softmax"
    run.compilers[name] = f"torch {torch.__version__}"
    with open(run.args.csv, encoding="utf-8") as file:
        shapes = dict.fromkeys((line["dtype"], int(line["rows"]), int(line["cols"])) for line in csv.DictReader(file)
                               if (line["op"], line["device"]) == ("softmax", "gpu"))
    for dtype, rows, cols in shapes:
        x = (3 * torch.randn(rows, cols, device="cuda")).to(getattr(torch, TYPES[dtype]))
        y = torch.empty_like(x)
        p = Problem(run, f"{dtype} {rows} x {cols}", (lambda x=x, y=y: y.copy_(x), 2.0 * x.nbytes), {
            "op": "softmax", "dtype": dtype, "rows": rows, "cols": cols, "note": "", "ceiling_kind": "copy",
            "peak_bytes": 2 * x.nbytes, "bytes_predicted": 2.0 * x.nbytes, "work": 2.0 * x.nbytes})
        p.add(name, lambda x=x, y=y: lambda: torch.softmax(x, -1, out=y), stage="peer")
        run.measure(p, ("cold",))


def choose_methods(args, op):
    """(names, {name of a kernel of ours: its library})."""
    peers = [name for name in ALL_PEERS if name not in ("pytorch-efficient", "pytorch-math")] \
        if op == "backward" else PEERS
    ours = [*RUNGS, SPLIT, f"{SPLIT}_f32"] if args.variants == "all" else BACKWARD if op == "backward" and args.variants is None \
        else [name for name in (args.variants or "").split(",") if name]
    libraries = dict.fromkeys(ours, Library(args.library)) if os.path.exists(args.library) else {}
    names = peers if args.backends is None else [name for name in args.backends.split(",") if name]
    return names + list(libraries), libraries


def main():
    """Runs the measurements; returns the exit status."""
    run = Run(__doc__, {
        "--variants": {"help": "our kernels: a,b,c or all; of the backward pass its last rungs"},
        "--backends": {"help": "the libraries: a,b,c"},
        "--parts": {"default": "lengths,untuned,layouts,decode,float", "help": "which of these to measure"},
        "--shape": {"type": shape_of, "action": "append", "help": f"no part, but {shape_of.__doc__}"},
        "--op": {"default": "attention", "choices": ["attention", "backward"], "help": "of --shape"},
        "--dtype": {"default": "bf16", "choices": [*TYPES]},
        "--sums": {"type": int, "default": 0, "help": "of eight_bits: the library's tiles of a sum"},
        "--regimes": {"default": "cold,sustained"}})
    args, parts = run.args, run.args.parts.split(",")
    problems = [(shape, args.dtype, ("cold", "sustained"), "bhld", args.op) for shape in args.shape or ()] \
        or planned([part for part in parts if part not in (*ROOMS, "hard", "softmax")], args.dtype)
    methods = functools.cache(lambda op: choose_methods(args, op))
    for problem in problems:
        measure(run, problem, *methods(problem[-1]))
    for d, causal, data in itertools.product((64, 128, 256), (0, 1), HARD if "hard" in parts else ()):
        measure(run, (tokens(4096, d, causal), "bf16", ("cold",), "bhld", "attention"),
                *methods("attention"), data)
    if "softmax" in parts:
        softmax(run)
    for part in [part for part in parts if part in ROOMS]:
        importlib.import_module(f"peers_{part}").measure(run)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
