"""peers_softmax.py: every GPU softmax of stages 1 to 3 beside PyTorch's, interleaved.

    python3 common/reports/peers_softmax.py --csv FILE [--commit ID] [--quick]

Compiles the kernels into one shared library (nvcc), calls the variants through their
descriptors, as the stage programs do, and PyTorch's softmax between them, in one process on
one GPU, each repeat of each after a flush of the L2 cache; medians of the repeats.  The
ceiling is a device copy (cudaMemcpy through PyTorch) of the same array in the same round.
Appends lines in the columns of `bench` to FILE.  Exit status: 0 done; 1 a wrong result;
77 no PyTorch, GPU or nvcc.
"""
import argparse
import ctypes
import datetime
import pathlib
import shutil
import subprocess
import sys

try:
    import torch
except ImportError:
    print("peers_softmax.py: no PyTorch here; skipped", file=sys.stderr)
    sys.exit(77)

HEADER = ("stage,variant,op,device,dtype,rows,cols,batch,heads_q,heads_kv,seqlen_q,seqlen_k,"
          "head_dim,head_dim_v,causal,threads,median_s,min_s,reps,bytes_predicted,"
          "bytes_measured,flops,gbps,gflops,ceiling_kind,ceiling,pct_ceiling,peak_bytes,"
          "max_err,allowed_err,date,commit,machine,compiler,flags").split(",")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
SOURCES = ["01_naive/gpu/rows.cu", "02_safe_softmax/gpu/rows.cu", "03_online_softmax/gpu/rows.cu",
           "03_online_softmax/gpu/one_pass.cu"]
ZERO = ("batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v causal threads flops "
        "gflops").split()
VARIANTS = {"1": ["gpu_thread_per_row", "gpu_block_per_row"],
            "2": ["gpu_four_kernels", "gpu_cub", "gpu_cub_fused_exp", "gpu_three_pass"],
            "3": ["gpu_online", "gpu_cub_monoid", "gpu_registers", "gpu_shared",
                  "gpu_cluster", "gpu_grid", "gpu_two_pass", "gpu_one_pass"]}
ELEMENTS = 1 << 28
LENGTHS = [1 << k for k in range(8, 21)] + [1000, 3000, 50000, 100000]
ALL_AT = (1024, 65536)  # lengths at which every variant is measured


class Problem(ctypes.Structure):
    """struct problem of stage.h."""
    _fields_ = ([("op", ctypes.c_int), ("dtype", ctypes.c_int)]
                + [(name, ctypes.c_size_t) for name in
                   "rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim "
                   "head_dim_v".split()]
                + [("causal", ctypes.c_int), ("has_bias", ctypes.c_int),
                   ("scale", ctypes.c_float), ("n_updates", ctypes.c_size_t)])


class Arrays(ctypes.Structure):
    """struct arrays of stage.h."""
    _fields_ = [(name, ctypes.c_void_p) for name in
                "x w y q k v bias o lse index k_new v_new merges workspace stream".split()]


class Cost(ctypes.Structure):
    """struct cost of stage.h."""
    _fields_ = [(name, ctypes.c_double) for name in "passes bytes exps rfo_bytes".split()]


ASK = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Problem))
COMPUTE = ctypes.CFUNCTYPE(None, ctypes.POINTER(Problem), ctypes.POINTER(Arrays))


class OpFunction(ctypes.Structure):
    """struct op_function of stage.h."""
    _fields_ = [("op", ctypes.c_int), ("function", COMPUTE)]


class Variant(ctypes.Structure):
    """struct variant of stage.h."""
    _fields_ = [("name", ctypes.c_char_p), ("idea", ctypes.c_char_p),
                ("group", ctypes.c_int), ("device", ctypes.c_int), ("least_arch", ctypes.c_int),
                ("only_arch", ctypes.c_int), ("all_cores", ctypes.c_int),
                ("types", ctypes.c_uint), ("supports", ctypes.c_uint), ("max_score", ctypes.c_float),
                ("masked_rows", ctypes.c_int), ("isolates_v", ctypes.c_int),
                ("refuses", ASK), ("picks", ASK),
                ("workspace", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(Problem))),
                ("cost", ctypes.CFUNCTYPE(Cost, ctypes.POINTER(Problem))),
                ("does", OpFunction)]  # the first of an array


def library(path):
    """The kernels as a shared library, compiled when it is not there."""
    if not path.exists():
        if not shutil.which("nvcc"):
            print("peers_softmax.py: no nvcc on the PATH; skipped", file=sys.stderr)
            sys.exit(77)
        arch = "".join(map(str, torch.cuda.get_device_capability()))
        arch += "a" if arch == "90" else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["nvcc", "-shared", "-std=c++20", "-O3", "-Xcompiler", "-fPIC",
                        "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-Icommon",
                        "-I03_online_softmax", "-I04_monoid_tiled_cpu", "-o", str(path)]
                       + SOURCES, check=True)
    return ctypes.CDLL(str(path.resolve()))


def variants(lib):
    """(stage, name, descriptor) of every variant."""
    return [(stage, name, Variant.in_dll(lib, name + "_cuda"))
            for stage, names in VARIANTS.items() for name in names]


class Work:
    """One shape in one type: its arrays, and what can compute it."""

    def __init__(self, dtype, rows, cols, x, y, every):
        self.dtype, self.rows, self.cols = dtype, rows, cols
        self.x, self.y = x[:rows * cols].view(rows, cols), y[:rows * cols].view(rows, cols)
        self.problem = Problem(op=0, dtype=list(DTYPES).index(dtype), rows=rows, cols=cols)
        self.size = x.element_size()
        self.calls = []  # (stage, name, predicted bytes, function)
        self.keep = []
        for stage, name, v in every:
            self.add(stage, name, v)
        copy_bytes = 2.0 * rows * cols * self.size
        self.calls.append(("copy", "copy", copy_bytes, lambda: self.y.copy_(self.x)))
        self.calls.append(("peer", "pytorch-softmax", copy_bytes,
                           lambda: torch.softmax(self.x, -1, out=self.y)))

    def add(self, stage, name, v):
        """Adds variant v if it supports the shape."""
        p = ctypes.byref(self.problem)
        if not v.types >> self.problem.dtype & 1 or v.refuses and v.refuses(p):
            return
        need = v.workspace(p) if v.workspace else 0
        space = torch.empty(max(need, 1), dtype=torch.uint8, device="cuda")
        a = Arrays(x=self.x.data_ptr(), y=self.y.data_ptr(), workspace=space.data_ptr(),
                   stream=torch.cuda.current_stream().cuda_stream)
        self.keep.append((space, a))
        self.calls.append((stage, name, v.cost(p).bytes,
                           lambda: v.does.function(ctypes.byref(self.problem), ctypes.byref(a))))

    def reference(self):
        """float64 softmax of the first rows (up to 2^24 elements)."""
        n = max(1, min(self.rows, (1 << 24) // self.cols))
        return n, torch.softmax(self.x[:n].double(), -1)


def measure(work, reps, flush):
    """Sorted seconds of every call of the work, taken in turn."""
    events = [[] for _ in work.calls]
    for r in range(reps + 2):
        for n, (_, _, _, call) in enumerate(work.calls):
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            flush.zero_()
            begin.record()
            call()
            end.record()
            if r >= 2:  # two rounds to warm up
                events[n].append((begin, end))
    torch.cuda.synchronize()
    return [sorted(b.elapsed_time(e) * 1e-3 for b, e in pairs) for pairs in events]


def errors(work):
    """Largest error of every call, and what is allowed each: twice PyTorch's, plus 1e-6 or
    one rounding of the type."""
    n, want = work.reference()
    out = []
    for _, _, _, call in work.calls:
        work.y.fill_(float("nan"))
        call()
        out.append(float((work.y[:n].double() - want).abs().nan_to_num(nan=9.0).max()))
    largest = float(want.max())
    slack = 1e-6 if work.dtype == "f32" else UNIT[work.dtype] * largest
    in_turn = work.cols * UNIT["f32"] * largest  # one thread adds the whole row up
    return out, [2 * out[-1] + slack + in_turn * (name == "gpu_thread_per_row")
                 for _, name, _, _ in work.calls]


def lines(work, reps, flush, base):
    """The CSV lines of one shape, and one line for the terminal."""
    seconds, (err, allowed) = measure(work, reps, flush), errors(work)
    copy = [call[0] for call in work.calls].index("copy")
    ceiling = work.calls[copy][2] / seconds[copy][len(seconds[copy]) // 2]
    for (stage, name, predicted, _), times, e, most in zip(work.calls, seconds, err,
                                                           allowed):
        median = times[len(times) // 2]
        yield dict(base, stage=stage if stage != "copy" else "peer",
                   variant=name if stage != "copy" else "copy", op="softmax", device="gpu",
                   dtype=work.dtype, rows=work.rows, cols=work.cols, median_s=f"{median:.9g}",
                   min_s=f"{times[0]:.9g}", reps=len(times), bytes_predicted=int(predicted),
                   gbps=f"{predicted / median * 1e-9:.6g}", ceiling_kind="copy",
                   ceiling=f"{ceiling * 1e-9:.6g}",
                   pct_ceiling=f"{100 * predicted / median / ceiling:.4g}",
                   max_err="" if stage == "copy" else f"{e:.3g}",
                   allowed_err="" if stage == "copy" else f"{most:.3g}")


def shapes(quick):
    """(dtype, rows, cols) to measure."""
    for dtype in DTYPES:
        for cols in (4096,) if quick else LENGTHS:
            yield dtype, ELEMENTS // cols, cols
        if not quick:
            yield dtype, 1, 1 << 26


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, default="build/softmax.so")
    parser.add_argument("--commit", default="")
    parser.add_argument("--reps", type=int, default=21)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("peers_softmax.py: no GPU here; skipped", file=sys.stderr)
        return 77
    every = variants(library(options.library))
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    torch.manual_seed(1)
    base = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": options.commit, "machine": torch.cuda.get_device_name(),
            "compiler": f"nvcc; torch {torch.__version__}", "flags": "-O3"}
    base.update((column, 0) for column in ZERO)
    wrong, dtype, x = 0, None, None
    new = not options.csv.exists()
    with options.csv.open("a", encoding="utf-8") as file:
        if new:
            file.write(",".join(HEADER) + "\n")
        for shape in shapes(options.quick):
            if shape[0] != dtype:
                dtype = shape[0]
                x = (3 * torch.randn(ELEMENTS, device="cuda")).to(DTYPES[dtype])
                y = torch.empty_like(x)
            few = [v for v in every if v[0] == "3" and v[1] not in ("gpu_online",
                                                                   "gpu_cub_monoid")]
            work = Work(*shape, x, y, every if shape[2] in ALL_AT else few)
            shown = []
            for line in lines(work, options.reps, flush, base):
                file.write(",".join(str(line.get(column, "")) for column in HEADER) + "\n")
                shown.append(f"{line['variant'].removeprefix('gpu_')} {line['pct_ceiling']}")
                if line["max_err"] and not float(line["max_err"]) <= float(line["allowed_err"]):
                    print(f"WRONG {line['variant']} {shape}: error {line['max_err']}, allowed "
                          f"{line['allowed_err']}")
                    wrong = 1
            file.flush()
            print(dtype, work.rows, work.cols, " | ".join(shown), flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
