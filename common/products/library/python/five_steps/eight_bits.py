"""eight_bits.py: keys and values of 8 bits, and their scales: a number is its code times the scale of its
sequence and key head."""
import functools
import importlib

from . import c_library
from .arrays import FiveStepsError, as_rows, is_tensor, kind_of, type_of, wants_gradient

TYPES = {"float8_e4m3fn": c_library.E4M3, "int8": c_library.INT8}
LARGEST = {"float8_e4m3fn": 448, "int8": 127}


@functools.lru_cache(maxsize=None)
def _named(dtype):
    return str(dtype).removeprefix("torch.")


def name_of(a):
    """The name of an array's type, the same of NumPy's and PyTorch's."""
    return _named(getattr(a, "dtype", None))


def is_coded(*arrays):
    """Is one of the arrays of keys, values or queries of 8 bits?  (A type's name takes longer than its size.)"""
    for a in arrays:
        if getattr(getattr(a, "dtype", None), "itemsize", 1) == 1 and name_of(a) in TYPES:
            return True
    return False


def scale_of(kind, name, scale, shape, like):
    """A scale as float32 [batch, heads_kv]; None stays."""
    if scale is None:
        return None
    if isinstance(scale, (int, float)):
        number, scale = scale, kind.empty(shape, like, kind.f32)
        scale[...] = number
    kind_of({"q": like, name: scale})
    if scale.dtype != kind.f32 or tuple(scale.shape) not in ((), (1,), shape):
        raise FiveStepsError(f"{name} is {scale.dtype} {list(scale.shape)}; give a number, or float32 "
                             f"[batch, heads_kv] = {list(shape)}")
    return kind.contiguous(kind.module.broadcast_to(scale, shape))


def check(q, k, v, scales):
    """Refuses by name what cannot be; gives the name of v's type."""
    of_q, of_k, of_v = map(name_of, (q, k, v))
    if of_v != of_k and (of_q, of_k, of_v) != ("int8", "int8", "float8_e4m3fn"):
        raise FiveStepsError(f"types differ: k is {of_k}, v is {of_v}; give both in the same 8 bits (where q and "
                             "k are int8, v may be float8_e4m3fn)")
    if of_k not in TYPES and of_q in TYPES:
        raise FiveStepsError(f"q is {of_q}, but k and v are {of_k}; give these in 8 bits too")
    if of_q in TYPES and of_q != of_k:
        raise FiveStepsError(f"types differ: q is {of_q}, k and v are {of_k}")
    for name, a, scale in zip(("q_scale", "k_scale", "v_scale"), (q, k, v), scales):
        if name_of(a) == "int8" and scale is None:
            raise FiveStepsError(f"{name} is not given; int8 numbers need one")
        if name_of(a) not in TYPES and scale is not None:
            raise FiveStepsError(f"{name} is given, but {name[0]} is {name_of(a)}")
        if wants_gradient(a) or wants_gradient(scale):
            raise FiveStepsError("keys and values in 8 bits have no gradient, nor have their scales; call under "
                                 "torch.no_grad(), or detach() the tensors")
    return of_v


def type_of_o(kind, q):
    """The type of o: bfloat16 where q has 8 bits, which NumPy holds as uint16."""
    return q.dtype if name_of(q) not in TYPES else kind.type("uint16" if kind.module.__name__ == "numpy"
                                                            else "bfloat16")


def as_numbers(kind, q):
    """The codes of q in a type that kernels compute in, exactly: bfloat16, which NumPy lacks.  And bfloat16
    that NumPy holds as uint16."""
    if name_of(q) == "uint16":
        return (q.astype("u4") << 16).view("f4")
    return q if name_of(q) not in TYPES else kind.to(q, kind.module.bfloat16 if is_tensor(q) else kind.f32)


def describe(call, codes, scales):
    """The fields of the problem for values of these codes."""
    if codes is None:
        return
    shape = call.fields["batch"], call.fields["heads_kv"]
    q_scale, k_scale, v_scale = (scale_of(call.kind, name, scale, shape, call.like) for name, scale in zip(
        ("q_scale", "k_scale", "v_scale"), scales))
    call.fields["kv_type"] = TYPES[codes]
    if q_scale is not None and call.fields["type"] not in TYPES.values():  # q was codes
        k_scale, q_scale = q_scale if k_scale is None else k_scale * q_scale, None
    for name, scale in (("q_scale", q_scale), ("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None:
            call.keep(name, scale)


def quantise(kind, name, new, pool, scale):
    """The codes of new keys or values [batch, n, heads_kv, width] for a pool: nearest, saturating."""
    codes = name_of(pool)
    if codes == "int8" and scale is None:
        raise FiveStepsError(f"{name[0]}_scale is not given; int8 pages need one")
    scale = scale_of(kind, f"{name[0]}_scale", scale, (new.shape[0], new.shape[2]), new)
    numbers = kind.to(new, kind.f32) / (1 if scale is None else scale[:, None, :, None])
    numbers = numbers.clip(-LARGEST[codes], LARGEST[codes])
    return kind.to(numbers.round() if codes == "int8" else numbers, pool.dtype)


def quantised(x, to, smooth, rotate, run):
    """quantise() of operations.py: codes, scale and mean (or None).  run: that of calls.py."""
    kind = kind_of({"x": x})
    if to not in TYPES:
        raise FiveStepsError(f"to is {to!r}; give " + " or ".join(map(repr, TYPES)))
    if x.ndim != 4:
        raise FiveStepsError(f"x is {list(x.shape)}; give [batch, heads, rows, head_dim]")
    if kind.module.__name__ != "numpy":
        dtype = kind.type(to)
    else:
        dtype = kind.type(to if to == "int8" else importlib.import_module("ml_dtypes").float8_e4m3fn)
    (x, strides), shape = as_rows(kind, x), tuple(x.shape)
    codes, scale = kind.empty(shape, x, dtype), kind.empty(shape[:2], x, kind.f32)
    mean = kind.empty((*shape[:2], shape[3]), x, kind.f32) if smooth else None
    fields = dict(zip(("batch", "heads", "rows", "head_dim"), shape), strides=strides, **kind.place(x))
    problem = c_library.problem(
        "quantise", type=type_of(kind, {"x": x}), to=TYPES[to], smooth=bool(smooth), rotate=bool(rotate),
        x=kind.address(x), codes=kind.address(codes), scale=kind.address(scale),
        mean=kind.address(mean) if smooth else None, **fields)
    run(kind, x, "quantise", problem)
    return codes, scale, mean
