"""test_attention_edges.py: every variant of stage 5 on inputs at the edges of float32: finite masks,
soft caps and sinks of every size, NaN beside a sequence.  The definition in float64 judges."""
import numpy as np
import pytest

from helpers import attention, compare, load, normal, option_words, save, stage

F32 = ("tiled", "general_tiled", "split_kv_f32")
LOWEST = float(np.finfo("f4").min)


def inputs(variant, queries=20, keys=150):
    """q, k, v of one head, as the variant's files hold them."""
    dtype = "f4" if variant in F32 else "f2"
    return [normal(1, 1, n, 64, seed=seed).astype(dtype)
            for seed, n in enumerate((queries, keys, keys))]


def attend(variant, q, k, v, **options):
    for name, array in zip("qkv", (q, k, v)):
        save(f"{name}.npy", array, None)
    stage(5, "run", "--device", "cpu", "--variant", variant, "--q", "q.npy", "--k", "k.npy",
          "--v", "v.npy", "--o", "o.npy", "--lse", "lse.npy", *option_words(**options))
    return load("o.npy"), load("lse.npy")


def judge(got, want, o_allowed):
    compare(got[0], want[0], o_allowed, "o")
    size = np.abs(np.nan_to_num(want[1], posinf=0, neginf=0))
    compare(got[1], want[1], 1e-3 + 1e-6 * size, "lse")


@pytest.mark.parametrize("mask", [-1e4, -3e10, -1e15, -1e30, -2.5e38, LOWEST, 3e38])
@pytest.mark.parametrize("variant", [
    "tiled", "general_tiled", "register_tiled", "tensor_cores", "async_copies", "larger_tiles",
    "lazy_rescaling", "split_kv", "split_kv_f32", "general", "general_mma"])
def test_rows_under_a_finite_mask_are_means(variant, mask):
    """Half, a whole row, one block of keys; float32 keeps nothing of a score beside -1e30."""
    q, k, v = inputs(variant)
    bias = np.zeros((20, 150), "f4")
    bias[3], bias[5, ::2], bias[6, :100], bias[7, 100:] = mask, mask, mask, mask
    bias[8, ::2], bias[8, 1::2] = -np.inf, mask
    s = (q.astype("f8") @ np.swapaxes(k, -1, -2).astype("f8") / 8).astype("f4") + bias
    p = np.exp(s.astype("f8") - s.max(-1, keepdims=True))
    want = p @ v.astype("f8") / p.sum(-1, keepdims=True), s.max(-1) + np.log(p.sum(-1))
    judge(attend(variant, q, k, v, bias=bias), want, 4e-3)


@pytest.mark.parametrize("variant, cap", [
    *((v, c) for v in ("general_tiled", "split_kv_f32", "split_kv", "general_mma", "general")
      for c in (1e-40, 1e-6, 1e-3, 1, 30, 1e4, 1e6, 1e8, 3e38))])
def test_soft_caps_of_every_size_are_exact(variant, cap):
    q, k, v = inputs(variant)
    want = attention(q, k, v, softcap=cap)
    judge(attend(variant, q, k, v, softcap=cap), want, 2e-6 if variant in F32 else 2e-3)
    o, _ = attend(variant, 0 * q, k, v, softcap=cap)  # 0 is capped to 0
    compare(o, attention(0 * q, k, v)[0], 2e-6 if variant in F32 else 2e-3, "o of q = 0")


@pytest.mark.parametrize("sink", [np.inf, np.nan, 3e38, 1e30, 0.5, -1e30, -np.inf])
@pytest.mark.parametrize("variant", ["general_tiled", "split_kv", "split_kv_f32", "general",
                                     "general_mma"])
def test_sinks_of_every_size(variant, sink):
    """Also in a row without keys.  +inf is NaN, as in a score."""
    q, k, v = inputs(variant)
    bias = np.zeros((20, 150), "f4")
    bias[4] = -np.inf
    with np.errstate(invalid="ignore"):
        want = attention(q, k, v, sinks=np.array([sink]), bias=bias)
    if not sink < np.inf:
        want = [np.full_like(x, np.nan) for x in want]
    judge(attend(variant, q, k, v, bias=bias, sinks=np.array([sink])), want, 2e-3)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("variant", ["general_tiled", "split_kv", "general", "general_mma"])
def test_nan_of_a_packed_sequence_stays_in_it(variant, dim):
    """Sequences that end in a block of keys, or at 16 of them; queries are a few of each."""
    k_ends, q_ends = np.array([0, 5, 21, 69, 133, 230]), np.array([0, 3, 9, 10, 30, 40])
    for poisoned in (1, 2, 4):
        q, k, v = (normal(2, n, dim, seed=s).astype("f2") for s, n in enumerate((40, 230, 230)))
        k[:, k_ends[poisoned]:k_ends[poisoned + 1]] = np.nan
        v[:, k_ends[poisoned]:k_ends[poisoned + 1]] = np.nan
        ends = {"cu_seqlens_q": q_ends, "cu_seqlens_k": k_ends}
        judge(attend(variant, q, k, v, **ends), attention(q, k, v, **ends), 2e-3)
