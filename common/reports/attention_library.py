"""attention_library.py: calls stage 5's rungs in build/lib05.so on PyTorch's tensors."""
import ctypes
import math
import os


class Library:
    """The rungs of build/lib05.so, or the roof of build/roof05.so."""

    def __init__(self, path):
        self.so = ctypes.CDLL(os.path.abspath(path))
        text, number, pointer = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
        shape = ctypes.POINTER(ctypes.c_size_t)
        self.so.attention_refuses.argtypes = [text, text, shape, number, number,
                                              ctypes.c_float]
        self.so.attention_refuses.restype = text
        self.so.attention_workspace.argtypes = self.so.attention_refuses.argtypes
        self.so.attention_workspace.restype = ctypes.c_size_t
        self.so.attention_bytes.argtypes = self.so.attention_refuses.argtypes
        self.so.attention_bytes.restype = ctypes.c_double
        self.so.attention_compiler.restype = text
        self.so.attention_run.argtypes = ([text, text, shape, number, ctypes.c_float]
                                          + [pointer] * 8)
        self.compiler = self.so.attention_compiler().decode()

    @staticmethod
    def about(name, dtype, shape):
        """The arguments that say which rung on which problem, and the scale."""
        *sizes, d, causal = shape
        return (name.encode(), dtype.encode(), (ctypes.c_size_t * 7)(*sizes, d, d),
                causal), 1 / math.sqrt(d)

    def predicted(self, name, dtype, shape):
        """Bytes that the rung moves according to its own model."""
        about, scale = self.about(name, dtype, shape)
        return self.so.attention_bytes(*about, 0, scale)

    def method(self, torch, name, dtype, shape, q, k, v):
        """A function that computes attention with a rung, or None if it refuses."""
        b, hq, _, nq, _, d, _ = shape
        about, scale = self.about(name, dtype, shape)
        if self.so.attention_refuses(*about, 0, scale):
            return None
        o = torch.full((b, hq, nq, d), math.nan, dtype=q.dtype, device="cuda")
        lse = torch.empty((b, hq, nq), dtype=torch.float32, device="cuda")
        size = self.so.attention_workspace(*about, 0, scale)
        work = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        arrays = (q.data_ptr(), k.data_ptr(), v.data_ptr(), None, o.data_ptr(),
                  lse.data_ptr(), work.data_ptr(), stream)
        keep = (q, k, v, lse, work)

        def run():
            assert keep and self.so.attention_run(*about, scale, *arrays) == 0
            return o
        return run
