"""c_library.py: libfive_steps by ctypes.  The structures, constants and functions are read from
five_steps.h, so the header is the only place that describes them.

The library is searched for in this order: $FIVE_STEPS_LIBRARY; beside this file (installed); in
build/ (this repository); where the linker looks."""
import ctypes.util
import functools
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.abspath(os.path.join(HERE, *[os.pardir] * 5))


_PATH = os.path.join(HERE, "five_steps.h")
with open(_PATH if os.path.exists(_PATH) else os.path.join(TREE, "common/products/library/five_steps.h"),
          encoding="utf-8") as _file:
    _HEADER = re.sub(r"/\*.*?\*/", "", _file.read(), flags=re.DOTALL)
_TYPES = {"size_t": ctypes.c_size_t, "int": ctypes.c_int, "float": ctypes.c_float,
          "ptrdiff_t": ctypes.c_ssize_t, "double": ctypes.c_double}


def _fields(body):
    """[(name, ctypes type)] of a struct's members."""
    for kind, names in re.findall(r"(?:const )?((?:struct )?\w+) ([^;]+);", body):
        for pointer, name, count in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?", names):
            kinds = {"*": ctypes.c_char_p if kind == "char" else ctypes.c_void_p, "": _TYPES.get(kind)}
            yield name, ctypes.c_char * int(count) if count else kinds[pointer]


for _name, _body in re.findall(r"\n(struct five_steps_\w+) \{(.*?)\n?\};", _HEADER, re.DOTALL):
    _TYPES[_name] = type(_name, (ctypes.Structure,), {"_fields_": list(_fields(_body))})

for _body in re.findall(r"enum five_steps_\w+ \{(.*?)\}", _HEADER, re.DOTALL):
    for _i, _name in enumerate(re.findall(r"FIVE_STEPS_(\w+)", _body)):  # they count from 0
        globals()[_name] = _i  # CPU, GPU, F32, F16, BF16, OK, INVALID, UNSUPPORTED, ...
VERSION = re.search(r'FIVE_STEPS_VERSION "(.*)"', _HEADER)[1]
Strides, Error = _TYPES["struct five_steps_strides"], _TYPES["struct five_steps_error"]


def problem(name, **fields):
    """A struct five_steps_NAME_problem; its field size says which fields its writer knows."""
    kind = _TYPES[f"struct five_steps_{name}_problem"]
    return kind(size=ctypes.sizeof(kind), **fields)


AttentionProblem = functools.partial(problem, "attention")
TYPES = {"f32": F32, "f16": F16, "bf16": BF16}  # noqa: F821  pylint: disable=undefined-variable


class LibraryError(RuntimeError):
    """What the library returned; code is one of the constants above."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code

    def __reduce__(self):
        return LibraryError, (self.code, str(self))


class Library:
    """A libfive_steps.so."""

    def __init__(self, path):
        self.so = ctypes.CDLL(os.path.abspath(path) if os.sep in path else path)
        for name in ("version", "built_with"):
            function = getattr(self.so, "five_steps_" + name)
            function.restype = ctypes.c_char_p
            setattr(self, name, function().decode())
        self.level = self.so.five_steps_cpu_level()
        if self.version != VERSION:
            raise ImportError(f"{path} has version {self.version}; the package needs {VERSION}")
        for name, arguments in re.findall(r"\nint (five_steps_\w+)\((.*?)\);", _HEADER, re.DOTALL):
            getattr(self.so, name).argtypes = [
                ctypes.POINTER(_TYPES[kind]) if kind.startswith("struct") else
                ctypes.c_void_p if pointer else ctypes.c_size_t
                for kind, pointer in re.findall(r"(?:const )?((?:struct )?\w+) (\**)\w+", arguments)]

    def call(self, name, described, *more):
        """five_steps_NAME(described, more..., error); raises LibraryError."""
        error = Error()
        if getattr(self.so, "five_steps_" + name)(described, *more, error):
            raise LibraryError(error.code, error.message.decode(errors="replace"))

    def workspace(self, name, described):
        """Bytes of workspace in the memory of the problem's device."""
        size = ctypes.c_size_t()
        self.call(name + "_workspace", described, ctypes.addressof(size))
        return size.value

    def kernel(self, described):
        """Of an attention problem: the kernel's name, the bytes that it moves by its own model, and
        what it takes for the problem's shape, in words."""
        name, moved, choice = ctypes.c_char_p(), ctypes.c_double(), ctypes.c_char_p()
        self.call("attention_kernel", described, ctypes.addressof(name), ctypes.addressof(moved))
        self.call("attention_choice", described, ctypes.addressof(choice))
        return name.value.decode(), moved.value, choice.value.decode()


@functools.lru_cache(maxsize=None)
def _loaded(path):
    return Library(path)


@functools.lru_cache(maxsize=None)
def library(device=CPU):  # noqa: F821  pylint: disable=undefined-variable
    """The library for problems on that device.  An installed package has one with the GPU's code for
    any processor, and the CPU's part for better ones."""
    named = os.environ.get("FIVE_STEPS_LIBRARY")
    tried = [named] if named else [
        os.path.join(HERE, "libfive_steps.so"), os.path.join(TREE, "build", "libfive_steps.so"),
        *filter(None, [ctypes.util.find_library("five_steps")])]
    for path in tried:
        if os.path.exists(path) or os.sep not in path:
            break
    else:
        raise ImportError("libfive_steps.so was not found in " + ", ".join(tried)
                          + "; build it with `make library`, or set FIVE_STEPS_LIBRARY")
    found = _loaded(path)
    better = [path.removesuffix(".so") + f"-v{level}.so" for level in range(found.level, 2, -1)]
    better = [path for path in better if os.path.exists(path)] if device == CPU else []  # noqa: F821
    return _loaded(better[0]) if better else found
