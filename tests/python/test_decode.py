"""test_decode.py: attention over keys in pages, against attention over the same keys in a row."""
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

BATCH, HEADS_Q, HEADS_KV, DIM, DIM_V, PAGE, PAGES = 3, 4, 2, 8, 5, 4, 6


def problem(seed):
    """Queries, pools of pages, a table that uses the pages in a drawn order, and the same keys
    and values in a row."""
    draw = np.random.default_rng(seed)
    q = draw.standard_normal((BATCH, HEADS_Q, DIM)).astype("f4")
    pools = [draw.standard_normal((BATCH * PAGES + 2, HEADS_KV, PAGE, d)).astype("f4")
             for d in (DIM, DIM_V)]
    table = draw.permutation(BATCH * PAGES + 2)[:BATCH * PAGES].reshape(BATCH, PAGES).astype("i4")
    rows = [pool[table].swapaxes(1, 2).reshape(BATCH, HEADS_KV, PAGES * PAGE, -1)
            for pool in pools]
    return q, pools, table, rows


class Decode(unittest.TestCase):
    """NumPy arrays."""

    def test_pages_and_rows_agree(self):
        """For each number of keys, with and without what a call may ask for."""
        sinks = np.linspace(-1, 1, HEADS_Q).astype("f4")
        for n in (0, 1, PAGE - 1, PAGE, PAGE + 1, PAGES * PAGE):
            for more in ({}, {"window": 3}, {"softcap": 1.5, "sinks": sinks, "scale": 0.5}):
                q, pools, table, (k, v) = problem(n)
                o, lse = five_steps.decode(q, *pools, table, n, return_lse=True, **more)
                same = dict(more, window=(more["window"], -1)) if "window" in more else more
                want = five_steps.attention(q[:, :, None], k[:, :, :n], v[:, :, :n],
                                            return_lse=True, **same)
                self.assertEqual((o.shape, lse.shape), ((BATCH, HEADS_Q, DIM_V),
                                                        (BATCH, HEADS_Q)))
                np.testing.assert_allclose(o, want[0][:, :, 0], atol=3e-6, err_msg=str((n, more)))
                np.testing.assert_allclose(lse, want[1][:, :, 0], atol=3e-6)

    def test_another_page_gives_another_result(self):
        """So that the comparison above can fail."""
        q, pools, table, _ = problem(1)
        o = five_steps.decode(q, *pools, table, 9)
        table[0, 2], table[0, 5] = table[0, 5], table[0, 2]
        other = five_steps.decode(q, *pools, table, 9)
        self.assertFalse(np.allclose(o[0], other[0]))
        self.assertTrue((o[1:] == other[1:]).all())

    def test_what_is_refused_says_so(self):
        """Before anything is read."""
        q, (k, v), table, _ = problem(2)
        for words, call in (
                ("hold 24 keys", lambda: five_steps.decode(q, k, v, table, 25)),
                ("seqlen_k is -1", lambda: five_steps.decode(q, k, v, table, -1)),
                ("one number", lambda: five_steps.decode(q, k, v, table, [5] * BATCH)),
                ("one number", lambda: five_steps.decode(q, k, v, table, np.full(BATCH, 5))),
                ("int64", lambda: five_steps.decode(q, k, v, table.astype("i8"), 5)),
                ("2 rows", lambda: five_steps.decode(q, k, v, table[:2], 5)),
                ("head_dim is 8 in q and 5", lambda: five_steps.decode(q, v, k, table, 5)),
                ("only head_dim may differ", lambda: five_steps.decode(q, k, v[1:], table, 5)),
                ("give q", lambda: five_steps.decode(q[0], k, v, table, 5)),
                ("window is -2", lambda: five_steps.decode(q, k, v, table, 5, window=-2)),
                ("sinks is", lambda: five_steps.decode(q, k, v, table, 5, sinks=q[0, 0]))):
            with self.assertRaisesRegex(five_steps.FiveStepsError, words):
                call()

    def test_a_page_outside_of_the_pool(self):
        """The CPU checks the table."""
        q, pools, table, _ = problem(3)
        table[1, 0] = BATCH * PAGES + 2
        with self.assertRaises(five_steps.FiveStepsError):
            five_steps.decode(q, *pools, table, 5)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    """PyTorch."""

    def test_the_operator(self):
        """PyTorch's own check, and the result of NumPy's arrays."""
        from five_steps import torch_operations as t
        q, pools, table, _ = problem(4)
        tensors = [torch.from_numpy(a) for a in (q, *pools, table)]
        torch.library.opcheck(t._decode, (*tensors, None, 9, -1, 0.0, 0.0))
        o = five_steps.decode(*tensors, 9)
        self.assertTrue((o.numpy() == five_steps.decode(q, *pools, table, 9)).all())


if __name__ == "__main__":
    unittest.main()
