"""test_python_eight_bits.py: keys and values of 8 bits in the Python package, against the same numbers in
floats; what an 8-bit cache is written with; and what cannot be."""
import numpy as np
import pytest

from five_steps_here import EVERYWHERE, five_steps, torch, taken
from helpers import compare, normal

TYPES = ["int8", "float8_e4m3fn"]
KINDS = ["numpy", *["torch"] * bool(torch), *[kind for kind in EVERYWHERE if kind == "cuda"]]
kinds_and_types = pytest.mark.parametrize("kind, codes", [(kind, codes) for kind in KINDS for codes in TYPES])
BATCH, HEADS_Q, HEADS_KV, KEYS, DIM = 2, 4, 2, 40, 16


def dtype_of(kind, codes):
    if kind != "numpy":
        return getattr(torch, codes)
    return np.dtype("i1") if codes == "int8" else np.dtype(pytest.importorskip("ml_dtypes").float8_e4m3fn)


def on(kind, a):
    return a if kind == "numpy" else torch.from_numpy(a).to("cuda" if kind == "cuda" else "cpu")


def coded(kind, codes, a, scale):
    """Codes of a [batch, heads, ...] and the numbers that they mean."""
    x = a / scale[:, :, None, None]
    x = on(kind, np.clip(np.rint(x), -127, 127) if codes == "int8" else x)
    c = x.astype(dtype_of(kind, codes)) if kind == "numpy" else x.to(dtype_of(kind, codes))
    f = c.astype("f4") if kind == "numpy" else c.float().cpu().numpy()
    return c, f * scale[:, :, None, None]


def problem(kind, codes):
    scales = [np.array([[0.5, 1], [2, 0.25]], "f4") * (1 / 32 if codes == "int8" else 1) for _ in "kv"]
    scales[1] = scales[1][::-1] * 3
    k, v = (coded(kind, codes, normal(BATCH, HEADS_KV, KEYS, DIM, seed=i), s) for i, s in enumerate(scales))
    q = normal(BATCH, HEADS_Q, 6, DIM, seed=9).astype("f2")
    return on(kind, q), k, v, [on(kind, np.ascontiguousarray(s)) for s in scales]


@kinds_and_types
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": (9, 0)}, {"softcap": 2.0}], ids=str)
def test_codes_are_numbers_times_their_heads_scale(kind, codes, options):
    q, (k, k_wide), (v, v_wide), (k_scale, v_scale) = problem(kind, codes)
    want = five_steps.attention(taken(q).astype("f4"), k_wide.astype("f4"), v_wide.astype("f4"),
                                return_lse=True, **options)
    got = five_steps.attention(q, k, v, k_scale=k_scale, v_scale=v_scale, return_lse=True, **options)
    for mine, theirs in zip(got, want):
        compare(taken(mine), theirs, 4e-3)
    alike = five_steps.attention(q, k, v, k_scale=0.5, v_scale=2, **options)
    ones = np.ones((BATCH, HEADS_KV), "f4")
    same = five_steps.attention(q, k, v, k_scale=on(kind, ones / 2), v_scale=on(kind, 2 * ones), **options)
    assert np.array_equal(taken(alike), taken(same))


@kinds_and_types
@pytest.mark.parametrize("layout", ["heads_first", "pages_first"])
def test_a_cache_of_codes(kind, codes, layout):
    """append() quantises; decode() of the pages is attention to the codes in a row."""
    q, (k, _), (v, _), (k_scale, v_scale) = problem(kind, codes)
    table, page = np.array([[3, 0, 5], [1, 4, 2]], "i4"), 16
    shape = (6, HEADS_KV, page, DIM) if layout == "heads_first" else (6, page, HEADS_KV, DIM)
    pages = [on(kind, np.zeros(shape, "i1")).view(dtype_of(kind, codes)) for _ in "kv"]
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    new = [on(kind, (taken(on_float(a)) * taken(s)[:, :, None, None]).astype("f2").swapaxes(1, 2).copy())
           for a, s in ((k, k_scale), (v, v_scale))]
    n = five_steps.append(*new, *pages, on(kind, table), 0, layout=layout, **scales)
    assert n == KEYS
    got = five_steps.decode(q[:, :, 0], *pages, on(kind, table), n, layout=layout, **scales)
    want = five_steps.attention(q[:, :, :1], k, v, **scales)
    assert np.array_equal(taken(got), taken(want)[:, :, 0])


def on_float(a):
    return a.astype("f4") if isinstance(a, np.ndarray) else a.float()


@kinds_and_types
def test_queries_of_8_bits_too(kind, codes):
    q, (k, _), (v, _), (k_scale, v_scale) = problem(kind, codes)
    q_scale = np.array([[1, 0.5], [0.25, 2]], "f4") / (16 if codes == "int8" else 1)
    q8, q_wide = coded(kind, codes, taken(q).astype("f4"), np.repeat(q_scale, 2, axis=1))
    got = five_steps.attention(q8, k, v, q_scale=on(kind, q_scale), k_scale=k_scale, v_scale=v_scale)
    want = five_steps.attention(on(kind, q_wide), k, v, k_scale=k_scale, v_scale=v_scale)
    compare(taken(got), taken(want), 1e-2)


@pytest.mark.parametrize("options, words", [
    ({}, "k_scale is not given; int8 numbers need one"),
    ({"k_scale": 1.0}, "v_scale is not given"),
    ({"k_scale": 1.0, "v_scale": np.ones((3, 2), "f4")}, r"v_scale is float32 \[3, 2\]; give a number, or float32"),
    ({"k_scale": 1.0, "v_scale": 1.0, "q_scale": 1.0}, "q_scale is given, but q is float16")], ids=str)
def test_wrong_scales_are_named(options, words):
    q, (k, _), (v, _), _ = problem("numpy", "int8")
    with pytest.raises(five_steps.FiveStepsError, match=words):
        five_steps.attention(q, k, v, **options)


def test_wrong_types_are_named():
    q, (k, _), (v, _), _ = problem("numpy", "int8")
    for arrays, words in (((q, k, v.astype("f2")), "types differ: k is int8, v is float16"),
                          ((k, v.astype("f2"), v.astype("f2")), "q is int8, but k and v are float16")):
        with pytest.raises(five_steps.FiveStepsError, match=words):
            five_steps.attention(*arrays, k_scale=1.0, v_scale=1.0, q_scale=1.0)
    with pytest.raises(five_steps.FiveStepsError, match="k_scale is given, but k is float16"):
        five_steps.attention(q, k.astype("f2"), v.astype("f2"), k_scale=1.0)
    if torch:
        tensors = [torch.from_numpy(a) for a in (q, k, v)]
        with pytest.raises(five_steps.FiveStepsError, match="have no gradient"):
            five_steps.attention(tensors[0].requires_grad_(), *tensors[1:], k_scale=1.0, v_scale=1.0)
    pages = np.zeros((2, 2, 16, 16), "i1")
    with pytest.raises(five_steps.FiveStepsError, match="k_scale is not given; int8 pages need one"):
        five_steps.append(q[:, :, :2], q[:, :, :2], pages, pages, None, 0)
