#!/usr/bin/env python3
"""peers_softmax.py: every GPU softmax of stages 1 to 3 beside PyTorch's, in turn.

    python3 common/reports/peers_softmax.py --csv FILE [--quick] [--seed N]

Compiles the kernels into one shared library (nvcc, common/library/softmax_run.cu) and runs
them, PyTorch's softmax and a copy of the same array (the ceiling) in turn in one process:
cold, and the fastest of ours, PyTorch and the copy also sustained (rounds.py).  Some lengths
of a row are drawn at random, from 64 to 1M.  Appends lines in the columns of `bench` to FILE;
a result whose error is above the allowed one, or NaN, is not written.  Exit status: 0 done;
1 a wrong result; 77 no PyTorch, GPU or nvcc.
"""
import ctypes
import pathlib
import random
import shutil
import subprocess
import sys

from accept import ROUNDOFF
from measurements import Writer, command_line, torch_or_skip
from ladder import listed
from rounds import CudaClock, cold, sustained

TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
COPY, PEER = "copy", "pytorch-softmax"
ZERO = dict.fromkeys("batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v causal "
                     "flops gflops".split(), 0)
ELEMENTS = 1 << 28
LENGTHS = [1 << k for k in range(8, 21)] + [77, 100, 1000, 3000, 5000, 50000, 50257, 100000,
                                            151936]
DRAWN = 12  # more lengths
ALL_AT = (1024, 65536)  # lengths at which every variant is measured


class Library:
    """The kernels as a shared library, compiled when it is not there."""

    def __init__(self, path, arch):
        if not path.exists():
            compile_library(path, arch)
        self.so = ctypes.CDLL(str(path.resolve()))
        about = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
        for name, kind in (("refuses", ctypes.c_char_p), ("workspace", ctypes.c_size_t),
                           ("bytes", ctypes.c_double), ("run", ctypes.c_int)):
            function = getattr(self.so, f"softmax_{name}")
            function.restype = kind
            function.argtypes = about + ([ctypes.c_void_p] * 4 if name == "run" else [])

    def variants(self):
        """(stage, name) of every variant of stages 1 to 3 that is in the library."""
        return [(stage, name) for stage in "123" for name in listed(stage)
                if hasattr(self.so, f"{name}_cuda")]


def compile_library(path, arch):
    """nvcc for this GPU; ends the program with status 77 without nvcc."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        print("peers_softmax.py: no nvcc on the PATH; skipped", file=sys.stderr)
        sys.exit(77)
    sources = sorted(str(name) for name in pathlib.Path(".").glob("0[1-3]_*/**/*.cu")
                     if not {"exercises", "on_ramp"} & set(name.parts))
    sources += [f"common/problem/{name}.c" for name in ("heads", "arrays", "operation")]
    rooms = sorted({f"-I{room}" for name in sources if name.endswith(".cu")
                    for room in (pathlib.Path(name).parts[0], pathlib.Path(name).parent)})
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([nvcc, "-shared", "-Xlinker", "-z,defs", "-std=c++20", "-O3", "-Xcompiler",
                    "-fPIC,-fopenmp", "-gencode", f"arch=compute_{arch},code=sm_{arch}",
                    "-Icommon", *rooms, "-I04_monoid_tiled_cpu", "-o", str(path),
                    "common/library/softmax_run.cu", *sources], check=True)


class Work:
    """One shape in one type: its arrays, and what can compute it."""

    def __init__(self, torch, library, dtype, rows, cols, x, y, every):
        self.torch, self.dtype, self.rows, self.cols = torch, dtype, rows, cols
        self.x, self.y = x[:rows * cols].view(rows, cols), y[:rows * cols].view(rows, cols)
        copy_bytes = 2.0 * rows * cols * x.element_size()
        self.calls = {COPY: lambda: self.y.copy_(self.x),
                      PEER: lambda: torch.softmax(self.x, -1, out=self.y)}
        self.stages = {COPY: "peer", PEER: "peer"}
        self.predicted = {COPY: copy_bytes, PEER: copy_bytes}
        for stage, name in every:
            self.add(library.so, stage, name)

    def add(self, so, stage, name):
        """Adds a variant if it supports the shape."""
        about = name.encode(), self.dtype.encode(), self.rows, self.cols
        if so.softmax_refuses(*about):
            return
        space = self.torch.empty(max(so.softmax_workspace(*about), 1),
                                 dtype=self.torch.uint8, device="cuda")
        arrays = (self.x.data_ptr(), self.y.data_ptr(), space.data_ptr(),
                  self.torch.cuda.current_stream().cuda_stream)

        def run():
            assert space is not None and so.softmax_run(*about, *arrays) == 0
        self.calls[name], self.stages[name] = run, stage
        self.predicted[name] = so.softmax_bytes(*about)

    def checked(self):
        """{name: (error, allowed)} on the first rows (up to 2^24 elements) against float64:
        allowed is twice PyTorch's error plus 1e-6, or one rounding of a 16-bit type."""
        n = max(1, min(self.rows, (1 << 24) // self.cols))
        want = self.torch.softmax(self.x[:n].double(), -1)
        errors = {}
        for name, call in self.calls.items():
            if name != COPY:
                self.y.fill_(float("nan"))
                call()
                errors[name] = float((self.y[:n].double() - want).abs().max())
        largest = float(want.max())
        slack = 1e-6 if self.dtype == "f32" else ROUNDOFF[self.dtype] * largest
        in_turn = self.cols * ROUNDOFF["f32"] * largest  # one thread adds the whole row up
        return {name: (error, 2 * errors[PEER] + slack
                       + in_turn * (name == "gpu_thread_per_row"))
                for name, error in errors.items()}


def publish(writer, work, times, checked):
    """Writes a line per method in one regime; returns {name: percent of the copy}."""
    shown, ceiling = {}, work.predicted[COPY] / times[COPY].median / 1e9
    for name, t in times.items():
        error, allowed = checked.get(name, ("", ""))
        rate = work.predicted[name] / t.median / 1e9
        if writer.write(**ZERO, stage=work.stages[name], variant=name, op="softmax",
                        dtype=work.dtype, rows=work.rows, cols=work.cols, median_s=t.median,
                        min_s=t.least, reps=t.calls, bytes_predicted=work.predicted[name],
                        gbps=rate, ceiling_kind="copy", ceiling=ceiling,
                        pct_ceiling=100 * rate / ceiling, max_err=error,
                        allowed_err=allowed,
                        flags="; ".join([t.regime] + ([] if t.stable else ["unstable"]))):
            shown[name] = 100 * rate / ceiling
    return shown


def shapes(quick, seed):
    """(dtype, rows, cols) to measure: also DRAWN lengths, every magnitude equally often."""
    draw = random.Random(seed)
    drawn = [round(64 * 2 ** (14 * draw.random())) for _ in range(DRAWN)]
    for dtype in TYPES:
        for cols in (4096,) if quick else LENGTHS + drawn:
            yield dtype, ELEMENTS // cols, cols
        if not quick:
            yield dtype, 16, 1 << 24
            yield dtype, 1, 1 << 26


def measure(writer, clock, work, seconds):
    """One shape in both regimes."""
    checked = work.checked()
    times = cold(clock, work.calls, seconds)
    print(work.dtype, work.rows, work.cols, " | ".join(
        f"{name.removeprefix('gpu_')} {share:.0f} %"
        for name, share in publish(writer, work, times, checked).items()), flush=True)
    ours = min((name for name in times if work.stages[name] in "123"),
               key=lambda name: times[name].median, default=None)
    few = {name: work.calls[name] for name in (ours, PEER, COPY) if name}
    publish(writer, work, sustained(clock, few, seconds), checked)


def main():
    """Runs the measurements; returns the exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--library", type=pathlib.Path, default="build/softmax.so")
    parser.add_argument("--seconds", type=float, default=0.15, help="for all of a shape")
    parser.add_argument("--seed", type=int, default=1, help="of the lengths that are drawn")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch = torch_or_skip("peers_softmax.py")
    arch = "".join(map(str, torch.cuda.get_device_capability()))
    library = Library(options.library, arch + ("a" if arch == "90" else ""))
    every = library.variants()
    clock = CudaClock(torch, torch.zeros(1 << 28, device="cuda"))
    torch.manual_seed(1)
    writer = Writer(options.csv, torch.cuda.get_device_name(),
                    f"nvcc; torch {torch.__version__}",
                    {"PyTorch": torch.__version__, "CUDA of PyTorch": str(torch.version.cuda)})
    dtype = x = y = None
    for shape in shapes(options.quick, options.seed):
        if shape[0] != dtype:
            dtype = shape[0]
            x = (3 * torch.randn(ELEMENTS, device="cuda")).to(getattr(torch, TYPES[dtype]))
            y = torch.empty_like(x)
        few = [v for v in every if v[0] == "3"]
        measure(writer, clock, Work(torch, library, *shape, x, y,
                                    every if shape[2] in ALL_AT else few), options.seconds)
    return writer.status("peers_softmax.py")


if __name__ == "__main__":
    sys.exit(main())
