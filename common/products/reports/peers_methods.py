"""peers_methods.py: attention by the libraries beside our rungs, as functions to time.

Each takes tensors of the layout "bhld" [batch, heads, length, head_dim], or views of arrays
stored as "blhd" [batch, length, heads, head_dim], as they lie.  The functions are PyTorch's:
where q, k and v ask for gradients, a backward pass can follow.
"""
import functools
import importlib
import importlib.metadata
import inspect

BACKENDS = {"pytorch-cudnn": "CUDNN_ATTENTION", "pytorch-flash": "FLASH_ATTENTION",
            "pytorch-efficient": "EFFICIENT_ATTENTION", "pytorch-math": "MATH"}
IN_ORDER = "-deterministic"  # the same library, its gradient with the same bits in every run
# the module whose flash_attn_func(q, k, v, causal=...) takes arrays blhd; the installed package
FLASH = {"flash-attention-3": ("flash_attn_interface", "flash_attn_3"),
         "flash-attention-4": ("flash_attn.cute", "flash-attn-4")}
PEERS = [*BACKENDS, *FLASH]
ALL_PEERS = [*PEERS, *(name + IN_ORDER for name in FLASH)]
# FlashAttention writes lse always; PyTorch's others only where a gradient is asked for.
WRITES_LSE = ("pytorch-flash", *FLASH)


@functools.cache
def flash_module(name):
    """The Python module of FlashAttention-3 or -4, or None."""
    try:
        return importlib.import_module(FLASH[name][0])
    except ImportError:
        return None


def flash_method(name, causal, q, k, v):
    """FlashAttention-3 or -4; views with other strides need no copy."""
    module = flash_module(name.removesuffix(IN_ORDER))
    if module is None or q.element_size() != 2:
        return None
    known = inspect.signature(module.flash_attn_func).parameters
    more = {key: value for key, value in (
        ("return_attn_probs", False), ("return_lse", True),
        ("deterministic", name.endswith(IN_ORDER))) if key in known}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        out = module.flash_attn_func(q, k, v, causal=causal, **more)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
    return run


def sdpa_method(torch, name, shape, q, k, v):
    """One of the backends of PyTorch's scaled_dot_product_attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    scores = shape.batch * shape.heads_q * shape.seqlen_q * shape.seqlen_k * q.element_size()
    if name == "pytorch-math" and scores > torch.cuda.get_device_properties(0).total_memory // 8:
        return None  # it stores the scores several times
    options = {"is_causal": bool(shape.causal)}
    if shape.heads_q != shape.heads_kv:
        options["enable_gqa"] = True

    def run():
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[name])):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return run


def torch_method(torch, name, shape, q, k, v):
    """A function that computes attention with a library, or None where it refuses."""
    if name not in BACKENDS:
        f, refusals = flash_method(name, bool(shape.causal), q, k, v), Exception  # of its compiler
    elif shape.causal and shape.seqlen_q != shape.seqlen_k:
        return None  # PyTorch aligns the mask at the top left
    else:
        f, refusals = sdpa_method(torch, name, shape, q, k, v), (RuntimeError, ValueError)
    if f is None:
        return None
    try:
        f()
        return f
    except refusals:
        torch.cuda.synchronize()
        return None


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


def version_of(package):
    """The version of an installed package, or of none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def compilers(torch):
    """What the column `compiler` says of a library: {name: text}."""
    own = f"torch {torch.__version__}; cuDNN {torch.backends.cudnn.version()}"
    flash = {name: f"{name} {version_of(package)}" for name, (_, package) in FLASH.items()}
    return dict.fromkeys(BACKENDS, own) | flash \
        | {name + IN_ORDER: text for name, text in flash.items()}
