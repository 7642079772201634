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
    scale = scale[:, :, None, None]
    x = on(kind, np.clip(np.rint(a / scale), -127, 127) if codes == "int8" else a / scale)
    c = x.astype(dtype_of(kind, codes)) if kind == "numpy" else x.to(dtype_of(kind, codes))
    return c, (taken(c) * scale).astype("f4")


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
    want = five_steps.attention(taken(q).astype("f4"), k_wide, v_wide, return_lse=True, **options)
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
    new = [on(kind, (taken(a) * taken(s)[:, :, None, None]).astype("f2").swapaxes(1, 2).copy())
           for a, s in ((k, k_scale), (v, v_scale))]
    n = five_steps.append(*new, *pages, on(kind, table), 0, layout=layout, **scales)
    assert n == KEYS
    got = five_steps.decode(q[:, :, 0], *pages, on(kind, table), n, layout=layout, **scales)
    want = five_steps.attention(q[:, :, :1], k, v, **scales)
    assert np.array_equal(taken(got), taken(want)[:, :, 0])


@kinds_and_types
@pytest.mark.parametrize("values", ["int8", "float8_e4m3fn"])
def test_queries_of_8_bits_too(kind, codes, values):
    q, (k, k_wide), (v, v_wide), (k_scale, v_scale) = problem(kind, codes)
    if values != codes:
        v, v_wide = coded(kind, values, normal(BATCH, HEADS_KV, KEYS, DIM, seed=1), taken(v_scale).astype("f4"))
    q_scale = np.array([[1, 0.5], [0.25, 2]], "f4") / (16 if codes == "int8" else 1)
    q8, q_wide = coded(kind, codes, taken(q).astype("f4"), np.repeat(q_scale, 2, axis=1))
    scales = {"q_scale": on(kind, q_scale), "k_scale": k_scale, "v_scale": v_scale}
    if (codes, values) == ("float8_e4m3fn", "int8"):
        with pytest.raises(five_steps.FiveStepsError, match="types differ: k is float8_e4m3fn, v is int8"):
            five_steps.attention(q8, k, v, **scales)
        return
    got, lse = five_steps.attention(q8, k, v, return_lse=True, **scales)
    want, want_lse = five_steps.attention(q_wide, k_wide, v_wide, return_lse=True)
    assert str(got.dtype) == ("float32" if kind == "numpy" else "torch.bfloat16")
    compare(taken(got), want, 1e-2)
    compare(taken(lse), want_lse, 1e-2)


@pytest.mark.skipif("cuda" not in KINDS, reason="needs a GPU")
@pytest.mark.parametrize("heads_q, queries", [(16, 80), (2, 200)])
def test_a_prefill_over_a_cache_is_the_16_bit_kernel_on_its_numbers(heads_q, queries):
    scale = np.array([[0.5, 1], [2, 0.25]], "f4")
    (k, k_wide), (v, v_wide) = (coded("cuda", "float8_e4m3fn", normal(2, 2, 256, 64, seed=i), scale) for i in (1, 2))
    q = on("cuda", normal(2, queries, heads_q, 64, seed=3)).bfloat16()
    table = torch.tensor([[3, 0, 5, 7], [1, 4, 2, 6]], device="cuda")
    lengths = torch.tensor([256, 211], dtype=torch.int32, device="cuda")
    pages = [torch.zeros(8, 2, 64, 64, device="cuda").to(k.dtype) for _ in "kv"]
    for page, a in zip(pages, (k, v)):
        page.view(torch.uint8)[table.long()] = a.view(torch.uint8).reshape(2, 2, 4, 64, 64).transpose(1, 2)
    got = five_steps.decode(q, *pages, table, lengths, k_scale=on("cuda", scale), v_scale=on("cuda", scale))
    rows = [on("cuda", a).bfloat16() for a in (k_wide, v_wide)]
    assert torch.equal(got, five_steps.decode(q, *rows, None, lengths))


@pytest.mark.skipif("cuda" not in KINDS or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU")
@pytest.mark.parametrize("kernel", ["eight_bits_e4m3", "eight_bits_sums", "eight_bits_wide_values", "eight_bits_int8"])
def test_kernels_of_8_bits_are_reached(kernel):
    codes = "int8" if kernel.endswith("8") else "float8_e4m3fn"
    x = [on("cuda", normal(2, 4, 700, 128, seed=i)) for i in range(3)]
    coded_x = [five_steps.quantise(a, to) for a, to in zip(x, (codes, codes, "float8_e4m3fn"))]
    scales = {f"{name}_scale": a[1] for name, a in zip("qkv", coded_x)}
    wide = [a[0].float() * a[1][:, :, None, None] for a in coded_x]
    got = five_steps.attention(*(a[0] for a in coded_x), kernel=kernel, causal=True, **scales)
    compare(taken(got), taken(five_steps.attention(*wide, causal=True)), 8e-2)
    if kernel[-1] in "s8" and "sums" not in kernel:  # what is taken by itself
        assert torch.equal(got, five_steps.attention(*(a[0] for a in coded_x), causal=True, **scales))


@kinds_and_types
@pytest.mark.parametrize("smooth, rotate", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_quantise(kind, codes, smooth, rotate):
    """Each number is within half a step of what it should be: from the definition of each idea."""
    x = normal(2, 3, 50, 64, seed=5) + 20 * (np.arange(64) % 32 == 0)
    want = x.astype("f8")
    mean = want.mean(2, keepdims=True)
    signs = np.array([[(-1) ** bin(i & j).count("1") for i in range(64)] for j in range(64)])
    want = (want - mean * smooth) @ (signs / 8 if rotate else np.eye(64))
    dtype_of(kind, codes)  # skips without ml_dtypes
    got, scale, *means = five_steps.quantise(on(kind, x.astype("f4").swapaxes(1, 2).copy()).swapaxes(1, 2), codes,
                                             smooth=smooth, rotate=rotate)
    most, largest = abs(want).max((2, 3)), 127 if codes == "int8" else 448
    least = most / largest if codes == "int8" else 2 ** np.ceil(np.log2(most / largest))
    assert np.allclose(taken(scale), least, rtol=1e-5)
    error = abs(taken(got) * taken(scale)[:, :, None, None] - want)
    step = least[:, :, None, None] / 2 if codes == "int8" else np.maximum(abs(want) / 16, least[:, :, None, None] / 1024)
    assert (error <= 1.0001 * step + 1e-5).all()
    assert len(means) == smooth and all(np.allclose(taken(a), mean[:, :, 0], atol=1e-5) for a in means)


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
    with pytest.raises(five_steps.FiveStepsError, match="kernel is given, which is for q, k and v in 8 bits"):
        five_steps.attention(q, q[:, :2], q[:, :2], kernel="tuned")
    pages = np.zeros((2, 2, 16, 16), "i1")
    with pytest.raises(five_steps.FiveStepsError, match="k_scale is not given; int8 pages need one"):
        five_steps.append(q[:, :, :2], q[:, :, :2], pages, pages, None, 0)
