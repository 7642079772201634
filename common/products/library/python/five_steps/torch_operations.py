"""torch_operations.py: the operations as PyTorch operators with gradients, so that torch.compile keeps
its graph whole.  Needs PyTorch 2.4 or newer."""
import functools
import math

import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from . import c_library, quick
from .arrays import FiveStepsError, Torch, kind_of, wants_gradient
from .calls import NAMES, attention_call, decode_call
from .options import attention_options
from .rows import check_merge, compute_merge, compute_softmax

Tensor = torch.Tensor


_transformed = torch._C._functorch.peek_interpreter_stack  # is a transformation of torch.func on?
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # by autograd.grad(is_grads_batched=True)


_ours = torch.library.Library("five_steps", "DEF")  # custom_op() of PyTorch takes 60 us more for each call


def define(name, arguments, results):
    """Registers a function as five_steps::name."""
    def register(function):
        _ours.define(f"{name}({arguments}) -> ({results})")
        _ours.impl(name, function, "CompositeExplicitAutograd")
        return getattr(torch.ops.five_steps, name).default
    return register


def _refuse_second(_ctx, *_):
    raise FiveStepsError("a second derivative is asked for; five_steps is differentiable once")


# --- Attention. ---

_ARRAYS = ("Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, Tensor? alibi_slopes, "
           "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seed")
_N = len(NAMES) + 1  # and the seed
_OPTIONS = ("SymInt max_seqlen_q, SymInt max_seqlen_k, bool causal, SymInt window_left, "
            "SymInt window_right, float softcap, float scale, bool invariant, bool deterministic, "
            "float dropout, bool rows_first")


def _turned(a, rows_first):
    """A view with heads before rows of an array that may have rows first, and back."""
    return a.transpose(-3, -2) if rows_first else a


def _given(options):
    """What a caller would have given beside the arrays for these options."""
    longest_q, longest_k, causal, left, right, softcap, scale, *promised, rows_first = options
    return (causal, scale or None, (left, right), softcap or None, "blhd" if rows_first else "bhld",
            longest_q, longest_k, *promised)


@define("attention", f"{_ARRAYS}, {_OPTIONS}", "Tensor, Tensor")
def _attention(*call):
    return _tried(quick.attention, call[:_N], _given(call[_N:]), True) or (
        attention_call(call[:_N], *call[_N:]).compute())


@torch.library.register_fake("five_steps::attention")
def _(q, k, v, *options):
    turned = not options[-1] and Torch.has_rows_first(q)
    o = _turned(_turned(q, turned).new_empty((*_turned(q, turned).shape[:-1], v.shape[-1])), turned)
    return o, q.new_empty(_turned(q, options[-1]).shape[:-1], dtype=torch.float32)


def _compute_gradients(d_o, o, lse, of_bias, *call):
    """dq, dk, dv, dsinks and dbias (or nothing in it).  A gradient that is not in a fixed order cannot keep
    what a forward pass promised of its bits."""
    rows_first, q, k, v, bias, sinks, none = call[-1], *call[:5], lse.new_empty(0)
    call = *call[:-4], False, any(call[-4:-2]) or torch.are_deterministic_algorithms_enabled(), *call[-2:]
    if sinks is not None and not _turned(k, rows_first).shape[-2]:  # no keys: lse is the sink
        big_d = torch.where(lse > -torch.inf, _turned(d_o * o, rows_first).sum(-1).float(), 0)
        d_sinks = -big_d.transpose(-2, -1).reshape(-1, len(sinks)).sum(0)
        return (*map(torch.zeros_like, (q, k, v)), d_sinks, lse.new_zeros(bias.shape) if of_bias else none)
    if of_bias:  # lies as its gradient will
        whole = bias.float().expand(*bias.shape[:-1], _turned(k, rows_first).shape[-2]).contiguous()
        call = *call[:3], whole, *call[4:]
    try:
        results = _tried(quick.gradients, d_o, o, lse, of_bias, call[:_N], _given(call[_N:]))
        if not results:
            results = attention_call(call[:_N], *call[_N:], out=o).gradients(
                lse, _turned(d_o, rows_first), of_bias)
            results = *(_turned(a, rows_first) for a in results[:3]), *results[3:]
    except FiveStepsError as error:  # a sequence at a time, in float32, or an element of dbias for each score
        if error.code != c_library.UNSUPPORTED:
            raise
        if call[6] is not None:
            return _by_sequence(d_o, o, lse, *call)
        apart = of_bias and (*_turned(q, rows_first).shape[:-1], whole.shape[-1])
        if o.dtype != torch.float32:
            wide = [a.float() for a in (d_o, o, lse)], [a.float() for a in call[:3]]
            *gradients, d_sinks, d_bias = _compute_gradients(*wide[0], of_bias, *wide[1], bias, *call[4:])
            return (*(a.to(o.dtype) for a in gradients), d_sinks, d_bias)
        if not of_bias or whole.shape == apart:
            raise
        *results, d_bias = _compute_gradients(d_o, o, lse, True, q, k, v, whole.expand(apart), *call[4:])
        return (*results, d_bias.sum_to_size(bias.shape))
    *gradients, d_sinks, d_bias = results
    return (*gradients, none if d_sinks is None else d_sinks,
            d_bias.sum_to_size(bias.shape) if of_bias else none)


def _by_sequence(d_o, o, lse, q, k, v, bias, sinks, slopes, sums_q, sums_k, seed, *options):
    """The gradients of packed sequences, where no kernel knows prefix sums."""
    dq, dk, dv = (torch.zeros_like(_turned(a, True)).transpose(-3, -2) for a in (q, k, v))
    d_sinks = lse.new_zeros(0 if sinks is None else sinks.shape)
    ends_q, ends_k = sums_q.tolist(), sums_k.tolist()
    bias = bias if bias is None else bias[(None,) * (4 - bias.ndim)]
    for b in range(len(ends_q) - 1):
        i, j = slice(*ends_q[b:b + 2]), slice(*ends_k[b:b + 2])
        if i.start == i.stop:
            continue
        own = None if bias is None else bias[b % len(bias), :, :i.stop - i.start, :j.stop - j.start]
        slope = slopes[b] if slopes is not None and slopes.ndim == 2 else slopes
        dq[i], dk[j], dv[j], more, _ = _compute_gradients(
            d_o[i], o[i], lse[:, i], False, q[i], k[j], v[j], own, sinks, slope, None, None, seed, 0, 0, *options[2:])
        d_sinks += more
    return dq, dk, dv, d_sinks, lse.new_empty(0)


_attention_backward = define(
    "attention_backward", f"Tensor d_o, Tensor o, Tensor lse, bool of_bias, {_ARRAYS}, {_OPTIONS}",
    "Tensor, Tensor, Tensor, Tensor, Tensor")(_compute_gradients)


@torch.library.register_fake("five_steps::attention_backward")
def _(d_o, o, lse, of_bias, q, k, v, bias, sinks, *options):  # pylint: disable=unused-argument
    rows_first = options[-1]
    return (*(_turned(a.new_empty(_turned(a, rows_first).shape), rows_first) for a in (q, k, v)),
            lse.new_empty(0 if sinks is None else sinks.shape), lse.new_empty(bias.shape if of_bias else 0))


def _pairs(rows, sums_q, sums_k):
    """Of queries and keys: all, and of packed sequences those of one sequence; rows: [queries, keys]."""
    if sums_q is None or isinstance(sums_q, torch._subclasses.FakeTensor):
        return rows[0] * rows[1]
    return int(((sums_q[1:] - sums_q[:-1]).long() * (sums_k[1:] - sums_k[:-1])).sum())


@register_flop_formula([torch.ops.five_steps.attention, torch.ops.five_steps.attention_backward],
                       get_raw=True)
def _flops(*given, out_val, **_):
    """As PyTorch counts: two products, and of the backward pass five.  given: q, k, v, ... or d_o, o, lse,
    of_bias, q, k, v, ..."""
    first = 4 if len(out_val) == 5 else 0
    q, k, v = (_turned(a, given[-1]) for a in given[first:first + 3])
    width, width_v = (3, 2) if first else (1, 1)
    pairs = _pairs((q.shape[-2], k.shape[-2]), *given[first + 6:first + 8]) * math.prod(q.shape[:-2])
    return 2 * pairs * (q.shape[-1] * width + v.shape[-1] * width_v)


torch.library.register_autograd(_attention_backward, _refuse_second)


def _save_attention(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:_N])
    ctx.options = inputs[_N:]


def _attention_gradient(ctx, d_o, d_lse):
    """A gradient of lse only lowers D_i = do_i . o_i by d_lse_i.  So does another column in which
    v is 0, o is 1 and d_o is -d_lse; there are eight, for kernels that load 16 bytes."""
    o, lse, *arrays = ctx.saved_tensors  # a checkpoint gives them once
    q, k, v, bias, sinks, *more = arrays
    is_learned = bias is not None and bias.requires_grad
    if not (ctx.options or torch.is_grad_enabled()) and d_lse is None and _is_plain((d_o,)) and (
            not is_learned or bias.is_contiguous()):
        *given, invariant, fixed, p = ctx.given
        fixed = bool(invariant or fixed or torch.are_deterministic_algorithms_enabled())
        results = _tried(quick.gradients, d_o, o, lse, is_learned, arrays, (*given, False, fixed, p))
        if results:
            return (*results[:3], results[4].to(bias.dtype) if is_learned else None, results[3], *[None] * 4)
    if d_o is not None and _is_batched(d_o) or d_lse is not None and _is_batched(d_lse):
        raise FiveStepsError("is_grads_batched is not supported, nor is vectorize; ask for one gradient at a time")
    options = ctx.options or attention_options(arrays, *ctx.given)
    d_o, width = torch.zeros_like(o) if d_o is None else d_o, v.shape[-1]
    if d_lse is not None:
        column = _turned(-d_lse[..., None], options[-1]).to(o.dtype)
        pad = torch.nn.functional.pad
        v, o, d_o = pad(v, (0, 8)), pad(o, (0, 8), value=1.0), torch.cat([d_o, pad(column, (0, 7))], -1)
    results, arrays = (d_o, o, lse), (q, k, v, bias, sinks, *more)
    plain = not torch.is_grad_enabled() and _is_plain(results) and _is_plain(arrays)
    dq, dk, dv, d_sinks, d_bias = (_compute_gradients if plain else _attention_backward)(
        *results, is_learned, *arrays, *options)
    return (dq, dk, dv[..., :width], d_bias.to(bias.dtype) if is_learned else None,
            None if sinks is None else d_sinks, *[None] * 15)


torch.library.register_autograd(_attention, _attention_gradient, setup_context=_save_attention)


class _Trained(torch.autograd.Function):  # pylint: disable=abstract-method
    """The same for a plain call: PyTorch's way to an operator takes longer than a small kernel."""

    @staticmethod
    def forward(ctx, given, *arrays):  # pylint: disable=arguments-differ
        """given: what the caller gave beside the arrays."""
        ctx.given, ctx.options = given, None
        results = _tried(quick.attention, arrays, given, True)
        if results is None:
            results = attention_call(arrays, *attention_options(arrays, *given)).compute()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*results, *arrays)
        return results

    @staticmethod
    def backward(ctx, d_o, d_lse):  # pylint: disable=arguments-differ
        return None, *_attention_gradient(ctx, d_o, d_lse)[:_N]


# --- Softmax and merge. ---

@define("softmax", "Tensor x", "Tensor")
def _softmax(x):
    return compute_softmax(x)


@torch.library.register_fake("five_steps::softmax")
def _(x):
    return x.new_empty(x.shape)


def _save_softmax(ctx, inputs, output):  # pylint: disable=unused-argument
    ctx.save_for_backward(output)


def _softmax_gradient(ctx, dy):
    y, = ctx.saved_tensors
    return torch._softmax_backward_data(dy, y, -1, y.dtype)


torch.library.register_autograd(_softmax, _softmax_gradient, setup_context=_save_softmax)


def _merge(o1, lse1, o2, lse2):
    """The library's formula in PyTorch's operations, whose gradients are known.  What has weight 0 may be
    anything."""
    check_merge(o1, lse1, o2, lse2)
    most = torch.maximum(lse1, lse2)
    none = most == -torch.inf
    apart = torch.where(none, 0, lse1 - lse2)
    parts = [w[..., None] * torch.where(((w == 0) | none)[..., None], 0, o.float())
             for w, o in ((torch.sigmoid(apart), o1), (torch.sigmoid(-apart), o2))]
    return (parts[0] + parts[1]).to(o1.dtype), most + torch.nn.functional.softplus(-apart.abs())


# --- Decode, which has no gradient. ---

@define("decode", "Tensor q, Tensor k_pages, Tensor v_pages, Tensor? page_table, Tensor? sinks, "
           "Tensor? alibi_slopes, Tensor? seqlens_k, SymInt seqlen_k, SymInt window_left, "
           "float softcap, float scale, bool invariant, bool pages_first", "Tensor, Tensor")
def _decode(*call):
    o, lse = decode_call(call[:7], *call[7:]).compute()
    return o, lse.contiguous()


@register_flop_formula(torch.ops.five_steps.decode, get_raw=True)
def _decode_flops(q, _k, v, *options, **_):  # pylint: disable=unused-argument
    """The same of the keys that each sequence has."""
    lengths, longest = options[3:5]
    keys = q.shape[0] * longest if lengths is None else int(lengths.sum())
    return 2 * keys * math.prod(q.shape[1:-1]) * (q.shape[-1] + v.shape[-1])


@torch.library.register_fake("five_steps::decode")
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
    except AttributeError:
        return lambda: True
    return lambda: tracing() or dispatch() or function() or _transformed()


_watched = _watcher()
_PLAIN = {Tensor, torch.nn.Parameter}


def _is_plain(arrays):
    """Does the call want its result and nothing else?  Tracing, modes, transformations, subclasses of
    tensors and views of other sign (z.conj().imag) need the operator."""
    if torch.compiler.is_compiling() or _watched():
        return False
    for a in arrays:
        if a is not None and (type(a) not in _PLAIN or a.is_neg()):
            return False
    return True


def with_scale(q, scale):
    """q and the scale; one that has a gradient is multiplied in."""
    if isinstance(scale, Tensor) and wants_gradient(scale):
        return (q * scale).to(q.dtype), 1.0
    return q, scale


def _is_trained(arrays):
    """Does an array want its gradient?"""
    if torch.is_grad_enabled():
        for a in arrays:
            if a is not None and a.requires_grad:
                return True
    return False


def _derivative(arrays, without=(), words=""):
    """Is a gradient asked for?  None is silently left out: one of the arrays `without` is refused
    with these words, and so is a forward-mode derivative."""
    if _is_trained(without):
        raise FiveStepsError(f"{words}; call under torch.no_grad(), or detach() the tensors")
    if _is_dual() and any(a is not None and a.is_floating_point() and
                          forward_ad.unpack_dual(a).tangent is not None for a in arrays):
        raise FiveStepsError("a forward-mode derivative is asked for, which is not supported; use backward()")
    return _is_trained(arrays)


def _is_dual():
    return getattr(forward_ad, "_current_level", 0) >= 0


def cast(arrays):
    """q, k and v in autocast's type, where autocast is on: as PyTorch's own attention."""
    place = getattr(arrays[0], "device", torch.device("cpu")).type
    if not torch.is_autocast_enabled(place):
        return arrays
    wanted = torch.get_autocast_dtype(place)
    return (*(a.to(wanted) if isinstance(a, Tensor) and a.is_floating_point() and
              a.dtype != torch.float64 else a for a in arrays[:3]), *arrays[3:])


def _is_simple(arrays):
    """Is it a plain call that autocast and forward-mode derivatives do not concern?"""
    return _is_plain(arrays) and not torch._C._is_any_autocast_enabled() and not _is_dual()


def _tried(compute, *given):
    """Its result; None where the general way says more."""
    try:
        return compute(*given)
    except Exception:  # pylint: disable=broad-exception-caught
        return None


def attention(arrays, given, return_lse, out):
    """five_steps::attention; lse may be None where it is not wanted.
    given: what the caller gave beside the arrays, not checked yet."""
    if type(given[2]) is list:
        given = (*given[:2], tuple(given[2]), *given[3:])
    if out is None and type(given[1]) is not Tensor and _is_simple(arrays):
        if not _is_trained(arrays):
            results = _tried(quick.attention, arrays, given, return_lse)
            if results:
                return results
        elif not _is_trained((arrays[5], None if arrays[6] is None else arrays[3])):
            return _Trained.apply(given, *arrays)
    kind_of(dict(zip(NAMES, arrays)))
    arrays = cast(arrays)
    q, scale = with_scale(arrays[0], given[1])
    arrays, given = (q, *arrays[1:]), (given[0], scale, *given[2:])
    without = (arrays[5],) if arrays[6] is None else (arrays[3], arrays[5])
    gradient = _derivative(arrays, without, "alibi_slopes, and a bias of packed sequences, have no gradient")
    if gradient and out is not None:
        raise FiveStepsError("out has no gradient; leave it out, or call under torch.no_grad()")
    plain = _is_plain(arrays)
    if gradient and plain:
        return _Trained.apply(given, *arrays)
    options = attention_options(arrays, *given)
    if plain:
        return attention_call(arrays, *options, out).compute()
    o, lse = _attention(*arrays, *options)
    return (o if out is None else out.copy_(o)), lse


def _plainly(compute, operator, *arrays):
    """The operator where a gradient is asked for or somebody watches; else its function alone."""
    plain = not _derivative(arrays) and _is_plain(arrays)
    return (compute if plain else operator)(*arrays)


softmax = functools.partial(_plainly, compute_softmax, _softmax)
merge = functools.partial(_plainly, compute_merge, _merge)


def repeated_decode(arrays, *more):
    """A decoding step that the library takes as it is; None: the general way."""
    if _is_simple(arrays) and not _is_trained(arrays):
        return _tried(quick.decode, arrays, *more)
    return None


def cast_for_decode(arrays):
    """q and the pages in autocast's type; a gradient is refused."""
    arrays = cast(arrays)
    _derivative(arrays, arrays, "decode has no gradient, attention has")
    return arrays


def decode(arrays, options, out):
    """five_steps::decode."""
    arrays = cast_for_decode(arrays)
    if _is_plain(arrays):
        return decode_call(arrays, *options, out).compute()
    o, lse = _decode(*arrays, *options)
    return (o if out is None else out.copy_(o)), lse
