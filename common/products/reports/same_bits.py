#!/usr/bin/env python3
"""same_bits.py: what deterministic gradients and invariant results cost.

    python3 common/products/reports/same_bits.py --csv notes/results/hopper/same_bits.csv
    python3 common/products/reports/same_bits.py --csv notes/results/library/same_bits.csv --device cpu

Calls back to back through the Python package, without and with the promise in turn; the least of each.
Exit status: 0; 77 without PyTorch or a GPU.
"""
import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "library", "python"))

from measurements import command_line, commit_here, cpu_name, now, torch_or_skip  # noqa: E402
from training import least  # noqa: E402

COLUMNS = "what,case,us,with the promise us,ratio,measured"
HEADS = 32, 8


def on_cpu(torch, five_steps):
    """The same as cases(), of invariant results: a gradient has a fixed order there anyway."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype)[6:]
        q, k, v = (torch.randn(1, 8, 1024, 64, dtype=dtype) for _ in "qkv")
        yield "prefill; invariant", f"{name}; 8 heads x 1024; d = 64; causal", functools.partial(
            five_steps.attention, q, k, v, causal=True)
        for keys in (256, 4096):
            q, k, v = (torch.randn(1, h, n, 128, dtype=dtype) for h, n in ((32, 1), (8, keys), (8, keys)))
            yield "decode; invariant", f"{name}; 32/8 heads x {keys} keys; d = 128", functools.partial(
                five_steps.attention, q, k, v)


def cases(torch, five_steps):
    """(what, case, call(promise))."""
    def tensor(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    for batch, length, d, causal in ((1, 16384, 128, True), (4, 4096, 128, True), (4, 4096, 64, False)):
        q, k, v = tensor(batch, HEADS[0], length, d), *(tensor(batch, HEADS[1], length, d) for _ in "kv")
        mask = "; causal" if causal else ""
        case = f"{batch} x 32/8 heads x {length}; d = {d}{mask}"
        yield "prefill; invariant", case, functools.partial(five_steps.attention, q, k, v, causal=causal)
    for batch, keys in ((64, 4096), (8, 8192), (1, 32768)):
        q, k, v = tensor(batch, HEADS[0], 128), *(tensor(batch, HEADS[1], keys, 128) for _ in "kv")
        yield "decode; invariant", f"{batch} x 32/8 heads x {keys} keys; d = 128", functools.partial(
            five_steps.decode, q, k, v, None, keys)
    for length, d, causal in ((4096, 64, True), (4096, 128, True), (4096, 128, False), (16384, 128, True)):
        leaves = [tensor(16384 // length, 16, length, d).requires_grad_() for _ in "qkv"]
        case = f"{16384 // length} x 16 heads x {length}; d = {d}{'; causal' if causal else ''}"
        d_o = tensor(*leaves[0].shape)
        yield "forward; deterministic", case, functools.partial(five_steps.attention, *(
            a.detach() for a in leaves), causal=causal)

        def backward(deterministic=False, leaves=leaves, causal=causal, d_o=d_o, kept={}):
            if deterministic not in kept:
                kept[deterministic] = five_steps.attention(*leaves, causal=causal, deterministic=deterministic)
            torch.autograd.grad(kept[deterministic], leaves, d_o, retain_graph=True)
        yield "backward; deterministic", case, functools.partial(backward, kept={})


def main():
    """The exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--csv", default=os.devnull, help="write the measurements to this file")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch = torch_or_skip("same_bits", args.device == "cuda")
    import five_steps
    machine = torch.cuda.get_device_name() if args.device == "cuda" else cpu_name()
    measured = f"{machine}; torch {torch.__version__}; commit {commit_here()}; {now()[:10]}"
    with open(args.csv, "w", encoding="utf-8") as file:
        print(COLUMNS, file=file)
        for what, case, call in (cases if args.device == "cuda" else on_cpu)(torch, five_steps):
            promise = functools.partial(call, **{what.split("; ")[1]: True})
            for each in (call, promise):
                each()
            times = least(torch, {"plain": call, "promise": promise}, 20, 9, True)
            plain, asked = times["plain"], times["promise"]
            line = f"{what},{case},{plain:.1f},{asked:.1f},{asked / plain:.2f},{measured}"
            print(line, file=file, flush=True)
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
