"""eight_bits.py: keys and values of 8 bits, and their scales: a number is its code times the scale of its
sequence and key head."""
from . import c_library
from .arrays import FiveStepsError, is_tensor, kind_of, wants_gradient

TYPES = {"float8_e4m3fn": c_library.E4M3, "int8": c_library.INT8}
LARGEST = {"float8_e4m3fn": 448, "int8": 127}


def name_of(a):
    """The name of an array's type, the same of NumPy's and PyTorch's."""
    return str(getattr(a, "dtype", None)).removeprefix("torch.")


def is_coded(*arrays):
    """Is one of the arrays of keys, values or queries of 8 bits?"""
    return any(name_of(a) in TYPES for a in arrays)


def scale_of(kind, name, scale, shape, like):
    """A scale as float32 [batch, heads_kv]; None: 1."""
    if scale is None or isinstance(scale, (int, float)):
        return kind.to(kind.range(shape[0] * shape[1], like) * 0 + (1.0 if scale is None else scale),
                       kind.f32).reshape(shape)
    kind_of({"q": like, name: scale})
    if scale.dtype != kind.f32 or tuple(scale.shape) not in ((), (1,), shape):
        raise FiveStepsError(f"{name} is {scale.dtype} {list(scale.shape)}; give a number, or float32 "
                             f"[batch, heads_kv] = {list(shape)}")
    return kind.contiguous(kind.module.broadcast_to(scale, shape))


def check(q, k, v, scales):
    """Refuses by name what cannot be; gives the type's name."""
    codes = name_of(k)
    if name_of(v) != codes:
        raise FiveStepsError(f"types differ: k is {name_of(k)}, v is {name_of(v)}; give both in the same 8 bits")
    if codes not in TYPES and name_of(q) in TYPES:
        raise FiveStepsError(f"q is {name_of(q)}, but k and v are {codes}; give these in 8 bits too")
    if name_of(q) in TYPES and name_of(q) != codes:
        raise FiveStepsError(f"types differ: q is {name_of(q)}, k and v are {codes}")
    for name, a, scale in zip(("q_scale", "k_scale", "v_scale"), (q, k, v), scales):
        if name_of(a) == "int8" and scale is None:
            raise FiveStepsError(f"{name} is not given; int8 numbers need one")
        if name_of(a) not in TYPES and scale is not None:
            raise FiveStepsError(f"{name} is given, but {name[0]} is {name_of(a)}")
        if wants_gradient(a) or wants_gradient(scale):
            raise FiveStepsError("keys and values in 8 bits have no gradient, nor have their scales; call under "
                                 "torch.no_grad(), or detach() the tensors")
    return codes


def as_numbers(kind, q):
    """The codes of q in a type that kernels compute in, exactly: bfloat16, which NumPy lacks."""
    if name_of(q) not in TYPES:
        return q
    return kind.to(q, kind.module.bfloat16 if is_tensor(q) else kind.f32)


def describe(call, codes, scales):
    """The fields of the problem for keys of these codes."""
    if codes is None:
        return
    shape = call.fields["batch"], call.fields["heads_kv"]
    q_scale, k_scale, v_scale = (scale_of(call.kind, name, scale, shape, call.like) for name, scale in zip(
        ("q_scale", "k_scale", "v_scale"), scales))
    call.fields["kv_type"] = TYPES[codes]
    call.keep("k_scale", k_scale * q_scale)
    call.keep("v_scale", v_scale)


def widened(kind, a, name, scale, like, sums=None):
    """k or v [batch, heads, rows, width], or packed [rows, heads, width], as numbers in the type of `like`."""
    heads = a.shape[1]
    batch = a.shape[0] if sums is None else sums.shape[0] - 1
    scale = scale_of(kind, name, scale, (batch, heads), like)
    scale = scale[:, :, None, None] if sums is None else (
        scale.repeat_interleave((sums[1:] - sums[:-1]).long(), dim=0)[:, :, None])
    return kind.to(kind.to(a, kind.f32) * scale, like.dtype)


def quantise(kind, name, new, pool, scale):
    """The codes of new keys or values [batch, n, heads_kv, width] for a pool: nearest, saturating."""
    codes = name_of(pool)
    if codes == "int8" and scale is None:
        raise FiveStepsError(f"{name[0]}_scale is not given; int8 pages need one")
    scale = scale_of(kind, f"{name[0]}_scale", scale, (new.shape[0], new.shape[2]), new)
    numbers = (kind.to(new, kind.f32) / scale[:, None, :, None]).clip(-LARGEST[codes], LARGEST[codes])
    return kind.to(numbers.round() if codes == "int8" else numbers, pool.dtype)
