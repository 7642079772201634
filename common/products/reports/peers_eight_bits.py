"""peers_eight_bits.py: the part of peers.py with attention in 8 bits, through the Python package.

    all in e4m3, or int8 scores    every kernel of ours, and FlashAttention-3's
    a cache in 8 bits              16-bit queries of a prefill over it, beside the same in 16 bits
                                   a decoding step over it, beside FlashInfer's
    numbers to codes               five_steps.quantise() beside PyTorch's operations

d = 128, cold and sustained; the ceiling of products in 8 bits is PyTorch's in e4m3.  `max_err` is the root
mean square of o - o64 over that of o64, of the rounded inputs, on the last queries of the first head.
Beside the CSV, STEM_errors.csv has the errors before rounding: inputs of several kinds, as they are and
after smoothing and rotating, and how many needles are found in 128k keys.  `--sums N` says after how
many tiles the library was built to add sums in float (-DTILES_OF_A_SUM=N): then only that kernel is measured.
"""
import pathlib

from accept import reference
import peers_caches
from measurements import commit_here, now
from peers_methods import flash_method
from peers_run import Problem
from peers_shapes import Shape, tokens

E4M3, INT8, PEER = "float8_e4m3fn", "int8", "flash-attention-3"
KERNELS = {"eight_bits_e4m3": E4M3, "eight_bits_sums": E4M3, "eight_bits_wide_values": E4M3, "eight_bits_int8": INT8}
WAYS = {"": {}, "smoothed": {"smooth": True}, "rotated": {"rotate": True}, "both": {"smooth": True, "rotate": True}}
ROWS = 256  # queries that are compared, as in accept.py


def coded(run, q, k, v, scores, smooth=False, rotate=False):
    """Codes and scales of q, k and v."""
    quantise = run.five_steps.quantise
    return (quantise(q, scores, rotate=rotate)[:2], quantise(k, scores, smooth=smooth, rotate=rotate)[:2],
            quantise(v, E4M3)[:2])


def numbers(codes, scale):
    """What codes mean."""
    return codes.float() * scale[:, :, None, None]


def call_of(run, name, arrays, causal):
    """A call on codes and scales; None where FlashAttention-3 is not there."""
    (q, q_scale), (k, k_scale), (v, v_scale) = arrays
    if name != PEER:
        return lambda: run.five_steps.attention(q, k, v, causal=causal, kernel=name, q_scale=q_scale,
                                                k_scale=k_scale, v_scale=v_scale)
    rows_first = [a.transpose(1, 2).contiguous().transpose(1, 2) for a in (q, k, v)]
    return flash_method(PEER, causal, *rows_first, q_descale=q_scale, k_descale=k_scale, v_descale=v_scale)


def right(torch, q, k, v, causal):
    """o in float64 of the last queries of the first head."""
    return reference(torch, Shape(1, 1, 1, q.shape[2], k.shape[2], q.shape[3], causal), "bf16", q, k, v)[0][0]


def error_of(o, want):
    """Root mean square of the difference over that of what is right."""
    return float((o[0, 0, -ROWS:].double() - want).square().mean().sqrt() / want.square().mean().sqrt())


def names(run):
    """The methods, and how they are called in the CSV."""
    sums = run.args.sums
    return {"eight_bits_sums": f"eight_bits_sums; {sums} tile{'s' * (sums > 1)}"} if sums else {
        name: name for name in (*KERNELS, PEER)}


def speeds(run, shape):
    """Every kernel on codes of normal numbers."""
    torch = run.torch
    a, b = (run.normal(8192, 8192).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    ceiling = (lambda: torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16)), 2.0 * 8192**3
    q, k, v = run.tensors(shape)
    p = Problem(run, f"8 bits {shape.text()}", ceiling, shape.fields("e4m3") | {
        "ceiling_kind": "gemm", "flops": shape.flops(), "work": shape.flops(), "bytes_predicted": shape.bytes("bf16") / 2,
        "peak_bytes": 0, "note": "bhld; no lse"})
    for name, title in names(run).items():
        arrays = coded(run, q, k, v, KERNELS.get(name, E4M3))
        run.compilers.setdefault(title, run.compilers["five_steps"])
        p.add(title, lambda name=name, arrays=arrays: call_of(run, name, arrays, bool(shape.causal)),
              dtype="int8" if KERNELS.get(name) == INT8 else "e4m3")
        if title in p.calls:
            p.errors[title] = error_of(p.calls[title](), right(torch, *(numbers(*x) for x in arrays), shape.causal)), ""
    run.measure(p, ("cold", "sustained"))


def caches(run, shape):
    """A prefill over a cache in 8 bits: its numbers are powers of two apart, so both have the same bits."""
    q, k, v = run.tensors(shape)
    attend, codes = run.five_steps.attention, [run.five_steps.quantise(a) for a in (k, v)]
    k, v = (numbers(*a).bfloat16() for a in codes)
    p = run.problem(shape, "bf16", "prefill over a cache", "gemm", flops=shape.flops(), work=shape.flops(),
                    bytes_predicted=shape.bytes("bf16"), peak_bytes=0, note="bhld; lse; prefill over a cache")
    run.compilers |= dict.fromkeys(("cache in bf16", "cache in e4m3"), run.compilers["five_steps"])
    p.add("cache in bf16", lambda: lambda: attend(q, k, v, causal=bool(shape.causal)))
    p.add("cache in e4m3", lambda: lambda: attend(q, codes[0][0], codes[1][0], causal=bool(shape.causal),
                                                  k_scale=codes[0][1], v_scale=codes[1][1]))
    assert run.torch.equal(p.calls["cache in bf16"](), p.calls["cache in e4m3"]())
    run.measure(p, ("cold", "sustained"))


def quantising(run, shape):
    """Keys smoothed, rotated and rounded."""
    torch, k = run.torch, run.tensors(shape)[1]
    i = torch.arange(128, device="cuda")
    bits = (i[:, None] & i)[..., None] >> torch.arange(7, device="cuda") & 1
    signs = (1 - 2 * (bits.sum(-1) % 2)).bfloat16() / 128 ** 0.5

    def composed():
        x = (k - k.mean(2, keepdim=True)) @ signs
        scale = x.abs().amax((2, 3), keepdim=True).float() / 448
        return (x / scale).to(torch.float8_e4m3fn), scale
    moved = 3.0 * k.numel()
    p = run.problem(shape, "bf16", "numbers to codes", "read", flops=0, work=moved, bytes_predicted=moved,
                    peak_bytes=0, note="bhld; smoothed and rotated", op="quantise")
    run.compilers |= {"quantise": run.compilers["five_steps"], "pytorch": run.compilers["pytorch-cudnn"]}
    p.add("quantise", lambda: lambda: run.five_steps.quantise(k, smooth=True, rotate=True))
    p.add("pytorch", lambda: composed, stage="peer")
    run.measure(p, ("cold", "sustained"))


def inputs(run):
    """(name, q, k, v, needles): one head of 16k keys, and of 128k that hide needles."""
    def normal(n, mean=0.0):
        return run.normal(1, 1, n, 128, dtype="f32") + mean
    n, wide, offset = 16384, run.torch.ones(128, device="cuda"), run.torch.zeros(128, device="cuda")
    wide[::32], offset[::32] = 8, 30
    q, k = normal(n), normal(n)
    yield "normal", q, k, normal(n), None
    yield "mean of v 1", q, k, normal(n, 1), None
    yield "wide columns", q * wide, k * wide, normal(n), None
    yield "columns with an offset", q, k + offset, normal(n), None
    q, k, v = normal(ROWS), normal(8 * n), normal(8 * n, 1)
    yield "mean of v 1; 128k keys", q, k, v, None
    at = run.torch.randperm(8 * n, device="cuda")[:ROWS]
    k, v = k.clone(), v.clone()
    k[0, 0, at] = 9.5 * 128 ** 0.5 * q[0, 0] / q[0, 0].square().sum(-1, keepdim=True)
    v[0, 0, at] = 2.0 * run.torch.randint(2, (ROWS, 128), device="cuda")
    yield "needle in 128k keys", q, k, v, v[0, 0, at] > 1


def errors(run, file):
    """Of each kind of input and each method, before rounding."""
    for name, q, k, v, needles in inputs(run):
        want = right(run.torch, q, k, v, 0)
        for method, title in {**names(run), **({} if run.args.sums else {"bf16": "bf16"})}.items():
            for way, options in WAYS.items() if method != "bf16" and not run.args.sums else [("", {})]:
                if method == "bf16":
                    o = run.five_steps.attention(*(a.bfloat16() for a in (q, k, v)))
                else:
                    call = call_of(run, method, coded(run, q, k, v, KERNELS.get(method, E4M3), **options), False)
                    o = call and call()
                if o is None:
                    continue
                found = "" if needles is None else f"{float(((o[0, 0] > 1) == needles).all(-1).float().mean()):.3g}"
                print(name, title, way, f"{error_of(o, want):.4g}", found, now()[:10], commit_here(),
                      run.torch.cuda.get_device_name(), sep=",", file=file, flush=True)


def measure(run):
    """All of them."""
    path = pathlib.Path(run.args.csv or "/dev/null")
    path = path.with_name(path.stem + "_errors.csv") if run.args.csv else path
    path.parent.mkdir(parents=True, exist_ok=True)
    assert run.five_steps  # or its compiler is not known
    with run.torch.no_grad(), path.open("a" if run.args.sums else "w", encoding="utf-8") as file:
        if not file.tell():
            print("input,method,way,error,found,date,commit,machine", file=file)
        errors(run, file)
        for n in (2048, 8192, 16384):
            for causal in (0, 1):
                speeds(run, tokens(n, 128, causal))
        for n in () if run.args.sums else (4096, 16384):
            for causal in (0, 1):
                caches(run, Shape(16384 // n * 2, 32, 8, n, n, 128, causal))
            quantising(run, Shape(16384 // n * 2, 32, 8, n, n, 128, 0))
    if not run.args.sums:
        peers_caches.measure(run, coded=True)
