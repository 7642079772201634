"""five_steps: exact attention and softmax by the C library of this repository.

    import numpy as np, five_steps
    o = five_steps.attention(q, k, v, causal=True)      # [batch, heads, seqlen, head_dim]
    y = five_steps.softmax(x)
    o, lse = five_steps.merge(o1, lse1, o2, lse2)

NumPy arrays in, NumPy arrays out; PyTorch tensors in, tensors of the same type and device
out.  PyTorch is not needed, and is imported only where a tensor comes in.
"""
from .arrays import FiveStepsError
from .c_library import VERSION as __version__, LibraryError
from .operations import (append, attention, built_with, decode, merge, quantise, scaled_dot_product_attention,
                         softmax)

__all__ = ["append", "attention", "built_with", "decode", "merge", "quantise", "scaled_dot_product_attention", "softmax",
           "FiveStepsError", "LibraryError"]
