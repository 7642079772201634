"""dot_product.py: attention with the signature of PyTorch's scaled_dot_product_attention."""
import torch

from .arrays import FiveStepsError, kind_of
from .options import real, whole
from .torch_operations import attention as compute


def dropped(q, k, v, mask, right, scale, p, seed=None, softcap=None, sinks=None):
    """Attention with dropout.  right: how far behind its own key a query sees; None: no limit."""
    if p and seed is None:
        seed = torch.randint(1 << 62, ())  # torch.manual_seed() repeats it
    elif seed is not None:
        seed = torch.tensor(whole("seed", seed, 0) % 2 ** 63)
    given = False, scale, None if right is None else (-1, right), softcap, "bhld", None, None, False, False, p
    return compute((q, k, v, mask, sinks, None, None, None, seed if p else None), given, False, None)[0]


def _folded(arrays, mask, gqa):
    """Batches of any number of dimensions as one, [batch, heads, rows, width], and their shape."""
    alike = 1 if gqa else 2
    if all(a.ndim == 4 and a.shape[:alike] == arrays[0].shape[:alike] for a in arrays):
        return arrays, mask, arrays[0].shape[:1]
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


def compute_dot_product(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, seed):
    """five_steps.scaled_dot_product_attention()."""
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    kind_of({name: a for name, a in given.items() if a is not None or name != "attn_mask"})
    if not isinstance(query, torch.Tensor) or min(a.ndim for a in (query, key, value)) < 2:
        raise FiveStepsError("give tensors [..., length, width]")
    if is_causal and attn_mask is not None:
        raise FiveStepsError("attn_mask and is_causal are both given; give one")
    p = real("dropout_p", dropout_p)
    if not 0 <= p <= 1:
        raise FiveStepsError(f"dropout_p is {p}; give a probability")
    rank = max(query.ndim, key.ndim, value.ndim)
    (q, k, v), mask, lead = _folded((query, key, value), attn_mask, enable_gqa)
    right = None
    if is_causal:  # ours is aligned at the bottom right
        k, v = k[..., :q.shape[-2], :], v[..., :q.shape[-2], :]
        right = q.shape[-2] - k.shape[-2]
    if p > 1 - 2 ** -25:  # 1 in float32
        o = (q.sum() + k.sum() + v.sum()) * 0 + v.new_zeros((*q.shape[:-1], v.shape[-1]))
    else:
        o = dropped(q, k, v, mask, right, scale, p, seed)
    return o.reshape((*lead, *o.shape[1:])[-rank:])
