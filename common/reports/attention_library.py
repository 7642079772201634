"""attention_library.py: calls stage 5's rungs in build/libfive_steps.so on PyTorch's tensors."""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir,
                                "library", "python", "five_steps"))
import c_library  # noqa: E402  pylint: disable=wrong-import-position


class Library:
    """The rungs of build/libfive_steps.so, or the roof of build/roof05.so."""

    def __init__(self, path):
        self.library = c_library.Library(path)
        self.compiler = self.library.built_with

    @staticmethod
    def problem(name, dtype, shape, **arrays):
        """The problem that says which rung on which shape, scaled as usual."""
        b, hq, hk, nq, nk, d, causal, *v = shape
        return c_library.AttentionProblem(
            device=c_library.GPU, type=c_library.TYPES[dtype], batch=b, heads_q=hq,
            heads_kv=hk, seqlen_q=nq, seqlen_k=nk, head_dim=d,
            head_dim_v=(*v, d)[0], causal=causal, scale=1 / math.sqrt(d), kernel=name.encode(), **arrays)

    def predicted(self, name, dtype, shape):
        """Bytes that the rung moves according to its own model."""
        return self.library.kernel(self.problem(name, dtype, shape))[1]

    def method(self, torch, name, dtype, shape, q, k, v):
        """A function that computes attention with a rung, or None if it refuses.  q, k and v may
        be views [batch, heads, length, head_dim] with strides; o then lies as q does."""
        b, hq, _, nq, *_ = shape
        o = torch.empty_like(q).fill_(math.nan) if v.shape[3] == q.shape[3] else \
            torch.full((*q.shape[:3], v.shape[3]), math.nan, dtype=q.dtype, device=q.device)
        strides = {f"{field}_strides": c_library.Strides(*x.stride()[:3])
                   for field, x in (("q", q), ("k", k), ("v", v), ("o", o))}
        try:
            size = self.library.workspace("attention", self.problem(name, dtype, shape, **strides))
        except c_library.LibraryError as error:
            lacks = error.code == c_library.INVALID and str(error).startswith("kernel")
            if error.code != c_library.UNSUPPORTED and not lacks:
                raise
            return None
        lse = torch.empty((b, hq, nq), dtype=torch.float32, device="cuda")
        work = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        problem = self.problem(name, dtype, shape, q=q.data_ptr(), k=k.data_ptr(),
                               v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(),
                               stream=torch.cuda.current_stream().cuda_stream, **strides)
        keep = (q, k, v, lse)

        def run():
            assert keep
            self.library.call("attention", problem, work.data_ptr(), work.numel())
            return o
        return run
