#!/usr/bin/env python3
"""stress.py: the Hopper rungs and split-KV under repetition, two streams, no waiting.

    python3 common/products/reports/stress.py [--variants a,b,...] [--repeats 250]

For each rung and shape: `repeats` calls on each of two streams at once, with a workspace
each, whose outputs must be the same bits; then `launches` calls in a row without waiting
between them.  A race shows as a bit that moves, a lost arrival as a hang.  Exit status 1
on a difference, 77 without PyTorch or GPU.
"""
import itertools
import math
import sys

from attention_library import Library
from ladder import FIRST_HOPPER, RUNGS
from peers_gpu import harden
from peers_run import Run
from peers_shapes import shape_of

SHAPES = [shape_of(text) for text in """2,8,8,1023,1024,64,1 2,8,2,1000,1000,128,1
    1,6,6,640,128,128,1 2,4,4,777,900,256,1 4,16,16,512,512,64,0 1,8,8,4224,4224,128,0
    1,5,1,2000,4100,256,0 1,3,3,113,203,64,1 1,9,9,4000,4100,64,0 1,16,16,1,8192,128,0
    16,32,4,1,2048,128,0 3,6,6,9,5000,64,1 2,4,1,8,30011,128,1 64,32,32,128,128,64,0
    16,16,4,1000,77,128,0 9,8,8,500,33,64,1""".split()]
CHECKED = RUNGS[FIRST_HOPPER:] + ["general", "split_kv", "split_kv_f32"]


def method(run, library, name, shape, data="normal"):
    """A call on drawn q, k, v, or None; steep data: every block is repaired."""
    torch, dtype = run.torch, "f32" if name.endswith("f32") else "bf16"
    torch.manual_seed(1)
    arrays = harden(torch, data, *run.tensors(shape, dtype))
    return library.method(torch, name, dtype, shape, *arrays)


def check(run, library, name, shape, data):
    """True if all outputs are the same bits."""
    torch = run.torch
    streams = [torch.cuda.Stream() for _ in range(2)]
    calls = []
    for stream in streams:
        with torch.cuda.stream(stream):
            calls.append(method(run, library, name, shape, data))
    if not calls[0]:
        return True
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        want = calls[0]().clone()
    moved = torch.zeros(2, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    for _ in range(run.args.repeats):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                o = calls[i]()
                moved[i] += (o.view(torch.int16) != want.view(torch.int16)).sum()
                o.fill_(math.nan)
    torch.cuda.synchronize()
    return not moved.any().item() and not want.isnan().any().item()


def main():
    """Runs the checks; returns the exit status."""
    run = Run(__doc__, 0, {"--variants": {"default": ",".join(CHECKED)},
                           "--repeats": {"type": int, "default": 250},
                           "--launches": {"type": int, "default": 4000}})
    library, failed = Library(run.args.library), 0
    for name in run.args.variants.split(","):
        for shape, data in itertools.product(SHAPES, ("normal", "steep")):
            if not check(run, library, name, shape, data):
                print(f"{name} {shape.text()} {data}: bits moved, or NaN")
                failed += 1
        calls = [call for call in (method(run, library, name, shape) for shape in SHAPES) if call]
        for call in calls[:4]:
            for _ in range(run.args.launches):
                call()
            run.torch.cuda.synchronize()
        print(f"{name}: {len(calls)} shapes, {run.args.repeats} repeats on two streams, "
              f"{run.args.launches} launches", flush=True)
    print(f"stress: {failed} failed" if failed else "stress: passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
