"""invented.py: measurements to test the reports with.  Nothing was measured.

    stages(gpu=False)   stages 1 to 5 and, where asked for, PyTorch on a GPU
"""
import sys

import pandas as pd

from helpers import ROOT

sys.path.insert(0, str(ROOT / "common/products/reports"))
from results import NUMBERS, TEXTS  # noqa: E402

BASE = {"dtype": "f32", "reps": 20, "date": "2000-01-02T03:04:05Z", "commit": "0000000",
        "machine": "invented machine, 16 cores at 2.0 GHz", "compiler": "cc 1",
        "flags": "-O3", "causal": 0, "threads": 1}
# stage, variant, device, dtype, GFLOP/s, ceiling; time = flops / GFLOP/s
ATTENTION = [(1, "rows", "cpu", "f32", 2, 60), (1, "simd", "cpu", "f32", 21, 60),
             (2, "rows", "cpu", "f32", 1.9, 60), (2, "simd", "cpu", "f32", 20, 60),
             (3, "rows", "cpu", "f32", 1.7, 60), (3, "simd", "cpu", "f32", 23, 60),
             (4, "tiled", "cpu", "f32", 40, 960), (4, "threads", "cpu", "f32", 610, 960),
             (5, "tiled", "cpu-executed", "f32", 0.9, 960)]
GPU = [(1, "gpu", "gpu", "f32", 900, 6e4), (2, "gpu", "gpu", "f32", 880, 6e4),
       (3, "gpu", "gpu", "f32", 2300, 6e4), (5, "tiled", "gpu", "f32", 9e3, 6e4),
       (5, "register_tiled", "gpu", "f32", 2.6e4, 6e4),
       ("peer", "pytorch-efficient", "gpu", "f32", 3.5e4, 6e4),
       (5, "wgmma", "gpu", "bf16", 4.5e5, 7.6e5), (5, "heavy_first", "gpu", "bf16", 6.6e5, 7.6e5),
       ("peer", "pytorch-cudnn", "gpu", "bf16", 6.5e5, 7.6e5)]


def attention(stage, variant, device, dtype, gflops, ceiling, n, batch=1, heads=1, d=64,
              causal=0):
    flops = 4 * d * heads * batch * n * n / (1 + causal)
    gflops *= min(1, 0.5 + n / 8192) * (1 - 0.1 * causal)
    inputs, scores = 4 * heads * batch * n * d * 4, heads * n * n * 4
    moved = inputs + (4 * scores if stage in (1, 2) else 0)
    half = dtype != "f32"
    machine = "invented GPU" if device == "gpu" else BASE["machine"]
    return BASE | {
        "stage": stage, "variant": variant, "op": "attention", "device": device, "dtype": dtype,
        "batch": batch, "heads_q": heads, "heads_kv": heads, "seqlen_q": n, "seqlen_k": n,
        "head_dim": d, "head_dim_v": d, "causal": causal, "flops": flops, "gflops": gflops,
        "median_s": flops / gflops / 1e9, "min_s": 0.97 * flops / gflops / 1e9,
        "ceiling_kind": "gemm" if half else "fma", "ceiling": ceiling,
        "pct_ceiling": 100 * gflops / ceiling, "bytes_predicted": moved,
        "bytes_measured": moved * (1.02 + 0.1 * (n < 1024)), "machine": machine,
        "peak_bytes": inputs + (scores if stage in (1, 2) else 0) + (1 << 20),
        "max_err": 4e-3 if half else 4e-7, "allowed_err": 9e-3 if half else 2e-6}


def softmax(stage, variant, passes, share, n):
    seconds, moved = passes * 4 * (1 << 22) / (20e9 * share), passes * 4 * (1 << 22)
    return BASE | {
        "stage": stage, "variant": variant, "op": "softmax", "device": "cpu",
        "rows": (1 << 22) // n, "cols": n, "median_s": seconds, "min_s": seconds,
        "bytes_predicted": moved, "bytes_measured": 1.05 * moved, "ceiling_kind": "copy",
        "ceiling": 20, "pct_ceiling": 100 * share, "gbps": 20 * share, "peak_bytes": 8 << 22,
        "max_err": 3e-8 * stage, "allowed_err": 1e-6}


def table(rows):
    """With the columns of `bench` first."""
    rows = pd.DataFrame(rows)
    return rows.reindex(columns=dict.fromkeys([*TEXTS, *NUMBERS, *rows]))


def stages(gpu=False):
    rows = []
    for line in ATTENTION + GPU * gpu:
        for n in (256, 512, 1024, 2048, 4096, 8192, 16384):
            if line[3] != "f32":
                rows += [attention(*line, n, 16384 // n, 2048 // d, d, causal)
                         for d in (64, 128) for causal in (0, 1) if n > 256]
            elif line[0] != 1 or n <= 8192:
                rows.append(attention(*line, n))
                if line[2] == "gpu" and n == 4096:
                    rows += [attention(*line, n, 1, 16, d) for d in (64, 128)]
    for stage, passes, share in ((1, 4, 0.7), (2, 5, 0.72), (3, 4, 0.78), (4, 3, 0.95)):
        rows += [softmax(stage, "simd", passes, share * (1 - 10 / n), n)
                 for n in (128, 1024, 8192, 65536)]
    return table(rows)
