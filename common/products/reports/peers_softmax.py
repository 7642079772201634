#!/usr/bin/env python3
"""peers_softmax.py: every GPU softmax of stages 1 to 3 beside PyTorch's, in turn.

    python3 common/products/reports/peers_softmax.py --csv FILE [--cols 4096] [--seed N]

Compiles the kernels into one shared library (nvcc, common/products/library/softmax_run.cu) and runs
them, PyTorch's softmax and a copy of the same array (the ceiling) in turn in one process:
cold, and the fastest of ours, PyTorch and the copy also sustained (rounds.py).  Some lengths
of a row are drawn at random, from 64 to 1M.  Appends lines in the columns of `bench` to FILE;
a result whose error is above the allowed one, or NaN, is not written.  Exit status: 0 done;
1 a wrong result; 77 no PyTorch, GPU or nvcc.
"""
import ctypes
import pathlib
import random
import re
import shutil
import subprocess
import sys

from accept import ROUNDOFF
from ladder import listed
from measurements import output_of
from peers_run import TYPES, Problem, Run

COPY, PEER = "copy", "pytorch-softmax"
ELEMENTS = 1 << 28
LENGTHS = [1 << k for k in range(8, 21)] + [77, 100, 1000, 3000, 5000, 50000, 50257, 100000,
                                            151936]
DRAWN = 12  # more lengths
ALL_AT = (1024, 65536)  # lengths at which every variant is measured


def kernels(path, arch):
    """The kernels as a shared library, compiled when it is not there."""
    if not path.exists():
        compile_library(path, arch)
    so = ctypes.CDLL(str(path.resolve()))
    about = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    for name, kind, more in (("refuses", ctypes.c_char_p, 0), ("workspace", ctypes.c_size_t, 0),
                             ("bytes", ctypes.c_double, 0), ("run", ctypes.c_int, 4)):
        function = getattr(so, f"softmax_{name}")
        function.restype, function.argtypes = kind, about + [ctypes.c_void_p] * more
    return so


def nvcc():
    """The compiler's path, or None."""
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def compile_library(path, arch):
    """nvcc for this GPU; ends the program with status 77 without nvcc."""
    if not nvcc():
        print("peers_softmax: no nvcc on the PATH; skipped")
        sys.exit(77)
    sources = sorted(str(name) for name in pathlib.Path(".").glob("0[1-3]_*/**/*.cu")
                     if not {"exercises", "on_ramp"} & set(name.parts))
    sources += [f"common/core/problem/{name}.c" for name in ("heads", "arrays", "operation")]
    rooms = sorted({f"-I{room}" for name in sources if name.endswith(".cu")
                    for room in (pathlib.Path(name).parts[0], pathlib.Path(name).parent)})
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([nvcc(), "-shared", "-Xlinker", "-z,defs", "-std=c++20", "-O3", "-Xcompiler",
                    "-fPIC,-fopenmp", "-gencode", f"arch=compute_{arch},code=sm_{arch}",
                    "-Icommon/core", "-Icommon/products", *rooms, "-I04_monoid_tiled_cpu", "-o", str(path),
                    "common/products/library/softmax_run.cu", *sources], check=True)


class Work(Problem):
    """One shape in one type.  The ceiling is a copy of the same array."""

    def __init__(self, run, so, dtype, x, y, every):
        torch, (rows, cols) = run.torch, x.shape
        super().__init__(run, f"{dtype} {rows} x {cols}", None, {
            "op": "softmax", "dtype": dtype, "rows": rows, "cols": cols, "note": "",
            "ceiling_kind": COPY, "peak_bytes": x.nbytes + y.nbytes})

        def ours(about):
            space = torch.empty(max(so.softmax_workspace(*about), 1), dtype=torch.uint8,
                                device="cuda")
            arrays = (x.data_ptr(), y.data_ptr(), space.data_ptr(),
                      torch.cuda.current_stream().cuda_stream)

            def call():
                assert space is not None and so.softmax_run(*about, *arrays) == 0
            return call

        def add(stage, name, make, moved):
            self.add(name, make, so, stage=stage, work=moved, bytes_predicted=moved)
        add("peer", COPY, lambda: lambda: y.copy_(x), 2.0 * x.nbytes)
        add("peer", PEER, lambda: lambda: torch.softmax(x, -1, out=y), 2.0 * x.nbytes)
        for stage, name in every:
            about = name.encode(), dtype.encode(), rows, cols
            if not so.softmax_refuses(*about):
                add(stage, name, lambda about=about: ours(about), so.softmax_bytes(*about))
        self.compare(x, y)

    def compare(self, x, y):
        """Keeps (error, allowed) on the first rows (up to 2^24 elements) against float64: allowed
        is twice PyTorch's error plus 1e-6, or one rounding of a 16-bit type."""
        (rows, cols), dtype = x.shape, self.fields["dtype"]
        n = max(1, min(rows, (1 << 24) // cols))
        want, errors = self.run.torch.softmax(x[:n].double(), -1), {}
        for name in self.calls.keys() - {COPY}:
            y.fill_(float("nan"))
            self.calls[name]()
            errors[name] = float((y[:n].double() - want).abs().max())
        largest = float(want.max())
        slack = 1e-6 if dtype == "f32" else ROUNDOFF[dtype] * largest
        in_turn = cols * ROUNDOFF["f32"] * largest  # one thread adds the whole row up
        self.errors = {name: (error, 2 * errors[PEER] + slack
                              + in_turn * (name == "gpu_thread_per_row"))
                       for name, error in errors.items()}

    def timed(self, names, time):
        """({name: Times}, the rate of the copy in the same rounds)."""
        times = time({name: self.calls[name] for name in names})
        return times, self.about[COPY]["work"] / times[COPY].median / 1e9

    def fastest(self, times):
        """What is measured sustained: the fastest of ours, PyTorch and the copy."""
        ours = min((name for name in times if self.about[name]["stage"] != "peer"),
                   key=lambda name: times[name].median, default=PEER)
        return list(dict.fromkeys((ours, PEER, COPY)))


def shapes(lengths, seed):
    """(rows, cols) to measure: also DRAWN lengths, every magnitude equally often."""
    draw = random.Random(seed)
    drawn = [round(64 * 2 ** (14 * draw.random())) for _ in range(DRAWN)]
    return [(ELEMENTS // n, n) for n in lengths or LENGTHS + drawn] \
        + [(16, 1 << 24), (1, 1 << 26)] * (not lengths)


def main():
    """Runs the measurements; returns the exit status."""
    run = Run(__doc__, 0.15, {"--kernels": {"type": pathlib.Path, "default": "build/softmax.so"},
                              "--seed": {"type": int, "default": 1,
                                         "help": "of the lengths that are drawn"},
                              "--cols": {"type": int, "action": "append",
                                         "help": "rows of this length only"}})
    torch = run.torch
    arch = "".join(map(str, torch.cuda.get_device_capability())).replace("90", "90a")
    so = kernels(run.args.kernels, arch)
    version = re.search(r"V[\d.]+", output_of(nvcc() or "nvcc", "--version"))
    so.compiler = f"nvcc {version[0][1:] if version else ''} {arch}; torch {torch.__version__}"
    every = [(stage, name) for stage in "123" for name in listed(stage)
             if hasattr(so, f"{name}_cuda")]
    for dtype, of in TYPES.items():
        x = (3 * torch.randn(ELEMENTS, device="cuda")).to(getattr(torch, of))
        y = torch.empty_like(x)
        for rows, cols in shapes(run.args.cols, run.args.seed):
            of_stages = every if cols in ALL_AT else [key for key in every if key[0] == "3"]
            work = Work(run, so, dtype, *(a[:rows * cols].view(rows, cols) for a in (x, y)),
                        of_stages)
            run.measure(work, ("cold", "sustained"), work.fastest)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
