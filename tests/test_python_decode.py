"""test_python_decode.py: attention over keys in pages, against attention over the same keys in a
row; and what a cache is written with."""
import numpy as np
import pytest

from five_steps_here import EVERYWHERE, KINDS, call, five_steps, given, taken
from helpers import compare, normal

kinds = pytest.mark.parametrize("kind", KINDS)
everywhere = pytest.mark.parametrize("kind", EVERYWHERE)
layouts = pytest.mark.parametrize("layout", ["heads_first", "pages_first"])
BATCH, HEADS_Q, HEADS_KV, DIM, DIM_V, PAGE, PAGES = 3, 4, 2, 8, 5, 4, 6
ROOM = PAGE * PAGES
OPTIONS = [{}, {"window": 3}, {"softcap": 1.5, "sinks": normal(HEADS_Q), "scale": 0.5},
           {"alibi_slopes": abs(normal(HEADS_Q))}]


def problem(queries=0, layout="heads_first", seed=1):
    """Queries, pools of pages, a table that uses the pages in a drawn order, and the same keys and
    values in a row."""
    q = normal(BATCH, *[queries] * bool(queries), HEADS_Q, DIM, seed=seed)
    pools = [normal(BATCH * PAGES + 2, HEADS_KV, PAGE, d, seed=seed + d) for d in (DIM, DIM_V)]
    table = np.random.default_rng(seed).permutation(BATCH * PAGES + 2)[:BATCH * PAGES]
    table = table.reshape(BATCH, PAGES).astype("i4")
    rows = [pool[table].swapaxes(1, 2).reshape(BATCH, HEADS_KV, ROOM, -1) for pool in pools]
    if layout == "pages_first":
        pools = [np.ascontiguousarray(pool.swapaxes(1, 2)) for pool in pools]
    return q, pools, table, rows


def by_rows(kind, q, rows, lengths, **options):
    """The same by attention, sequence by sequence."""
    short = q.ndim == 3
    q = q[:, None] if short else q
    if "window" in options:
        options["window"] = options["window"], 0
    parts = [call(kind, "attention", q[b].swapaxes(0, 1), *(a[b, :, :n] for a in rows), causal=True,
                  return_lse=True, **options) for b, n in enumerate(lengths)]
    o, lse = (np.stack(a) for a in zip(*parts))
    o = o.swapaxes(1, 2)
    return (o[:, 0], lse[..., 0]) if short else (o, lse)


@everywhere
@layouts
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("queries", [0, 1, 9])
@pytest.mark.parametrize("lengths", [4, 5, ROOM, [3, 9, ROOM], [4, 4, 4]], ids=str)
def test_pages_and_rows_agree(kind, layout, options, queries, lengths):
    """One number of keys, or one for each sequence; one new query, or several."""
    q, pools, table, rows = problem(queries, layout)
    each = [lengths] * BATCH if isinstance(lengths, int) else lengths
    keys = lengths if isinstance(lengths, int) else np.array(lengths, "i4")
    got = call(kind, "decode", q, *pools, table, keys, layout=layout, return_lse=True, **options)
    for mine, want in zip(got, by_rows(kind, q, rows, each, **options)):
        compare(mine, want, 3e-6)


@everywhere
def test_no_key_at_all(kind):
    """In every sequence, or in one of them."""
    q, pools, table, rows = problem()
    for lengths in (0, np.array([0, 5, 0], "i4")):
        o, lse = call(kind, "decode", q, *pools, table, lengths, return_lse=True)
        assert (o[0] == 0).all() and np.isneginf(lse[0]).all()
    compare(o[1], by_rows(kind, q, rows, [0, 5, 0])[0][1], 3e-6)


def test_a_pool_that_is_huge_is_not_copied():
    """16-bit numbers were widened for the whole pool: 2^20 pages asked for 137 GB."""
    pool = np.lib.stride_tricks.as_strided(normal(2, 16, 64).astype("f2"), (1 << 20, 2, 16, 64),
                                           (0, 2048, 128, 2))
    got = five_steps.decode(normal(1, 2, 64).astype("f2"), pool, pool, np.array([[7]]), 1)
    compare(got[0], pool[7, :, 0], 5e-4)


@kinds
@layouts
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("lengths", [5, [0, 7, 20]], ids=str)
def test_new_keys_are_written_behind_the_old(kind, layout, n, lengths):
    """append() alone, and decode() with k_new and v_new."""
    q, pools, table, rows = problem(n, layout)
    k_new, v_new = normal(BATCH, n, HEADS_KV, DIM, seed=7), normal(BATCH, n, HEADS_KV, DIM_V, seed=8)
    each = [lengths] * BATCH if isinstance(lengths, int) else lengths
    for b, length in enumerate(each):
        for row, new in zip(rows, (k_new, v_new)):
            row[b, :, length:length + n] = new[b].swapaxes(0, 1)
    mine = [given(kind, a.copy()) for a in pools]
    keys = given(kind, lengths if isinstance(lengths, int) else np.array(lengths, "i4"))
    new = [given(kind, a) for a in (k_new, v_new)]
    o = five_steps.decode(given(kind, q), *mine, given(kind, table), keys, k_new=new[0], v_new=new[1],
                          layout=layout)
    compare(taken(o), by_rows(kind, q, rows, [length + n for length in each])[0], 3e-6)
    again = [given(kind, a.copy()) for a in pools]
    after = five_steps.append(*new, *again, given(kind, table), keys, layout=layout)
    assert np.array_equal(taken(after), np.array(lengths) + n)
    assert all((taken(a) == taken(b)).all() for a, b in zip(mine, again))
    with pytest.raises(five_steps.FiveStepsError, match="hold 24 keys"):
        five_steps.append(*new, *again, given(kind, table), ROOM, layout=layout)


@kinds
def test_out_is_written(kind):
    q, pools, table, _ = problem()
    arrays = [given(kind, a) for a in (q, *pools, table)]
    for keys in (9, given(kind, np.array([1, 2, 9], "i4"))):
        out = given(kind, np.zeros((BATCH, HEADS_Q, DIM_V), "f4"))
        assert five_steps.decode(*arrays, keys, out=out) is out
        compare(taken(out), taken(five_steps.decode(*arrays, keys)), 0)


@kinds
def test_what_is_refused_says_so(kind):
    q, (k, v), table, _ = problem()
    far = table.copy()
    far[1, 0] = BATCH * PAGES + 2
    for words, arrays, options in (
            ("hold 24 keys", (q, k, v, table, 25), {}), ("seqlen_k is -1", (q, k, v, table, -1), {}),
            ("seqlen_k is 20.7", (q, k, v, table, 20.7), {}), ("a list", (q, k, v, table, [5] * 3), {}),
            ("seqlen_k is", (q, k, v, table, np.array([5, 5], "i4")), {}),
            ("seqlen_k goes from 1 to 25", (q, k, v, table, np.array([1, 25, 5], "i4")), {}),
            ("page_table is", (q, k, v, table[:2], 5), {}), ("page_table is", (q, k, v, table + 0.5, 5), {}),
            ("page_table", (q, k, v, table + 2 ** 32 * np.int64(1), 5), {}),  # pages that wrap to these
            ("head_dim", (q, v, k, table, 5), {}),
            ("only their head_dim may differ", (q, k, v[1:], table, 5), {}),
            ("give q", (q[0], k, v, table, 5), {}), ("window is -2", (q, k, v, table, 5), {"window": -2}),
            ("sinks is", (q, k, v, table, 5), {"sinks": q[0, 0]}), ("has page", (q, k, v, far, 5), {}),
            ("belong together", (q, k, v, table, 5), {"k_new": q}),
            ("max_seqlen_k is 'x'", (q, k, v, table, np.array([1, 2, 3], "i4")), {"max_seqlen_k": "x"}),
            ("without a page_table", (q, k, v, None, 3), {}), ("layout is", (q, k, v, table, 5), {"layout": "bhld"})):
        with pytest.raises(five_steps.FiveStepsError, match=words):
            call(kind, "decode", *arrays, **options)
