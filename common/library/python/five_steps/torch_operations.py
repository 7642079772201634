"""torch_operations.py: the operations as PyTorch operators, so that torch.compile keeps its graph
whole.  Needs PyTorch 2.4 or newer."""
from typing import Optional, Tuple

import torch
from torch.autograd import forward_ad

from . import operations
from .arrays import FiveStepsError, kind_of
from .calls import attention_call, decode_call
from .prepared import Prepared, Repeated

Tensor = torch.Tensor


@torch.library.custom_op("five_steps::attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
               alibi_slopes: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
               cu_seqlens_k: Optional[Tensor], max_seqlen_q: int, max_seqlen_k: int, causal: bool,
               window_left: int, window_right: int, softcap: float, scale: float,
               rows_first: bool) -> Tuple[Tensor, Tensor]:
    return attention_call(
        (q, k, v, bias, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k), max_seqlen_q,
        max_seqlen_k, causal, window_left, window_right, softcap, scale, rows_first).compute()


@_attention.register_fake
def _(q, k, v, *options):
    rows, rows_first = q.shape[:-1], options[-1]
    of_lse = (*rows[:-2], rows[-1], rows[-2]) if rows_first else rows
    return q.new_empty((*rows, v.shape[-1])), q.new_empty(of_lse, dtype=torch.float32)


@torch.library.custom_op("five_steps::softmax", mutates_args=())
def _softmax(x: Tensor) -> Tensor:
    return operations.compute_softmax(x)


@_softmax.register_fake
def _(x):
    return x.new_empty(x.shape)


@torch.library.custom_op("five_steps::merge", mutates_args=())
def _merge(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor) -> Tuple[Tensor, Tensor]:
    return operations.compute_merge(o1, lse1, o2, lse2)


@_merge.register_fake
def _(o1, lse1, o2, lse2):  # pylint: disable=unused-argument
    return o1.new_empty(o1.shape), lse1.new_empty(lse1.shape)


@torch.library.custom_op("five_steps::decode", mutates_args=())
def _decode(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor,
            sinks: Optional[Tensor], alibi_slopes: Optional[Tensor], sums_q: Optional[Tensor],
            sums_k: Optional[Tensor], seqlen_k: int, window_left: int, softcap: float,
            scale: float, pages_first: bool) -> Tuple[Tensor, Tensor]:
    o, lse = operations.compute_decode(
        (q, k_pages, v_pages, page_table, sinks, alibi_slopes, sums_q, sums_k),
        (seqlen_k, window_left, softcap, scale, pages_first))
    return o, lse.contiguous()


@_decode.register_fake
def _(q, k_pages, v_pages, *options):  # pylint: disable=unused-argument
    rows = q.shape[:-1] if q.ndim == 3 else (q.shape[0], q.shape[2], q.shape[1])
    return (q.new_empty((*q.shape[:-1], v_pages.shape[3])),
            q.new_empty(rows, dtype=torch.float32))


def _watcher():
    """A function that says whether somebody watches the call.  PyTorch may take its names away;
    then the call counts as watched."""
    try:
        tracing, dispatch = torch._C._is_tracing, torch._C._len_torch_dispatch_stack
        function = torch._C._len_torch_function_stack
        transformation = torch._C._functorch.peek_interpreter_stack
    except AttributeError:
        return lambda: True
    return lambda: tracing() or dispatch() or function() or transformation()


_watched = _watcher()
_PLAIN = {Tensor, torch.nn.Parameter, type(None)}
_VALUES = {type(None), bool, int, float, str}  # types of options under which a call is kept


def _is_plain(arrays):
    """Does the call want its result and nothing else?  Tracing, modes, transformations and
    subclasses of tensors need the operator."""
    if torch.compiler.is_compiling() or _watched():
        return False
    return _PLAIN.issuperset(map(type, arrays))


def _refuse_gradient(arrays):
    """No derivative is silently left out, backward or forward."""
    tensors = [a for a in arrays if a is not None]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise FiveStepsError("a gradient is asked for, but the backward pass is not there yet; "
                             "call under torch.no_grad(), or detach() the tensors")
    if getattr(forward_ad, "_current_level", 0) < 0:
        return
    if any(forward_ad.unpack_dual(t).tangent is not None for t in tensors if t.is_floating_point()):
        raise FiveStepsError("a forward-mode derivative is asked for (jvp, jacfwd, make_dual), which "
                             "is not supported; use torch.func.grad or vjp on another attention")


def _cast(arrays):
    """q, k and v in autocast's type, where autocast is on: as PyTorch's own attention."""
    place = getattr(arrays[0], "device", torch.device("cpu")).type
    if not torch.is_autocast_enabled(place):
        return arrays
    wanted = torch.get_autocast_dtype(place)
    return (*(a.to(wanted) if isinstance(a, Tensor) and a.is_floating_point() and
              a.dtype != torch.float64 else a for a in arrays[:3]), *arrays[3:])


def _prepare_attention(arrays, given):
    packed, window, longest = arrays[6] is not None, given[2] or (), given[5:]
    if packed and not all(longest) or arrays[5] is not None:
        raise FiveStepsError("something has to be computed again in each call")
    if not _VALUES.issuperset(map(type, (*window, *given[:2], *given[3:]))):
        raise FiveStepsError("an option is an object, which may change")
    call = attention_call(arrays, *operations.attention_options(arrays, *given))
    names = ("q", "k", "v", "bias", "sinks", "", "cu_seqlens_q", "cu_seqlens_k")
    return Prepared(call, zip(names, arrays))


def _prepare_decode(arrays, options):
    if arrays[5] is not None:
        raise FiveStepsError("something has to be computed again in each call")
    call = decode_call(arrays, *options)
    names = ("q", "k", "v", "page_table", "sinks", "", "cu_seqlens_q", "cu_seqlens_k")
    return Prepared(call, zip(names, arrays), moving="seqlen_k")


_attentions, _decodes = Repeated(_prepare_attention), Repeated(_prepare_decode)


def attention(arrays, given, return_lse, out):
    """five_steps::attention; lse may be None where it is not wanted.
    given: what the caller gave beside the arrays, not checked yet."""
    kind_of({"q": arrays[0], "k": arrays[1], "v": arrays[2]})
    arrays = _cast(arrays)
    _refuse_gradient(arrays)
    plain = _is_plain(arrays)
    if type(given[2]) is list:
        given = (*given[:2], tuple(given[2]), *given[3:])
    if plain and out is None and type(given[2]) in (tuple, type(None)):
        results = _attentions(arrays, given, return_lse)
        if results:
            return results
    options = operations.attention_options(arrays, *given)
    if plain:
        return attention_call(arrays, *options, out).compute()
    o, lse = _attention(*arrays, *options)
    return (o if out is None else out.copy_(o)), lse


def softmax(x):
    """five_steps::softmax."""
    _refuse_gradient((x,))
    return operations.compute_softmax(x) if _is_plain((x,)) else _softmax(x)


def merge(o1, lse1, o2, lse2):
    """five_steps::merge."""
    arrays = o1, lse1, o2, lse2
    kind_of(dict(zip(("o1", "lse1", "o2", "lse2"), arrays)))
    _refuse_gradient(arrays)
    compute = operations.compute_merge if _is_plain(arrays) else _merge
    return compute(*arrays)


def decode(arrays, options, return_lse, out):
    """five_steps::decode; lse may be None where it is not wanted."""
    arrays = _cast(arrays)
    _refuse_gradient(arrays)
    if not _is_plain(arrays):
        o, lse = _decode(*arrays, *options)
        return (o if out is None else out.copy_(o)), lse
    results = out is None and _decodes(arrays, options[1:], return_lse, options[0])
    if not results:
        return operations.compute_decode(arrays, options, out)
    o, lse = results
    return o, lse if lse is None else operations.decode_lse(
        kind_of({"q": arrays[0]}), lse, arrays[0], arrays[6] is not None)
