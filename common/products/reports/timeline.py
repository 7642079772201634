#!/usr/bin/env python3
"""timeline.py: what each warpgroup of the Hopper rungs does when, from time stamps of a GPU.

    make cuda TIMELINE=1 BUILD=build/timeline CUDA_ARCH=90a
    python3 common/products/reports/timeline.py --csv notes/results/hopper/timeline.csv

The build of the first line records (gpu/timeline.h).  A line of the CSV is one warpgroup, or the
producer, of block 0 of one launch, after launches that warm up.  `bars` holds what its first warp
does from cycle `begin` on, a letter and a number of cycles each:

    x k u e   waits for a tile of Q, K or V, or for an empty stage
    t         waits for its turn at the tensor cores
    b         waits for the other warps of its warpgroup
    q v       issues Q K^T, issues P V           p   waits for products
    s         softmax: mask to rounding          o   divides and stores o
    c         issues copies

`slowdown` is the time of this build, --marked, over that of the normal one, --library.  Exit status 77 without
PyTorch or GPU.
"""
import os
import sys
import tempfile

from ladder import FIRST_HOPPER, RUNGS
from measurements import commit_here, now
from peers_methods import Library
from peers_run import Run
from peers_shapes import Shape
from rounds import sustained

SHAPES = [Shape(4, 2048 // d, 2048 // d, 1024, 1024, d, causal) for d in (64, 128)
          for causal in (0, 1)]
WINDOW = 30000  # cycles of each launch that are kept
FIELDS = "variant dtype batch heads seqlen head_dim causal role begin bars slowdown date commit " \
    "machine compiler".split()


def read_marks(lines):
    """{warp: [(clock, letter)]} in order, the first mark of the block at 0; from lines of warp,
    letter and clock."""
    marks = [(int(clock), letter, int(warp)) for warp, letter, clock in map(str.split, lines)]
    first = min((clock for clock, _, _ in marks), default=0)
    out = {}
    for clock, letter, warp in sorted(marks):
        out.setdefault(warp, []).append((clock - first, letter))
    return out


def name_waits(letters):
    """What each wait 'w' waits for follows from what comes next; a wait that is over before the
    softmax is part of the wait for products."""
    kinds = {"c": "e", "v": "u", "t": "k", "q": "k", "s": "p"}
    return [kinds.get(after, "x") if now == "w" else now
            for now, after in zip(letters, letters[1:] + [""])]


def bars_of(marks, window=WINDOW):
    """(begin, [(letter, cycles)]) of a warp's marks; neighbours that do the same become one."""
    letters = name_waits([letter for _, letter in marks])
    clocks = [clock for clock, _ in marks]
    bars = []
    for letter, begin, end in zip(letters, clocks, clocks[1:]):
        if begin >= window:
            break
        if bars and bars[-1][0] == letter:
            bars[-1] = letter, bars[-1][1] + end - begin
        else:
            bars.append((letter, end - begin))
    return (clocks[0] if clocks else 0), bars


def roles(warps):
    """{role: warp}: the first warp of each warpgroup; 0 is the producer where there are others."""
    firsts = sorted(warp for warp in warps if warp % 4 == 0)
    if firsts == [0]:
        return {"warpgroup": 0}
    return {"producer" if warp == 0 else f"consumer {warp // 4 - 1}": warp for warp in firsts}


def record(call):
    """The marks of one launch.  The launches before it warm up, and each clears the marks."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (os.devnull, os.devnull, os.path.join(folder, "marks")):
            os.environ["TIMELINE"] = path
            call()
        del os.environ["TIMELINE"]
        with open(path, encoding="ascii") as file:
            return read_marks(file)


def measure(run, marked, plain, rung, shape):
    """Lines of one rung on one shape."""
    arrays = run.tensors(shape)
    calls = [library.method(run.torch, "attention", rung, "bf16", shape, *arrays) for library in (marked, plain)]
    times = sustained(run.clock, dict(enumerate(calls)), 0.02)
    slowdown = f"{times[0].median / times[1].median:.2f}"
    warps = record(calls[0])
    print(rung, shape.text(), f"slowdown {slowdown}", flush=True)
    for role, warp in roles(warps).items():
        begin, bars = bars_of(warps[warp])
        yield (rung, "bf16", shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim, shape.causal,
               role, begin, " ".join(f"{letter}{cycles}" for letter, cycles in bars), slowdown,
               now()[:10], commit_here(), run.torch.cuda.get_device_name(),
               marked.compiler.replace(",", " "))


def main():
    """Records all rungs; returns the exit status."""
    run = Run(__doc__, {"--marked": {"default": "build/timeline/libfive_steps.so"}})
    libraries = Library(run.args.marked), Library(run.args.library)
    lines = [line for rung in RUNGS[FIRST_HOPPER:] for shape in SHAPES
             for line in measure(run, *libraries, rung, shape)]
    with open(run.args.csv or os.devnull, "w", encoding="utf-8") as file:
        for line in [FIELDS, *lines]:
            print(*line, sep=",", file=file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
