"""quick.py: calls on PyTorch tensors that the C library reads by itself (tensors.h).

To check arguments and to fill in a problem takes Python longer than a small kernel runs.  So options are
checked once, and kept as a problem without arrays; the library adds what it reads from the tensors.
What it cannot take as it lies goes the general way (calls.py), which copies and explains."""
import ctypes
import functools

import torch

from . import c_library, operations

SMALL = 1 << 20  # bytes of a workspace in the host's memory that is kept
KEPT = 1024  # problems of different options; then all are forgotten
ALL_KEYS = ctypes.c_size_t(-1).value
HEADS_ROWS, ROWS_HEADS, ONE_ROW = range(3)  # enum five_steps_order
_VALUES = {type(None), bool, int, float, str, tuple}  # types of options that do not change

_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _empty_strided(place):
    """A function (shape, strides, type) that makes a tensor on the current device of "cuda", or on
    "cpu".  That of torch.compile's output does not go through PyTorch's dispatcher."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_" + place, None) or (
        lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=place))


_empty = _empty_strided("cpu"), _empty_strided("cuda")


def _exchange():
    """DLPack's functions for tensors, or None before PyTorch 2.10."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return capsule and pointer(capsule, b"dlpack_exchange_api")


EXCHANGE = _exchange()


@functools.lru_cache(maxsize=None)
def _functions(is_cuda):
    """The library's: one reads tensors under the interpreter's lock, one computes without it."""
    so = c_library.library(c_library.GPU if is_cuda else c_library.CPU).so
    read = ctypes.PyDLL(so._name).five_steps_read_tensors
    read.argtypes = ctypes.c_void_p, *[ctypes.py_object] * 4
    compute = ctypes.CDLL(so._name).five_steps_attention
    compute.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    return read, compute


class General(Exception):
    """The call has to go the general way, which copies what has to be copied, or says what is wrong."""


_workspaces = []


class Ready:
    """Options as problems of the library, of which a call takes one that no other call has.  pop() and
    append() of a list are atomic, so calls of several threads may do so."""

    def __init__(self, order_q, order_k, is_cuda, fields):
        self.given = {"exchange": EXCHANGE, "order_q": order_q, "order_k": order_k, "keys": ALL_KEYS,
                      "problem": c_library.problem("attention", **fields)}
        self.read, self.compute = _functions(is_cuda)
        self.spare = []

    def take(self):
        """A problem in the structure that the library fills in, and the addresses of both."""
        try:
            return self.spare.pop()
        except IndexError:
            both = c_library.Tensors(**self.given)
            return both, both.problem, ctypes.addressof(both), ctypes.addressof(both.problem)

    def run(self, q, k, v, fields, of_lse, keys=None):
        """o and lse, or None.  fields: pairs of a field and what this call has there; of_lse: the shape
        of lse, or None; keys: of a decoding step."""
        is_cuda = q.is_cuda
        if is_cuda and q.get_device() != _current_device():
            raise General
        empty, lse = _empty[is_cuda], None
        if q.is_contiguous() and q.size(-1) == v.size(-1):
            o = empty((*q.shape,), q.stride(), q.dtype)
        else:
            o = q.new_empty((*q.shape[:-1], v.size(-1)))
        taken = both, problem, address, of_problem = self.take()
        for name, value in fields:
            setattr(problem, name, value)
        if of_lse is not None:
            lse = q.new_empty(of_lse, dtype=torch.float32)
            problem.lse = lse.data_ptr()
        if keys is not None:
            both.keys = keys
        if self.read(address, q, k, v, o):
            raise General
        size = both.bytes
        if is_cuda or size > SMALL:
            work = empty((size,), (1,), torch.uint8)
        else:
            work = _workspaces.pop() if _workspaces else empty((SMALL,), (1,), torch.uint8)
        if self.compute(of_problem, work.data_ptr(), size, None):
            raise General
        if not is_cuda and size <= SMALL:
            _workspaces.append(work)
        self.spare.append(taken)
        return o, lse


_ready = {}


def _prepare(key, options, fields):
    """Keeps a Ready under its key, which begins with the options."""
    if EXCHANGE is None or not _VALUES.issuperset(map(type, options)):
        raise General
    if len(_ready) >= KEPT:
        _ready.clear()
    _ready[key] = Ready(*key[1:4], fields)
    return _ready[key]


def _array(name, a, shape, q, dtype=torch.int32):
    """The field for an array that lies as the library wants it."""
    if a.dtype is not dtype or a.shape != shape or a.device != q.device or not a.is_contiguous():
        raise General
    return name, a.data_ptr()


def _of_scores(causal, left, right, softcap, scale):
    return {"causal": causal, "window": (left, right) != (-1, -1), "window_left": left,
            "window_right": right, "softcap": softcap, "scale": scale}


def attention(arrays, given, return_lse):
    """o and lse (or None).  given: what the caller gave beside the arrays."""
    q, k, v, bias, sinks, slopes, sums_q, sums_k = arrays
    if k is None or v is None or slopes is not None:
        raise General
    packed, fields, shape = sums_q is not None, [], q.shape
    order = ROWS_HEADS if packed or given[4] == "blhd" else HEADS_ROWS
    key = given, order, order, q.is_cuda, return_lse, packed, bias is None, sinks is None
    ready = _ready.get(key)
    if ready is None:
        if type(given[2]) is tuple and not _VALUES.issuperset(map(type, given[2])):
            raise General
        options = operations.attention_options(arrays, *given)
        ready = _prepare(key, (*given[:2], *given[3:]), _of_scores(*options[2:7]))
    if order == ROWS_HEADS:
        shape = (*shape[:-3], shape[-2], shape[-3], shape[-1])
    if sinks is not None:
        fields.append(_array("sinks", sinks, shape[-3:-2], q, torch.float32))
    if bias is not None:
        keys = k.shape[-3 if order == ROWS_HEADS else -2]
        fields.append(_array("bias", bias, (shape[-2], keys), q, torch.float32))
    if packed:
        longest_q, longest_k = given[5:]
        if not longest_q or not longest_k:
            raise General
        sequences = sums_q.shape
        fields += [_array("cu_seqlens_q", sums_q, sequences, q),
                   _array("cu_seqlens_k", sums_k, sequences, q), ("batch", sequences[0] - 1),
                   ("seqlen_q", min(longest_q, q.shape[0])), ("seqlen_k", min(longest_k, k.shape[0]))]
    return ready.run(q, k, v, fields, shape[:-1] if return_lse else None)


def decode(arrays, keys, longest, given, return_lse):
    """The same of a decoding step.  keys: a number, or of each sequence; longest: of these."""
    q, k, v, table, sinks = arrays
    if k is None or v is None:
        raise General
    short, fields = q.dim() == 3, []
    order_q = ONE_ROW if short else ROWS_HEADS
    order_k = ROWS_HEADS if given[3] == "pages_first" else HEADS_ROWS
    causal, lengths = not short and q.size(1) > 1, None
    room = k.size(1 if order_k == ROWS_HEADS else 2)
    if table is not None:
        pages = table.size(1)
        room *= pages
        fields = [_array("page_table", table, (q.size(0), pages), q), ("pages_per_sequence", pages)]
    if isinstance(keys, torch.Tensor) and keys.dim():
        lengths = _array("seqlens_k", keys, q.shape[:1], q)
        fields.append(lengths)
        keys = min(longest or (room if keys.is_cuda else int(keys.max())), room)
    if sinks is not None:
        fields.append(_array("sinks", sinks, q.shape[-2:-1], q, torch.float32))
    if type(keys) is not int or keys <= 0:
        raise General
    key = given, order_q, order_k, q.is_cuda, return_lse, causal, table is None, lengths is None, \
        sinks is None
    ready = _ready.get(key)
    if ready is None:
        left, softcap, scale, _ = operations.decode_options(*given)
        ready = _prepare(key, given, _of_scores(causal, left, -1, softcap, scale))
    shape = None
    if return_lse:
        shape = (*q.shape[:1], q.size(-2), *([] if short else q.shape[1:2]))
    return ready.run(q, k, v, fields, shape, keys)
