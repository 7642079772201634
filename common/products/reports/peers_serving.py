"""peers_serving.py: the part of peers.py with what the features of a serving system cost, through the Python
package.

Each line has a baseline in the same rounds (rounds.py, sustained):

    packed   sequences of equal and of drawn lengths           a batch of equal lengths
    window   the last keys of 16k                              all keys, times the share of pairs
    scores   a sink for each head; a soft cap                  the same without it

`flags` names feature and baseline; `baseline_s` and `ideal_s` in it are seconds: what the
baseline took, and what the feature would take without any cost; `flash-attention-4_s`
the seconds of that library in the same rounds, where it is there and right.  A result is compared
with the definition in float64 on its last queries.
"""
import itertools
import random
import typing

from accept import accepted, compare, reference
from peers_methods import flash_module
from peers_shapes import Shape, tokens
from rounds import sustained

PEER = "flash-attention-4"
# mean length of 32k tokens, head_dim, causal
PACKED = [(1024, 64, 1), (1024, 128, 0), (1024, 128, 1), (4096, 128, 0), (4096, 128, 1), (4096, 64, 1)]


class Feature(typing.NamedTuple):
    """A call beside its baseline."""
    call: typing.Callable
    flops: float
    checked: tuple       # error, allowed error
    share: float = 1.0   # of the baseline's work
    peer: typing.Callable = None  # PEER's call


def peer_call(name, arrays, errors_of, **options):
    """A call of PEER's function on arrays [..., length, heads, d], if it is there and right;
    errors_of(o): error, allowed error."""
    def call():
        return getattr(flash_module(PEER), name)(*arrays, return_lse=True, **options)[0]
    try:
        return call if accepted(*errors_of(call())) else None
    except Exception:  # pylint: disable=broad-except  # it is not there, or its compiler refuses
        return None


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


def beside(run, what, baseline, shape, base_call, features):
    """Times {name: Feature} beside the baseline's call; a line each of CSV and for the terminal."""
    times = sustained(run.clock, {"": base_call} | {
        name: of.call for name, of in features.items()} | {
        PEER + name: of.peer for name, of in features.items() if of.peer}, run.args.seconds)
    base = times[""].median
    for name, of in features.items():
        t, ideal, peer = times[name], base * of.share, times.get(PEER + name)
        more = f"; {PEER}_s {peer.median:.6g}" if peer else ""
        run.writer.write(
            stage="05_flash_cuda", variant=f"{what}: {name}", **shape.fields("bf16"),
            median_s=t.median, min_s=t.least, reps=t.calls, max_err=of.checked[0], allowed_err=of.checked[1],
            flops=of.flops, bytes_predicted=shape.bytes("bf16"),
            compiler="; ".join([run.compilers["five_steps"], *[run.compilers[PEER]] * bool(flash_module(PEER))]),
            flags=f"sustained; {baseline}; baseline_s {base:.6g}; ideal_s {ideal:.6g}{more}")
        print(f"{what}: {name:30s} {shape.text():36s} {1e6 * t.median:9.1f} us, ideal {1e6 * ideal:9.1f} us: "
              f"{ideal / t.median:.3f}{more}", flush=True)


def packed(run):
    """Equal lengths packed, and drawn ones, against a batch, for the same work."""
    for mean, d, causal in PACKED:
        total, h = 32768, 2048 // d
        shape = Shape(total // mean, h, h, mean, mean, d, causal)
        batch = [run.normal(shape.batch, h, mean, d) for _ in range(3)]
        rows = [run.normal(total, h, d) for _ in range(3)]

        def feature(lengths):
            sums, longest = run.torch.tensor([0, *lengths]).cumsum(0).int().cuda(), max(lengths)
            known = {"cu_seqlens_q": sums, "cu_seqlens_k": sums, "max_seqlen_q": longest,
                     "max_seqlen_k": longest, "causal": bool(causal)}

            def call():
                return run.five_steps.attention(*rows, **known)

            def errors_of(o):
                return errors(run.torch, *(x[-lengths[-1]:].transpose(0, 1) for x in (o, *rows)),
                              causal=causal)
            share = sum(n * n for n in lengths) / (shape.batch * mean * mean)
            peer = peer_call("flash_attn_varlen_func", rows, errors_of, **known)
            return Feature(call, shape.flops() * share, errors_of(call()), share, peer)
        beside(run, "packed", "batch of equal lengths", shape,
               lambda: run.five_steps.attention(*batch, causal=bool(causal)),
               {"equal lengths": feature([mean] * shape.batch),
                "drawn lengths": feature(drawn(total, mean))})


def of_one_length(run):
    """(what, baseline, shape, its options, {feature: (its options, PEER's, those of errors(), share)})."""
    for d in (64, 128):
        yield "window", "all keys", tokens(16384, d, 0), {}, {
            f"{left + 1} keys": ({"window": (left, 0)}, {"window_size": (left, 0)}, {"left": left},
                                 sum(min(i, left) + 1 for i in range(16384)) / 16384**2)
            for left in (4095, 1023, 127)}
    for n, d in itertools.product((1024, 16384), (64, 128)):
        shape = tokens(n, d, 1)
        sinks, cap = run.normal(shape.heads_q), {"softcap": 30.0}
        yield "scores", "without", shape, {"causal": True}, {
            "sinks": ({"sinks": sinks.float()}, {"learnable_sink": sinks}, {"sinks": sinks.float()}, 1.0),
            "soft cap 30": (cap, cap, cap, 1.0)}


def others(run):
    """Windows, sinks and a soft cap."""
    for what, baseline, shape, plain, features in of_one_length(run):
        arrays = run.tensors(shape)

        def call(**more):
            return lambda: run.five_steps.attention(*arrays, **plain, **more)

        def feature(ours, theirs, known, share):
            def errors_of(o):
                return errors(run.torch, o[0], *(x[0] for x in arrays), causal=shape.causal, **known)
            peer = peer_call("flash_attn_func", [x.transpose(1, 2) for x in arrays],
                             lambda o: errors_of(o.transpose(1, 2)), **plain, **theirs)
            return Feature(call(**ours), shape.flops() * share, errors_of(call(**ours)()), share, peer)
        beside(run, what, baseline, shape, call(), {name: feature(*of) for name, of in features.items()})


def measure(run):
    """All of them."""
    with run.torch.no_grad():
        for part in (packed, others):
            part(run)
