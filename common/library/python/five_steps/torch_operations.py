"""torch_operations.py: the operations as PyTorch operators, so that torch.compile keeps its graph
whole.  Needs PyTorch 2.4 or newer."""
from typing import Optional, Tuple

import torch

from . import operations, paged
from .arrays import FiveStepsError

Tensor = torch.Tensor


def _refuse_gradient(*tensors):
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise FiveStepsError("a gradient is asked for, but the backward pass is not there yet; "
                             "call under torch.no_grad(), or detach() the tensors")


@torch.library.custom_op("five_steps::attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
               cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], causal: bool,
               window_left: int, window_right: int, softcap: float, scale: float,
               rows_first: bool) -> Tuple[Tensor, Tensor]:
    return operations.compute_attention(q, k, v, bias, sinks, cu_seqlens_q, cu_seqlens_k, causal,
                                        window_left, window_right, softcap, scale, rows_first)


@_attention.register_fake
def _(q, k, v, bias, sinks, cu_seqlens_q, cu_seqlens_k, causal, window_left, window_right,
      softcap, scale, rows_first):  # pylint: disable=unused-argument
    rows = q.shape[:-1]
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
    return paged.compute_decode(q, k_pages, v_pages, page_table, sinks, seqlen_k, window_left,
                                softcap, scale)


@_decode.register_fake
def _(q, k_pages, v_pages, *options):  # pylint: disable=unused-argument
    return (q.new_empty((*q.shape[:2], v_pages.shape[3])),
            q.new_empty(q.shape[:2], dtype=torch.float32))


def attention(q, k, v, bias, sinks, *options):
    """five_steps::attention."""
    _refuse_gradient(q, k, v, bias, sinks)
    return _attention(q, k, v, bias, sinks, *options)


def softmax(x):
    """five_steps::softmax."""
    _refuse_gradient(x)
    return _softmax(x)


def merge(o1, lse1, o2, lse2):
    """five_steps::merge."""
    _refuse_gradient(o1, lse1, o2, lse2)
    return _merge(o1, lse1, o2, lse2)


def decode(q, k_pages, v_pages, page_table, sinks, *options):
    """five_steps::decode."""
    _refuse_gradient(q, k_pages, v_pages, sinks)
    return _decode(q, k_pages, v_pages, page_table, sinks, *options)
