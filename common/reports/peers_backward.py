#!/usr/bin/env python3
"""peers_backward.py: the backward pass by PyTorch's libraries and our kernels, in turn, in one process.

    python3 common/reports/peers_backward.py --variants gradient_overlap --csv build/results/backward.csv

Times the backward pass alone: the forward pass of each method ran before.  Shapes, regimes and
lines are those of peers_gpu.py; flops are 2 (3 head_dim + 2 head_dim_v) per pair.  The error is that
of dq, dk and dv of the first head beside float64; ours may have twice that of a plain 16-bit
computation.  Exit status: 0; 1 a wrong result; 77 without PyTorch or GPU.
"""
import math
import sys
import warnings

from accept import ROUNDOFF, accepted
from attention_library import Library, c_library
from measurements import Writer, command_line, fields_of, torch_or_skip
from peers_gpu import CEILING, ceiling_call, publish
from peers_methods import PEERS, compilers, torch_method, versions, with_memory
from peers_shapes import bytes_of, flops_of, shape_of, tokens
from rounds import CudaClock, cold, sustained

SHAPES = [tokens(n, d, c) for d in (128, 64) for c in (0, 1) for n in (16384, 8192, 4096, 2048, 1024, 512)]


def gradients(torch, shape, q, k, v, d_o, kind):
    """dq, dk, dv of one head, (rows, head_dim) each; float32: p and ds rounded as 16-bit kernels do."""
    seqlen, d, causal = shape[3], shape[5], shape[6]
    rounded = (lambda x: x) if kind == torch.float64 else (lambda x: x.to(q.dtype).to(kind))
    q, k, v, d_o = (x.to(kind) for x in (q, k, v, d_o))
    s = q @ k.T / math.sqrt(d)
    if causal:
        s.masked_fill_(torch.ones(seqlen, seqlen, dtype=torch.bool, device=s.device).triu(1), -math.inf)
    p = s.softmax(-1)
    del s
    sums = (d_o * rounded(p @ v)).sum(-1, keepdim=True)
    ds = rounded(p * (d_o @ v.T - sums))
    return ds @ k / math.sqrt(d), ds.T @ q / math.sqrt(d), rounded(p).T @ d_o


def reference(torch, shape, arrays):
    """[(float64 result, allowed error)] of dq, dk and dv of the first head."""
    one = [x.detach()[0, 0] for x in arrays]
    want = gradients(torch, shape, *one, torch.float64)
    plain = gradients(torch, shape, *one, torch.float32)
    roundoff = ROUNDOFF["bf16" if one[0].dtype == torch.bfloat16 else "f16"]
    return [(w, 2 * float((x.double() - w).abs().max()) + 2 * roundoff * float(w.abs().max()))
            for w, x in zip(want, plain)]


def compare(got, known):
    """(error, allowed) of the gradient that comes nearest to its limit; NaN is the worst."""
    pairs = [(float((x[0, 0].double() - want).abs().max()), allowed)
             for x, (want, allowed) in zip(got, known)]
    wrong = [pair for pair in pairs if not accepted(*pair)]
    return wrong[0] if wrong else max(pairs, key=lambda pair: pair[0] / pair[1])


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
    except (RuntimeError, NotImplementedError):
        return None
    return run


def ours(torch, library, name, dtype, shape, q, k, v, d_o):
    """One of our kernels, or None where it refuses; o and lse by our forward pass."""
    q, k, v = (x.detach() for x in (q, k, v))
    o, dq, dk, dv = (torch.empty_like(x).fill_(math.nan) for x in (q, q, k, v))
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")
    arrays = {key: x.data_ptr() for key, x in
              {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o, "dq": dq, "dk": dk,
               "dv": dv}.items()}
    stream = torch.cuda.current_stream().cuda_stream

    def bound(operation, kernel):
        problem = Library.problem(kernel, dtype, shape, stream=stream, **arrays)
        size = library.library.workspace(operation, problem)
        return operation, problem, torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
    try:
        calls = [bound("attention", "tuned"), bound("attention_backward", name)]
    except c_library.LibraryError as error:
        print(f"{name}: {error}")
        return None
    keep = (q, k, v, o, d_o, lse)

    def run(call=calls[1]):
        assert keep
        library.library.call(call[0], call[1], call[2].data_ptr(), call[2].numel())
        return dq, dk, dv
    run(calls[0])
    return run


def measure(torch, shape, dtype, names, library, writer, clock, args):
    """Measures one shape with every method; prints a line for each regime."""
    b, hq, hk, nq, nk, d, causal = shape
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    q, k, v, d_o = (torch.randn(b, heads, n, d, device="cuda").to(kind)
                    for heads, n in ((hq, nq), (hk, nk), (hk, nk), (hq, nq)))
    for x in (q, k, v):
        x.requires_grad_()
    flops, once = 2.5 * flops_of(shape), 2 * bytes_of(shape, dtype)
    methods, about = {}, {}
    for name in names:
        f, more = with_memory(torch, lambda name=name: peer(torch, name, shape, q, k, v, d_o)
                              if name in PEERS else
                              ours(torch, library, name, dtype, shape, q, k, v, d_o))
        if f:
            methods[name] = f
            about[name] = {"stage": "peer" if name in PEERS else "05_flash_cuda",
                           **fields_of(shape, dtype), "op": "backward", "flops": flops,
                           "ceiling_kind": "gemm", "once": once, "bytes_predicted": once,
                           "peak_bytes": more + once, "note": "bhld",
                           "compiler": compilers(torch)[name] if name in PEERS
                           else library.compiler}
    known = reference(torch, shape, (q, k, v, d_o))
    checked = {name: compare(f(), known) for name, f in methods.items()}
    checked = {name: (error, "" if name in PEERS else allowed)
               for name, (error, allowed) in checked.items()}
    del known
    call, work = ceiling_call(torch, "gemm", kind)
    methods[CEILING] = call
    for regime in args.regimes.split(","):
        times = (cold if regime == "cold" else sustained)(clock, methods, args.seconds)
        written = publish(writer, about, times, checked, work)
        text = "  ".join(f"{name} {flops / t / 1e12:.0f}" for name, t in written.items())
        print(f"{dtype} b{b} h{hq}/{hk} {nq}x{nk} d{d}{' causal' if causal else ''} {regime} "
              f"TFLOP/s:  {text}  gemm {work / times[CEILING].least / 1e12:.0f}", flush=True)


def main():
    """Runs the measurements; returns the exit status."""
    p = command_line(__doc__)
    p.add_argument("--csv", help="append the measurements to this file")
    p.add_argument("--library", default="build/libfive_steps.so")
    p.add_argument("--variants", default="gradient_overlap", help="our kernels: a,b,c")
    p.add_argument("--backends", default="pytorch-cudnn,pytorch-flash,flash-attention-3,flash-attention-4")
    p.add_argument("--shape", type=shape_of, action="append", help=shape_of.__doc__)
    p.add_argument("--dtype", default="bf16", choices=["f16", "bf16"])
    p.add_argument("--regimes", default="cold")
    p.add_argument("--seconds", type=float, default=0.3, help="for all methods of a shape")
    args = p.parse_args()
    torch = torch_or_skip("peers")
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    clock = CudaClock(torch, torch.zeros(256 << 20, device="cuda"))
    writer = Writer(args.csv, torch.cuda.get_device_name(), compilers(torch)["pytorch-cudnn"],
                    versions(torch))
    names = [n for n in args.backends.split(",") + args.variants.split(",") if n]
    for shape in args.shape or SHAPES:
        measure(torch, shape, args.dtype, names, Library(args.library), writer, clock, args)
    return writer.status("peers")


if __name__ == "__main__":
    sys.exit(main())
