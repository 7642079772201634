"""peers_methods.py: attention by the libraries beside our rungs, as functions to time.

Each takes tensors of the layout "bhld" [batch, heads, length, head_dim], or views of arrays
stored as "blhd" [batch, length, heads, head_dim], as they lie.
"""
import inspect

BACKENDS = {"pytorch-cudnn": "CUDNN_ATTENTION", "pytorch-flash": "FLASH_ATTENTION",
            "pytorch-efficient": "EFFICIENT_ATTENTION", "pytorch-math": "MATH"}
FA3 = "flash-attention-3"
PEERS = [*BACKENDS, FA3]
# FlashAttention writes lse always; PyTorch's others only where a gradient is asked for.
WRITES_LSE = ("pytorch-flash", FA3)


def fa3_module():
    """FlashAttention-3's Python module, or None."""
    try:
        import flash_attn_interface
        return flash_attn_interface
    except ImportError:
        return None


def fa3_method(shape, q, k, v):
    """FlashAttention-3, whose module has flash_attn_func(q, k, v, causal=...) on blhd; views
    with other strides need no copy."""
    module = fa3_module()
    if module is None or q.element_size() != 2:
        return None
    causal, attend = bool(shape[6]), module.flash_attn_func
    more = {"return_attn_probs": False} \
        if "return_attn_probs" in inspect.signature(attend).parameters else {}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        out = attend(q, k, v, causal=causal, **more)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
    return run


def sdpa_method(torch, name, shape, q, k, v):
    """One of the backends of PyTorch's scaled_dot_product_attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, hq, hk, nq, nk, _, causal = shape
    backend = getattr(SDPBackend, BACKENDS[name])
    memory = torch.cuda.get_device_properties(0).total_memory
    if name == "pytorch-math" and b * hq * nq * nk * q.element_size() > memory // 8:
        return None  # it stores the scores several times
    groups = {"enable_gqa": True} if hq != hk else {}

    def run():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=bool(causal), **groups)
    return run


def torch_method(torch, name, shape, q, k, v):
    """A function that computes attention with a library, or None where it refuses."""
    if shape[6] and shape[3] != shape[4] and name != FA3:
        return None  # PyTorch aligns the mask at the top left
    f = fa3_method(shape, q, k, v) if name == FA3 else \
        sdpa_method(torch, name, shape, q, k, v)
    if f is None:
        return None
    try:
        f()
    except (AssertionError, RuntimeError, ValueError):
        torch.cuda.synchronize()
        return None
    return f


def with_memory(torch, make):
    """What make() gives, and the bytes that making and calling it once took; make() gives
    None for a shape that is refused."""
    f = make()
    if not f:
        return None, 0
    f()  # libraries take their workspaces for good
    del f
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    f = make()
    f()
    torch.cuda.synchronize()
    return f, torch.cuda.max_memory_allocated() - before


def versions(torch):
    """What stands in the file beside the CSV."""
    out = {"PyTorch": torch.__version__, "CUDA of PyTorch": str(torch.version.cuda),
           "cuDNN": str(torch.backends.cudnn.version())}
    module = fa3_module()
    if module is not None:
        out["FlashAttention-3"] = getattr(module, "__version__", "no version in its module")
    return out
