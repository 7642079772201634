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
    """The current stream of a CUDA device, both as numbers."""
    if _raw_stream is not None:
        return _raw_stream(device)
    return torch.cuda.current_stream(device).cuda_stream


class Prepared:
    """A problem of the library without addresses, and its results' shapes."""

    def __init__(self, problem, arrays, o, lse):
        """arrays: {field: tensor or None}.  Raises where the problem uses a copy of one of them."""
        for name, a in arrays.items():
            if a is not None and getattr(problem, name) != a.data_ptr():
                raise FiveStepsError(f"{name} is copied")
        self.places = [(name, i) for i, (name, a) in enumerate(arrays.items()) if a is not None]
        self.kind, self.problem = type(problem), type(problem).from_buffer_copy(problem)
        self.o, self.lse = o.shape, lse.shape
        q = arrays["q"]
        self.like_q = o.shape == q.shape and q.is_contiguous()  # empty_like() is the fastest
        self.device = o.device.index if o.device.type == "cuda" else None
        self.problem.lse = None  # the library then has lse in its workspace
        self.sizes = {False: library().attention_workspace(self.problem)}
        self.problem.lse = lse.data_ptr()
        self.sizes[True] = library().attention_workspace(self.problem)

    def run(self, arrays, return_lse, seqlen_k=None):
        """o and lse (or None), or None where the arrays do not lie as the kernel needs them.
        arrays: in the order of the first call's; seqlen_k: where it differs from call to call."""
        problem, together = self.kind.from_buffer_copy(self.problem), 0
        for name, i in self.places:
            address = arrays[i].data_ptr()
            together |= address
            setattr(problem, name, address)
        if self.device is not None:
            if together % ALIGNMENT or torch.cuda.current_device() != self.device:
                return None
            problem.stream = _stream_of(self.device)
        q, lse, size = arrays[0], None, self.sizes[return_lse]
        o = torch.empty_like(q) if self.like_q else q.new_empty(self.o)
        problem.o, problem.lse = o.data_ptr(), None
        if return_lse:
            lse = q.new_empty(self.lse, dtype=torch.float32)
            problem.lse = lse.data_ptr()
        if seqlen_k is not None:
            problem.seqlen_k = seqlen_k
            size = library().attention_workspace(problem)
        if size:
            work = q.new_empty(size, dtype=torch.uint8)
            library().attention(problem, work.data_ptr(), size)
        else:
            library().attention(problem, None, 0)
        return o, lse


class Repeated:
    """One operation: its problems, each prepared at its first call."""

    def __init__(self, prepare):
        """prepare(arrays, options, ...): a Prepared; raises FiveStepsError where that cannot be."""
        self.prepare, self.kept = prepare, {}

    def __call__(self, arrays, options, return_lse, seqlen_k=None):
        """o and lse, or None: the general way must be taken."""
        key = (options, *[a if a is None else (a.shape, a.stride(), a.dtype, a.device)
                          for a in arrays])
        ready = self.kept.get(key)
        try:
            if ready is None:
                ready = self.prepare(arrays, options, seqlen_k)
                if len(self.kept) >= KEPT:
                    self.kept.clear()
                self.kept[key] = ready
            return ready.run(arrays, return_lse, seqlen_k)
        except (FiveStepsError, LibraryError):  # the general way says more
            return None
