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
        sizes = {field: getattr(shape, field) for field in (
            "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v",
            "causal")}
        return c_library.AttentionProblem(
            device=c_library.GPU, type=c_library.TYPES[dtype], kernel=name.encode(),
            scale=1 / math.sqrt(shape.head_dim), **sizes, **arrays)

    def predicted(self, name, dtype, shape):
        """Bytes that the rung moves according to its own model."""
        return self.library.kernel(self.problem(name, dtype, shape))[1]

    def call_of(self, torch, operation, name, dtype, shape, strides=(), **arrays):
        """A function that calls one operation on these tensors, or None if the rung refuses it;
        strides: the arrays that may be views."""
        views = {f"{field}_strides": c_library.Strides(*arrays[field].stride()[:3])
                 for field in strides}
        problem = self.problem(
            name, dtype, shape, stream=torch.cuda.current_stream().cuda_stream,
            **{field: x.data_ptr() for field, x in arrays.items()}, **views)
        try:
            size = self.library.workspace(operation, problem)
        except c_library.LibraryError as error:
            lacks = error.code == c_library.INVALID and str(error).startswith("kernel")
            if error.code != c_library.UNSUPPORTED and not lacks:
                raise
            return None
        work = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")

        def run(keep=arrays):
            assert keep
            self.library.call(operation, problem, work.data_ptr(), work.numel())
        return run

    def method(self, torch, name, dtype, shape, q, k, v):
        """A function that computes attention with a rung, or None if it refuses.  q, k and v may
        be views [batch, heads, length, head_dim] with strides; o then lies as q does."""
        o = torch.empty_like(q) if v.shape[3] == q.shape[3] else q.new_empty(
            (*q.shape[:3], v.shape[3]))
        o.fill_(math.nan)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")
        call = self.call_of(torch, "attention", name, dtype, shape, "qkvo", q=q, k=k, v=v, o=o,
                            lse=lse)

        def run():
            call()
            return o
        return call and run
