"""prepared.py: calls on PyTorch tensors that look like an earlier call.

To check arguments and to fill in a problem takes Python longer than a small kernel runs.  A model
repeats itself: the same shapes, strides, types and options, other addresses.  So a problem is kept
under all that it depends on, complete but for its addresses.
"""
import torch

from .arrays import FiveStepsError
from .c_library import LibraryError
from .find import library

KEPT = 1024  # problems of an operation; then all are forgotten
ALIGNMENT = 16  # of every address on a GPU

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream_of(device):
    """The current stream of a CUDA device as a number."""
    if _raw_stream is not None:
        return _raw_stream(device.index)
    return torch.cuda.current_stream(device).cuda_stream


def look_of(a):
    """What a problem depends on, of a tensor or None."""
    return None if a is None else (a.shape, a.stride(), a.dtype, a.device)


class Prepared:
    """A problem of the library without addresses, and its results' shapes."""

    def __init__(self, problem, arrays, o, lse):
        """arrays: {field: tensor or None}.  Raises where the problem uses a copy of one of them."""
        for name, a in arrays.items():
            if a is not None and getattr(problem, name) != a.data_ptr():
                raise FiveStepsError(f"{name} is copied")
        self.names = [name for name, a in arrays.items() if a is not None]
        self.places = [i for i, a in enumerate(arrays.values()) if a is not None]
        self.size = library().attention_workspace(problem)
        self.problem = type(problem).from_buffer_copy(problem)
        self.o, self.lse = tuple(o.shape), tuple(lse.shape)
        self.device = o.device if o.device.type == "cuda" else None

    def run(self, arrays, **changes):
        """o and lse, or None where the arrays do not lie as the kernel needs them.  arrays: in the
        order of the first call's; changes: fields that may differ between calls."""
        q, together = arrays[0], 0
        problem = type(self.problem).from_buffer_copy(self.problem)
        for name, i in zip(self.names, self.places):
            address = arrays[i].data_ptr()
            together |= address
            setattr(problem, name, address)
        if self.device is not None:
            if together % ALIGNMENT or torch.cuda.current_device() != self.device.index:
                return None
            problem.stream = _stream_of(self.device)
        size = self.size
        if changes:
            for name, value in changes.items():
                setattr(problem, name, value)
            size = library().attention_workspace(problem)
        o, lse = q.new_empty(self.o), q.new_empty(self.lse, dtype=torch.float32)
        problem.o, problem.lse = o.data_ptr(), lse.data_ptr()
        work = q.new_empty(size, dtype=torch.uint8) if size else None
        library().attention(problem, work.data_ptr() if size else None, size)
        return o, lse


class Repeated:
    """One operation: its problems, each prepared at its first call."""

    def __init__(self, prepare):
        """prepare(arrays, options): a Prepared; raises FiveStepsError where that cannot be."""
        self.prepare, self.kept = prepare, {}

    def __call__(self, arrays, options, **changes):
        """o and lse, or None: the general way must be taken."""
        key = (*map(look_of, arrays), *options)
        if key not in self.kept:
            if len(self.kept) >= KEPT:
                self.kept.clear()
            try:
                self.kept[key] = self.prepare(arrays, options, **changes)
            except (FiveStepsError, LibraryError):
                return None
        try:
            return self.kept[key].run(arrays, **changes)
        except LibraryError:  # an index, for example; the general way says more
            return None
