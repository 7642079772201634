"""test_python_attention.py: five_steps.attention against the definition in float64."""
import numpy as np
import pytest

import helpers
from five_steps_here import EVERYWHERE, KINDS, KINDS_AND_TYPES, TYPES, call, five_steps, given, taken, torch
from helpers import compare, normal

kinds = pytest.mark.parametrize("kind", KINDS)
everywhere = pytest.mark.parametrize("kind", EVERYWHERE)
OPTIONS = [{}, {"causal": True}, {"window": (4, 0)}, {"window": (2, 3)}, {"window": (-1, 1), "causal": True},
           {"softcap": 1.5}, {"softcap": 0.0}, {"sinks": normal(4)}, {"bias": normal(9, 13)},
           {"scale": 0.3, "window": (3, -1), "softcap": 2.0, "sinks": normal(4), "causal": True,
            "bias": normal(9, 13)}]


def problem(heads_q=4, heads_kv=2, nq=9, nk=13, d=16, dv=24, batch=2):
    return (normal(batch, heads_q, nq, d), normal(batch, heads_kv, nk, d, seed=2),
            normal(batch, heads_kv, nk, dv, seed=3))


def check(kind, q, k, v, dtype="f4", turned=False, **options):
    """o and lse of one call are those of the definition, on inputs rounded to the type."""
    rounded = [taken(given("torch", a, dtype)) if dtype == "bf16" else a.astype(dtype) for a in (q, k, v)]
    layout = {}
    if turned:
        q, k, v = (a.swapaxes(-3, -2) for a in (q, k, v))
        layout = {} if "cu_seqlens_q" in options else {"layout": "blhd"}
    o, lse = call(kind, "attention", q, k, v, dtype=dtype, return_lse=True, **layout, **options)
    want, want_lse = helpers.attention(*rounded, **options)
    compare(o.swapaxes(-3, -2) if turned else o, want, TYPES[dtype])
    compare(lse, want_lse, TYPES[dtype], what="lse")


@pytest.mark.parametrize("kind, dtype", KINDS_AND_TYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("layout", ["bhld", "blhd"])
def test_every_option_in_every_type_and_layout(kind, dtype, options, layout):
    check(kind, *problem(), dtype=dtype, turned=layout == "blhd", **options)


@everywhere
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
def test_packed_sequences(kind, options):
    """One of them without queries, one whose bias is part of the longest's."""
    sums = {"cu_seqlens_q": np.array([0, 3, 3, 12], "i4"), "cu_seqlens_k": np.array([0, 5, 7, 20], "i4")}
    q, k, v = normal(4, 12, 8), normal(2, 20, 8, seed=2), normal(2, 20, 6, seed=3)
    check(kind, q, k, v, turned=True, **sums, **options)


# --- Biases of every form. ---

BIASES = {"heads": (1, 4, 9, 13), "heads alone": (4, 9, 13), "batch": (2, 1, 9, 13), "both": (2, 4, 9, 13),
          "keys": (2, 1, 1, 13), "one row": (1, 13), "queries": (9, 1), "one row of all": (13,)}


@everywhere
@pytest.mark.parametrize("shape", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("form", ["float", "booleans", "half", "view"])
def test_a_bias_is_broadcast(kind, shape, form):
    q, k, v = problem()
    bias = normal(*shape)
    if form == "booleans":
        bias = bias > -0.5
        want = np.where(bias, 0, -np.inf)
    elif form == "half":
        bias = bias.astype("f2")
        want = bias.astype("f4")
    else:
        want = bias
        bias = np.repeat(bias, 2, -1)[..., ::2] if form == "view" else bias
    one = [taken(a) for a in five_steps.attention(*(given(kind, a) for a in (q, k, v)), return_lse=True,
                                                  bias=given(kind, bias, "f2" if form == "half" else "f4"))]
    full = np.broadcast_to(want, (2, 4, 9, 13))
    for b in range(2):
        for h in range(4):
            o, lse = helpers.attention(q[b, h], k[b, h // 2], v[b, h // 2], bias=full[b, h])
            compare(one[0][b, h], o, 2e-6)
            compare(one[1][b, h], lse, 2e-5, what="lse")


@everywhere
@pytest.mark.parametrize("of_batch", [False, True])
@pytest.mark.parametrize("nq, nk", [(9, 13), (13, 9), (1, 5), (0, 0)])
def test_alibi_is_a_bias_of_distances(kind, nq, nk, of_batch):
    q, k, v = problem(nq=nq, nk=nk)
    slopes = abs(normal(2, 4)) if of_batch else abs(normal(4))
    distance = abs(np.arange(nq)[:, None] + nk - nq - np.arange(nk))
    bias = (-slopes[..., None, None] * distance).astype("f4")
    got = call(kind, "attention", q, k, v, causal=True, alibi_slopes=slopes)
    compare(got, call(kind, "attention", q, k, v, causal=True, bias=bias), 1e-6)


# --- Arrays as they lie. ---

@kinds
@pytest.mark.parametrize("shape", [(2, 3, 40, 16), (2, 3, 1, 16), (3, 40, 16), (40, 16), (1, 1, 1, 16)])
@pytest.mark.parametrize("repeated", ["q", "k", "v", "qkv"])
def test_rows_that_repeat_are_the_rows_of_a_copy(kind, shape, repeated):
    """Zero strides were taken for those of a contiguous array, and read out of bounds."""
    broadcast_to = (torch if kind == "torch" else np).broadcast_to
    arrays = [given(kind, normal(*shape, seed=ord(name))) for name in "qkv"]
    arrays = [broadcast_to(a[(0,) * (len(shape) - 1)], shape) if name in repeated else a
              for name, a in zip("qkv", arrays)]
    got = taken(five_steps.attention(*arrays, causal=True))
    compare(got, call(kind, "attention", *map(taken, arrays), causal=True), 0)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_views_are_not_copied(monkeypatch, dtype):
    """Rows before heads, slices of a packed QKV tensor, one key head for all queries."""
    qkv, one = normal(2, 11, 3, 4, 8).astype(dtype), normal(2, 1, 11, 8).astype(dtype)
    views = [qkv[:, :, i] for i in range(3)]
    heads = [np.swapaxes(a, 1, 2) for a in views]
    shared = np.broadcast_to(one, (2, 4, 11, 8))
    backwards = heads[1][:, :, ::-1]  # negative strides: this one is copied
    want = [helpers.attention(*heads, causal=True)[0], helpers.attention(heads[0], one, one)[0],
            helpers.attention(heads[0], backwards, backwards)[0]]
    compare(five_steps.attention(heads[0], backwards, backwards), want[2], TYPES[dtype])
    monkeypatch.setattr(five_steps.arrays.Numpy, "contiguous", None)
    compare(five_steps.attention(*views, layout="blhd", causal=True).swapaxes(1, 2), want[0], TYPES[dtype])
    compare(five_steps.attention(*heads, causal=True), want[0], TYPES[dtype])
    compare(five_steps.attention(heads[0], shared, shared), want[1], TYPES[dtype])


@kinds
def test_out_is_written(kind):
    """Also where its rows lie apart; what lies between them stays."""
    q, k, v = problem(d=16, dv=16)
    want, _ = helpers.attention(q, k, v)
    room = given(kind, np.full((2, 9, 2, 4, 16), 7, "f4"))
    out = room[:, :, 0].swapaxes(1, 2)
    got = five_steps.attention(*(given(kind, a) for a in (q, k, v)), out=out)
    assert got is out
    compare(np.asarray(out), want, 2e-6)
    assert (np.asarray(room[:, :, 1]) == 7).all()


# --- Edges, and what is refused. ---

@everywhere
def test_rows_without_keys(kind):
    """More queries than keys under a causal mask; no keys at all, with and without sinks."""
    o, lse = call(kind, "attention", normal(6, 8), normal(4, 8), normal(4, 8), causal=True, return_lse=True)
    assert (o[:2] == 0).all() and np.isneginf(lse[:2]).all() and np.isfinite(lse[2:]).all()
    q, k, v = problem()
    for more, want in (({}, np.full((2, 4, 9), -np.inf)),
                       ({"sinks": normal(4)}, np.broadcast_to(normal(4)[:, None], (2, 4, 9)))):
        o, lse = call(kind, "attention", q, k[:, :, :0], v[:, :, :0], return_lse=True, **more)
        assert o.shape == (2, 4, 9, 24) and (o == 0).all()
        compare(lse, want, 1e-6, what="lse")
    for part in (slice(0, 0), slice(0, 2)):
        empty = call(kind, "attention", q[:part.stop, :, :0], k[:part.stop], v[:part.stop], return_lse=True)
        assert [a.size for a in empty] == [0, 0]


Q, K = normal(2, 3, 8), normal(2, 5, 8)
REFUSED = [("window is", {"window": (-2, 0)}), ("window is", {"window": 3}), ("window", {"window": (1.5, 0)}),
           ("softcap is", {"softcap": -1}), ("softcap is", {"softcap": np.inf}),
           ("softcap is 1e-50", {"softcap": 1e-50}), ("softcap", {"softcap": "x"}),
           ("scale is nan", {"scale": np.nan}), ("scale is 1e-50", {"scale": 1e-50}), ("scale", {"scale": 0}),
           ("sinks is", {"sinks": normal(3)}), ("sinks is", {"sinks": np.ones(2, "i4")}),
           ("both", {"cu_seqlens_q": np.array([0, 2], "i4")}), ("layout is", {"layout": "dlhb"}),
           ("bias is", {"bias": normal(4, 4)}), ("bias is .*int64", {"bias": np.ones((3, 5), "i8")}),
           ("alibi_slopes is", {"alibi_slopes": normal(3)}),
           ("both given", {"alibi_slopes": normal(2), "bias": normal(3, 5)}),
           ("cu_seqlens_q is a list", {"cu_seqlens_q": [0, 2], "cu_seqlens_k": [0, 2]}),
           ("out is", {"out": normal(2, 3, 7)})]


@kinds
@pytest.mark.parametrize("words, options", REFUSED)
def test_an_option_that_cannot_be_is_refused(kind, words, options):
    with pytest.raises(five_steps.FiveStepsError, match=words):
        call(kind, "attention", Q, K, K, **options)


@pytest.mark.parametrize("words, arrays", [
    ("head_dim", (Q, normal(2, 5, 7), K)), ("q is float64", [a.astype("f8") for a in (Q, K, K)]),
    ("v is a masked array", (Q, K, np.ma.masked_array(K, mask=K > 0))), ("q is a list", ([1.0], K, K)), ("k is a NoneType", (Q, None, K)), ("heads_q", (normal(3, 3, 8), K, K)),
    ("types differ", (Q.astype("f2"), K, K)), ("dimensions", (Q, K, K[None])),
    ("head_dim_v is 0", (Q, K, K[..., :0])), ("head_dim is 0", (Q[..., :0], K[..., :0], K)),
    ("batch", (Q[None], K[None], np.stack([K, K])))])
def test_arrays_that_cannot_be_are_refused(words, arrays):
    with pytest.raises(five_steps.FiveStepsError, match=words):
        five_steps.attention(*arrays)


@pytest.mark.parametrize("words, sums", [
    ("begins with 1", [1, 2]), ("longest", [0, 9]), ("float32", normal(2)), ("alike", [0, 1, 2]),
    ("cu_seqlens_q", [0, 2 + 2 ** 32])])  # 2^32 more were none
def test_prefix_sums_that_cannot_be_are_refused(words, sums):
    with pytest.raises(five_steps.FiveStepsError, match=words):
        five_steps.attention(Q, Q, Q, cu_seqlens_q=np.array(sums), cu_seqlens_k=np.array([0, 2]))


# --- Softmax and merge. ---

@everywhere
def test_softmax_along_each_dimension(kind):
    x = 5 * normal(3, 4, 5)
    x[1, 2] = -np.inf
    for dim in range(-3, 3):
        want = np.swapaxes(helpers.softmax(np.swapaxes(x, dim, -1)), dim, -1)
        compare(call(kind, "softmax", x, dim), want, 1e-6)
    with pytest.raises(five_steps.FiveStepsError, match="dim"):
        call(kind, "softmax", x, 3)


def test_a_fork_after_a_call_computes(place):
    """The child has none of OpenMP's threads; it used to wait for them for ever."""
    import multiprocessing
    q = normal(4, 200, 64)  # worth several threads
    want = five_steps.attention(q, q, q)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for got in pool.starmap_async(five_steps.attention, [(q, q, q)] * 4).get(timeout=60):
            compare(got, want, 1e-6)
