#!/usr/bin/env python3
"""peers.py: PyTorch's attention and softmax, and our rungs, in turn, in one process.

    python3 common/reports/peers_gpu.py --variants all --csv build/results/peers.csv [--quick]

Each shape is measured with every method in turn: one call of each, then the next round in
another order, so that heat and clocks are shared: what follows a method that draws much
power is slower by some percent.  Before each call, outside of the timed region, the L2
cache is flushed by reading a large array: writing one would leave 60 MB of dirty lines,
which the measured call would pay for.  Times are medians by GPU events, inputs normal
random numbers.  Lines have the columns of `bench`; PyTorch's have the stage "peer", the
last rung without its softmax (build/roof05.so, where it was built) the stage "roof".

peak_bytes is what bench means by it: inputs, outputs and all that one call took beside
them.  Here it comes from PyTorch's allocator, which gives every method its arrays, in
units of 512 bytes.  What a library keeps from its first call on is not counted.

Exit status 77 without PyTorch or GPU.
"""
import argparse
import ctypes
import datetime
import math
import os
import random
import statistics
import subprocess
import sys
import warnings

COLUMNS = ("stage variant op device dtype rows cols batch heads_q heads_kv seqlen_q "
           "seqlen_k head_dim head_dim_v causal threads median_s min_s reps "
           "bytes_predicted bytes_measured flops gbps gflops ceiling_kind ceiling "
           "pct_ceiling peak_bytes max_err allowed_err date commit machine compiler "
           "flags").split()
BACKENDS = {"pytorch-cudnn": "CUDNN_ATTENTION", "pytorch-flash": "FLASH_ATTENTION",
            "pytorch-efficient": "EFFICIENT_ATTENTION", "pytorch-math": "MATH"}
RUNGS = ("tiled register_tiled tensor_cores pipelined wgmma specialised ping_pong "
         "overlapped lean persistent fitted optimistic split_kv split_kv_f32").split()
IN_FLOAT = ("tiled", "register_tiled", "split_kv_f32")  # measured in float32 only
ROOF = "no_softmax"
LENGTHS = [128 << n for n in range(8)]


def tokens(seqlen, head_dim, causal):
    """16k tokens, 2048 columns over all heads."""
    heads = 2048 // head_dim
    return (16384 // seqlen, heads, heads, seqlen, seqlen, head_dim, causal)


# batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, causal
SHAPES = [tokens(n, d, c) for d in (64, 128, 256) for c in (0, 1) for n in LENGTHS]
DECODE = ([(16, 16, 16, 1, 8192, 128, 0), (16, 16, 16, 1, 65536, 128, 0),
           (16, 32, 4, 1, 8192, 128, 0)]
          + [(1, 16, 16, 1, n, 128, 0) for n in LENGTHS + [32768, 65536]])
FLOAT = ([tokens(n, d, c) for d in (64, 128) for c in (0, 1) for n in LENGTHS]
         + DECODE[:1] + [(1, 16, 16, 1, 8192, 128, 0), (16, 32, 4, 1, 8192, 128, 0)])
QUICK = [tokens(4096, d, c) for d in (64, 128) for c in (0, 1)] + DECODE[:1]
SOFTMAX_COLS = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1 << 20]


class Library:
    """The rungs of build/lib05.so, or the roof of build/roof05.so."""

    def __init__(self, path):
        self.so = ctypes.CDLL(os.path.abspath(path))
        text, number, pointer = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
        shape = ctypes.POINTER(ctypes.c_size_t)
        self.so.attention_refuses.argtypes = [text, text, shape, number, number,
                                              ctypes.c_float]
        self.so.attention_refuses.restype = text
        self.so.attention_workspace.argtypes = self.so.attention_refuses.argtypes
        self.so.attention_workspace.restype = ctypes.c_size_t
        self.so.attention_bytes.argtypes = self.so.attention_refuses.argtypes
        self.so.attention_bytes.restype = ctypes.c_double
        self.so.attention_compiler.restype = text
        self.so.attention_run.argtypes = ([text, text, shape, number, ctypes.c_float]
                                          + [pointer] * 8)
        self.compiler = self.so.attention_compiler().decode()

    @staticmethod
    def about(name, dtype, shape):
        """The arguments that say which rung on which problem, and the scale."""
        *sizes, d, causal = shape
        return (name.encode(), dtype.encode(), (ctypes.c_size_t * 7)(*sizes, d, d),
                causal), 1 / math.sqrt(d)

    def predicted(self, name, dtype, shape):
        """Bytes that the rung moves according to its own model."""
        about, scale = self.about(name, dtype, shape)
        return self.so.attention_bytes(*about, 0, scale)

    def method(self, torch, name, dtype, shape, q, k, v):
        """A function that computes attention with a rung, or None if it refuses."""
        b, hq, _, nq, _, d, _ = shape
        about, scale = self.about(name, dtype, shape)
        if self.so.attention_refuses(*about, 0, scale):
            return None
        o = torch.full((b, hq, nq, d), math.nan, dtype=q.dtype, device="cuda")
        lse = torch.empty((b, hq, nq), dtype=torch.float32, device="cuda")
        size = self.so.attention_workspace(*about, 0, scale)
        work = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        arrays = (q.data_ptr(), k.data_ptr(), v.data_ptr(), None, o.data_ptr(),
                  lse.data_ptr(), work.data_ptr(), stream)
        keep = (q, k, v, lse, work)

        def run():
            assert keep and self.so.attention_run(*about, scale, *arrays) == 0
            return o
        return run


def torch_method(torch, name, shape, q, k, v):
    """A function that computes attention with one of PyTorch's backends, or None."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, hq, hk, nq, nk, d, causal = shape
    backend = getattr(SDPBackend, BACKENDS[name])
    memory = torch.cuda.get_device_properties(0).total_memory
    if name == "pytorch-math" and b * hq * nq * nk * q.element_size() > memory // 8:
        return None  # it stores the scores several times
    if causal and nq != nk:
        return None  # PyTorch aligns the mask at the top left
    groups = {"enable_gqa": True} if hq != hk else {}

    def run():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=bool(causal), **groups)
    try:
        run()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return run


def with_memory(torch, make):
    """What make() gives, and the bytes that making and calling it once took; make() gives
    None for a shape that is refused."""
    f = make()
    if not f:
        return None, 0
    f()  # libraries take their workspaces for good
    del f
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    f = make()
    f()
    torch.cuda.synchronize()
    return f, torch.cuda.max_memory_allocated() - before


def rounds(torch, methods, seconds, flush):
    """Times of each method, one call of each in turn, in an order drawn for each round.  A
    method sits out once its calls have taken `seconds`, but not before 5 of them."""
    order = random.Random(1)
    def once(f):
        torch.sum(flush)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        f()
        end.record()
        return begin, end
    for f in methods.values():
        f()
    first = {n: once(f) for n, f in methods.items()}
    torch.cuda.synchronize()
    n = {m: max(5, min(40, int(seconds / (b.elapsed_time(e) * 1e-3 + 3e-4))))
         for m, (b, e) in first.items()}
    events = [{m: once(methods[m]) for m in order.sample(list(methods), len(methods))
               if i < n[m]}
              for i in range(max(n.values(), default=0))]
    torch.cuda.synchronize()
    return {m: sorted(r[m][0].elapsed_time(r[m][1]) * 1e-3 for r in events if m in r)
            for m in methods}


def error_of(torch, shape, q, k, v, o):
    """Largest error of the first and the last head against float64 on the same inputs."""
    b, hq, hk, nq, nk, _, causal = shape
    worst = 0.0
    for batch, head in ((0, 0), (b - 1, hq - 1)):
        kv = head // (hq // hk)
        rows = slice(max(0, nq - 256), nq)  # the last queries see most keys
        s = q[batch, head, rows].double() @ k[batch, kv].double().T
        s /= math.sqrt(q.shape[-1])
        if causal:
            i = torch.arange(nq, device="cuda")[rows, None] + nk - nq
            s.masked_fill_(torch.arange(nk, device="cuda")[None] > i, -math.inf)
        want = torch.softmax(s, -1) @ v[batch, kv].double()
        worst = max(worst, (o[batch, head, rows].double() - want).abs().max().item())
    return worst


def pairs_of(shape):
    """Query-key pairs that are credited: all, or exactly half when causal and square."""
    b, hq, _, nq, nk, _, causal = shape
    if not causal:
        return b * hq * nq * nk
    if nq == nk:
        return b * hq * nq * nk / 2
    return b * hq * sum(max(0, min(nk, i + 1 + nk - nq)) for i in range(nq))


def ceiling_of(torch, kind, dtype, flush, known={}):
    """Largest matrix product (GFLOP/s), read or copy bandwidth (GB/s) measured now."""
    key = (kind, dtype)
    if key in known:
        return known[key]
    if kind == "gemm":
        a, b = (torch.randn(8192, 8192, device="cuda").to(dtype) for _ in range(2))
        work, f = 2 * 8192**3, lambda: a @ b
    else:
        x = torch.empty(1 << 29, dtype=torch.float32, device="cuda").normal_()
        y = torch.empty_like(x) if kind == "copy" else None
        work, f = (8 << 29, lambda: y.copy_(x)) if kind == "copy" else (4 << 29, x.sum)
    times = rounds(torch, {kind: f}, 0.1, flush)[kind]
    known[key] = work / statistics.median(times) / 1e9
    return known[key]


class Writer:
    """Appends measurements to a CSV file and prints them."""

    def __init__(self, path, torch):
        self.file = None
        if path:
            new = not os.path.exists(path) or os.path.getsize(path) == 0
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            self.file = open(path, "a", encoding="utf-8")
            if new:
                print(",".join(COLUMNS), file=self.file)
        commit = os.environ.get("COMMIT") or subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True,
            check=False).stdout.strip()
        self.common = {"device": "gpu", "threads": 0, "commit": commit or "unknown",
                       "machine": torch.cuda.get_device_name().replace(",", " "),
                       "compiler": f"torch {torch.__version__}"}

    def write(self, **fields):
        """One line."""
        now = datetime.datetime.now(datetime.timezone.utc)
        row = {**self.common, **fields, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        if self.file:
            text = [row.get(c, "") for c in COLUMNS]
            print(",".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in text),
                  file=self.file, flush=True)


def measure_attention(torch, shape, dtype, names, libraries, writer, flush, seconds):
    """Measures one shape with every method that supports it; returns {name: seconds}.
    libraries: {name of a rung: its library}."""
    b, hq, hk, nq, nk, d, causal = shape
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(b, h, n, d, device="cuda", dtype=kind)
               for h, n in ((hq, nq), (hk, nk), (hk, nk)))
    methods, peak = {}, {}
    for name in names:
        if name in IN_FLOAT and dtype != "f32":
            continue
        if name in BACKENDS:
            f, more = with_memory(torch, lambda name=name: torch_method(
                torch, name, shape, q, k, v))
        else:
            f, more = with_memory(torch, lambda name=name: libraries[name].method(
                torch, rung_of(name), dtype, shape, q, k, v))
        if f:
            methods[name], peak[name] = f, more + q.nbytes + k.nbytes + v.nbytes
    errors = {n: error_of(torch, shape, q, k, v, f()) for n, f in methods.items()
              if n != ROOF}
    times = rounds(torch, methods, seconds, flush)
    flops = 4.0 * d * pairs_of(shape)
    size = 4.0 if dtype == "f32" else 2.0
    once = size * d * b * (2 * hq * nq + 2 * hk * nk)
    decode = nq * (hq // hk) <= 16
    ceiling_kind = "read" if decode else "gemm"
    ceiling = ceiling_of(torch, ceiling_kind, torch.float32 if decode else kind, flush)
    for name, t in times.items():
        median, moved, more = statistics.median(t), once, {}
        if name in libraries:
            moved = libraries[name].predicted(rung_of(name), dtype, shape)
            more["compiler"] = libraries[name].compiler
        reached = (once if decode else flops) / median / 1e9
        writer.write(stage="peer" if name in BACKENDS else
                     "roof" if name == ROOF else "05_flash_cuda", variant=name,
                     op="attention", dtype=dtype, rows=0, cols=0, batch=b, heads_q=hq,
                     heads_kv=hk, seqlen_q=nq, seqlen_k=nk, head_dim=d, head_dim_v=d,
                     causal=causal,
                     median_s=median, min_s=t[0], reps=len(t), bytes_predicted=moved,
                     flops=flops, gbps=moved / median / 1e9, gflops=flops / median / 1e9,
                     ceiling_kind=ceiling_kind, ceiling=ceiling,
                     pct_ceiling=100 * reached / ceiling, peak_bytes=peak[name],
                     max_err=errors.get(name, ""), **more)
    return {n: statistics.median(t) for n, t in times.items()}


def rung_of(name):
    """The rung behind a name: the roof is the last one, built without softmax."""
    return "optimistic" if name == ROOF else name


def print_shape(shape, dtype, times):
    """A line for the terminal: the shape, then each method's speed."""
    b, hq, hk, nq, nk, d, causal = shape
    decode = nq * (hq // hk) <= 16
    size = 4 if dtype == "f32" else 2
    work = size * d * b * (2 * hq * nq + 2 * hk * nk) / 1e9 if decode \
        else 4 * d * pairs_of(shape) / 1e12
    text = "  ".join(f"{n.replace('pytorch-', '')} {work / t:.0f}"
                     for n, t in times.items())
    print(f"{dtype} b{b} h{hq}/{hk} {nq}x{nk} d{d}{' causal' if causal else ''} "
          f"{'GB/s' if decode else 'TFLOP/s'}:  {text}", flush=True)


def measure_softmax(torch, cols, writer, flush, seconds):
    """PyTorch's softmax of 2^28 floats in rows of cols."""
    x = torch.randn((1 << 28) // cols, cols, device="cuda")
    y = torch.empty_like(x)
    times = rounds(torch, {"s": lambda: torch.softmax(x, -1, out=y)}, seconds, flush)["s"]
    median, moved = statistics.median(times), 8.0 * x.numel()
    ceiling = ceiling_of(torch, "copy", torch.float32, flush)
    writer.write(stage="peer", variant="pytorch-softmax", op="softmax", dtype="f32",
                 rows=x.shape[0], cols=cols, batch=0, heads_q=0, heads_kv=0, seqlen_q=0,
                 seqlen_k=0, head_dim=0, head_dim_v=0, causal=0, median_s=median,
                 min_s=times[0], reps=len(times), bytes_predicted=moved, flops=0.0,
                 gbps=moved / median / 1e9, gflops=0.0, ceiling_kind="copy",
                 ceiling=ceiling, pct_ceiling=100 * moved / median / 1e9 / ceiling)
    print(f"softmax [{x.shape[0]}, {cols}] f32: {moved / median / 1e9:.0f} GB/s",
          flush=True)


def shape_of(text):
    """batch,heads_q,heads_kv,seqlen_q,seqlen_k,head_dim,causal"""
    shape = tuple(int(x) for x in text.split(","))
    if len(shape) != 7:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not seven numbers: {shape_of.__doc__}")
    return shape


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--csv", help="append the measurements to this file")
    p.add_argument("--library", default="build/lib05.so", help="our rungs (if it exists)")
    p.add_argument("--roof", default="build/roof05.so",
                   help="the last rung without softmax (if it exists); with --variants all")
    p.add_argument("--variants", default="", help="rungs to measure too: a,b,c or all")
    p.add_argument("--backends", default=",".join(BACKENDS))
    p.add_argument("--shape", type=shape_of, action="append", help=shape_of.__doc__)
    p.add_argument("--dtype", default="bf16", choices=["f32", "f16", "bf16"])
    p.add_argument("--seconds", type=float, default=0.1, help="for each method and shape")
    p.add_argument("--quick", action="store_true", help="a few shapes, without softmax")
    p.add_argument("--parts", default="lengths,decode,float,softmax",
                   help="which of these to measure")
    return p.parse_args()


def main():
    """Runs the measurements; returns the exit status."""
    args = parse()
    try:
        import torch
    except ImportError:
        print("peers: PyTorch is not installed; skipped")
        return 77
    if not torch.cuda.is_available():
        print("peers: PyTorch sees no GPU; skipped")
        return 77
    warnings.filterwarnings("ignore")  # PyTorch says at length why a backend refuses
    torch.manual_seed(1)
    # reading it takes longer than to launch anything, so no call waits for the CPU
    memory = torch.cuda.get_device_properties(0).total_memory
    flush = torch.zeros(min(256 << 20, memory // 64), dtype=torch.float32, device="cuda")
    writer = Writer(args.csv, torch)
    names, libraries = [n for n in args.backends.split(",") if n], {}
    if os.path.exists(args.library):
        rungs = RUNGS if args.variants == "all" else args.variants.split(",")
        libraries = dict.fromkeys([n for n in rungs if n], Library(args.library))
    if args.variants == "all" and os.path.exists(args.roof):
        libraries[ROOF] = Library(args.roof)
    elif args.variants == "all":
        print(f"peers: no {args.roof}, so no roof (make cuda CUDA_ARCH=90a builds it)")
    names += libraries
    planned = [(s, args.dtype) for s in args.shape or (QUICK if args.quick else [])]
    parts = [] if planned else args.parts.split(",")
    planned += [(s, args.dtype) for s in SHAPES if "lengths" in parts]
    planned += [(s, args.dtype) for s in DECODE if "decode" in parts]
    planned += [(s, "f32") for s in FLOAT if "float" in parts]
    for shape, dtype in planned:
        times = measure_attention(torch, shape, dtype, names, libraries, writer, flush,
                                  args.seconds)
        print_shape(shape, dtype, times)
    for cols in SOFTMAX_COLS if "softmax" in parts else []:
        measure_softmax(torch, cols, writer, flush, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
