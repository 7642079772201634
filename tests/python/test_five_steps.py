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


def defined(q, k, v, causal=False, scale=None, bias=None):
    """o and lse by the definition."""
    q, k, v = (np.asarray(a, "f8") for a in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(a, group, axis=-3) for a in (k, v))
    s = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    nq, nk = s.shape[-2:]
    if bias is not None:
        s = s + bias
    if causal:
        s = np.where(np.arange(nk) <= np.arange(nq)[:, None] + nk - nq, s, -np.inf)
    m = np.where(np.isinf(s.max(-1)), 0, s.max(-1))[..., None]
    p = np.exp(s - m)
    l = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return p @ v / np.where(l == 0, 1, l), (np.log(l) + np.where(l == 0, 0, m))[..., 0]


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

    def test_rows_without_keys(self):
        """More queries than keys under a causal mask: zeros, and -infinity."""
        o, lse = five_steps.attention(random(6, 8), random(4, 8), random(4, 8), causal=True,
                                      return_lse=True)
        self.assertTrue((o[:2] == 0).all() and np.isneginf(lse[:2]).all())

    def test_what_is_refused_says_so(self):
        """Arguments that cannot be, and those that are not supported yet."""
        q, k = random(2, 3, 8), random(2, 5, 8)
        cases = [("window", {"window": (4, 0)}), ("softcap", {"softcap": 30.0}),
                 ("sinks", {"sinks": random(2)}), ("cu_seqlens_q", {"cu_seqlens_q": [0, 3]}),
                 ("layout", {"layout": "dlhb"}), ("scale", {"scale": math.nan}),
                 ("bias", {"bias": random(4, 4)})]
        for word, arguments in cases:
            with self.assertRaisesRegex(five_steps.FiveStepsError, word):
                five_steps.attention(q, k, k, **arguments)
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

    def test_opcheck(self):
        """PyTorch's own check of the operators and their fake kernels."""
        from five_steps import torch_operations as t
        q, lse = torch.randn(2, 3, 8), torch.randn(2, 3)
        torch.library.opcheck(t._attention, (q, q, q, None, True, 0.0))
        torch.library.opcheck(t._softmax, (q,))
        torch.library.opcheck(t._merge, (q, lse, q, lse))

    def test_compiled_without_a_graph_break(self):
        """torch.compile of a function that calls the operators."""
        def f(q, k, v):
            o, lse = five_steps.attention(2 * q, k, v, causal=True, return_lse=True)
            return five_steps.softmax(o, 1) + lse[..., None]
        arrays = [torch.randn(1, 2, 5, 8) for _ in range(3)]
        with torch.no_grad():
            got = torch.compile(f, fullgraph=True, backend="eager")(*arrays)
            self.assertTrue((got == f(*arrays)).all())


if __name__ == "__main__":
    unittest.main()
