"""test_views.py: arrays whose rows are one row shown again and again (NumPy's broadcast_to, PyTorch's
expand): their strides are 0, and nothing beyond that row may be read."""
import numpy as np
import pytest

import five_steps

RNG = np.random.default_rng(7)


def one_row(shape):
    """A view of that shape whose rows all are one random row of memory."""
    row = RNG.standard_normal(shape[-1]).astype("f4")
    view = np.broadcast_to(row, shape)
    assert not any(view.strides[:-1])
    return view


@pytest.mark.parametrize("shape", [(2, 3, 40, 16), (2, 3, 1, 16), (3, 40, 16),
                                   (40, 16), (1, 1, 1, 16)])
@pytest.mark.parametrize("repeated", ["q", "k", "v", "qkv"])
def test_rows_that_repeat_are_the_rows_of_a_copy(shape, repeated):
    arrays = {name: one_row(shape) if name in repeated else
              RNG.standard_normal(shape).astype("f4") for name in "qkv"}
    got = five_steps.attention(**arrays, causal=True, return_lse=True)
    want = five_steps.attention(**{n: a.copy() for n, a in arrays.items()}, causal=True,
                                return_lse=True)
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)


def test_a_large_view_reads_its_one_row_only():
    """33 million elements, of which 128 exist."""
    k = one_row((8, 8, 4096, 128))
    q = RNG.standard_normal((8, 8, 1, 128)).astype("f4")
    np.testing.assert_allclose(five_steps.attention(q, k, k), np.broadcast_to(k[0, 0, 0], q.shape),
                               rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 40, 16), (2, 3, 1, 16)])
def test_a_tensor_that_is_expanded(shape):
    torch = pytest.importorskip("torch")
    k = torch.randn(1, 1, 1, 16).expand(shape)
    q = torch.randn(shape)
    torch.testing.assert_close(five_steps.attention(q, k, k),
                               five_steps.attention(q, k.contiguous(), k.contiguous()), rtol=0, atol=0)
