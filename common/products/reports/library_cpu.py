#!/usr/bin/env python3
"""library_cpu.py: the Python package's attention on this CPU beside PyTorch's, in one run.

    python3 common/products/reports/library_cpu.py --csv notes/results/library/cpu.csv

Square problems of 16 to 8192 keys, f32 and bf16, head_dim 64 and 128, causal or not, with one thread
and with all.  Both compute on the same tensors in turn; of each the least time of the rounds counts,
because a neighbour of the machine only adds to it.  A result that differs from PyTorch's is not
written.  Exit status: 0; 1 a wrong result; 77 without PyTorch.
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "library/python"))

from measurements import Writer, command_line, torch_or_skip  # noqa: E402
from peers_run import TYPES  # noqa: E402
from peers_shapes import Shape  # noqa: E402
from rounds import CpuClock, sustained  # noqa: E402

KEYS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
ALLOWED = {"f32": 2e-5, "bf16": 3e-2}


def measure(torch, writer, threads, budget):
    """All problems with so many threads."""
    import five_steps
    torch.set_num_threads(threads)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for dtype, d, n, causal in itertools.product(ALLOWED, (64, 128), KEYS, (False, True)):
        heads = 8 if n <= 1024 else 2
        shape = Shape(1, heads, heads, n, n, d, int(causal))
        q, k, v = (torch.randn(1, heads, n, d).to(getattr(torch, TYPES[dtype])) for _ in range(3))
        calls = {"five_steps": lambda: five_steps.attention(q, k, v, causal=causal),
                 "pytorch": lambda: sdpa(q, k, v, is_causal=causal)}
        results = [call().float() for call in calls.values()]
        error = (results[0] - results[1]).abs().max().item()
        times = sustained(CpuClock, calls, budget, blocks=5)
        for name, t in times.items():
            writer.write(
                stage="peer" if name == "pytorch" else "04_monoid_tiled_cpu", variant=name,
                **shape.fields(dtype), device="cpu", threads=threads, median_s=t.median,
                min_s=t.least, reps=t.calls, max_err=error, allowed_err=ALLOWED[dtype],
                flops=shape.flops(), flags="sustained")
        ours, theirs = (1e6 * times[name].least for name in calls)
        print(f"{dtype:4s} {threads} threads, {shape.text()} {ours:10.1f} us, PyTorch "
              f"{theirs:10.1f}: {theirs / ours:.2f}", flush=True)


def main():
    """The exit status."""
    p = command_line(__doc__)
    p.add_argument("--csv", help="append the measurements to this file")
    p.add_argument("--seconds", type=float, default=0.5, help="for each problem")
    p.add_argument("--threads", type=int, help="with so many only; OMP_NUM_THREADS says the same")
    args = p.parse_args()
    torch = torch_or_skip("library_cpu", gpus=0)
    if not args.threads:  # OpenMP reads its number of threads once
        return max(subprocess.run([sys.executable, *sys.argv, "--threads", str(n)],
                                  env=dict(os.environ, OMP_NUM_THREADS=str(n)), check=False).returncode
                   for n in sorted({1, os.cpu_count()}))
    known = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    writer = Writer(args.csv, f"{known[1] if known else 'a CPU'} {os.cpu_count()} cores",
                    f"torch {torch.__version__}")
    with torch.no_grad():
        measure(torch, writer, args.threads, args.seconds)
    return writer.status("library_cpu")


if __name__ == "__main__":
    sys.exit(main())
