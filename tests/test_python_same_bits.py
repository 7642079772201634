"""test_python_same_bits.py: what the Python package promises of bits: invariant=True, and gradients in a
fixed order; on the CPU and, where there is one, on a GPU."""
import numpy as np
import pytest

from five_steps_here import KINDS_AND_TYPES, WITH_TORCH, call, five_steps, torch
from helpers import normal

SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], "f4")
OPTIONS = [{}, {"window": 37}, {"softcap": 1.5, "sinks": SLOPES}, {"alibi_slopes": SLOPES},
           {"scale": -0.7, "window": 70}]
options = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
everywhere = pytest.mark.parametrize("kind, dtype", KINDS_AND_TYPES)


def bits(a):
    """The bytes of an array or a tensor, an element a number."""
    if torch and torch.is_tensor(a):
        return a.detach().cpu().contiguous().view(torch.int16 if a.itemsize == 2 else torch.int32).numpy()
    return a.view(f"i{a.itemsize}")


def promised(kind, dtype, function, *arrays, **more):
    """o and lse as bits."""
    return call(kind, function, *arrays, dtype=dtype, read=bits, invariant=True, return_lse=True, **more)


def same(got, want):
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


def problem(n, d=32, batch=1):
    return (normal(batch, 4, n, d), 3 * normal(batch, 2, n, d, seed=2), normal(batch, 2, n, d, seed=3))


def prefill(options):
    """The options of attention() that mean what these mean to decode()."""
    return {**options, "causal": True, **({"window": (options["window"], 0)} if "window" in options else {})}


def paged(a, size):
    """The rows of [1, heads, n, d] in pages of that size at drawn places, NaN behind them; and the table."""
    heads, n, d = a.shape[1:]
    order = np.random.default_rng(size).permutation((n + size - 1) // size + 2).astype("i4")
    pages = np.full((len(order), heads, size, d), np.nan, "f4")
    for i in range(0, n, size):
        pages[order[i // size], :, :min(size, n - i)] = a[0, :, i:i + size]
    return pages, order[None, :(n + size - 1) // size]


@everywhere
@options
def test_a_prefill_in_chunks_or_in_a_batch_has_the_bits_of_the_whole(kind, dtype, options):
    q, k, v = problem(301, batch=3)
    alone = [promised(kind, dtype, "attention", *(a[b:b + 1] for a in (q, k, v)), **prefill(options))
             for b in range(3)]
    o, lse = alone[2]
    for first, end in ((0, 1), (3, 50), (50, 290), (300, 301)):
        same(promised(kind, dtype, "attention", q[2:, :, first:end], k[2:, :, :end], v[2:, :, :end],
                      **prefill(options)), (o[:, :, first:end], lse[:, :, first:end]))
    same(promised(kind, dtype, "attention", q, k, v, **prefill(options)),
         map(np.concatenate, zip(*alone)))
    packed = [np.concatenate([a[b, :, :n] for b, n in ((0, 17), (2, 301), (1, 5))], 1).swapaxes(0, 1)
              for a in (q, k, v)]
    sums = np.array([0, 17, 318, 323], "i4")
    if "alibi_slopes" not in options:
        po, plse = promised(kind, dtype, "attention", *packed, cu_seqlens_q=sums, cu_seqlens_k=sums,
                            **prefill(options))
        same((po[17:318].swapaxes(0, 1), plse[:, 17:318]), (o[0], lse[0]))


@everywhere
@options
@pytest.mark.parametrize("size", [16, 48, 512])
def test_decoding_has_the_bits_of_the_prefill(kind, dtype, options, size):
    n, (q, k, v) = 301, problem(301)
    o, lse = promised(kind, dtype, "attention", q, k, v, **prefill(options))
    (k_pages, table), (v_pages, _) = paged(k, size), paged(v, size)
    for queries in (1, 5):
        at = slice(n - queries, n)
        tables, lengths = np.repeat(table, 3, 0), np.array([n, 7, n], "i4")
        new = np.repeat(q[:, :, at].swapaxes(1, 2), 3, 0)
        got = promised(kind, dtype, "decode", new, k_pages, v_pages, tables, lengths, **options)
        for b in (0, 2):
            same([a[b] for a in got], (o[0, :, at].swapaxes(0, 1), lse[0, :, at]))


@everywhere
def test_ten_thousand_keys_are_merged_alike_alone_and_in_a_batch(kind, dtype):
    """Alone they are cut into parts, of a batch of 70 each sequence is one task."""
    n, (q, k, v) = 10000, problem(10000, 8)
    want = promised(kind, dtype, "attention", q[:, :, -2:], k, v, causal=True)
    whole = promised(kind, dtype, "attention", q[:, :, 8000:], k, v, causal=True)
    same([a[:, :, -2:] for a in whole], want)
    pages = [np.ascontiguousarray(a) for a in (k, v)]
    table, lengths = np.zeros((70, 1), "i4"), np.array([1] * 69 + [n], "i4")
    got = promised(kind, dtype, "decode", np.repeat(q[:, :, -1], 70, 0), *pages, table, lengths)
    same([a[-1] for a in got], [a[0, :, -1] for a in want])


DETERMINISTIC = [("argument", dtype, n, d, more) for dtype in ("float32", "bfloat16") for n, d, more in (
    (700, 64, {}), (700, 128, {"causal": True}), (2100, 96, {"causal": True}), (130, 256, {}),
    (200, 64, {"softcap": 2.0}))] + [(asked, "bfloat16", 700, 64, {}) for asked in ("flag", "invariant")]


@WITH_TORCH
@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * bool(torch and torch.cuda.is_available()))
@pytest.mark.parametrize("asked, dtype, n, d, more", DETERMINISTIC)
def test_gradients_in_a_fixed_order_have_the_same_bits(device, asked, dtype, n, d, more):
    leaves = [torch.from_numpy(normal(2, h, n, d, seed=h)).to(device, getattr(torch, dtype)).requires_grad_()
              for h in (4, 2, 2)]
    torch.use_deterministic_algorithms(asked == "flag")
    try:
        seen = set()
        for _ in range(4):
            o = five_steps.attention(*leaves, deterministic=asked == "argument",
                                     invariant=asked == "invariant", **more)
            seen.add(b"".join(bits(a).tobytes() for a in torch.autograd.grad(o.float().square().sum(), leaves)))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(seen) == 1
