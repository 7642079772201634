"""invented.py: measurements to test the reports with.  Nothing was measured.

    stages(gpu=False)   stages 1 to 5 and, where asked for, PyTorch on a GPU
    ladder()            stage 5's rungs and their profile; every 16-bit line twice: cold, and
                        sustained at twice the speed
    hard(rows)          the same on difficult data
    blocks()            stage 1's two kernels on a GPU and their profile; a copy takes 1 ms
"""
import sys

import pandas as pd

from helpers import ROOT

sys.path.insert(0, str(ROOT / "common/reports"))
from ladder import LAST, LAST_PORTABLE, RUNGS  # noqa: E402
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


def ladder_rate(name):
    """GFLOP/s: from 100 000 on rung 1 in equal ratios, and 743 000 on the last."""
    if name not in RUNGS:
        return 9e5 if name == "no_softmax" else 3e5
    return 7.43e5 if name == LAST else 1e5 * 1.143 ** RUNGS.index(name)


def ladder():
    """(measurements, profile)."""
    rows, counted = [], []
    for name in [*RUNGS, "no_softmax", "pytorch-cudnn", "pytorch-math"]:
        stage = 5 if name in RUNGS else "roof" if name == "no_softmax" else "peer"
        dtype = "f32" if "tiled" in name else "bf16"
        for n in (128, 256, 512, 1024, 4096):
            for d in (64, 128):
                row = attention(stage, name, "gpu", dtype, 1, 7.6e5, n, 4096 // n, 2048 // d, d)
                rate = ladder_rate(name)
                rows.append(row | {"gflops": rate, "median_s": row["flops"] / rate / 1e9,
                                   "peak_bytes": 1 << (30 if name == "pytorch-math" else 28)})
        if stage == 5:
            counted.append(rows[-1] | {
                "reps": "", "min_s": "", "tensor_pct": 6 * len(counted) + 1, "exp_pct": 50,
                "fma_pct": "", "issue_pct": 30, "shared_pct": 40, "conflict_pct": 0.5,
                "warps_pct": 12, "clock_ghz": 1.7, "registers": 168, "local_bytes": 0})
    for name in (LAST_PORTABLE, LAST, "split_kv"):
        rows += [attention(5, name, "gpu", "bf16", 1, 7.6e5, n, 1, 16, 128) | {
            "seqlen_q": 1, "median_s": 1e-5 if name == "split_kv" else n * 1e-8}
            for n in (256, 4096, 8192)]
    rows += [row | {"gflops": 2 * row["gflops"], "median_s": row["median_s"] / 2,
                    "flags": "sustained; bhld; lse"} for row in rows if row["dtype"] == "bf16"]
    return table(rows), table(counted)


def hard(rows):
    """The lines of 4k keys as if on difficult data."""
    return rows[(rows.seqlen_q == 4096) & (rows.dtype == "bf16") & (rows["flags"] == "-O3")].assign(
        flags="cold; bhld; lse; steep")


def blocks():
    """(measurements, profile): two kernels at two shapes, cold and sustained; three counted."""
    rows, counted = [], []
    for name, n, cols, ms, sectors, active in (
            ("gpu_thread_per_row", 4096, 65536, 60, 31.5, 12.1),
            ("gpu_thread_per_row", 262144, 1024, 30, 32, 99),
            ("gpu_block_per_row", 4096, 65536, 2, 4, 98), ("gpu_block_per_row", 262144, 1024, 1.5, 4, 97),
            ("gpu_block_per_row", 16, 1 << 24, 40, 4, 12)):
        row = softmax(1, name, 3, 0.5, 1024) | {
            "device": "gpu", "machine": "invented GPU", "rows": n, "cols": cols, "median_s": ms / 1e3,
            "bytes_measured": "", "ceiling": 8 * (1 << 28) / 1e-3 / 1e9, "flags": "cold"}
        counted.append(row | {
            "reps": "", "bytes_measured": 3.5 * 4 * (1 << 28), "l1_hit_pct": 87.5,
            "median_s": 2 * row["median_s"], "sectors_per_load": sectors, "l1_pct": "",
            "active_pct": active})
        if n > 16:
            rows += [row, row | {"median_s": row["median_s"] / 2, "flags": "sustained"}]
    return table(rows), table(counted).astype(object)
