"""prepared.py: calls on PyTorch tensors that look like an earlier call.

To check arguments and to fill in a problem takes Python longer than a small kernel runs.  A model
repeats itself: the same shapes, strides, types and options, other addresses.  So a problem is kept
under all that it depends on, complete but for its addresses.  A small workspace is kept too.
"""
import ctypes
import struct

import torch

from .arrays import FiveStepsError
from .c_library import LibraryError, library

KEPT = 1024  # problems of an operation; then all are forgotten
SMALL = 1 << 20  # bytes of a workspace that is kept

# Fields that lie one after another and are filled in at once: q, k, v, bias, o, lse, stream.
_fill = struct.Struct("7P").pack_into

_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream",
                      lambda device: torch.cuda.current_stream(device).cuda_stream)


def _empty_strided(place):
    """A function (shape, strides, type) that makes a tensor on "cuda", on its current device, or on
    "cpu".  That of torch.compile's output does not go through PyTorch's dispatcher."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_" + place, None) or (
        lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype,
                                                          device=place))


_EMPTY = {place: _empty_strided(place) for place in ("cpu", "cuda")}


class Spare:
    """Things that calls use in turn: a call takes one that no other call has, and gives it back.
    pop() and append() of a list are atomic, so calls of several threads may do so."""

    def __init__(self, make):
        self.make, self.items = make, []
        self.give_back = self.items.append

    def take(self):
        """One that is there, or a new one."""
        try:
            return self.items.pop()
        except IndexError:
            return self.make()


_workspaces = Spare(lambda: torch.empty(SMALL, dtype=torch.uint8))  # in the host's memory


class Prepared:
    """A problem of the library without addresses, and its results' shapes."""

    def __init__(self, call, arrays, moving=None):
        """call: a Call that was made from arrays, pairs (field, tensor or None), q, k, v first.
        moving: the field that each call fills in anew, or None.  Raises FiveStepsError where the
        problem uses a copy of an array, or an array that is none of them."""
        problem, names, o, lse = call.problem(), set(), call.o, call.lse
        self.more = []
        for i, (name, a) in enumerate(arrays):
            if a is None:
                continue
            if getattr(problem, name) != a.data_ptr():
                raise FiveStepsError(f"{name} is copied")
            names.add(name)
            self.more += [(name, i)] if i >= 3 else []
        moves_total = moving and "total_k" in call.fields and o.device.type == "cpu"
        if set(call.kept) != names | {"o", "lse"} or problem.o != o.data_ptr() or moves_total \
                or problem.seqlen_k == 0 or o.numel() == 0:
            raise FiveStepsError("something has to be computed again in each call")
        self.moving = moving
        self.empty = _EMPTY[o.device.type]
        self.o, self.lse = ((tuple(a.shape), a.stride(), a.dtype) for a in (o, lse))
        self.device = o.device.index if o.device.type == "cuda" else None
        problem.lse = None  # the library then has lse in its workspace
        self.library = library(problem.device)
        self.sizes = {False: self.library.workspace("attention", problem)}
        problem.lse = lse.data_ptr()
        self.sizes[True] = self.library.workspace("attention", problem)
        kind, fields = type(problem), bytes(problem)
        self.begin = kind.q.offset

        def made():
            one = kind.from_buffer_copy(fields)
            return one, ctypes.addressof(one)
        self.problems = Spare(made)
        self.function = self.library.so["five_steps_attention"]  # an object of its own
        self.function.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p

    def run(self, arrays, return_lse, moved):
        """o and lse (or None), or None where the library refuses the call.
        arrays: in the order of the first call's."""
        device, stream = self.device, None
        if device is not None:
            if _current_device() != device:
                return None
            stream = _raw_stream(device)
        q, k, v = arrays[:3]
        o = self.empty(*self.o)
        lse = self.empty(*self.lse) if return_lse else None
        both = problem, address = self.problems.take()
        _fill(problem, self.begin, q.data_ptr(), k.data_ptr(), v.data_ptr(), 0, o.data_ptr(),
              lse.data_ptr() if return_lse else 0, stream or 0)
        for name, i in self.more:
            setattr(problem, name, arrays[i].data_ptr())
        size = self.sizes[return_lse]
        if self.moving:
            setattr(problem, self.moving, moved)
            size = moved and self.library.workspace("attention", problem)
        refused = (self.moving and not moved) or self.compute(address, size)
        self.problems.give_back(both)
        return None if refused else (o, lse)

    def compute(self, problem, size):
        """The library's code.  On a GPU PyTorch's allocator knows when the stream is done with the
        workspace; on the CPU a small one is kept."""
        if size > SMALL or self.device is not None:
            work = self.empty((max(size, 16),), (1,), torch.uint8)
            return self.function(problem, work.data_ptr(), size, None)
        work = _workspaces.take()
        code = self.function(problem, work.data_ptr(), SMALL, None)
        _workspaces.give_back(work)
        return code


class Repeated:
    """One operation: its problems, each prepared at its first call."""

    def __init__(self, prepare):
        """prepare(arrays, options): a Prepared; raises FiveStepsError where that cannot be."""
        self.prepare, self.kept = prepare, {}

    def __call__(self, arrays, options, return_lse, moved=None):
        """o and lse, or None: the general way must be taken.  moved: an option that differs from
        call to call; it stands before the others."""
        q, k, v, *more = arrays
        if k is None or v is None:
            return None
        key = (options, q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype,
               k.device, v.shape, v.stride(), v.dtype, v.device,
               *[a if a is None else (a.shape, a.stride(), a.dtype, a.device) for a in more])
        ready = self.kept.get(key)
        try:
            if ready is None:
                ready = self.prepare(arrays, options if moved is None else (moved, *options))
                if len(self.kept) >= KEPT:
                    self.kept.clear()
                self.kept[key] = ready
            return ready.run(arrays, return_lse, moved)
        except (FiveStepsError, LibraryError):  # the general way says more
            return None
