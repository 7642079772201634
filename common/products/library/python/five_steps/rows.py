"""rows.py: softmax and merge as problems of the library."""
import math

from . import c_library
from .arrays import FiveStepsError, kind_of, type_of
from .calls import run


def compute_softmax(x):
    """Softmax of the last dimension."""
    kind = kind_of({"x": x})
    x = kind.contiguous(x)
    y = kind.empty(tuple(x.shape), x)
    problem = c_library.problem(
        "softmax", type=type_of(kind, {"x": x}), rows=math.prod(x.shape[:-1]), cols=x.shape[-1],
        x=kind.address(x), y=kind.address(y), **kind.place(x))
    run(kind, x, "softmax", problem)
    return y


def check_merge(o1, lse1, o2, lse2):
    """The kind of the arrays, and the library's number of the type of o."""
    kind = kind_of({"o1": o1, "lse1": lse1, "o2": o2, "lse2": lse2})
    for name, lse, o in (("lse1", lse1, o1), ("lse2", lse2, o2)):
        if lse.dtype != kind.f32:
            raise FiveStepsError(f"{name} is {lse.dtype}; give float32")
        if tuple(o.shape) != tuple(o1.shape) or tuple(lse.shape) != tuple(o1.shape[:-1]):
            raise FiveStepsError(f"{name} is {list(lse.shape)}, its o {list(o.shape)}, o1 "
                                 f"{list(o1.shape)}; give o1 and o2 alike, and of each lse the "
                                 "shape of o without its last dimension")
    return kind, type_of(kind, {"o1": o1, "o2": o2})


def compute_merge(*arrays):
    """The SE monoid's operation on partial results."""
    kind, number = check_merge(*arrays)
    o1, lse1, o2, lse2 = map(kind.contiguous, arrays)
    o, lse = kind.empty(tuple(o1.shape), o1), kind.empty(tuple(lse1.shape), o1, kind.f32)
    problem = c_library.problem(
        "merge", type=number, rows=math.prod(lse1.shape), head_dim_v=o1.shape[-1],
        o1=kind.address(o1), o2=kind.address(o2), lse1=kind.address(lse1),
        lse2=kind.address(lse2), o=kind.address(o), lse=kind.address(lse), **kind.place(o1))
    run(kind, o1, "merge", problem)
    return o, lse
