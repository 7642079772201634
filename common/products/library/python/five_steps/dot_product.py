"""dot_product.py: attention with the signature of PyTorch's scaled_dot_product_attention."""
import torch
from torch.utils.checkpoint import checkpoint

from .arrays import FiveStepsError, kind_of
from .options import real, whole
from .torch_operations import attention as compute
from .torch_operations import define

BLOCK = 1 << 24  # scores that are dropped at once; on a GPU, which else waits for the host, four times as many


def _attention(q, k, v, mask, scale, window):
    """o and lse of attention() with these options."""
    given = False, scale, window, None, "bhld", None, None, False, False
    return compute((q, k, v, mask, None, None, None, None), given, True, None)


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


@define("keep", "Tensor q, SymInt keys, float p, Tensor seed, SymInt block", "Tensor")
def _keep(q, keys, p, seed, block):
    """Which scores of a block are kept: drawn by PyTorch's generator of the device, on a GPU Philox."""
    seeds = torch.Generator().manual_seed(int(seed))  # of blocks: of neighbours unlike
    own = torch.randint(1 << 62, (block + 1,), generator=seeds)[block]
    draw = torch.Generator(q.device).manual_seed(int(own))
    return torch.rand((*q.shape[:-1], keys), generator=draw, device=q.device) >= p


@torch.library.register_fake("five_steps::keep")
def _(q, keys, *_):
    return q.new_empty((*q.shape[:-1], keys), dtype=torch.bool)


def _dropped_rows(q, k, v, mask, score, p, seed, block):
    """Some rows with dropout.  What is kept has the sum o1 exp(lse1) of its weighted values; the
    denominator is that of all keys:  o = o1 exp(lse1 - lse) / (1 - p)."""
    keep = _keep(q.detach(), k.shape[-2], p, seed, block)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -torch.inf)
    kept = torch.where(keep, 0.0 if mask is None else mask.float(), -torch.inf)
    o1, lse1 = _attention(q, k, v, kept, *score)
    _, lse = _attention(q, k, v.detach()[..., :8], mask, *score)
    seen = lse1 > -torch.inf
    weight = torch.where(seen, torch.exp(torch.where(seen, lse1 - lse, 0)), 0) / (1 - p)
    return (o1 * weight[..., None]).to(q.dtype)


def dropped(q, k, v, mask, right, scale, p, seed=None):
    """Attention with dropout, some rows at a time; the backward pass draws the same again.  right: how
    far behind its own key a query sees; None: no limit."""
    seed = (torch.randint(1 << 62, ()) if seed is None else  # torch.manual_seed() repeats it
            torch.tensor(whole("seed", seed, 0) % 2 ** 63))
    n, keys = q.shape[-2], k.shape[-2]
    rows = max(1, (4 * BLOCK if q.is_cuda else BLOCK) // max(1, q.shape[0] * q.shape[1] * keys))
    parts = []
    for i in range(0, n, rows):
        end = min(i + rows, n)
        behind = None if right is None else end - n + right
        limit = keys if right is None else max(0, min(keys, keys + behind))
        own = mask
        if mask is not None:
            own = mask[..., i:end, :] if mask.ndim > 1 and mask.shape[-2] > 1 else mask
            own = own[..., :limit] if mask.shape[-1] > 1 else own
        score = scale, None if right is None else (-1, max(behind, 0))
        parts.append(checkpoint(_dropped_rows, q[..., i:end, :], k[..., :limit, :], v[..., :limit, :], own, score,
                                p, seed, i // rows, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts, -2) if parts else q.new_empty((*q.shape[:-1], v.shape[-1]))


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
    if p == 1:
        o = (q.sum() + k.sum() + v.sum()) * 0 + v.new_zeros((*q.shape[:-1], v.shape[-1]))
    elif p:
        o = dropped(q, k, v, mask, right, scale, p, seed)
    else:
        o, _ = _attention(q, k, v, mask, scale, None if right is None else (-1, right))
    return o.reshape((*lead, *o.shape[1:])[-rank:])
