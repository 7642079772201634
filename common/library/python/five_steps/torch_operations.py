"""torch_operations.py: the operations as PyTorch operators, so that torch.compile keeps its graph
whole.  Needs PyTorch 2.4 or newer."""
from typing import Optional, Tuple

import torch

from . import operations, paged
from .arrays import FiveStepsError
from .prepared import Prepared, Repeated

Tensor = torch.Tensor


def _refuse_gradient(tensors):
    if not torch.is_grad_enabled():
        return
    if any(t is not None and t.requires_grad for t in tensors):
        raise FiveStepsError("a gradient is asked for, but the backward pass is not there yet; "
                             "call under torch.no_grad(), or detach() the tensors")


@torch.library.custom_op("five_steps::attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
               cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], max_seqlen_q: int,
               max_seqlen_k: int, causal: bool, window_left: int, window_right: int,
               softcap: float, scale: float, rows_first: bool) -> Tuple[Tensor, Tensor]:
    return operations.compute_attention(
        (q, k, v, bias, sinks, cu_seqlens_q, cu_seqlens_k),
        (max_seqlen_q, max_seqlen_k, causal, window_left, window_right, softcap, scale,
         rows_first))


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
            sinks: Optional[Tensor], seqlen_k: int, window_left: int, softcap: float,
            scale: float) -> Tuple[Tensor, Tensor]:
    return paged.compute_decode((q, k_pages, v_pages, page_table, sinks), seqlen_k,
                                (window_left, softcap, scale))


@_decode.register_fake
def _(q, k_pages, v_pages, *options):  # pylint: disable=unused-argument
    return (q.new_empty((*q.shape[:2], v_pages.shape[3])),
            q.new_empty(q.shape[:2], dtype=torch.float32))


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


def _prepare_attention(arrays, given, _):
    packed, window, longest = arrays[5] is not None, given[2] or (), given[5:]
    if packed and not all(longest):
        raise FiveStepsError("the longest sequences have to be found again in each call")
    if not _VALUES.issuperset(map(type, (*window, *given[:2], *given[3:]))):
        raise FiveStepsError("an option is an object, which may change")
    call = operations.attention_call(*arrays, *operations.attention_options(arrays, *given))
    o, lse = call.outputs()
    names = ("q", "k", "v", "bias", "sinks", "cu_seqlens_q", "cu_seqlens_k")
    return Prepared(call.problem(o, lse), dict(zip(names, arrays)), o, lse)


def _prepare_decode(arrays, options, seqlen_k):
    call = paged.DecodeCall(*arrays, *options)
    o, lse = call.outputs()
    names = ("q", "k", "v", "page_table", "sinks")
    return Prepared(call.problem(o, lse, seqlen_k), dict(zip(names, arrays)), o, lse)


_attentions, _decodes = Repeated(_prepare_attention), Repeated(_prepare_decode)


def attention(arrays, given, return_lse):
    """five_steps::attention; lse may be None where it is not wanted.
    given: what the caller gave beside the arrays, not checked yet."""
    _refuse_gradient(arrays)
    plain = _is_plain(arrays)
    results = _attentions(arrays, given, return_lse) if plain else None
    if results:
        return results
    options = operations.attention_options(arrays, *given)
    if plain:
        return operations.compute_attention(arrays, options, return_lse)
    return _attention(*arrays, *options)


def softmax(x):
    """five_steps::softmax."""
    _refuse_gradient((x,))
    return operations.compute_softmax(x) if _is_plain((x,)) else _softmax(x)


def merge(o1, lse1, o2, lse2):
    """five_steps::merge."""
    arrays = o1, lse1, o2, lse2
    _refuse_gradient(arrays)
    compute = operations.compute_merge if _is_plain(arrays) else _merge
    return compute(*arrays)


def decode(arrays, seqlen_k, options, return_lse):
    """five_steps::decode; lse may be None where it is not wanted."""
    _refuse_gradient(arrays)
    if _is_plain(arrays):
        results = _decodes(arrays, options, return_lse, seqlen_k)
        return results or paged.compute_decode(arrays, seqlen_k, options, return_lse)
    return _decode(*arrays, seqlen_k, *options)
