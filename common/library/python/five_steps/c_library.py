"""c_library.py: libfive_steps by ctypes, as five_steps.h declares it.  Addresses in, nothing
converted: NumPy and PyTorch are not imported here."""
import ctypes
import os

CPU, GPU = 0, 1
F32, F16, BF16 = 0, 1, 2
INVALID, UNSUPPORTED, WORKSPACE, NO_GPU, CUDA = 1, 2, 3, 4, 5
TYPES = {"f32": F32, "f16": F16, "bf16": BF16}

_SIZE, _INT, _POINTER = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p


class _Error(ctypes.Structure):
    _fields_ = [("code", _INT), ("message", ctypes.c_char * 244)]


class _Problem(ctypes.Structure):
    """A problem whose `size` is set by itself."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class Strides(ctypes.Structure):
    """struct five_steps_strides: elements from one batch, head and row to the next."""
    _fields_ = [(n, _SIZE) for n in ("batch", "head", "row")]


class AttentionProblem(_Problem):
    """struct five_steps_attention_problem."""
    _fields_ = ([("size", _SIZE), ("device", _INT), ("type", _INT)]
                + [(n, _SIZE) for n in ("batch", "heads_q", "heads_kv", "seqlen_q",
                                        "seqlen_k", "head_dim", "head_dim_v")]
                + [("causal", _INT), ("isolate_v", _INT), ("scale", ctypes.c_float)]
                + [(n, _POINTER) for n in ("q", "k", "v", "bias", "o", "lse", "stream")]
                + [("kernel", ctypes.c_char_p), ("window", _INT), ("softcap", ctypes.c_float),
                   ("window_left", ctypes.c_ssize_t), ("window_right", ctypes.c_ssize_t)]
                + [(n, _POINTER) for n in ("sinks", "cu_seqlens_q", "cu_seqlens_k")]
                + [(n, _SIZE) for n in ("total_q", "total_k")] + [("page_table", _POINTER)]
                + [(n, _SIZE) for n in ("page_size", "n_pages", "pages_per_sequence")]
                + [(n, Strides) for n in ("q_strides", "k_strides", "v_strides", "o_strides")])


class SoftmaxProblem(_Problem):
    """struct five_steps_softmax_problem."""
    _fields_ = [("size", _SIZE), ("device", _INT), ("type", _INT), ("rows", _SIZE),
                ("cols", _SIZE), ("log", _INT), ("x", _POINTER), ("y", _POINTER),
                ("stream", _POINTER), ("kernel", ctypes.c_char_p)]


class MergeProblem(_Problem):
    """struct five_steps_merge_problem."""
    _fields_ = [("size", _SIZE), ("device", _INT), ("type", _INT), ("rows", _SIZE),
                ("head_dim_v", _SIZE), ("o1", _POINTER), ("o2", _POINTER),
                ("lse1", _POINTER), ("lse2", _POINTER), ("o", _POINTER),
                ("lse", _POINTER), ("stream", _POINTER)]


class LibraryError(RuntimeError):
    """What the library returned; code is one of the constants above."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    """A libfive_steps.so.  Problems are the structures above; addresses are integers."""

    def __init__(self, path):
        self.so = ctypes.CDLL(os.path.abspath(path) if os.sep in path else path)
        for name in ("version", "built_with"):
            getattr(self.so, "five_steps_" + name).restype = ctypes.c_char_p
        for name, problem in (("attention", AttentionProblem), ("softmax", SoftmaxProblem)):
            self._declare(name, problem, _POINTER, _SIZE)
            self._declare(name + "_workspace", problem, ctypes.POINTER(_SIZE))
        self._declare("attention_kernel", AttentionProblem,
                      ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_double))
        self._declare("attention_choice", AttentionProblem, ctypes.POINTER(ctypes.c_char_p))
        self._declare("merge", MergeProblem)
        self.version = self.so.five_steps_version().decode()
        self.built_with = self.so.five_steps_built_with().decode()

    def _declare(self, name, problem, *more):
        getattr(self.so, "five_steps_" + name).argtypes = [
            ctypes.POINTER(problem), *more, ctypes.POINTER(_Error)]

    def _call(self, function, problem, *more):
        error = _Error()
        if function(problem, *more, error):
            raise LibraryError(error.code, error.message.decode(errors="replace"))

    def attention_workspace(self, problem):
        """Bytes of workspace in the memory of the problem's device."""
        size = _SIZE()
        self._call(self.so.five_steps_attention_workspace, problem, size)
        return size.value

    def attention(self, problem, workspace, size):
        """Computes, or (GPU) starts to."""
        self._call(self.so.five_steps_attention, problem, workspace, size)

    def attention_kernel(self, problem):
        """The kernel's name, and the bytes that it moves by its own model."""
        name, moved = ctypes.c_char_p(), ctypes.c_double()
        self._call(self.so.five_steps_attention_kernel, problem, name, moved)
        return name.value.decode(), moved.value

    def attention_choice(self, problem):
        """What the kernel takes for the problem's shape, in words."""
        choice = ctypes.c_char_p()
        self._call(self.so.five_steps_attention_choice, problem, choice)
        return choice.value.decode()

    def softmax_workspace(self, problem):
        """Bytes of workspace in the memory of the problem's device."""
        size = _SIZE()
        self._call(self.so.five_steps_softmax_workspace, problem, size)
        return size.value

    def softmax(self, problem, workspace, size):
        """Computes, or (GPU) starts to."""
        self._call(self.so.five_steps_softmax, problem, workspace, size)

    def merge(self, problem):
        """Computes, or (GPU) starts to."""
        self._call(self.so.five_steps_merge, problem)
