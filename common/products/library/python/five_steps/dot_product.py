"""dot_product.py: attention with the signature of PyTorch's scaled_dot_product_attention."""
import torch

from .arrays import FiveStepsError, kind_of
from .options import SCALE, real, whole
from .torch_operations import attention as compute
from .torch_operations import cast, define, differentiable, function_of, refuse_second, save_nothing, with_scale

BLOCK = 1 << 24  # scores that are dropped at once


def _attention(q, k, v, mask, scale, window):
    """o and lse of attention() with these options."""
    given = False, scale, window, None, "bhld", None, None, False, False
    return compute((q, k, v, mask, None, None, None, None), given, True, None)


def _folded(arrays, mask, gqa):
    """Batches of any number of dimensions as one, [batch, heads, rows, width], and their shape."""
    shapes = [(1,) * (4 - a.ndim) + tuple(a.shape) for a in arrays]
    try:
        lead = torch.broadcast_shapes(*(shape[:-3] for shape in shapes))
        heads = None if gqa else torch.broadcast_shapes(*(shape[-3:-2] for shape in shapes))
    except RuntimeError:
        raise FiveStepsError("query, key and value are " + ", ".join(str(list(a.shape)) for a in arrays)
                             + "; give batches and heads that can be broadcast") from None
    folded = [a.reshape(shape).expand(*lead, *(heads or shape[-3:-2]), *shape[-2:]).flatten(0, -4)
              for a, shape in zip(arrays, shapes)]
    if mask is not None and mask.ndim > 3 and len(lead) > 1:
        mask = mask.expand(*lead, *mask.shape[-3:]).flatten(0, -4)
    return folded, mask, lead


def _keep(shape, p, seed, device):
    """Which scores are kept: drawn by PyTorch's generator of the device, on a GPU Philox."""
    draw = torch.rand(shape, generator=torch.Generator(device).manual_seed(seed), device=device)
    return draw >= p


def _dropped_rows(q, k, v, mask, score, p, seed):
    """Some rows with dropout.  What is kept has the sum o1 exp(lse1) of its weighted values; the
    denominator is that of all keys:  o = o1 exp(lse1 - lse) / (1 - p)."""
    keep = _keep((*q.shape[:-1], k.shape[-2]), p, seed, q.device)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -torch.inf)
    kept = torch.where(keep, 0.0 if mask is None else mask.float(), -torch.inf)
    o1, lse1 = _attention(q, k, v, kept, *score)
    _, lse = _attention(q, k, v.detach()[..., :8], mask, *score)
    seen = lse1 > -torch.inf
    weight = torch.where(seen, torch.exp(torch.where(seen, lse1 - lse, 0)), 0) / (1 - p)
    return (o1 * weight[..., None]).to(q.dtype)


def _blocks(q, k, seed, right, scale):
    """Of each block of rows: these, the keys that they see, the scale and window, and a seed."""
    n, keys = q.shape[-2], k.shape[-2]
    seeds = torch.Generator().manual_seed(int(seed))  # of blocks: of neighbours unlike
    block = max(1, BLOCK // max(1, q.shape[0] * q.shape[1] * keys))
    for i in range(0, n, block):
        end = min(i + block, n)
        behind = end - n + right
        seen = keys if right < 0 else max(0, min(keys, keys + behind))
        window = None if right < 0 else (-1, max(behind, 0))
        yield (slice(i, end), slice(seen)), (scale or None, window), int(torch.randint(1 << 62, (), generator=seeds))


def _part(arrays, block):
    """Views of these rows of q, keys, values, and of the mask (or its gradient)."""
    (rows, keys), (q, k, v, mask) = block, arrays
    if mask is not None:
        mask = mask[..., rows, :] if mask.ndim > 1 and mask.shape[-2] > 1 else mask
        mask = mask[..., keys] if mask.shape[-1] > 1 else mask
    return q[..., rows, :], k[..., keys, :], v[..., keys, :], mask


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor seed, SymInt right, float scale, float p"


@define("dropout", _ARGUMENTS, "Tensor")
def _dropout(q, k, v, mask, seed, right, scale, p):
    """right: how far behind its own key a query sees; -1: no limit."""
    parts = [_dropped_rows(*_part((q, k, v, mask), block), score, p, own)
             for block, score, own in _blocks(q, k, seed, right, scale)]
    return torch.cat(parts, -2) if parts else q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.register_fake("five_steps::dropout")
def _(q, _k, v, *_):
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@define("dropout_backward", f"Tensor d_o, {_ARGUMENTS}, bool of_mask", "Tensor, Tensor, Tensor, Tensor")
def _dropout_backward(d_o, q, k, v, mask, seed, right, scale, p, of_mask):  # pylint: disable=too-many-arguments
    """dq, dk, dv and that of the mask (or nothing in it): each block is computed again."""
    results = [torch.zeros_like(a) for a in (q, k, v)] + [torch.zeros_like(mask) if of_mask else None]
    for block, score, own in _blocks(q, k, seed, right, scale):
        with torch.enable_grad():
            *leaves, bias = (a if a is None else a.detach() for a in _part((q, k, v, mask), block))
            wanted = [a.requires_grad_() for a in (*leaves, *[bias] * of_mask)]
            o = _dropped_rows(*leaves, bias, score, p, own)
        for total, a in zip(_part(results, block), torch.autograd.grad(o, wanted, d_o[..., block[0], :])):
            total += a
    return (*results[:3], results[3] if of_mask else q.new_empty(0))


@torch.library.register_fake("five_steps::dropout_backward")
def _(_d_o, q, k, v, mask, *more):
    return (*map(torch.empty_like, (q, k, v)), torch.empty_like(mask) if more[-1] else q.new_empty(0))


# Registered with a gradient, an operator has no derivatives inside.
_gradients = function_of(_dropout_backward, save_nothing, refuse_second)


def _save(ctx, inputs, output):  # pylint: disable=unused-argument
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _gradient(ctx, d_o):
    of_mask = ctx.needs_input_grad[3]
    *results, d_mask = _gradients(d_o, *ctx.saved_tensors, *ctx.options, of_mask)
    return (*results, d_mask if of_mask else None, *[None] * 4)


_differentiable = differentiable(_dropout, _save, _gradient)


def dropped(q, k, v, mask, right, scale, p, seed=None):
    """Attention with dropout, some rows at a time; the backward pass draws the same again.  right: how
    far behind its own key a query sees; None: no limit."""
    seed = (torch.randint(1 << 62, ()) if seed is None else  # torch.manual_seed() repeats it
            torch.tensor(whole("seed", seed, 0) % 2 ** 63))
    q, scale = with_scale(q, scale)
    q, k, v, mask = cast((q, k, v, mask))
    return _differentiable(q, k, v, mask, seed, -1 if right is None else right,
                           0.0 if scale is None else real("scale", scale, SCALE), p)


def compute_dot_product(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, seed):
    """five_steps.scaled_dot_product_attention()."""
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    kind_of({name: a for name, a in given.items() if a is not None or name != "attn_mask"})
    if not isinstance(query, torch.Tensor) or min(a.ndim for a in (query, key, value)) < 2:
        raise FiveStepsError("give tensors [..., length, width]")
    if is_causal and attn_mask is not None:
        raise FiveStepsError("attn_mask and is_causal are both given; give one")
    p = real("dropout_p", dropout_p, (lambda x: 0 <= x <= 1, "a probability"))
    rank = max(query.ndim, key.ndim, value.ndim)
    (q, k, v), mask, lead = _folded((query, key, value), attn_mask, enable_gqa)
    right = None
    if is_causal:  # ours is aligned at the bottom right
        k, v = k[..., :q.shape[-2], :], v[..., :q.shape[-2], :]
        right = q.shape[-2] - k.shape[-2]
    if p == 1:
        o = (q.sum() + k.sum() + v.sum()) * 0 + v.new_zeros((*q.shape[:-1], v.shape[-1]))
    elif p:
        o = dropped(q, k, v, mask, right, scale, p, seed)
    else:
        o, _ = _attention(q, k, v, mask, scale, None if right is None else (-1, right))
    return o.reshape((*lead, *o.shape[1:])[-rank:])
