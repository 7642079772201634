"""arrays.py: what the operations need of NumPy arrays and of PyTorch tensors."""
import contextlib
import sys

from . import c_library


class FiveStepsError(ValueError):
    """An argument that cannot be, or that is not supported yet.  code: the library's, if it was
    the library that refused."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Numpy:
    """Arrays in host memory."""
    device, stream = c_library.CPU, None

    def __init__(self):
        import numpy  # pylint: disable=import-outside-toplevel
        self.numpy = numpy
        self.types = {numpy.dtype("f4"): c_library.F32, numpy.dtype("f2"): c_library.F16}

    def type_of(self, name, a):
        """The library's number for the array's type."""
        if a.dtype not in self.types:
            raise FiveStepsError(f"{name} is {a.dtype}; give float32 or float16, for example "
                                 f"{name}.astype('f4')")
        return self.types[a.dtype]

    def contiguous(self, a):
        """The same elements, one after another, in the machine's byte order."""
        return self.numpy.ascontiguousarray(a)

    def repeated(self, a, shape):
        """A view of that shape which shows a again and again."""
        return self.numpy.broadcast_to(a, shape)

    @staticmethod
    def strides(a):
        """Elements from one index of each dimension to the next, or None where the library
        cannot use the array as it lies."""
        steps = [s // a.itemsize for s in a.strides]
        whole = all(s % a.itemsize == 0 and s >= 0 for s in a.strides)
        usable = whole and a.flags.aligned and a.dtype.isnative
        return steps if usable and (steps[-1] == 1 or a.shape[-1] == 1) else None

    def integers(self, name, a):
        """Prefix sums: int32, one after another."""
        if a.dtype != self.numpy.int32 or a.ndim != 1 or a.size == 0:
            raise FiveStepsError(f"{name} is {a.dtype} {list(a.shape)}; give int32 [sequences + 1]")
        return self.contiguous(a)

    @staticmethod
    def longest(sums):
        """The largest difference of neighbours."""
        return int((sums[1:] - sums[:-1]).max(initial=0))

    @staticmethod
    def copy(to, a):
        """The elements of a into an array of the same shape."""
        to[...] = a

    def empty(self, shape, like):
        """An array for results."""
        return self.numpy.empty(shape, like.dtype)

    def empty_float(self, shape, _like):
        """The same in float32."""
        return self.numpy.empty(shape, "f4")

    def workspace(self, size, _like):
        """Bytes."""
        return self.numpy.empty(size, "u1")

    @staticmethod
    def address(a):
        """Of the first element."""
        return a.ctypes.data

    @staticmethod
    def swap(a, first, second):
        """Two dimensions in each other's place."""
        return a.swapaxes(first, second)

    def place(self, _like):
        """Device and stream."""
        return {"device": c_library.CPU, "stream": None}

    @staticmethod
    def on_device(_like):
        """A context in which the array's device is the current one."""
        return contextlib.nullcontext()


class Torch:
    """Tensors, on the CPU or on a GPU."""

    def __init__(self):
        import torch  # pylint: disable=import-outside-toplevel
        self.torch = torch
        self.types = {torch.float32: c_library.F32, torch.float16: c_library.F16,
                      torch.bfloat16: c_library.BF16}

    def type_of(self, name, a):
        """The library's number for the tensor's type."""
        if a.dtype not in self.types:
            raise FiveStepsError(f"{name} is {a.dtype}; give float32, float16 or bfloat16")
        return self.types[a.dtype]

    @staticmethod
    def contiguous(a):
        """The same elements, one after another."""
        return a.contiguous()

    @staticmethod
    def repeated(a, shape):
        """A view of that shape which shows a again and again."""
        return a.expand(shape)

    @staticmethod
    def strides(a):
        """Elements from one index of each dimension to the next, or None where the library
        cannot use the tensor as it lies: on a GPU rows begin at multiples of 16 bytes."""
        steps, unit = list(a.stride()), 1
        if a.device.type != "cpu":
            unit = 16 // a.element_size()
            if a.data_ptr() % 16:
                return None
        if steps[-1] != 1 and a.shape[-1] != 1:
            return None
        aligned = all(s % unit == 0 for s, n in zip(steps[:-1], a.shape) if n > 1)
        return steps if aligned else None

    def integers(self, name, a):
        """Prefix sums: int32, one after another."""
        if a.dtype != self.torch.int32 or a.ndim != 1 or a.numel() == 0:
            raise FiveStepsError(f"{name} is {a.dtype} {list(a.shape)}; give int32 [sequences + 1]")
        return a.contiguous()

    @staticmethod
    def longest(sums):
        """The largest difference of neighbours.  On a GPU the host waits for it."""
        return int((sums[1:] - sums[:-1]).max()) if sums.numel() > 1 else 0

    @staticmethod
    def copy(to, a):
        """The elements of a into a tensor of the same shape."""
        to.copy_(a)

    @staticmethod
    def empty(shape, like):
        """A tensor for results."""
        return like.new_empty(shape)

    def empty_float(self, shape, like):
        """The same in float32."""
        return like.new_empty(shape, dtype=self.torch.float32)

    def workspace(self, size, like):
        """Bytes on the tensor's device."""
        return like.new_empty(size, dtype=self.torch.uint8)

    @staticmethod
    def address(a):
        """Of the first element."""
        return a.data_ptr()

    @staticmethod
    def swap(a, first, second):
        """Two dimensions in each other's place."""
        return a.transpose(first, second)

    def place(self, like):
        """Device and stream."""
        if like.device.type == "cpu":
            return {"device": c_library.CPU, "stream": None}
        if like.device.type == "cuda":
            stream = self.torch.cuda.current_stream(like.device).cuda_stream
            return {"device": c_library.GPU, "stream": stream}
        raise FiveStepsError(f"a tensor on {like.device}; give CPU or CUDA tensors")

    def on_device(self, like):
        """A context in which the tensor's device is the current one."""
        return self.torch.cuda.device_of(like)


def is_tensor(a):
    """Is a a PyTorch tensor?  PyTorch is imported already where one exists."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def kind_of(**arrays):
    """Numpy or Torch; all arrays that are not None are of that kind, on one device."""
    given = {name: a for name, a in arrays.items() if a is not None}
    tensors = [name for name, a in given.items() if is_tensor(a)]
    if len(tensors) == len(given):
        devices = {a.device for a in given.values()}
        if len(devices) > 1:
            raise FiveStepsError(f"{', '.join(given)} lie on different devices: "
                                 f"{', '.join(sorted(map(str, devices)))}")
        return Torch()
    kind = Numpy()
    for name, a in given.items():
        if not isinstance(a, kind.numpy.ndarray):
            raise FiveStepsError(f"{name} is a {type(a).__name__}; give NumPy arrays, or "
                                 "PyTorch tensors throughout")
    return kind


def same_type(kind, **arrays):
    """The one type of the arrays."""
    types = {name: kind.type_of(name, a) for name, a in arrays.items()}
    if len(set(types.values())) > 1:
        raise FiveStepsError("types differ: " + ", ".join(
            f"{name} is {a.dtype}" for name, a in arrays.items()))
    return next(iter(types.values()))
