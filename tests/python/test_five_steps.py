"""test_five_steps.py: the Python package against the definition in float64.  What PyTorch or a
GPU would be needed for is skipped by name."""
import math
import unittest

try:
    import numpy as np
except ImportError as error:
    raise SystemExit("skipped: NumPy is not installed") from error
try:
    import torch
except ImportError:
    torch = None

import five_steps

NEEDS_TORCH = unittest.skipIf(torch is None, "PyTorch is not installed")


def random(*shape, seed=1):
    """Normal numbers."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype("f4")


def defined(q, k, v, causal=False, scale=None, bias=None, window=(-1, -1), softcap=None,
            sinks=None):
    """o and lse by the definition."""
    q, k, v = (np.asarray(a, "f8") for a in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(a, group, axis=-3) for a in (k, v))
    s = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    nq, nk = s.shape[-2:]
    if softcap is not None:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + bias[:nq, :nk]
    behind = np.arange(nk) - (np.arange(nq)[:, None] + nk - nq)  # of key j and query i
    hidden = np.zeros((nq, nk), bool) if not causal else behind > 0
    if window[0] >= 0:
        hidden |= behind < -window[0]
    if window[1] >= 0:
        hidden |= behind > window[1]
    s = np.where(hidden, -np.inf, s)
    of_sink = -np.inf if sinks is None else np.asarray(sinks, "f8")[:, None]
    m = np.maximum(s.max(-1, initial=-np.inf), of_sink)
    m = np.where(np.isinf(m), 0, m)[..., None]
    p = np.exp(s - m)
    l = p.sum(-1, keepdims=True) + np.exp(np.asarray(of_sink)[..., None] - m)
    with np.errstate(divide="ignore"):
        return p @ v / np.where(l == 0, 1, l), (np.log(l) + np.where(l == 0, 0, m))[..., 0]


CALLS = [{"window": (4, 0)}, {"window": (2, 3)}, {"window": (-1, 1), "causal": True},
         {"softcap": 1.5}, {"sinks": random(4)},
         {"window": (3, -1), "softcap": 2.0, "sinks": random(4), "causal": True,
          "bias": random(9, 13)}]
SUMS_Q, SUMS_K = (np.array(a, "i4") for a in ([0, 3, 3, 12], [0, 5, 7, 20]))


def packed_defined(q, k, v, **call):
    """The definition of each packed sequence; arrays [total, heads, dim], lse [heads, total]."""
    parts = [[np.swapaxes(a[sums[b]:sums[b + 1]], 0, 1) for a, sums in
              ((q, SUMS_Q), (k, SUMS_K), (v, SUMS_K))] for b in range(len(SUMS_Q) - 1)]
    results = [defined(*part, **call) for part in parts]
    return (np.concatenate([np.swapaxes(o, 0, 1) for o, _ in results]),
            np.concatenate([lse for _, lse in results], axis=-1))


class Attention(unittest.TestCase):
    """five_steps.attention of NumPy arrays."""

    def close(self, got, want, allowed=2e-5):
        """Shape and values; NaN fails."""
        self.assertEqual(got.shape, want.shape)
        with np.errstate(invalid="ignore"):
            error = np.where(got == want, 0, np.abs(got - want))
        self.assertTrue((error <= allowed).all(), f"largest error {error.max()}")

    def test_shapes_masks_and_types(self):
        """Four dimensions, causal or not, with a bias, in float32 and float16."""
        for causal in (False, True):
            for bias in (None, random(9, 13)):
                for kind, allowed in (("f4", 2e-5), ("f2", 4e-3)):
                    q, k, v = (random(2, h, n, d).astype(kind)
                               for h, n, d in ((4, 9, 16), (2, 13, 16), (2, 13, 24)))
                    o, lse = five_steps.attention(q, k, v, causal=causal, bias=bias,
                                                  return_lse=True)
                    want_o, want_lse = defined(q, k, v, causal, bias=bias)
                    self.assertEqual((o.dtype, lse.dtype), (q.dtype, np.dtype("f4")))
                    self.close(o.astype("f8"), want_o, allowed)
                    self.close(lse.astype("f8"), want_lse, allowed)

    def test_two_and_three_dimensions(self):
        """Without batch, and without heads."""
        q, k, v = random(3, 5, 8), random(3, 7, 8, seed=2), random(3, 7, 8, seed=3)
        self.close(five_steps.attention(q, k, v), defined(q, k, v)[0])
        self.close(five_steps.attention(q[0], k[0], v[0]), defined(q, k, v)[0][0])

    def test_layout_scale_and_strides(self):
        """blhd, a scale, slices of a packed array, window=(-1, 0)."""
        packed = random(2, 11, 3, 4, 8)
        q, k, v = (packed[:, :, i] for i in range(3))
        want = defined(*(np.swapaxes(a, 1, 2) for a in (q, k, v)), True, 0.3)[0]
        got = five_steps.attention(q, k, v, layout="blhd", window=(-1, 0), scale=0.3)
        self.close(got, np.swapaxes(want, 1, 2))

    def test_windows_caps_and_sinks(self):
        """Each option and all together, in both layouts and types."""
        q, k, v = random(2, 4, 9, 16), random(2, 2, 13, 16), random(2, 2, 13, 24)
        for call in CALLS:
            for kind, allowed in (("f4", 2e-5), ("f2", 4e-3)):
                arrays = [a.astype(kind) for a in (q, k, v)]
                want_o, want_lse = defined(*arrays, **call)
                o, lse = five_steps.attention(*arrays, return_lse=True, **call)
                self.close(o.astype("f8"), want_o, allowed)
                self.close(lse.astype("f8"), want_lse, allowed)
                turned = [np.ascontiguousarray(np.swapaxes(a, 1, 2)) for a in arrays]
                o = five_steps.attention(*turned, layout="blhd", **call)
                self.close(np.swapaxes(o, 1, 2).astype("f8"), want_o, allowed)

    def test_packed_sequences(self):
        """[total, heads, dim] with prefix sums, one sequence without queries."""
        q, k, v = random(12, 4, 8), random(20, 2, 8), random(20, 2, 6)
        for call in [{}] + CALLS:
            want_o, want_lse = packed_defined(q, k, v, **call)
            o, lse = five_steps.attention(q, k, v, cu_seqlens_q=SUMS_Q, cu_seqlens_k=SUMS_K,
                                          return_lse=True, **call)
            self.close(o, want_o)
            self.close(lse, want_lse)

    def test_views_are_not_copied(self):
        """Layout blhd, slices of a packed QKV tensor, one key head for all queries."""
        def refuse(_self, a):
            raise AssertionError(f"{a.shape} is copied")
        qkv, one = random(2, 11, 3, 4, 8), random(2, 1, 11, 8)
        views = [qkv[:, :, i] for i in range(3)]
        heads = [np.swapaxes(a, 1, 2) for a in views]
        all_heads = np.broadcast_to(one, (2, 4, 11, 8))
        copy, five_steps.arrays.Numpy.contiguous = five_steps.arrays.Numpy.contiguous, refuse
        try:
            rows_first = five_steps.attention(*views, layout="blhd", causal=True)
            heads_first = five_steps.attention(*heads, causal=True)
            shared = five_steps.attention(heads[0], all_heads, all_heads)
        finally:
            five_steps.arrays.Numpy.contiguous = copy
        want = defined(*heads, causal=True)[0]
        self.close(np.swapaxes(rows_first, 1, 2), want)
        self.close(heads_first, want)
        self.close(shared, defined(heads[0], one, one)[0])
        backwards = heads[1][:, :, ::-1]  # negative strides: this one is copied
        self.close(five_steps.attention(heads[0], backwards, backwards),
                   defined(heads[0], backwards, backwards)[0])

    def test_rows_without_keys(self):
        """More queries than keys under a causal mask: zeros, and -infinity."""
        o, lse = five_steps.attention(random(6, 8), random(4, 8), random(4, 8), causal=True,
                                      return_lse=True)
        self.assertTrue((o[:2] == 0).all() and np.isneginf(lse[:2]).all())

    def test_what_is_refused_says_so(self):
        """Arguments that cannot be, and those that are not supported yet."""
        q, k = random(2, 3, 8), random(2, 5, 8)
        late, long = np.array([1, 2], "i4"), np.array([0, 9], "i4")
        good = np.array([0, 2], "i4")
        cases = [("window", {"window": (-2, 0)}), ("softcap", {"softcap": 0}),
                 ("softcap", {"softcap": math.inf}), ("sinks", {"sinks": random(3)}),
                 ("sinks", {"sinks": random(2).astype("f8")}),
                 ("both", {"cu_seqlens_q": late}),
                 ("layout", {"layout": "dlhb"}), ("scale", {"scale": math.nan}),
                 ("bias", {"bias": random(4, 4)})]
        for word, arguments in cases:
            with self.assertRaisesRegex(five_steps.FiveStepsError, word):
                five_steps.attention(q, k, k, **arguments)
        for word, sums in (("from 1", late), ("longest", long), ("int32", good.astype("i8")),
                           ("alike", np.array([0, 1, 2], "i4"))):
            with self.assertRaisesRegex(five_steps.FiveStepsError, word):
                five_steps.attention(q, q, q, cu_seqlens_q=sums, cu_seqlens_k=good)
        for word, arrays in (("head_dim", (q, random(2, 5, 7), k)), ("float64", [q.astype("f8")] * 3),
                             ("list", ([1.0], k, k)), ("heads_q", (random(3, 3, 8), k, k)),
                             ("types differ", (q.astype("f2"), k, k))):
            with self.assertRaisesRegex(five_steps.FiveStepsError, word):
                five_steps.attention(*arrays)

    def test_softmax(self):
        """Along each dimension; a row of -infinity."""
        x = 5 * random(3, 4, 5)
        x[1, 2] = -np.inf
        for dim in range(-3, 3):
            e = np.exp(x.astype("f8"))
            total = e.sum(dim, keepdims=True)
            self.close(five_steps.softmax(x, dim), e / np.where(total == 0, 1, total), 1e-6)
        with self.assertRaisesRegex(five_steps.FiveStepsError, "dim"):
            five_steps.softmax(x, 3)

    def test_merge(self):
        """Two halves of the keys make the whole; the unit changes nothing."""
        q, k, v = random(2, 3, 8), random(2, 10, 8, seed=2), random(2, 10, 8, seed=3)
        parts = [five_steps.attention(q, k[:, s], v[:, s], return_lse=True)
                 for s in (slice(0, 4), slice(4, 10))]
        o, lse = five_steps.merge(*parts[0], *parts[1])
        want_o, want_lse = defined(q, k, v)
        self.close(o, want_o), self.close(lse, want_lse)
        unit = np.full_like(o, np.nan), np.full_like(lse, -np.inf)
        same, _ = five_steps.merge(*unit, *parts[1])
        self.assertTrue((same == parts[1][0]).all())


@NEEDS_TORCH
class Tensors(unittest.TestCase):
    """PyTorch tensors on the CPU."""

    def test_types_and_kind(self):
        """The same kind and type comes out, with the values of NumPy's call."""
        for kind, allowed in ((torch.float32, 2e-5), (torch.float16, 4e-3),
                              (torch.bfloat16, 3e-2)):
            q, k, v = (torch.from_numpy(random(2, h, n, 16)).to(kind)
                       for h, n in ((4, 9), (2, 13), (2, 13)))
            o = five_steps.attention(q, k, v, causal=True)
            self.assertEqual((o.dtype, o.shape), (kind, q.shape))
            want = defined(q.float(), k.float(), v.float(), True)[0]
            self.assertTrue((np.abs(o.float().numpy() - want) <= allowed).all())

    def test_a_gradient_is_refused(self):
        """With the words that help."""
        q = torch.randn(2, 3, 8, requires_grad=True)
        with self.assertRaisesRegex(five_steps.FiveStepsError, "no_grad"):
            five_steps.attention(q, q, q)
        with torch.no_grad():
            five_steps.attention(q, q, q)

    def test_a_call_that_looks_like_an_earlier_one(self):
        """It takes its own arrays, its own options, and lse where it asks for it."""
        for seed, causal in enumerate((False, True, False, True)):
            q, k, v = (torch.from_numpy(random(2, 4, n, 16, seed=seed)) for n in (9, 13, 13))
            want, want_lse = defined(q, k, v, causal)
            o = five_steps.attention(q, k, v, causal=causal)
            again, lse = five_steps.attention(q, k, v, causal=causal, return_lse=True)
            self.assertTrue((np.abs(o.numpy() - want) <= 2e-5).all(), seed)
            self.assertTrue((o == again).all() and torch.is_tensor(lse))
            self.assertTrue((np.abs(lse.numpy() - want_lse) <= 2e-5).all())

    def test_an_option_that_changed_counts(self):
        """A scale in a tensor that is written to, a window in a list."""
        q, k, v = (torch.from_numpy(random(2, 4, n, 16)) for n in (9, 13, 13))
        scale = torch.tensor(1.0)
        for value in (0.5, 0.1):
            scale.fill_(value)
            for window in ([2, 0], [4, 1]):
                got = five_steps.attention(q, k, v, scale=scale, window=window)
                want = defined(q, k, v, scale=value, window=window)[0]
                self.assertTrue((np.abs(got.numpy() - want) <= 2e-5).all(), (value, window))

    def test_packed_sequences_whose_longest_is_known(self):
        """The same as when the library looks for it; a bound that is too small is refused."""
        q, k, v = (torch.from_numpy(random(n, h, 8)) for n, h in ((12, 4), (20, 2), (20, 2)))
        sums = {"cu_seqlens_q": torch.from_numpy(SUMS_Q), "cu_seqlens_k": torch.from_numpy(SUMS_K)}
        want = five_steps.attention(q, k, v, causal=True, **sums)
        for more in (0, 3):
            got = five_steps.attention(q, k, v, causal=True, max_seqlen_q=12 + more,
                                       max_seqlen_k=20 + more, **sums)
            self.assertTrue((got == want).all())
        with self.assertRaisesRegex(five_steps.FiveStepsError, "longest"):
            five_steps.attention(q, k, v, max_seqlen_q=1, max_seqlen_k=20, **sums)

    def test_opcheck(self):
        """PyTorch's own check of the operators and their fake kernels."""
        from five_steps import torch_operations as t
        q, lse = torch.randn(2, 3, 8), torch.randn(2, 3)
        plain = (None, None, None, None, 0, 0, True, -1, -1, 0.0, 0.0, False)
        full = (torch.randn(3, 3), torch.randn(2), None, None, 0, 0, True, 4, 0, 20.0, 0.5, False)
        packed = (None, torch.randn(3), torch.tensor([0, 2]).int(), torch.tensor([0, 2]).int(),
                  2, 0, False, -1, -1, 0.0, 0.0, True)
        for options in (plain, full, packed):
            torch.library.opcheck(t._attention, (q, q, q, *options))
        torch.library.opcheck(t._softmax, (q,))
        torch.library.opcheck(t._merge, (q, lse, q, lse))

    def test_compiled_without_a_graph_break(self):
        """torch.compile of a function that calls the operators."""
        def f(q, k, v):
            o, lse = five_steps.attention(2 * q, k, v, causal=True, window=(3, 0), softcap=5.0,
                                          return_lse=True)
            turned = five_steps.attention(*(a.transpose(1, 2) for a in (q, k, v)),
                                          layout="blhd", sinks=q[0, :, 0, 0])
            o = o + turned.transpose(1, 2)
            return five_steps.softmax(o, 1) + lse[..., None]
        arrays = [torch.randn(1, 2, 5, 8) for _ in range(3)]
        with torch.no_grad():
            got = torch.compile(f, fullgraph=True, backend="eager")(*arrays)
            self.assertTrue((got == f(*arrays)).all())


if __name__ == "__main__":
    unittest.main()
