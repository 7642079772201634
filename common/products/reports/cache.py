#!/usr/bin/env python3
"""cache.py: what a cache of keys and values in 8 bits saves a step of decoding, on a GPU.

    python3 common/products/reports/cache.py --csv notes/results/hopper/cache.csv

Each case with a cache in bfloat16, in e4m3 and in int8, in turn; the least of each.  Caches are larger
than what the GPU keeps between two calls.  Exit status: 0; 77 without PyTorch or a GPU.
"""
import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "library", "python"))

from measurements import command_line, commit_here, now, torch_or_skip  # noqa: E402
from training import least  # noqa: E402

COLUMNS = "case,bf16 us,e4m3 us,int8 us,bf16 / e4m3,bf16 / int8,e4m3 GB/s,measured"
CASES = ((64, 32, 8, 8192, 128), (16, 32, 8, 32768, 128), (64, 64, 8, 8192, 128), (16, 32, 32, 8192, 128),
         (64, 32, 8, 8192, 64), (32, 16, 4, 8192, 256))  # batch, heads of q and of k, keys, head_dim


def calls_of(torch, five_steps, batch, heads_q, heads_kv, keys, d, paged):
    """{type: a step of decoding}, with the same numbers as far as the types hold them."""
    page = 64
    shape = (batch * keys // page, page, heads_kv, d) if paged else (batch, keys, heads_kv, d)
    q = torch.randn(batch, heads_q, d, device="cuda", dtype=torch.bfloat16)
    cache = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(32).clamp_(-127, 127) for _ in "kv"]
    table = torch.randperm(len(cache[0]), device="cuda").int().reshape(batch, -1) if paged else None
    scales = {name: torch.full((batch, heads_kv), 1 / 32, device="cuda") for name in ("k_scale", "v_scale")}

    def call(dtype, **more):
        return functools.partial(five_steps.decode, q, *(a.to(dtype) for a in cache), table, keys,
                                 layout="pages_first", **more)
    return {"bf16": call(torch.bfloat16, scale=d ** -0.5 / 32), "e4m3": call(torch.float8_e4m3fn, **scales),
            "int8": call(torch.int8, **scales)}


def main():
    """The exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--csv", default=os.devnull, help="write the measurements to this file")
    args = parser.parse_args()
    torch = torch_or_skip("cache", True)
    import five_steps
    measured = f"{torch.cuda.get_device_name()}; torch {torch.__version__}; commit {commit_here()}; {now()[:10]}"
    with open(args.csv, "w", encoding="utf-8") as file:
        print(COLUMNS, file=file)
        for case in CASES:
            for paged in (False, True) if case == CASES[0] else (False,):
                batch, heads_q, heads_kv, keys, d = case
                calls = calls_of(torch, five_steps, *case, paged)
                for each in calls.values():
                    each()
                t = least(torch, calls, 20, 9, True)
                rate = 2 * batch * heads_kv * keys * d / t["e4m3"] * 1e-3
                line = (f"{batch} x {heads_q}/{heads_kv} heads x {keys} keys; d = {d}{'; pages' * paged},"
                        f"{t['bf16']:.1f},{t['e4m3']:.1f},{t['int8']:.1f},{t['bf16'] / t['e4m3']:.2f},"
                        f"{t['bf16'] / t['int8']:.2f},{rate:.0f},{measured}")
                print(line, file=file, flush=True)
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
