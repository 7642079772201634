"""five_steps_here.py: the Python package of this tree over the library under test, for arrays of
either kind."""
import os
import sys

import numpy as np
import pytest

from helpers import BUILD, ROOT, SANITIZED

if SANITIZED:
    pytest.skip("the interpreter has no sanitizer", allow_module_level=True)
os.environ["FIVE_STEPS_LIBRARY"] = str(BUILD / "libfive_steps.so")
sys.path.insert(0, str(ROOT / "common/products/library/python"))
import five_steps  # noqa: E402  pylint: disable=wrong-import-position

try:
    import torch
except ImportError:
    torch = None

WITH_TORCH = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
KINDS = ["numpy", pytest.param("torch", marks=WITH_TORCH)]
EVERYWHERE = KINDS + ["cuda"] * (torch is not None and torch.cuda.is_available())
TYPES = {"f4": 2e-6, "f2": 1e-3, "bf16": 1e-2}  # and the error that is allowed
KINDS_AND_TYPES = [("numpy", "f4"), ("numpy", "f2")] + [  # NumPy has no bfloat16
    pytest.param(kind, dtype, marks=WITH_TORCH) for kind in ["torch"] + EVERYWHERE[2:] for dtype in TYPES]


def given(kind, a, dtype="f4"):
    """An array as a caller of that kind has it; floats in the type, others as they are.  Views stay
    views where the type stays."""
    if not isinstance(a, np.ndarray):
        return a
    if a.dtype.kind == "f" and dtype != "bf16":
        a = a.astype(dtype, copy=False)
    if kind == "numpy":
        return a
    tensor = torch.from_numpy(a).to("cuda" if kind == "cuda" else "cpu")
    return tensor.bfloat16() if a.dtype.kind == "f" and dtype == "bf16" else tensor


def taken(a):
    """A result as a NumPy array in float64."""
    return np.asarray(a.double().cpu() if torch and torch.is_tensor(a) else a, "f8")


def call(kind, function, *arrays, dtype="f4", read=taken, **options):
    """five_steps.function on arrays of the kind; every result as read() has it.  Biases, sinks and slopes
    stay float32.  What no kernel of a GPU supports is skipped."""
    try:
        result = getattr(five_steps, function)(
            *(given(kind, a, dtype) for a in arrays),
            **{name: given(kind, value) for name, value in options.items()})
    except five_steps.FiveStepsError as error:
        if kind == "cuda" and error.code == five_steps.c_library.UNSUPPORTED:
            pytest.skip(f"on a GPU {error}")
        raise
    return tuple(map(read, result)) if isinstance(result, tuple) else read(result)
