"""operations.py: attention, decode, append, softmax and merge, on arrays of either kind."""
from . import eight_bits
from .arrays import FiveStepsError, is_tensor, kind_of, wants_gradient
from .c_library import GPU, library  # pylint: disable=no-name-in-module
from .calls import attention_call, decode_call, run
from .options import attention_options, decode_options, whole
from .rows import compute_merge, compute_softmax

LAST = 2 ** 63 - 1  # x & LAST: x, or far behind all for a negative x
_torch_operations = []  # the module, once a tensor came in


def torch_operations():
    """torch_operations.py, which imports PyTorch."""
    if not _torch_operations:
        from . import torch_operations as module  # pylint: disable=import-outside-toplevel
        _torch_operations.append(module)
    return _torch_operations[0]


def attention(q, k, v, *, causal=False, scale=None, window=None, softcap=None, sinks=None,
              bias=None, cu_seqlens_q=None, cu_seqlens_k=None, layout="bhld", return_lse=False,
              max_seqlen_q=None, max_seqlen_k=None, alibi_slopes=None, out=None, deterministic=False,
              invariant=False, q_scale=None, k_scale=None, v_scale=None, kernel=None):
    """softmax(scale q k^T + bias) v.

    q [batch, heads_q, seqlen_q, head_dim], k and v [batch, heads_kv, seqlen_k, ...]; without
    batch, or without batch and heads, too.  layout="blhd": [batch, seqlen, heads, ...].  Views
    with strides, such as slices of a packed QKV tensor, are not copied where the last dimension
    is contiguous (on a GPU: where a kernel takes them).  heads_q is a multiple of heads_kv.

    causal is aligned at the bottom right: query i sees keys up to i + seqlen_k - seqlen_q.
    scale is 1/sqrt(head_dim) unless given.
    window=(left, right): query i sees key i + seqlen_k - seqlen_q, `left` keys
    before it and `right` keys after it; -1: no limit.
    softcap c: scores become c tanh(s / c) before the bias; None or 0: they stay.
    sinks [heads_q], float32: logits that take part in the denominator only.
    bias: added to the scores; [seqlen_q, seqlen_k], or what is broadcast to [batch, heads_q,
    seqlen_q, seqlen_k], such as [batch, 1, 1, seqlen_k].  float32 is not copied; booleans are True
    where a key is visible.
    alibi_slopes [heads_q] or [batch, heads_q], float32: a bias of -slope times the distance
    |i + seqlen_k - seqlen_q - j|, which is never written out.
    cu_seqlens_q, cu_seqlens_k [sequences + 1], integers: q, k and v hold sequences one after
    another, [total, heads, head_dim] whatever the layout.  The sizes of a bias are those of the
    longest sequence.
    max_seqlen_q, max_seqlen_k: the longest sequences, or more.  Without them the host reads the
    prefix sums, and on a GPU waits for them.
    out: where o is written; it overlaps no input.
    deterministic: the gradient's sums have a fixed order too, so all runs give the same bits; so it is
    under torch.use_deterministic_algorithms(True) as well.
    invariant: the bits of a query's result depend on the query and its keys alone: not on the batch,
    other queries, a prefill in chunks, or threads; and decode(invariant=True) gives the same ones.  Its
    gradient has a fixed order, no more: dk and dv are sums over the queries, so they depend on them.
    k and v may have 8 bits: torch.float8_e4m3fn (of NumPy: ml_dtypes) or int8.  A number is then its code
    times k_scale or v_scale: a number, or float32 [batch, heads_kv] (packed: [sequences, heads_kv]).  q may
    too, with q_scale; o is then bfloat16 (of NumPy: float32).  What no kernel reads as it lies is first
    copied in 16 bits, as on a GPU keys and values for more than 64 queries of a key head.  No gradients.
    kernel: of q, k and v in 8 bits on a Hopper GPU, "eight_bits_e4m3" or "eight_bits_sums": faster than the
    one that is taken without it, whose weights have 16 bits, with the errors of notes/eight_bits.md.

    Gives o in the layout of q; with return_lse also the logarithm of the denominator, float32,
    [batch, heads_q, seqlen_q] or [heads_q, total].  On a GPU, NaN or infinity in a value that is
    hidden may reach the result (0 * NaN).  Tensors are differentiable once: q, k, v, sinks and a bias (not
    of packed sequences) have a gradient, slopes have none.  Raises FiveStepsError for arguments that cannot be.

    >>> q = numpy.zeros((1, 4, 3, 8), "f4")
    >>> k, v = numpy.zeros((1, 2, 5, 8), "f4"), numpy.ones((1, 2, 5, 2), "f4")
    >>> o, lse = five_steps.attention(q, k, v, causal=True, return_lse=True)
    >>> o.shape, o[0, 0, 0].tolist(), lse.shape
    ((1, 4, 3, 2), [1.0, 1.0], (1, 4, 3))
    """
    arrays = q, k, v, bias, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k, None  # no seed: no dropout
    given = causal, scale, window, softcap, layout, max_seqlen_q, max_seqlen_k, invariant, deterministic, 0.0
    scales = q_scale, k_scale, v_scale
    unscaled = q_scale is k_scale is v_scale is None
    if not unscaled or eight_bits.is_coded(q, k, v):
        codes = eight_bits.check(q, k, v, scales)
        o, lse = attention_call(arrays, *attention_options(arrays, *given), out, codes, scales, kernel).compute()
    elif kernel is not None:
        raise FiveStepsError("kernel is given, which is for q, k and v in 8 bits")
    elif is_tensor(q):
        o, lse = torch_operations().attention(arrays, given, bool(return_lse), out)
    else:
        o, lse = attention_call(arrays, *attention_options(arrays, *given), out).compute()
    return (o, lse) if return_lse else o


def append(k_new, v_new, k_pages, v_pages, page_table, seqlen_k, *, layout="heads_first", k_scale=None,
           v_scale=None):
    """Writes n new keys and values per sequence into the cache, behind its first seqlen_k.

    k_new, v_new [batch, n, heads_kv, head_dim].  k_pages, v_pages, page_table, layout as in
    decode(); seqlen_k: the keys that are there already, a number or [batch].  Pages of 8 bits get the
    codes that are nearest to the numbers over k_scale and v_scale, as in attention().  Gives the numbers of
    keys afterwards.  Raises FiveStepsError for what cannot be, before anything is written.  Numbers that
    lie on a GPU, or that torch.compile traces, are not looked at first: a page or a row that does not exist
    stops the device, as PyTorch's own indices do.

    >>> k_pages, v_pages = numpy.zeros((4, 2, 16, 8), "f4"), numpy.zeros((4, 2, 16, 8), "f4")
    >>> new, page_table = numpy.ones((1, 3, 2, 8), "f4"), numpy.array([[2, 0]])
    >>> five_steps.append(new, new, k_pages, v_pages, page_table, 15), k_pages[0, 0, :3, 0].tolist()
    (18, [1.0, 1.0, 0.0])
    """
    writes, after = _new_keys((k_new, v_new), (k_pages, v_pages), page_table, seqlen_k, layout, (k_scale, v_scale))
    for pool, at, rows in writes:
        pool[at] = rows
    return after


def _new_keys(new, pools, page_table, seqlen_k, layout, scales):
    """What append() writes, checked: (pool, where, rows) of keys and of values; and the numbers of keys
    afterwards."""
    named = dict(zip(("k_new", "v_new", "k_pages", "v_pages"), (*new, *pools)))
    kind = kind_of({**named, "page_table": page_table,
                    "seqlen_k": seqlen_k if getattr(seqlen_k, "ndim", 0) else None})
    decode_options(None, None, None, layout)
    of_page, writes = 1 if layout == "pages_first" else 2, []
    for name, a, pool, scale in zip("kv", new, pools, scales):
        shape, coded = (*new[0].shape[:2], pool.shape[-1 - of_page], pool.shape[-1]), eight_bits.is_coded(pool)
        if pool.ndim != 4 or tuple(a.shape) != shape or (
                a.dtype != pool.dtype and not (coded and a.dtype in kind.types)):
            raise FiveStepsError(f"{name}_new is {a.dtype} {list(a.shape)}, its pages {pool.dtype} "
                                 f"{list(pool.shape)}; give [batch, n, heads_kv, head_dim], as in the pages")
        if scale is not None and not coded:
            raise FiveStepsError(f"{name}_scale is given, but its pages are {pool.dtype}")
        if any(map(wants_gradient, (a, pool, scale))):
            raise FiveStepsError(f"{name}_new, its pages or its scale have a gradient, which append has not; call "
                                 "under torch.no_grad(), or detach() the tensors")
        kind.check_writable(name + "_pages", pool)
    batch, n = new[0].shape[:2]
    size = pools[0].shape[of_page]
    each = kind.range(batch, new[0])[:, None]
    if page_table is not None:
        kind.check("page_table", page_table, kind.i32, "[batch, pages of one]", (batch, *page_table.shape[-1:]))
    table = each if page_table is None else page_table
    if getattr(seqlen_k, "ndim", 0):
        kind.check("seqlen_k", seqlen_k, kind.i32, "[batch]", (batch,))
        seqlen_k = kind.to(seqlen_k, kind.i32) if seqlen_k.itemsize < 4 else seqlen_k
    elif not is_tensor(seqlen_k):
        seqlen_k = whole("seqlen_k", seqlen_k, 0)
    rows = kind.to(kind.range(n, new[0]), kind.i64) + (seqlen_k[:, None] if getattr(seqlen_k, "ndim", 0) else seqlen_k)
    known = kind.knows(new[0]) and batch * n
    if known and not 0 <= int(rows.min()) <= int(rows.max()) < size * table.shape[1]:
        raise FiveStepsError(f"seqlen_k and {n} new keys reach {int(rows.max()) + 1}; the pages of a "
                             f"sequence hold {size * table.shape[1]} keys")
    if not known:  # for PyTorch -1 is the last; at what is behind them all it stops, on the device
        rows = rows & LAST
    pages = kind.to(table[each, rows // size], kind.i64)
    if known and not 0 <= int(pages.min()) <= int(pages.max()) < pools[0].shape[0]:
        raise FiveStepsError(f"page_table has page {int(pages.min())} to {int(pages.max())} for the new "
                             f"keys, there are {pools[0].shape[0]}")
    if not known:
        pages = pages & LAST
    at = (pages, rows % size) if layout == "pages_first" else (pages, slice(None), rows % size)
    for name, a, pool, scale in zip("kv", new, pools, scales):
        if a.dtype != pool.dtype:
            a = eight_bits.quantise(kind, name, a, pool, scale)
        if eight_bits.is_coded(pool):  # PyTorch cannot index numbers of 8 bits
            a, pool = a.view(kind.byte), pool.view(kind.byte)
        writes.append((pool, at, a))
    return writes, seqlen_k + n


def decode(q, k_pages, v_pages, page_table, seqlen_k, *, scale=None, window=None, softcap=None,
           sinks=None, alibi_slopes=None, layout="heads_first", max_seqlen_k=None, k_new=None,
           v_new=None, return_lse=False, out=None, deterministic=False, invariant=False, q_scale=None,
           k_scale=None, v_scale=None):
    """Attention of the newest queries of each sequence to its keys, which lie in pages.

    q [batch, heads_q, head_dim], or [batch, n, heads_q, head_dim] for n new queries per sequence,
    of which each sees the keys up to its own.  k_pages [pages, heads_kv, page_size, head_dim],
    v_pages [pages, heads_kv, page_size, head_dim_v]: a pool for all sequences; with
    layout="pages_first" [pages, page_size, heads_kv, ...].  Neither is copied.  page_table [batch,
    pages of one], integers: key j of sequence b lies in page page_table[b, j // page_size], row
    j % page_size.  None: a padded cache, sequence b has page b alone.
    seqlen_k: the number of keys of every sequence, or of each, [batch].  max_seqlen_k: the most, or
    more; without it a call on a GPU takes what the pages hold.
    k_new, v_new [batch, n, heads_kv, ...]: written into the pages first, behind seqlen_k keys.
    window=w: a query sees the w keys before its own only.  scale, softcap, sinks, alibi_slopes, out,
    invariant, and the scales of 8 bits as in attention(); deterministic is always so.

    Gives o in the shape of q and, with return_lse, lse [batch, heads_q] or [batch, heads_q, n],
    float32.  On a GPU neither the table nor the lengths are checked.  Raises FiveStepsError for
    arguments that cannot be, before new keys are written.

    >>> q, pages = numpy.zeros((2, 4, 8), "f4"), numpy.ones((6, 2, 16, 8), "f4")
    >>> page_table, lengths = numpy.array([[5, 0], [1, 1]]), numpy.array([20, 3])
    >>> five_steps.decode(q, pages, pages, page_table, lengths)[:, 0, 0].tolist()
    [1.0, 1.0]
    """
    del deterministic
    arrays, scales = (q, k_pages, v_pages, page_table, sinks, alibi_slopes), (q_scale, k_scale, v_scale)
    more = max_seqlen_k, (scale, window, softcap, layout, invariant), scales, out
    if k_new is not None or v_new is not None:
        if k_new is None or v_new is None:
            raise FiveStepsError("k_new and v_new belong together; give both")
        writes, seqlen_k = _new_keys((k_new, v_new), (k_pages, v_pages), page_table, seqlen_k, layout,
                                     (k_scale, v_scale))
        if kind_of({"q": q}).knows(q):
            _step(arrays, seqlen_k, *more, None)
        for pool, at, rows in writes:
            pool[at] = rows
    o, lse = _step(arrays, seqlen_k, *more, bool(return_lse))
    return (o, lse) if return_lse else o


def _step(arrays, seqlen_k, max_seqlen_k, given, scales, out, return_lse):
    """o and lse of decode().  return_lse None: all is checked, and nothing is computed."""
    (q, k_pages, v_pages, page_table, sinks, slopes), codes, lengths = arrays, None, None
    unscaled = scales[0] is scales[1] is scales[2] is None
    if not unscaled or eight_bits.is_coded(q, k_pages, v_pages):
        codes = eight_bits.check(q, k_pages, v_pages, scales)
        q = eight_bits.as_numbers(kind_of({"q": q}), q)
    if is_tensor(q) and scales[0] is None and out is None and slopes is None:
        results = torch_operations().repeated_decode((q, k_pages, v_pages, page_table, sinks), seqlen_k,
                                                     max_seqlen_k, given, scales[1:], return_lse)
        if results:
            return results
    if isinstance(seqlen_k, (list, tuple)):
        raise FiveStepsError("seqlen_k is a list; give a number, or an array [batch] of integers")
    options, layout = decode_options(*given), given[3]
    kind = kind_of({"q": q, "k_pages": k_pages, "page_table": page_table})
    if not isinstance(seqlen_k, int) and getattr(seqlen_k, "ndim", 0):
        pages = 1 if page_table is None else page_table.shape[-1]
        longest = whole("max_seqlen_k", max_seqlen_k or 0, 0)
        lengths, seqlen_k = _lengths(kind, seqlen_k, longest, pages * k_pages.shape[
            1 if layout == "pages_first" else 2])
    arrays = q, k_pages, v_pages, page_table, sinks, slopes, lengths
    options = whole("seqlen_k", seqlen_k, 0), *options
    if return_lse is not None and is_tensor(q) and codes is None:
        return torch_operations().decode(arrays, options, out)
    call = decode_call(torch_operations().cast_for_decode(arrays) if is_tensor(q) and codes is None else arrays,
                       *options, out, codes, scales)
    return call.check() if return_lse is None else call.compute()


def _lengths(kind, lengths, longest, room):
    """The number of keys of each sequence, and a bound on it."""
    if lengths.shape[0] and kind.knows(lengths):
        least, most = int(lengths.min()), int(lengths.max())
        if least < 0 or most > room:
            raise FiveStepsError(f"seqlen_k goes from {least} to {most}; the pages of a sequence hold "
                                 f"{room} keys")
        longest = max(most, longest)
    return lengths, min(longest or room, room)


def quantise(x, to="float8_e4m3fn", *, smooth=False, rotate=False):
    """Numbers as codes of 8 bits, and the least scale of each head at which none saturates; that of e4m3 is
    rounded up to a power of two, so that codes times scale are exact in 16 bits.

    x [batch, heads, rows, head_dim], head_dim 32, 64, 128 or 256.  to: "float8_e4m3fn" or "int8".
    smooth: the mean row of each head is subtracted first.  Of keys: no softmax changes, lse falls by
    scale times q.mean.  rotate: rows are multiplied by the Hadamard matrix over sqrt(head_dim).  q and k,
    rotated alike, have the same products.  Both make errors small where columns are unlike
    (notes/eight_bits.md).

    Gives codes in the shape of x, scale [batch, heads], float32, and, with smooth, mean [batch, heads,
    head_dim].  Query heads that share a key head have one scale in attention(): give them as more rows.

    >>> codes, scale, mean = five_steps.quantise(numpy.ones((1, 2, 3, 32), "f4"), "int8", smooth=True)
    >>> codes.shape, scale.tolist(), mean[0, 0, 0].item()
    ((1, 2, 3, 32), [[0.0, 0.0]], 1.0)
    """
    codes, scale, mean = eight_bits.quantised(x, to, smooth, rotate, run)
    return (codes, scale, mean) if smooth else (codes, scale)


def built_with():
    """What the library was built with: "no CUDA", or the compiler and the GPUs that it serves, such
    as "nvcc 13.0.88 90a"; then the level of this processor's instructions.

    >>> five_steps.built_with().split("; ")[0].startswith(("no CUDA", "nvcc", "executed"))
    True
    """
    so = library(GPU)
    return f"{so.built_with}; this processor is x86-64-v{so.level}" if so.level else so.built_with


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False, *, seed=None):
    """PyTorch's function with our kernels: query [..., heads, length, width], key and value alike, of
    any number of batch dimensions; these, and the heads, are broadcast.  enable_gqa: query's heads are
    a multiple of key's instead.  is_causal is aligned at the top left, as PyTorch's.

    attn_mask: what is broadcast to [..., heads, length of query, length of key]; booleans are True where
    a key is visible, numbers are added and have a gradient.
    dropout_p: each weight is 0 with this probability, the others are divided by 1 - dropout_p; inside the
    kernels, so nothing is stored.  seed: a whole number from which the choice is drawn, alike on every device;
    None: PyTorch's generator gives one.  A captured CUDA graph keeps its seed.

    Gives [..., heads, length, width of value].  Raises FiveStepsError for arguments that cannot be.

    >>> import torch
    >>> q = torch.ones(2, 4, 3, 8)
    >>> tuple(five_steps.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1).shape)
    (2, 4, 3, 8)
    """
    from .dot_product import compute_dot_product  # pylint: disable=import-outside-toplevel
    return compute_dot_product(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, seed)


def softmax(x, dim=-1):
    """exp(x_j) over the sum of exp(x_j) along dim; 0 where all are -infinity.  x of any shape with a
    dimension, float32, float16 or (tensors) bfloat16; y has its shape and type, and a gradient.  Raises
    FiveStepsError for another type, and for a dim that x does not have.

    >>> five_steps.softmax(numpy.zeros((1, 4), "f4")).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    kind_of({"x": x})
    dim = whole("dim", dim, -64)
    if x.ndim == 0:
        raise FiveStepsError("x is a single number; give at least one dimension")
    if not -x.ndim <= dim < x.ndim:
        raise FiveStepsError(f"dim is {dim}, but x has {x.ndim} dimensions")
    compute = torch_operations().softmax if is_tensor(x) else compute_softmax
    return compute(x.swapaxes(dim, -1)).swapaxes(dim, -1)


def merge(o1, lse1, o2, lse2):
    """o and lse over both parts, from (o, lse) of the same queries over each.  o1, o2 [..., head_dim_v] of
    one type, lse1, lse2 [...], float32; differentiable.  A part without keys has lse = -infinity, and its o
    may hold anything.  Raises FiveStepsError where shapes, types or devices differ.

    >>> o, lse = numpy.ones((3, 8), "f4"), numpy.zeros(3, "f4")
    >>> o, lse = five_steps.merge(o, lse, 3 * o, lse)
    >>> o[0, 0].item(), round(lse[0].item(), 4)  # log(1 + 1)
    (2.0, 0.6931)
    """
    compute = torch_operations().merge if is_tensor(o1) else compute_merge
    return compute(o1, lse1, o2, lse2)
