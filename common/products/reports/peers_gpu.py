#!/usr/bin/env python3
"""peers_gpu.py: PyTorch's attention, FlashAttention-3 and -4 and our rungs, in turn, in one process.

    python3 common/products/reports/peers_gpu.py --variants all --csv build/results/peers.csv

Each shape is measured cold and, where its part says so, sustained (rounds.py); the ceiling, a
matrix product or a read, takes part in the rounds, and its best repeat counts.  Inputs are
normal random numbers.  The libraries' lines have the stage "peer", the last
rung without its softmax (build/roof05.so, where it was built) the stage "roof".  A result
whose error is above the allowed one, or NaN, is not written; then the exit status is 1.

    lengths    16k tokens, 128 to 16k keys, d = 64, 128, 256      decode   one query
    untuned    lengths, groups and d that nothing was tuned on    float    rungs 1 and 2
    layouts    arrays stored as [batch, length, heads, head_dim]
    hard       4k keys that make the last rung repair its result: x30, scores 30 times as large;
               growing, every key's score above the last one's; spike, one late key far above
               all others; steep, scores rise by 70 every 64 keys, so that every block is repaired

`flags` of a line says regime, layout, whether the method writes lse, and what data; power
limit and clocks stand in STEM.machine.txt beside the CSV (measurements.py).  peak_bytes is what
bench means by it: inputs, outputs and all that one call took beside them, here from PyTorch's
allocator.  Exit status: 0; 1 a wrong result; 77 without PyTorch or GPU.
"""
import itertools
import math
import os
import sys

from accept import compare, reference
from attention_library import Library
from ladder import IN_FLOAT, LAST, ROOF, RUNGS, SPLIT
from peers_methods import FLASH, PEERS, WRITES_LSE, torch_method
from peers_run import SHAPES, Run
from peers_shapes import planned, tokens

HARD = ("normal", "x30", "growing", "spike", "steep")


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
    rungs = sorted((n for n in times if n not in PEERS and n != ROOF),
                   key=lambda n: (n != LAST, times[n].median))[:3]
    return rungs + [n for n in ("pytorch-cudnn", "pytorch-flash", *FLASH) if n in times]


def measure(run, problem, names, libraries, data=""):
    """Measures one problem with every method that supports it.  libraries: {name of a rung: its
    library}."""
    torch, (shape, dtype, regimes, layout) = run.torch, problem
    kind = "read" if shape.is_decode() else "gemm"
    once, flops = shape.bytes(dtype), shape.flops()
    p = run.problem(shape, dtype, layout, kind, flops=flops, work=once if kind == "read" else flops)
    q, k, v = run.tensors(shape, dtype, layout)
    if data:
        q, k, v = harden(torch, data, q, k, v)
    p.fields["peak_bytes"] = q.nbytes + k.nbytes + v.nbytes
    for name in names:
        if dtype != "f32" and (name in IN_FLOAT or name.endswith("_f32")):
            continue
        library, rung = libraries.get(name), LAST if name == ROOF else name
        lse = "lse" if library or name in WRITES_LSE else "no lse"
        p.add(name, lambda library=library, name=name, rung=rung:
              library.method(torch, rung, dtype, shape, q, k, v) if library else
              torch_method(torch, name, shape, q, k, v), library,
              note="; ".join(filter(None, (layout, lse, data))),
              bytes_predicted=lambda rung=rung: library.predicted(rung, dtype, shape)
              if library else once, **({"stage": "roof"} if name == ROOF else {}))
    p.check(lambda o, known=reference(torch, shape, dtype, q, k, v): compare(shape, o, known),
            skip=(ROOF,))
    run.measure(p, [name for name in regimes if name in run.args.regimes], sustained_names)


def choose_methods(args):
    """(names, {name of a rung: its library})."""
    names, libraries = [n for n in args.backends.split(",") if n], {}
    every = args.variants == "all"
    if os.path.exists(args.library):
        rungs = [*RUNGS, SPLIT, f"{SPLIT}_f32"] if every else args.variants.split(",")
        libraries = dict.fromkeys([n for n in rungs if n], Library(args.library))
    if every and os.path.exists(args.roof):
        libraries[ROOF] = Library(args.roof)
    elif every:
        print(f"peers: no {args.roof}, so no roof (make cuda CUDA_ARCH=90a builds it)")
    return names + list(libraries), libraries


def main():
    """Runs the measurements; returns the exit status."""
    run = Run(__doc__, 0.5, {
        "--roof": {"default": "build/roof05.so",
                   "help": "the last rung without softmax (if it exists); with --variants all"},
        "--variants": {"default": "", "help": "rungs to measure too: a,b,c or all"},
        "--backends": {"default": ",".join(PEERS)},
        "--parts": {"default": "lengths,untuned,layouts,decode,float",
                    "help": "which of these to measure"}, **SHAPES})
    args = run.args
    names, libraries = choose_methods(args)
    parts = args.parts.split(",")
    for problem in [(s, args.dtype, ("cold", "sustained"), "bhld") for s in args.shape or ()] \
            or planned([part for part in parts if part != "hard"], args.dtype):
        measure(run, problem, names, libraries)
    for d, causal, data in itertools.product((64, 128, 256), (0, 1), HARD if "hard" in parts else ()):
        measure(run, (tokens(4096, d, causal), "bf16", ("cold",), "bhld"), names, libraries, data)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
