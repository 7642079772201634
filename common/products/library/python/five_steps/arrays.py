"""arrays.py: what the operations need of NumPy arrays and of PyTorch tensors."""
import contextlib
import sys

from . import c_library


class FiveStepsError(ValueError):
    """An argument that cannot be, or that is not supported.  code: the library's, if it was the
    library that refused."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Kind:
    """What NumPy and PyTorch share, or say in two ways.  Of their methods:
    to(a, dtype)       the elements in another type
    contiguous(a)      the same elements, one after another; on a GPU at a multiple of 16 bytes
    strides(a)         elements from one index of each dimension to the next, or None where the library
                       cannot use the array as it lies: on a GPU rows begin at multiples of 16 bytes
    range(n, like)     0 to n - 1, int32
    empty(shape, like, dtype)  an array for results, or a workspace
    address(a)         of the first element
    place(like)        device and stream, as fields of a problem
    on_device(like)    a context in which the array's device is the current one
    check_writable(name, a)    refuses an array of the caller that cannot be written
    note_written(a)    the library is going to write into the caller's array
    knows(a)           may the host look at the array's numbers?"""

    def __init__(self, module, types, wanted):
        self.module, self.wanted = module, wanted
        self.types = {self.type(name): number for name, number in types.items()}
        self.i32, self.i64, self.f32, self.bool, self.byte = map(self.type, (
            "int32", "int64", "float32", "bool", "uint8"))
        self.integers = {self.type(name) for name in ("uint8", "int8", "int16", "int32", "int64")}

    @staticmethod
    def device(a):
        """Where an array lies."""
        return str(getattr(a, "device", "cpu"))

    def check(self, name, a, dtype, words, *shapes):
        """Refuses an array of another type, or of none of the shapes; words: the dimensions' names.  int32
        stands for all integers."""
        types = self.integers if dtype == self.i32 else {dtype}
        if a.dtype not in types or tuple(a.shape) not in shapes:
            raise FiveStepsError(f"{name} is {a.dtype} {list(a.shape)}; give {str(dtype).removeprefix('torch.')} "
                                 f"{words} = {list(shapes[-1])}")


class Numpy(Kind):  # pylint: disable=missing-function-docstring
    """Arrays in host memory."""

    def __init__(self):
        import numpy  # pylint: disable=import-outside-toplevel
        self.type = numpy.dtype
        super().__init__(numpy, {"float32": c_library.F32, "float16": c_library.F16},
                         "float32 or float16")

    @staticmethod
    def to(a, dtype):
        return a.astype(dtype, copy=False)

    def contiguous(self, a):
        return self.module.require(a, requirements="CA")

    @staticmethod
    def strides(a):
        whole = all(s % a.itemsize == 0 and s >= 0 for s in a.strides)
        if not (whole and a.flags.aligned and a.dtype.isnative):
            return None
        return [s // a.itemsize for s in a.strides]

    floats_apart = strides

    def range(self, n, _like):
        return self.module.arange(n, dtype="i4")

    def empty(self, shape, like, dtype=None):
        return self.module.empty(shape, dtype or like.dtype)

    @staticmethod
    def address(a):
        return a.ctypes.data

    @staticmethod
    def place(_like):
        return {"device": c_library.CPU}

    @staticmethod
    def on_device(_like):
        return contextlib.nullcontext()

    @staticmethod
    def check_writable(name, a):
        if not a.flags.writeable:
            raise FiveStepsError(f"{name} is read-only; give an array that can be written")

    @staticmethod
    def note_written(_a):
        pass

    @staticmethod
    def knows(_a):
        return True

    @staticmethod
    def has_rows_first(_a):
        return False


class Torch(Kind):  # pylint: disable=missing-function-docstring
    """Tensors, on the CPU or on a GPU."""

    def __init__(self):
        import torch  # pylint: disable=import-outside-toplevel
        self.type = lambda name: getattr(torch, name)
        super().__init__(torch, {"float32": c_library.F32, "float16": c_library.F16,
                                 "bfloat16": c_library.BF16}, "float32, float16 or bfloat16")

    @staticmethod
    def to(a, dtype):
        return a.to(dtype)

    @staticmethod
    def contiguous(a):
        a = a.contiguous()
        return a if a.device.type == "cpu" or a.data_ptr() % 16 == 0 else a.clone()

    @staticmethod
    def strides(a):
        steps = list(a.stride())
        if a.device.type == "cpu":
            return steps
        unit = 16 // a.element_size()
        aligned = all(s % unit == 0 for s, n in zip(steps[:-1], a.shape) if n > 1)
        return steps if aligned and a.data_ptr() % 16 == 0 else None

    @staticmethod
    def has_rows_first(a):
        """Does [batch, heads, rows, width] have its rows before its heads in memory?"""
        return a.ndim == 4 and a.shape[1] > 1 and a.shape[2] > 1 and a.stride(1) < a.stride(2)

    @staticmethod
    def floats_apart(a):
        """The strides of floats that are read one by one, at any address."""
        return list(a.stride())

    def range(self, n, like):
        return self.module.arange(n, dtype=self.i32, device=like.device)

    @staticmethod
    def empty(shape, like, dtype=None):
        return like.new_empty(shape, dtype=dtype or like.dtype)

    @staticmethod
    def address(a):
        return a.data_ptr()

    def place(self, like):
        if like.device.type == "cpu":
            return {"device": c_library.CPU}
        return {"device": c_library.GPU, "stream": self.module.cuda.current_stream(like.device).cuda_stream}

    def on_device(self, like):
        return self.module.cuda.device_of(like)

    @staticmethod
    def check_writable(_name, _a):
        pass

    def note_written(self, a):
        """A derivative that needs what a held notices, as after PyTorch's own operations."""
        self.module.autograd.graph.increment_version(a)

    def knows(self, a):
        return a.device.type == "cpu" and not self.module.compiler.is_compiling()


_KINDS = {}


def is_tensor(a):
    """Is a a PyTorch tensor?  PyTorch is imported already where one exists."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def wants_gradient(a):
    """Is a a tensor that takes part in a derivative?"""
    return is_tensor(a) and a.requires_grad and sys.modules["torch"].is_grad_enabled()


_OPTIONAL = {"bias", "sinks", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k",
             "page_table", "seqlen_k", "out"}


def kind_of(arrays):
    """Numpy or Torch.  arrays {name: array or None}: all that are given are of that kind, on one
    device."""
    given = {name: a for name, a in arrays.items() if a is not None or name not in _OPTIONAL}
    cls = Torch if any(map(is_tensor, given.values())) else Numpy
    kind = _KINDS.get(cls) or _KINDS.setdefault(cls, cls())
    expected = kind.module.Tensor if cls is Torch else kind.module.ndarray
    for name, a in given.items():
        if not isinstance(a, expected):
            raise FiveStepsError(f"{name} is a {type(a).__name__}; give NumPy arrays, or PyTorch "
                                 "tensors throughout")
        if hasattr(a, "mask") or getattr(a, "is_nested", False):
            raise FiveStepsError(f"{name} is a {'masked array' if cls is Numpy else 'nested tensor'}; give "
                                 + ("its data, and a bias of booleans" if cls is Numpy else
                                    "packed sequences: its values, and cu_seqlens"))
    if cls is Torch and not kind.module.compiler.is_compiling() and (
            kind.module._C._functorch.peek_interpreter_stack() is not None):
        raise FiveStepsError("torch.func (vmap, grad, jvp, ...) is not supported; give a batch, and use backward()")
    devices = {kind.device(a): name for name, a in given.items()}
    if len(devices) > 1:
        raise FiveStepsError("arrays lie on different devices: " + ", ".join(
            f"{name} on {device}" for device, name in sorted(devices.items())))
    where = next(iter(devices), "cpu").split(":")[0]
    if where not in ("cpu", "cuda"):
        raise FiveStepsError(f"{devices.popitem()[1]} is a tensor on {where}; give CPU or CUDA tensors")
    return kind


def type_of(kind, arrays):
    """The library's number for the one type of the arrays {name: array}."""
    for name, a in arrays.items():
        if a.dtype not in kind.types:
            raise FiveStepsError(f"{name} is {a.dtype}; give {kind.wanted}")
    if len({a.dtype for a in arrays.values()}) > 1:
        raise FiveStepsError("types differ: " + ", ".join(
            f"{name} is {a.dtype}" for name, a in arrays.items()))
    return kind.types[next(iter(arrays.values())).dtype]


def as_rows(kind, a):
    """a [..., rows, width], copied where the library cannot use it as it lies; and its strides.  The
    library takes strides that are all 0 for those of a contiguous array, and leaves aside the stride of
    a dimension of one element: 1 there keeps the others from being all 0.  So of an array whose rows are
    all one row a head is copied, and repeated for each batch and head."""
    steps = kind.strides(a)
    if steps is not None and not any(step or n <= 1 for step, n in zip(steps, a.shape[:-1])):
        whole = kind.contiguous(a[(0,) * (a.ndim - 2)])
        a = kind.module.broadcast_to(whole, tuple(a.shape))
        steps = kind.strides(a)
    if steps is None or (steps[-1] != 1 and a.shape[-1] != 1):
        return kind.contiguous(a), c_library.Strides()
    steps = [1 if n == 1 else s for s, n in zip(steps, a.shape[:-1])]
    return a, c_library.Strides(*([1] * (3 - len(steps)) + steps))
