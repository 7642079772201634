"""transformers.py: attention for the models of Hugging Face's transformers.

    import five_steps.transformers
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="five_steps")

Prefill and decode with caches, grouped heads, sliding windows, soft caps, sinks, padding, dropout and
position biases that are learned.  What is
causal (within a window, perhaps) and reaches to the cache's end needs no mask but the padding's,
[batch, 1, 1, keys]; any other pattern is handed over as booleans."""
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, flash_attention_mask, sdpa_mask

from .dot_product import dropped
from .operations import attention


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=causal_mask_function, attention_mask=None, local_size=None, **more):
    """None; the padding [batch, keys], where attention_forward() hides the rest by itself; or
    booleans [batch, 1, queries, keys]."""
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length,
             "q_offset": q_offset, "kv_offset": kv_offset, "mask_function": mask_function,
             "attention_mask": attention_mask}
    to_the_end = q_offset + q_length == kv_offset + kv_length
    if mask_function is causal_mask_function and local_size is None and to_the_end:
        if torch.compiler.is_compiling():  # whether anything is hidden is known when it runs
            return None if attention_mask is None else attention_mask[:, -kv_length:]
        return flash_attention_mask(**sizes)
    return sdpa_mask(**sizes, local_size=local_size, **{**more, "allow_is_causal_skip": False})


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, softcap=None, s_aux=None, position_bias=None, **_):
    """query, key, value [batch, heads, length, head_dim]; gives o [batch, length, heads, head_dim]
    and no weights.  position_bias [1 or batch, heads, queries, keys] is added to the scores."""
    padding = attention_mask is not None and attention_mask.ndim == 2
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and (attention_mask is None or padding)
    if padding:
        attention_mask = attention_mask[:, None, None].bool()
    if position_bias is not None:
        attention_mask = position_bias if attention_mask is None else (
            torch.where(attention_mask, position_bias, -torch.inf) if attention_mask.dtype == torch.bool
            else position_bias + attention_mask)
    if dropout:
        o = dropped(query, key, value, attention_mask, 0 if causal else None, scaling, dropout, softcap=softcap,
                    sinks=None if s_aux is None else s_aux.float())
    else:
        o = attention(query, key, value, scale=scaling, softcap=softcap, bias=attention_mask, causal=causal,
                      sinks=None if s_aux is None else s_aux.float())
    return o.transpose(1, 2).contiguous(), None


AttentionInterface.register("five_steps", attention_forward)
AttentionMaskInterface.register("five_steps", mask)
