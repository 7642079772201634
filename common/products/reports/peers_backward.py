#!/usr/bin/env python3
"""peers_backward.py: the backward pass by libraries and by our kernels, in turn, in one process.

    python3 common/products/reports/peers_backward.py --csv build/results/backward.csv

Times the backward pass alone: the forward pass of each method ran before.  Shapes, regimes and
lines are those of peers_gpu.py; flops are 2 (3 head_dim + 2 head_dim_v) per pair.  The error is that
of dq, dk and dv of the first head beside float64; ours may have twice that of a plain 16-bit
computation.  Exit status: 0; 1 a wrong result; 77 without PyTorch or GPU.
"""
import math
import sys

from accept import ROUNDOFF, nearest
from attention_library import Library
from peers_methods import ALL_PEERS, torch_method
from peers_run import SHAPES, Run
from peers_shapes import planned

# the last rungs, by head_dim
UP_TO_64, UP_TO_128, WIDER = "gradient_narrow_heads", "gradient_overlap", "gradient_wide_heads"


def gradients(torch, shape, q, k, v, d_o, kind):
    """dq, dk, dv of one head, (rows, head_dim) each; float32: p and ds rounded as 16-bit kernels do."""
    scale = 1 / math.sqrt(shape.head_dim)
    rounded = (lambda x: x) if kind == torch.float64 else (lambda x: x.to(q.dtype).to(kind))
    q, k, v, d_o = (x.to(kind) for x in (q, k, v, d_o))
    s = q @ k.T * scale
    if shape.causal:
        s.masked_fill_(torch.ones(s.shape, dtype=torch.bool, device=s.device).triu(1), -math.inf)
    p = s.softmax(-1)
    del s
    sums = (d_o * rounded(p @ v)).sum(-1, keepdim=True)
    ds = rounded(p * (d_o @ v.T - sums))
    return ds @ k * scale, ds.T @ q * scale, rounded(p).T @ d_o


def reference(torch, shape, dtype, arrays):
    """[(float64 result, allowed error)] of dq, dk and dv of the first head."""
    one = [x.detach()[0, 0] for x in arrays]
    want, plain = (gradients(torch, shape, *one, kind) for kind in (torch.float64, torch.float32))
    return [(w, 2 * float((x.double() - w).abs().max()) + 2 * ROUNDOFF[dtype] * float(w.abs().max()))
            for w, x in zip(want, plain)]


def peer(torch, name, shape, q, k, v, d_o):
    """The backward pass of a library, or None where it refuses."""
    forward = torch_method(torch, name, shape, q, k, v)
    if forward is None:
        return None
    o = forward()

    def run():
        return torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)
    try:
        run()
    except Exception:  # pylint: disable=broad-except  # each library refuses in its own way
        return None
    return run


def ours(torch, library, name, dtype, shape, q, k, v, d_o):
    """One of our kernels, or None where it refuses; o and lse by our forward pass."""
    q, k, v = (x.detach() for x in (q, k, v))
    o, dq, dk, dv = (torch.empty_like(x).fill_(math.nan) for x in (q, q, k, v))
    arrays = {"q": q, "k": k, "v": v, "o": o,
              "lse": torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")}
    library.call_of(torch, "attention", "tuned", dtype, shape, **arrays)()
    call = library.call_of(torch, "attention_backward", name, dtype, shape, d_o=d_o, dq=dq, dk=dk,
                           dv=dv, **arrays)

    def run():
        call()
        return dq, dk, dv
    return call and run


def measure(run, problem, names, library):
    """Measures one problem with every method."""
    torch, (shape, dtype, regimes, layout) = run.torch, problem
    flops, once = shape.flops(6, 4), 2 * shape.bytes(dtype)
    p = run.problem(shape, dtype, layout, "gemm", op="backward", flops=flops, work=flops,
                    bytes_predicted=once, peak_bytes=once, note=layout)
    q, k, v = run.tensors(shape, dtype, layout)
    d_o = torch.randn_like(q)
    for x in (q, k, v):
        x.requires_grad_()
    for name in names:
        if name in ALL_PEERS:
            p.add(name, lambda name=name: peer(torch, name, shape, q, k, v, d_o))
        elif name != (UP_TO_128 if shape.head_dim > 128 else WIDER):
            p.add(name, lambda name=name: ours(torch, library, name, dtype, shape, q, k, v, d_o),
                  library)
    known = reference(torch, shape, dtype, (q, k, v, d_o))
    p.check(lambda got: nearest([x[0, 0] for x in got], known))
    run.measure(p, [name for name in regimes if name in run.args.regimes])


def main():
    """Runs the measurements; returns the exit status."""
    run = Run(__doc__, 0.3, {
        "--variants": {"default": ",".join(["gradient_in_order", UP_TO_64, UP_TO_128, WIDER]),
                       "help": "our kernels: a,b"},
        "--backends": {"default": ",".join(name for name in ALL_PEERS if name not in
                                           ("pytorch-efficient", "pytorch-math"))}, **SHAPES})
    args, library = run.args, Library(run.args.library)
    names = [n for n in f"{args.backends},{args.variants}".split(",") if n]
    for problem in [(s, args.dtype, ("cold", "sustained"), "bhld") for s in args.shape or ()] \
            or planned(["backward"], args.dtype):
        measure(run, problem, names, library)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
