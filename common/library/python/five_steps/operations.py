"""operations.py: attention, softmax and merge on arrays of either kind."""
import functools
import math

from . import c_library
from .arrays import FiveStepsError, is_tensor, kind_of, same_type
from .attention_call import AttentionCall
from .find import library


_torch_operations = []  # the module, once a tensor came in


def torch_operations():
    """torch_operations.py, which imports PyTorch."""
    if not _torch_operations:
        from . import torch_operations as module  # pylint: disable=import-outside-toplevel
        _torch_operations.append(module)
    return _torch_operations[0]


def call_library(name, kind, like, problem):
    """Runs "attention" or "softmax" of the library with the workspace that it asks for."""
    try:
        with kind.on_device(like):
            size = getattr(library(), name + "_workspace")(problem)
            work = kind.workspace(max(size, 1), like)
            getattr(library(), name)(problem, kind.address(work), size)
    except c_library.LibraryError as error:
        if error.code in (c_library.INVALID, c_library.UNSUPPORTED):
            raise FiveStepsError(str(error), error.code) from None
        raise


def attention_call(q, k, v, bias, sinks, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                   causal, window_left, window_right, softcap, scale, rows_first):
    """The arguments as a checked call.  rows_first: the rows lie before the heads; a max_seqlen
    of 0 is found from the prefix sums."""
    kind = kind_of(q=q, k=k, v=v, bias=bias, sinks=sinks, cu_seqlens_q=cu_seqlens_q,
                   cu_seqlens_k=cu_seqlens_k)
    call = AttentionCall(kind, q, k, v, rows_first)
    call.add_scores(bias, sinks, causal, (window_left, window_right), softcap, scale)
    if cu_seqlens_q is not None:
        call.add_packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    call.check_scores()
    return call


def attention_options(arrays, causal, scale, window, softcap, layout, max_seqlen_q, max_seqlen_k):
    """What a caller gave beside the arrays, checked: the rest of attention_call()'s arguments."""
    q, cu_seqlens_q, cu_seqlens_k = arrays[0], *arrays[5:]
    if layout not in ("bhld", "blhd"):
        raise FiveStepsError(f"layout is '{layout}'; give 'bhld' or 'blhd'")
    if scale is not None and (not math.isfinite(scale) or scale == 0):
        raise FiveStepsError(f"scale is {scale}; give a finite number other than 0")
    if softcap is not None and not 0 < softcap < math.inf:
        raise FiveStepsError(f"softcap is {softcap}; give a finite number above 0")
    if window is not None and (len(window) != 2 or min(window) < -1):
        raise FiveStepsError(f"window is {window}; give (left, right), -1 for no limit")
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise FiveStepsError("cu_seqlens_q and cu_seqlens_k belong together; give both")
    left, right = window or (-1, -1)
    packed = cu_seqlens_q is not None
    rows_first = packed or layout == "blhd"
    if rows_first and (q.ndim != 3 if packed else q.ndim < 3):
        raise FiveStepsError("packed arrays are [total, heads, head_dim]" if packed else
                             "layout 'blhd' needs [seqlen, heads, head_dim] or [batch, seqlen, "
                             "heads, head_dim]")
    return (int(max_seqlen_q or 0), int(max_seqlen_k or 0), bool(causal), int(left), int(right),
            float(softcap or 0), float(scale or 0), rows_first)


def compute_attention(arrays, options, _return_lse=True):
    """o, in the layout of q, and lse; arrays and options: the arguments of attention_call()."""
    call = attention_call(*arrays, *options)
    o, lse = call.outputs()
    if math.prod(o.shape) == 0:
        return o, lse
    run = functools.partial(call_library, "attention", call.kind, call.like)
    try:
        run(call.problem(o, lse))
    except FiveStepsError as error:
        if error.code != c_library.UNSUPPORTED or call.is_contiguous():
            raise
        plain = call.kind.contiguous(call.heads_first(o))  # no kernel takes the rows as they lie
        run(call.contiguous().problem(plain, lse, rows_first=False))
        call.kind.copy(o, call.heads_first(plain))
    return o, lse


def attention(q, k, v, *, causal=False, scale=None, window=None, softcap=None, sinks=None,
              bias=None, cu_seqlens_q=None, cu_seqlens_k=None, layout="bhld",
              return_lse=False, max_seqlen_q=None, max_seqlen_k=None):
    """softmax(scale q k^T + bias) v.

    q [batch, heads_q, seqlen_q, head_dim], k and v [batch, heads_kv, seqlen_k, ...]; without
    batch, or without batch and heads, too.  layout="blhd": [batch, seqlen, heads, ...].  Views
    with strides, such as slices of a packed QKV tensor, are not copied where the last dimension
    is contiguous (on a GPU: where a kernel takes them).  heads_q is a multiple of heads_kv.

    causal is aligned at the bottom right: query i sees keys up to i + seqlen_k - seqlen_q.
    scale is 1/sqrt(head_dim) unless given.
    window=(left, right): query i sees key i + seqlen_k - seqlen_q, `left` keys
    before it and `right` keys after it; -1: no limit.
    softcap c: scores become c tanh(s / c) before the bias.
    sinks [heads_q], float32: logits that take part in the denominator only.
    bias [seqlen_q, seqlen_k], float32.
    cu_seqlens_q, cu_seqlens_k [sequences + 1], int32: q, k and v hold sequences one after
    another, [total, heads, head_dim] whatever the layout.  The sizes of a bias are those of the
    longest sequence.
    max_seqlen_q, max_seqlen_k: the longest sequences, or more.  Without them the host reads the
    prefix sums, and on a GPU waits for them.

    With return_lse also the logarithm of the denominator, float32, [batch, heads_q, seqlen_q]
    or [heads_q, total].  On a GPU, NaN or infinity in a value that is hidden may reach the
    result (0 * NaN).
    """
    arrays = q, k, v, bias, sinks, cu_seqlens_q, cu_seqlens_k
    given = (causal, scale, window if window is None else tuple(window), softcap, layout,
             max_seqlen_q, max_seqlen_k)
    if is_tensor(q):
        o, lse = torch_operations().attention(arrays, given, bool(return_lse))
    else:
        o, lse = compute_attention(arrays, attention_options(arrays, *given))
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
    call_library("softmax", kind, x, problem)
    return y


def softmax(x, dim=-1):
    """exp(x_j) over the sum of exp(x_j) along dim; 0 where all are -infinity."""
    kind = kind_of(x=x)
    if x.ndim == 0:
        raise FiveStepsError("x is a single number; give at least one dimension")
    if not -x.ndim <= dim < x.ndim:
        raise FiveStepsError(f"dim is {dim}, but x has {x.ndim} dimensions")
    compute = torch_operations().softmax if is_tensor(x) else compute_softmax
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
        with kind.on_device(o1):
            library().merge(problem)
    except c_library.LibraryError as error:
        if error.code in (c_library.INVALID, c_library.UNSUPPORTED):
            raise FiveStepsError(str(error)) from None
        raise
    return o, lse


def merge(o1, lse1, o2, lse2):
    """o and lse over both parts, from (o, lse) of the same queries over each."""
    compute = torch_operations().merge if is_tensor(o1) else compute_merge
    return compute(o1, lse1, o2, lse2)
