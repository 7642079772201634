"""quick.py: calls on PyTorch tensors that an extension reads by itself (tensors.c).

To check arguments and to fill in a problem takes Python longer than a small kernel runs.  So options are
checked once, and kept as a problem without arrays.  The extension needs Python 3.10 and PyTorch 2.10.
Without it, and for what the library cannot take as it lies, there is the general way (calls.py)."""
import ctypes
import importlib.machinery
import importlib.util
import os
import warnings

import torch

from . import c_library
from .options import attention_options, decode_options, score_fields

KEPT = 1024  # problems of different options; then all are forgotten
ALL_KEYS = ctypes.c_size_t(-1).value
HEADS_ROWS, ROWS_HEADS, ONE_ROW = range(3)  # enum order of tensors.c
_VALUES = {type(None), bool, int, float, str, tuple}  # types of options that do not change
_WHOLE = {type(None), int}  # 4.0 is the same key as 4
_Problem = c_library.problem("attention").__class__
_SEEN_OR_NOT = torch.tensor(0.0, dtype=torch.float32), torch.tensor(-torch.inf, dtype=torch.float32)
_OFFSETS = {name: getattr(_Problem, name).offset for name, _ in _Problem._fields_}


class General(Exception):
    """The call has to go the general way."""


def _empty_strided(place):
    """A function (shape, strides, type) that makes a tensor on the current device of "cuda", or on
    "cpu".  That of torch.compile's output does not go through PyTorch's dispatcher."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_" + place, None) or (
        lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=place))


def _extension():
    """tensors.c, which stands beside the library; None where it cannot be had."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    path = os.path.join(os.path.dirname(c_library.library().so._name), "five_steps_tensors.abi3.so")
    if capsule is None or not os.path.exists(path) or (
            ".abi3.so" not in importlib.machinery.EXTENSION_SUFFIXES):  # Python without the GIL
        return None
    loader = importlib.machinery.ExtensionFileLoader("five_steps_tensors", path)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    functions = []
    for place, device in (("cpu", c_library.CPU), ("cuda", c_library.GPU)):
        so = c_library.library(device).so
        functions += [ctypes.cast(so[name], ctypes.c_void_p).value for name in (
            "five_steps_attention_workspace", "five_steps_attention",
            "five_steps_attention_backward_workspace", "five_steps_attention_backward")]
        functions.append(_empty_strided(place))
    functions.append(ctypes.cast(c_library.library().so.omp_get_max_threads, ctypes.c_void_p).value)
    try:
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        module.setup(pointer(capsule, b"dlpack_exchange_api"), c_library.VERSION, ctypes.sizeof(_Problem),
                     torch.uint8, torch.float32, *functions)
    except ImportError:  # Python 3.9, or a DLPack that the extension does not know
        return None
    except TypeError as error:
        warnings.warn(f"{path} is not used, so short calls take longer: {error}; build it again")
        return None
    return module


_tensors = _extension()
_ready = {}  # problems with their options, by all that these depend on


def _prepare(key, options, *score):
    """The address of a problem with its options, for the calls with that key."""
    if _tensors is None or not _VALUES.issuperset(map(type, options)):
        raise General
    if len(_ready) >= KEPT:
        _ready.clear()
    problem = c_library.problem("attention", **score_fields(*score))
    _ready[key] = ctypes.addressof(problem), problem
    return _ready[key]


def _field(name, value):
    return _OFFSETS[name], value


def _array(name, a, shape, q, dtype=torch.int32):
    """The field for an array that lies as the library wants it."""
    if not isinstance(a, torch.Tensor) or a.dtype is not dtype or a.shape != shape or (
            a.device != q.device or not a.is_contiguous()):
        raise General
    return _field(name, a.data_ptr())


def _described(arrays, given):
    """The problem's address, the order of dimensions, the bias in numbers, and the fields of this call;
    General: the general way.  given: what the caller gave beside the arrays."""
    q, k, v, bias, sinks, slopes, sums_q, sums_k, seed = arrays
    if k is None or v is None or slopes is not None:
        raise General
    packed, fields = sums_q is not None, ()
    numbers = given[2] or given[5] or given[6]
    if numbers and not _WHOLE.issuperset(map(type, (*(given[2] or ()), *given[5:7]))):
        raise General
    order = ROWS_HEADS if packed or given[4] == "blhd" else HEADS_ROWS
    ready = _ready.get((given, packed))
    if ready is None:
        options = attention_options(arrays, *given)
        ready = _prepare((given, packed), (*given[:2], *(given[2] or ()), *given[3:]), *options[2:10])
    if sinks is not None:
        fields += _array("sinks", sinks, q.shape[-2:-1] if order == ROWS_HEADS else q.shape[-3:-2], q,
                         torch.float32)
    if bias is not None and bias.dtype is torch.bool:
        bias = bias.log() if bias.is_cuda else torch.where(bias, *_SEEN_OR_NOT)  # log: one kernel of three
    elif bias is not None and bias.dtype in (torch.bfloat16, torch.float16):
        bias = bias.float()
    if seed is not None:
        fields += _field("seed", int(seed))
    if packed:
        longest_q, longest_k = given[5:7]
        if not longest_q or not longest_k:
            raise General
        fields += _array("cu_seqlens_q", sums_q, sums_k.shape[:1], q)
        fields += _array("cu_seqlens_k", sums_k, sums_q.shape[:1], q)
        fields += _field("batch", sums_q.shape[0] - 1)
        fields += _field("seqlen_q", min(longest_q, q.shape[0]))
        fields += _field("seqlen_k", min(longest_k, k.shape[0]))
    return ready[0], order, bias, fields


def attention(arrays, given, return_lse):
    """o and lse (or None); None: the general way."""
    problem, order, bias, fields = _described(arrays, given)
    return _tensors.attention(problem, order, order, ALL_KEYS, *arrays[:3], bias, fields, return_lse)


def gradients(d_o, o, lse, of_bias, arrays, given):
    """dq, dk, dv, dsinks (or None) and dbias (or None); None: the general way.  of_bias: the bias is float32, and
    lies one after another."""
    problem, order, bias, fields = _described(arrays, given)
    d_bias = torch.empty_like(bias) if of_bias else None
    if of_bias:
        fields += _field("dbias", d_bias.data_ptr())
    if order == ROWS_HEADS:
        d_o = d_o.transpose(-3, -2)
    results = _tensors.gradients(problem, order, *arrays[:3], bias, fields, o, lse, d_o.contiguous())
    return results and (*results, d_bias)


def decode(arrays, keys, longest, given, scales, return_lse):
    """The same of a decoding step.  keys: a number, or of each sequence; longest: of these.  scales: of
    k and v in 8 bits.  return_lse None: it is only asked, o is not computed."""
    q, k, v, table, sinks = arrays
    if k is None or v is None or type(given[1]) not in _WHOLE:
        return None
    short, fields = q.dim() == 3, ()
    order_k = ROWS_HEADS if given[3] == "pages_first" else HEADS_ROWS
    causal = not short and q.size(1) > 1
    ready = _ready.get((given, causal))
    if ready is None:
        left, *score, _ = decode_options(*given)
        ready = _prepare((given, causal), given, causal, left, -1, *score)
    room = k.size(1 if order_k == ROWS_HEADS else 2)
    if table is not None:
        pages = table.size(1)
        room *= pages
        fields += _array("page_table", table, (q.size(0), pages), q)
        fields += _field("pages_per_sequence", pages)
    if isinstance(keys, torch.Tensor) and keys.dim():
        fields += _array("seqlens_k", keys, q.shape[:1], q)
        keys = min(longest or (room if keys.is_cuda else int(keys.max())), room)
    if sinks is not None:
        fields += _array("sinks", sinks, q.shape[-2:-1], q, torch.float32)
    for name, scale in zip(("k_scale", "v_scale"), scales):
        if scale is not None:
            fields += _array(name, scale, (q.shape[0], k.shape[2 if order_k == ROWS_HEADS else 1]), q,
                             torch.float32)
    if type(keys) is not int or not 0 < keys <= room:
        return None
    return _tensors.attention(ready[0], ONE_ROW if short else ROWS_HEADS, order_k, keys, q, k, v, None, fields,
                              return_lse)
