"""bias_gradient.py: the gradient of a bias, which no kernel writes: it has an element for each score.

    ds_ij = p_ij (do_i . v_j - D_i),   p_ij = exp(s_ij - lse_i),   D_i = do_i . o_i - dlse_i
of a batch and of some rows at a time, so that beside the result a few blocks of scores are in memory."""
import torch

BLOCK = 1 << 24  # scores


def _hidden(n, keys, first, ahead, options, device):
    """Which keys the queries first .. first + n - 1 do not see, or None."""
    _, _, causal, left, right, *_ = options
    right = 0 if causal else right
    if left < 0 and right < 0:
        return None
    apart = torch.arange(keys, device=device)[None] - (torch.arange(n, device=device)[:, None] + first + ahead)
    return ((apart < -left) if left >= 0 else False) | ((apart > right) if right >= 0 else apart > keys)


def _with(a, column):
    """a column more: what is subtracted from a product is one of its own columns."""
    return torch.cat((a, column.expand(*a.shape[:-1], 1)), -1)


def _scores_gradient(rows, k, v, bias, hidden, softcap, scale):
    """ds of some rows (q, d_o, lse, D) [heads_kv, group, n, ...]; k and v have a column of ones."""
    q, d_o, lse, big_d = rows
    lse = torch.where(lse == -torch.inf, 0, lse)
    if softcap:
        s = softcap * torch.tanh(scale / softcap * (q @ k[..., :-1].mT)) - lse
    else:
        s = _with(scale * q, -lse) @ k.mT
    p = s.add_(bias).exp_()
    if hidden is not None:
        p.masked_fill_(hidden, 0)
    return (_with(d_o, -big_d) @ v.mT).mul_(p)


def bias_gradient(given, d_lse, bias, options):
    """given: d_o, o, lse, q, k, v, heads before rows; options: those of the operator."""
    softcap, scale = options[5:7]
    d_o, o, lse, q, k, v = (a[(None,) * ((3 if i == 2 else 4) - a.ndim)] for i, a in enumerate(given))
    batch, heads, n, width = q.shape
    kv, keys, block = k.shape[1], k.shape[2], max(1, BLOCK // max(1, heads * k.shape[2]))
    big_d = (d_o.float() * o.float()).sum(-1) - (0 if d_lse is None else d_lse.reshape(lse.shape))
    whole = bias[(None,) * (4 - bias.ndim)].float()
    result = torch.zeros_like(whole)

    def grouped(a, b, i):
        return a[b, :, i:i + block].float().unflatten(0, (kv, heads // kv))
    for b in range(batch if heads else 0):
        one = torch.ones((), device=k.device)
        k_b, v_b = (_with(a[b, :, None].float(), one) for a in (k, v))
        for i in range(0, n, block):
            rows = [grouped(a, b, i) for a in (q, d_o, lse[..., None], big_d[..., None])]
            at = (b if whole.shape[0] > 1 else 0, slice(None),
                  slice(i, i + block) if whole.shape[2] > 1 else slice(None))
            of_rows = whole[at].expand(heads, rows[0].shape[2], keys).unflatten(0, (kv, heads // kv))
            ds = _scores_gradient(rows, k_b, v_b, of_rows,
                                  _hidden(rows[0].shape[2], keys, i, keys - n, options, q.device),
                                  softcap, scale or width ** -0.5)
            result[at] += ds.flatten(0, 1).sum_to_size(result[at].shape)
    return result.reshape(bias.shape).to(bias.dtype)
