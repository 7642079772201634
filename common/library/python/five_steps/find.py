"""find.py: where libfive_steps.so is.  $FIVE_STEPS_LIBRARY names it; else it lies beside this
file (installed), in build/ (this repository), or where the linker looks."""
import ctypes.util
import functools
import os

from .c_library import Library

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.abspath(os.path.join(HERE, *[os.pardir] * 4))


def candidates():
    """Paths in the order in which they are tried."""
    named = os.environ.get("FIVE_STEPS_LIBRARY")
    if named:
        return [named]
    paths = [os.path.join(HERE, "libfive_steps.so"),
             os.path.join(TREE, "build", "libfive_steps.so")]
    system = ctypes.util.find_library("five_steps")
    return paths + ([system] if system else [])


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded once."""
    tried = candidates()
    for path in tried:
        if os.path.exists(path) or os.sep not in path:
            return Library(path)
    raise ImportError("libfive_steps.so was not found in " + ", ".join(tried)
                      + "; build it with `make library`, or set FIVE_STEPS_LIBRARY")
