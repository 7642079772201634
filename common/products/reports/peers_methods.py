"""peers_methods.py: attention and its gradient by our kernels and by the libraries beside them, as functions
to time.

Each takes tensors of the layout "bhld" [batch, heads, length, head_dim], or views of arrays
stored as "blhd" [batch, length, heads, head_dim], as they lie.  A function that refuses a problem is None.
"""
import functools
import importlib
import importlib.metadata
import inspect
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir,
                                "library", "python", "five_steps"))
import c_library  # noqa: E402  pylint: disable=wrong-import-position

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


def flash_method(name, causal, q, k, v, **options):
    """FlashAttention-3 or -4; views with other strides need no copy.  options: more of its arguments."""
    module = flash_module(name.removesuffix(IN_ORDER))
    if module is None:
        return None
    known = inspect.signature(module.flash_attn_func).parameters
    more = {key: value for key, value in (
        ("return_attn_probs", False), ("return_lse", True),
        ("deterministic", name.endswith(IN_ORDER))) if key in known}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        out = module.flash_attn_func(q, k, v, causal=causal, **more, **options)
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
        f, refusals = q.element_size() == 2 and flash_method(name, bool(shape.causal), q, k, v), Exception  # of its compiler
    elif shape.causal and shape.seqlen_q != shape.seqlen_k:
        return None  # PyTorch aligns the mask at the top left
    else:
        f, refusals = sdpa_method(torch, name, shape, q, k, v), (RuntimeError, ValueError)
    if not f:
        return None
    try:
        f()
        return f
    except refusals:
        torch.cuda.synchronize()
        return None


def peer(torch, name, shape, q, k, v, d_o=None):
    """The same, or with d_o the backward pass alone: the forward pass ran before."""
    forward = torch_method(torch, name, shape, q, k, v)
    if forward is None or d_o is None:
        return forward
    o = forward()

    def run():
        return torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)
    try:
        run()
    except Exception:  # pylint: disable=broad-except  # each library refuses in its own way
        return None
    return run


class Library:
    """The kernels of build/libfive_steps.so."""

    def __init__(self, path):
        self.library = c_library.Library(path)
        self.compiler = self.library.built_with

    @staticmethod
    def problem(name, dtype, shape, **arrays):
        """The problem that says which kernel on which shape, scaled as usual."""
        sizes = {field: getattr(shape, field) for field in (
            "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v",
            "causal")}
        return c_library.AttentionProblem(
            device=c_library.GPU, type=c_library.TYPES[dtype], kernel=name.encode(),
            scale=1 / math.sqrt(shape.head_dim), **sizes, **arrays)

    def predicted(self, name, dtype, shape):
        """Bytes that the kernel moves according to its own model."""
        return self.library.kernel(self.problem(name, dtype, shape))[1]

    def call_of(self, torch, operation, name, dtype, shape, strides=(), **arrays):
        """A function that calls one operation on these tensors; strides: the arrays that may be views."""
        views = {f"{field}_strides": c_library.Strides(*arrays[field].stride()[:3])
                 for field in strides}
        problem = self.problem(
            name, dtype, shape, stream=torch.cuda.current_stream().cuda_stream,
            **{field: x.data_ptr() for field, x in arrays.items()}, **views)
        try:
            size = self.library.workspace(operation, problem)
        except c_library.LibraryError as error:
            lacks = error.code == c_library.INVALID and str(error).startswith("kernel")
            if error.code != c_library.UNSUPPORTED and not lacks:
                raise
            return None
        work = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")

        def run(keep=arrays):
            assert keep
            self.library.call(operation, problem, work.data_ptr(), work.numel())
        return run

    def method(self, torch, op, name, dtype, shape, q, k, v, d_o=None):
        """Attention, whose o lies as q does, or with d_o dq, dk and dv; o and lse are then by our forward pass."""
        q, k, v = (x.detach() for x in (q, k, v))
        o = torch.empty_like(q) if v.shape[3] == q.shape[3] else q.new_empty(
            (*q.shape[:3], v.shape[3]))
        o.fill_(math.nan)
        arrays = {"q": q, "k": k, "v": v, "o": o,
                  "lse": torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")}
        if op == "attention":
            call, out = self.call_of(torch, op, name, dtype, shape, "qkvo", **arrays), o
        else:
            self.call_of(torch, "attention", "tuned", dtype, shape, **arrays)()
            out = [torch.empty_like(x).fill_(math.nan) for x in (q, k, v)]
            call = self.call_of(torch, "attention_backward", name, dtype, shape, d_o=d_o,
                                **dict(zip(("dq", "dk", "dv"), out)), **arrays)

        def run():
            call()
            return out
        return call and run


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
