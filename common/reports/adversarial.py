#!/usr/bin/env python3
"""adversarial.py: the last rung on inputs that make it repair its result.

    python3 common/reports/adversarial.py --csv build/results/hopper/adversarial.csv

    normal   random numbers              growing  every key's score above the last one's
    x30      scores 30 times as large    spike    one late key far above all others
    steep    scores rise by 70 every 64 keys: every block of every row is repaired

Speed beside the last rung that looks for maxima and beside cuDNN, FlashAttention-3
and -4, in turn in one process;
and the largest error against float64, as a share of the largest |v|.  A wrong result, or NaN,
is not written; then the exit status is 1.
"""
import csv
import math
import os
import sys

from accept import accepted, compare, reference
from attention_library import Library
from ladder import LAST, RUNGS
from measurements import command_line, torch_or_skip
from peers_methods import FLASH, PEERS, torch_method
from peers_shapes import flops_of
from rounds import CudaClock, cold

METHODS = (RUNGS[RUNGS.index("first_block_max") - 1], LAST, "pytorch-cudnn", *FLASH)


def inputs(torch, data, heads, seqlen, head_dim):
    """q, k, v of one batch of 4."""
    q, k, v = (torch.randn(4, heads, seqlen, head_dim, device="cuda") for _ in range(3))
    if data == "x30":
        q *= 30
    if data == "growing":
        q = q.abs() * 3
        k = 0.1 * k + torch.linspace(0, 4, seqlen, device="cuda")[None, None, :, None]
    if data == "spike":
        k[:, :, seqlen * 3 // 4] *= 60
    if data == "steep":
        q = 1 + 0.01 * q
        rise = torch.linspace(0, 70 / 64 * seqlen / math.sqrt(head_dim), seqlen, device="cuda")
        k = 0.01 * k + rise[None, None, :, None]
    return [x.to(torch.bfloat16) for x in (q, k, v)]


def main():
    """Runs the measurements; returns the exit status."""
    p = command_line(__doc__)
    p.add_argument("--csv", default="build/results/hopper/adversarial.csv")
    p.add_argument("--library", default="build/libfive_steps.so")
    args = p.parse_args()
    torch = torch_or_skip("adversarial")
    torch.manual_seed(1)
    library = Library(args.library)
    flush = torch.zeros(64 << 20, dtype=torch.float32, device="cuda")
    clock, rows, wrong = CudaClock(torch, flush), [], 0
    for head_dim in (64, 128, 256):
        for causal in (0, 1):
            heads, seqlen = 2048 // head_dim, 4096
            shape = (4, heads, heads, seqlen, seqlen, head_dim, causal)
            for data in ("normal", "x30", "growing", "spike", "steep"):
                q, k, v = inputs(torch, data, heads, seqlen, head_dim)
                methods = {n: torch_method(torch, n, shape, q, k, v) if n in PEERS
                           else library.method(torch, n, "bf16", shape, q, k, v)
                           for n in METHODS}
                methods = {n: f for n, f in methods.items() if f}
                known = reference(torch, shape, "bf16", q, k, v)
                errors = {n: compare(shape, f(), known) for n, f in methods.items()}
                top = v.float().abs().max().item()
                times = cold(clock, methods, 0.1)
                for name, t in times.items():
                    if not accepted(*errors[name]):
                        print(f"adversarial: WRONG, not written: {data} {shape} {name}: error "
                              f"{errors[name][0]:.3g}, allowed {errors[name][1]:.3g}")
                        wrong = 1
                        continue
                    rows.append([data, head_dim, causal, seqlen, name,
                                 f"{flops_of(shape) / t.median / 1e12:.0f}",
                                 f"{errors[name][0] / top:.2e}"])
                    print(*rows[-1][:3], *rows[-1][4:], flush=True)
    os.makedirs(os.path.dirname(os.path.abspath(args.csv)), exist_ok=True)
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("data head_dim causal seqlen variant tflops error".split())
        writer.writerows(rows)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
