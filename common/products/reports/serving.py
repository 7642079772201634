#!/usr/bin/env python3
"""serving.py: what the features of a serving system cost, through the Python package on a GPU.

    python3 common/products/reports/serving.py --csv notes/results/hopper/serving.csv

Each line has a baseline in the same rounds (rounds.py, sustained):

    layout   [B, L, H, D] and slices of a packed QKV tensor    the same in [B, H, L, D]
    packed   sequences of equal and of drawn lengths           a batch of equal lengths
    packed gradients   the same, backward; and one by one      a batch of equal lengths
    window   the last keys of 16k                              all keys, times the share of pairs
    scores   a sink for each head; a soft cap                  the same without it
    call     time of the host for one call of the package      the same call of the C library

`flags` names feature and baseline; `baseline_s` and `ideal_s` in it are seconds: what the
baseline took, and what the feature would take without any cost.  `bound`, of a window, is the most
that ideal over measured time can be where whole blocks of keys are computed; `flash-attention-4_s`
the seconds of that library in the same rounds, where it is there and right.  A result is compared
with the definition in float64 on its last queries; a wrong one is not written.  Exit status: 0; 1
a wrong result; 77 without PyTorch or GPU.
"""
import itertools
import os
import random
import re
import statistics
import sys
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "library", "python"))

from accept import accepted, compare, nearest, reference  # noqa: E402
from peers_backward import reference as gradients_reference  # noqa: E402
from peers_methods import flash_module  # noqa: E402
from peers_run import Run  # noqa: E402
from peers_shapes import Shape, tokens  # noqa: E402
from rounds import sustained  # noqa: E402


PEER = "flash-attention-4"


class Feature(typing.NamedTuple):
    """A call beside its baseline."""
    call: typing.Callable
    flops: float
    checked: tuple       # error, allowed error
    share: float = 1.0   # of the baseline's work
    bound: float = 0.0   # the most that ideal over measured time can be, where that is known
    peer: typing.Callable = None  # PEER's call
    op: str = "attention"


def peer_call(name, arrays, errors_of, **options):
    """A call of PEER's function on arrays [..., length, heads, d], if it is there and right;
    errors_of(o): error, allowed error."""
    def call():
        return getattr(flash_module(PEER), name)(*arrays, return_lse=True, **options)[0]
    try:
        return call if accepted(*errors_of(call())) else None
    except Exception:  # pylint: disable=broad-except  # it is not there, or its compiler refuses
        return None


def windowed(n, left):
    """Query-key pairs that a causal window of left keys before its own shows."""
    return sum(min(i, left) + 1 for i in range(n))


def whole_blocks(n, left, keys, queries=64):
    """Pairs that are computed where each group of queries takes whole blocks of keys, from the
    first to the last that one of them sees."""
    computed = 0
    for first in range(0, n, queries):
        end = min(first + queries, n)
        blocks = -(-end // keys) - max(0, first - left) // keys
        computed += (end - first) * blocks * keys
    return computed


def problem_of(shape, **fields):
    """The C library's description of bf16 attention on a GPU."""
    from five_steps import c_library
    sizes = {name: getattr(shape, name) for name in (
        "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v")}
    return c_library.library(), c_library.AttentionProblem(
        device=c_library.GPU, type=c_library.BF16, **sizes, **fields)


def window_bound(shape, left):
    """Visible over computed pairs of the kernel that the library takes for a window, or 0 where it
    does not say what a block is."""
    library, problem = problem_of(shape, window=1, window_left=left, window_right=0)
    found = re.search(r"queries, (\d+) keys", library.kernel(problem)[2])
    n = shape.seqlen_k
    return windowed(n, left) / whole_blocks(n, left, int(found[1])) if found else 0.0


def drawn(total, mean):
    """Lengths between a half and one and a half of the mean whose sum is total."""
    draw, lengths = random.Random(1), []
    while sum(lengths) < total:
        lengths.append(min(draw.randint(mean // 2, 3 * mean // 2), total - sum(lengths)))
    return lengths


def errors(torch, o, q, k, v, left=None, causal=0, **scores):
    """(error, allowed) of o [heads, n, d]; left: the keys before a query's own that it sees."""
    shape = Shape(1, len(q), len(k), q.shape[1], k.shape[1], q.shape[2], causal or left is not None)
    known = reference(torch, shape, "bf16", q[None], k[None], v[None], left, **scores)
    return compare(shape, o[None], known)


def line(run, variant, shape, baseline, base, ideal, times, checked, more="", **fields):
    """A line of CSV and one for the terminal; times: median, least, number of calls; more: of the
    flags."""
    run.writer.write(
        stage="05_flash_cuda", variant=variant, **shape.fields("bf16") | fields, median_s=times[0],
        min_s=times[1], reps=times[2], max_err=checked[0], allowed_err=checked[1],
        flags=f"{baseline}; baseline_s {base:.6g}; ideal_s {ideal:.6g}{more}")
    print(f"{variant:40s} {shape.text():36s} {1e6 * times[0]:9.1f} us, ideal "
          f"{1e6 * ideal:9.1f} us: {ideal / times[0]:.3f}{more}", flush=True)


def beside(run, what, baseline, shape, base_call, features):
    """Times {name: Feature} beside the baseline's call."""
    times = sustained(run.clock, {"": base_call} | {
        name: of.call for name, of in features.items()} | {
        PEER + name: of.peer for name, of in features.items() if of.peer}, run.args.seconds)
    base = times[""].median
    for name, of in features.items():
        t, peer = times[name], times.get(PEER + name)
        line(run, f"{what}: {name}", shape, f"sustained; {baseline}", base, base * of.share,
             (t.median, t.least, t.calls), of.checked, flops=of.flops,
             bytes_predicted=shape.bytes("bf16") * (2 if of.op == "backward" else 1), op=of.op,
             more=(f"; bound {of.bound:.4g}" if of.bound else "")
             + (f"; {PEER}_s {peer.median:.6g}" if peer else ""))


def layouts(run, five_steps):
    """Views against contiguous arrays."""
    for n, d, causal in ((1024, 64, 0), (1024, 128, 1), (8192, 64, 1), (8192, 128, 0)):
        shape = tokens(n, d, causal)
        qkv = run.normal(shape.batch, n, 3, shape.heads_q, d)
        rows_first = [x.contiguous() for x in qkv.unbind(2)]
        plain = [x.transpose(1, 2).contiguous() for x in rows_first]

        def feature(views):
            def call():
                return five_steps.attention(*views, causal=bool(causal), layout="blhd")
            checked = errors(run.torch, call()[0].transpose(0, 1), *(x[0] for x in plain),
                             causal=causal)
            return Feature(call, shape.flops(), checked)
        beside(run, "layout", "[B, H, L, D]", shape,
               lambda: five_steps.attention(*plain, causal=bool(causal)),
               {"[B, L, H, D]": feature(rows_first), "slices of QKV": feature(qkv.unbind(2))})


def packed(run, five_steps):
    """Equal lengths packed, and drawn ones, against a batch, for the same work."""
    for mean, d, causal in ((1024, 64, 1), (1024, 128, 0), (1024, 128, 1), (4096, 128, 0),
                            (4096, 128, 1), (4096, 64, 1)):
        total, h = 32768, 2048 // d
        shape = Shape(total // mean, h, h, mean, mean, d, causal)
        batch = [run.normal(shape.batch, h, mean, d) for _ in range(3)]
        rows = [run.normal(total, h, d) for _ in range(3)]

        def feature(lengths):
            sums = run.torch.tensor([0, *lengths]).cumsum(0).int().cuda()

            def call(longest=max(lengths)):
                return five_steps.attention(
                    *rows, cu_seqlens_q=sums, cu_seqlens_k=sums, max_seqlen_q=longest,
                    max_seqlen_k=longest, causal=bool(causal))
            def errors_of(o):
                return errors(run.torch, *(x[-lengths[-1]:].transpose(0, 1) for x in (o, *rows)),
                              causal=causal)
            share = sum(n * n for n in lengths) / (shape.batch * mean * mean)
            peer = peer_call("flash_attn_varlen_func", rows, errors_of, cu_seqlens_q=sums,
                             cu_seqlens_k=sums, max_seqlen_q=max(lengths),
                             max_seqlen_k=max(lengths), causal=bool(causal))
            return Feature(call, shape.flops() * share, errors_of(call()), share, peer=peer)
        beside(run, "packed", "batch of equal lengths", shape,
               lambda: five_steps.attention(*batch, causal=bool(causal)),
               {"equal lengths": feature([mean] * shape.batch),
                "drawn lengths": feature(drawn(total, mean))})


def packed_gradients(run, five_steps):
    """The backward pass of the same sequences: all at once, in a fixed order, one by one."""
    torch = run.torch
    for mean, d, causal in ((1024, 64, 1), (1024, 128, 0), (1024, 128, 1), (4096, 128, 1), (4096, 64, 0),
                            (4096, 256, 1)):
        total, h = 32768, 2048 // d
        shape = Shape(total // mean, h, h, mean, mean, d, causal)

        def backward(arrays, d_o, **known):
            """A call of the backward pass alone."""
            with torch.enable_grad():
                o = five_steps.attention(*arrays, causal=bool(causal), **known)
            return lambda: torch.autograd.grad(o, arrays, d_o, retain_graph=True)

        def feature(lengths, together=True, **known):
            sums = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
            parts = [rows] if together else zip(*(x.detach().split(lengths) for x in rows))
            calls = [backward([x.requires_grad_() for x in part[:3]], part[3], **known,
                              **{"cu_seqlens_q": sums, "cu_seqlens_k": sums, "max_seqlen_q": max(lengths),
                                 "max_seqlen_k": max(lengths)} if together else {"layout": "blhd"})
                     for part in parts]
            got = [x[-lengths[-1]:, 0] for x in calls[-1]()]
            last = Shape(1, 1, 1, lengths[-1], lengths[-1], d, causal)
            arrays = [x.detach()[-lengths[-1]:, 0][None, None] for x in rows]
            checked = nearest(got, gradients_reference(torch, last, "bf16", arrays))
            share = sum(n * n for n in lengths) / (shape.batch * mean * mean)
            return Feature(lambda: [call() for call in calls], shape.flops(6, 4) * share, checked, share,
                           op="backward")
        rows = [run.normal(total, h, d).requires_grad_() for _ in range(4)]
        batch = [x.detach().unflatten(0, (-1, mean)).transpose(1, 2).contiguous() for x in rows]
        beside(run, "packed gradients", "batch of equal lengths", shape,
               backward([x.requires_grad_() for x in batch[:3]], batch[3]),
               {"equal lengths": feature([mean] * shape.batch),
                "drawn lengths": feature(drawn(total, mean)),
                "drawn; fixed order": feature(drawn(total, mean), deterministic=True),
                "drawn; one by one": feature(drawn(total, mean), False)})


def windows(run, five_steps):
    """The last keys against all keys."""
    for d in (64, 128):
        shape = tokens(16384, d, 0)
        q, k, v = run.tensors(shape)

        def feature(left):
            def call():
                return five_steps.attention(q, k, v, window=(left, 0))
            share = windowed(shape.seqlen_k, left) / shape.seqlen_k**2
            return feature_of(run, call, (q, k, v), shape.flops() * share, {"left": left},
                              {"window_size": (left, 0)}, share, window_bound(shape, left))
        beside(run, "window", "all keys", shape, lambda: five_steps.attention(q, k, v),
               {f"{left + 1} keys": feature(left) for left in (4095, 1023, 127)})


def feature_of(run, call, arrays, flops, known, options, *more):
    """Of arrays [batch, heads, length, d]; known: of errors(); options: PEER's."""
    def errors_of(o):
        return errors(run.torch, o[0], *(x[0] for x in arrays), **known)
    peer = peer_call("flash_attn_func", [x.transpose(1, 2) for x in arrays],
                     lambda o: errors_of(o.transpose(1, 2)), **options)
    return Feature(call, flops, errors_of(call()), *more, peer=peer)


def scores(run, five_steps):
    """Sinks and a soft cap against the same without them, causal."""
    for n, d in itertools.product((1024, 16384), (64, 128)):
        shape = tokens(n, d, 1)
        arrays, sinks = run.tensors(shape), run.normal(shape.heads_q)

        def call(arrays=arrays, **known):
            return lambda: five_steps.attention(*arrays, causal=True, **known)

        def feature(known, options, arrays=arrays, shape=shape, call=call):
            return feature_of(run, call(**known), arrays, shape.flops(), known | {"causal": 1},
                              {"causal": True, **options})
        beside(run, "scores", "without", shape, call(), {
            "sinks": feature({"sinks": sinks.float()}, {"learnable_sink": sinks}),
            "soft cap 30": feature({"softcap": 30.0}, {"softcap": 30.0})})


def host_seconds(torch, call, calls=400, blocks=15):
    """Of the host, for one call: median, least, number; the GPU's queue never fills."""
    times = []
    for _ in range(blocks):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times), min(times), calls * blocks


def call_of_c(torch, shape, arrays):
    """The C library's call on the same arrays as ctypes makes it, and one that does nothing."""
    from five_steps import c_library
    q, k, v = arrays
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    library, problem = problem_of(
        shape, q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(),
        stream=torch.cuda.current_stream().cuda_stream)
    size = library.workspace("attention", problem)
    work = torch.empty(max(size, 1), device="cuda", dtype=torch.uint8)
    function, address, error = library.so.five_steps_attention, work.data_ptr(), c_library.Error()
    keep = arrays, o, lse, work

    def call():
        assert keep
        function(problem, address, size, error)
    return call, library.so.five_steps_version


def overhead(run, five_steps):
    """The package's time of the host beside the C library's: ctypes' own share, that of a
    function which does nothing, counts as the package's."""
    for shape in (Shape(1, 4, 4, 64, 64, 64, 0), Shape(1, 16, 16, 1, 1024, 128, 0)):
        arrays = run.tensors(shape)
        calls = [lambda: five_steps.attention(*arrays), *call_of_c(run.torch, shape, arrays)]
        checked = errors(run.torch, calls[0]()[0], *(x[0] for x in arrays))
        for call in calls:
            call()
        python, c_with, empty = (host_seconds(run.torch, call) for call in calls)
        c_alone = c_with[0] - empty[0]
        line(run, "call: attention", shape, "host; C library", c_alone, c_alone, python, checked)


def main():
    """The exit status."""
    parts = {"layouts": layouts, "packed": packed, "gradients": packed_gradients, "windows": windows, "scores": scores,
             "overhead": overhead}
    run = Run(__doc__, 0.6, {"--parts": {"default": ",".join(parts)}})
    import five_steps
    run.compilers["pytorch-cudnn"] = "; ".join([
        five_steps.c_library.library().built_with.replace(",", " "),
        *[run.compilers[PEER]] * bool(flash_module(PEER))])
    with run.torch.no_grad():
        for part in run.args.parts.split(","):
            parts[part](run, five_steps)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
