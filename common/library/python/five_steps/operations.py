"""operations.py: attention, softmax and merge on arrays of either kind."""
import math

from . import c_library
from .arrays import FiveStepsError, is_tensor, kind_of, same_type
from .find import library


def _later(**arguments):
    """Refuses what the library does not compute yet."""
    for name, value in arguments.items():
        if value is not None:
            raise FiveStepsError(f"{name} is not supported yet; leave it out")


def _causal_of(causal, window):
    """window=(left, right): keys i - left ... i + right, counted from the diagonal; -1: no
    limit.  Without a limit at the left it is no mask, or the causal one."""
    if window is None or tuple(window) == (-1, -1):
        return bool(causal)
    if tuple(window) == (-1, 0):
        return True
    raise FiveStepsError(f"window={tuple(window)} is not supported yet; (-1, -1) and (-1, 0), "
                         "which is causal, are")


def _shape_4(name, a):
    """[seqlen, dim], [heads, seqlen, dim] or [batch, heads, seqlen, dim] as the last."""
    if not 2 <= a.ndim <= 4:
        raise FiveStepsError(f"{name} has {a.ndim} dimensions; give [seqlen, head_dim], [heads, "
                             "seqlen, head_dim] or [batch, heads, seqlen, head_dim]")
    return (1,) * (4 - a.ndim) + tuple(a.shape)


def _sizes(q, k, v):
    """The sizes of the problem, checked against each other."""
    if not q.ndim == k.ndim == v.ndim:
        raise FiveStepsError(f"q, k and v have {q.ndim}, {k.ndim} and {v.ndim} dimensions; give "
                             "them alike")
    (b, hq, nq, d), (bk, hk, nk, dk), (bv, hv, nv, dv) = (
        _shape_4(name, a) for name, a in (("q", q), ("k", k), ("v", v)))
    if d != dk:
        raise FiveStepsError(f"head_dim is {d} in q and {dk} in k")
    if (bk, bv) != (b, b):
        raise FiveStepsError(f"batch is {b} in q, {bk} in k and {bv} in v")
    if (hv, nv) != (hk, nk):
        raise FiveStepsError(f"k has {hk} heads of {nk} keys, v {hv} of {nv}")
    return {"batch": b, "heads_q": hq, "heads_kv": hk, "seqlen_q": nq, "seqlen_k": nk,
            "head_dim": d, "head_dim_v": dv}


def _call(function, query, kind, like, problem):
    """Runs a function of the library with the workspace that it asks for."""
    try:
        size = query(problem)
        work = kind.workspace(max(size, 1), like)
        function(problem, kind.address(work), size)
    except c_library.LibraryError as error:
        if error.code in (c_library.INVALID, c_library.UNSUPPORTED):
            raise FiveStepsError(str(error)) from None
        raise


def compute_attention(q, k, v, bias, causal, scale):
    """o and lse of arrays in the layout [.., heads, seqlen, head_dim]."""
    kind = kind_of(q=q, k=k, v=v, bias=bias)
    sizes = _sizes(q, k, v)
    number = same_type(kind, q=q, k=k, v=v)
    if bias is not None:
        if kind.type_of("bias", bias) != c_library.F32:
            raise FiveStepsError(f"bias is {bias.dtype}; give float32")
        if tuple(bias.shape) != (sizes["seqlen_q"], sizes["seqlen_k"]):
            raise FiveStepsError(f"bias is {list(bias.shape)}; give [seqlen_q, seqlen_k] = "
                                 f"[{sizes['seqlen_q']}, {sizes['seqlen_k']}]")
    q, k, v = (kind.contiguous(a) for a in (q, k, v))
    bias = None if bias is None else kind.contiguous(bias)
    o = kind.empty(tuple(q.shape[:-1]) + (sizes["head_dim_v"],), q)
    lse = kind.empty_float(tuple(q.shape[:-1]), q)
    problem = c_library.AttentionProblem(
        type=number, causal=causal, scale=scale, q=kind.address(q), k=kind.address(k), v=kind.address(v),
        bias=None if bias is None else kind.address(bias), o=kind.address(o),
        lse=kind.address(lse), **sizes, **kind.place(q))
    _call(library().attention, library().attention_workspace, kind, q, problem)
    return o, lse


def attention(q, k, v, *, causal=False, scale=None, window=None, softcap=None, sinks=None,
              bias=None, cu_seqlens_q=None, cu_seqlens_k=None, layout="bhld",
              return_lse=False):
    """softmax(scale q k^T + bias) v.

    q [batch, heads_q, seqlen_q, head_dim], k and v [batch, heads_kv, seqlen_k, ...]; without
    batch, or without batch and heads, too.  layout="blhd": [batch, seqlen, heads, ...], which is
    copied.  heads_q is a multiple of heads_kv.  causal is aligned at the bottom right.  scale is
    1/sqrt(head_dim) unless given.  bias [seqlen_q, seqlen_k], float32.  With return_lse also the
    logarithm of the denominator, [batch, heads_q, seqlen_q], float32.  On a GPU, NaN or
    infinity in a value that is hidden may reach the result (0 * NaN).
    """
    _later(softcap=softcap, sinks=sinks, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    causal = _causal_of(causal, window)
    if layout not in ("bhld", "blhd"):
        raise FiveStepsError(f"layout is '{layout}'; give 'bhld' or 'blhd'")
    if scale is not None and (not math.isfinite(scale) or scale == 0):
        raise FiveStepsError(f"scale is {scale}; give a finite number other than 0")
    kind = kind_of(q=q, k=k, v=v, bias=bias)
    if layout == "blhd":
        if min(q.ndim, k.ndim, v.ndim) < 3:
            raise FiveStepsError("layout 'blhd' needs [seqlen, heads, head_dim] or [batch, "
                                 "seqlen, heads, head_dim]")
        q, k, v = (kind.swap(a, -3, -2) for a in (q, k, v))
    compute = compute_attention
    if is_tensor(q):
        from .torch_operations import attention as compute  # pylint: disable=import-outside-toplevel
    o, lse = compute(q, k, v, bias, causal, float(scale or 0))
    if layout == "blhd":
        o = kind.swap(o, -3, -2)
    return (o, lse) if return_lse else o


def compute_softmax(x):
    """Softmax of the last dimension."""
    kind = kind_of(x=x)
    x = kind.contiguous(x)
    y = kind.empty(tuple(x.shape), x)
    cols = x.shape[-1]
    problem = c_library.SoftmaxProblem(
        type=kind.type_of("x", x), rows=math.prod(x.shape[:-1]), cols=cols,
        x=kind.address(x), y=kind.address(y), **kind.place(x))
    _call(library().softmax, library().softmax_workspace, kind, x, problem)
    return y


def softmax(x, dim=-1):
    """exp(x_j) over the sum of exp(x_j) along dim; 0 where all are -infinity."""
    kind = kind_of(x=x)
    if x.ndim == 0:
        raise FiveStepsError("x is a single number; give at least one dimension")
    if not -x.ndim <= dim < x.ndim:
        raise FiveStepsError(f"dim is {dim}, but x has {x.ndim} dimensions")
    compute = compute_softmax
    if is_tensor(x):
        from .torch_operations import softmax as compute  # pylint: disable=import-outside-toplevel
    return kind.swap(compute(kind.swap(x, dim, -1)), dim, -1)


def compute_merge(o1, lse1, o2, lse2):
    """The SE monoid's operation on partial results."""
    kind = kind_of(o1=o1, lse1=lse1, o2=o2, lse2=lse2)
    number = same_type(kind, o1=o1, o2=o2)
    for name, lse, o in (("lse1", lse1, o1), ("lse2", lse2, o2)):
        if kind.type_of(name, lse) != c_library.F32:
            raise FiveStepsError(f"{name} is {lse.dtype}; give float32")
        if tuple(o.shape) != tuple(o1.shape) or tuple(lse.shape) != tuple(o1.shape[:-1]):
            raise FiveStepsError(f"{name} is {list(lse.shape)}, its o {list(o.shape)}, o1 "
                                 f"{list(o1.shape)}; give o1 and o2 alike, and of each lse the "
                                 "shape of o without its last dimension")
    o1, lse1, o2, lse2 = (kind.contiguous(a) for a in (o1, lse1, o2, lse2))
    o, lse = kind.empty(tuple(o1.shape), o1), kind.empty_float(tuple(lse1.shape), o1)
    problem = c_library.MergeProblem(
        type=number, rows=math.prod(lse1.shape), head_dim_v=o1.shape[-1],
        o1=kind.address(o1), o2=kind.address(o2), lse1=kind.address(lse1),
        lse2=kind.address(lse2), o=kind.address(o), lse=kind.address(lse), **kind.place(o1))
    try:
        library().merge(problem)
    except c_library.LibraryError as error:
        if error.code in (c_library.INVALID, c_library.UNSUPPORTED):
            raise FiveStepsError(str(error)) from None
        raise
    return o, lse


def merge(o1, lse1, o2, lse2):
    """o and lse over both parts, from (o, lse) of the same queries over each."""
    compute = compute_merge
    if is_tensor(o1):
        from .torch_operations import merge as compute  # pylint: disable=import-outside-toplevel
    return compute(o1, lse1, o2, lse2)
