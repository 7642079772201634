"""attention_call.py: the arrays and options of one attention as the library's problem."""
from . import c_library
from .arrays import FiveStepsError, same_type


def _shape_4(name, a):
    """[seqlen, dim], [heads, seqlen, dim] or [batch, heads, seqlen, dim] as the last."""
    if not 2 <= a.ndim <= 4:
        raise FiveStepsError(f"{name} has {a.ndim} dimensions; give [seqlen, head_dim], [heads, "
                             "seqlen, head_dim] or [batch, heads, seqlen, head_dim]")
    return (1,) * (4 - a.ndim) + tuple(a.shape)


def _sizes(q, k, v):
    """The sizes of the problem, checked against each other."""
    if not q.ndim == k.ndim == v.ndim:
        raise FiveStepsError(f"q, k and v have {q.ndim}, {k.ndim} and {v.ndim} dimensions; give "
                             "them alike")
    (b, hq, nq, d), (bk, hk, nk, dk), (bv, hv, nv, dv) = (
        _shape_4(name, a) for name, a in (("q", q), ("k", k), ("v", v)))
    if d != dk:
        raise FiveStepsError(f"head_dim is {d} in q and {dk} in k")
    if (bk, bv) != (b, b):
        raise FiveStepsError(f"batch is {b} in q, {bk} in k and {bv} in v")
    if (hv, nv) != (hk, nk):
        raise FiveStepsError(f"k has {hk} heads of {nk} keys, v {hv} of {nv}")
    return {"batch": b, "heads_q": hq, "heads_kv": hk, "seqlen_q": nq, "seqlen_k": nk,
            "head_dim": d, "head_dim_v": dv}


class AttentionCall:
    """Arrays of one kind with their rows before the heads, or after."""

    def __init__(self, kind, q, k, v, rows_first):
        self.kind, self.rows_first, self.like = kind, rows_first, q
        self.number = same_type(kind, q=q, k=k, v=v)
        self.views = [self.heads_first(a) for a in (q, k, v)]
        self.sizes = _sizes(*self.views)
        self.options, self.owned = {}, {}
        self.usable()

    def heads_first(self, a):
        """The view [.., heads, rows, dim]."""
        return self.kind.swap(a, -3, -2) if self.rows_first else a

    def usable(self):
        """Copies the arrays that the library cannot use as they lie."""
        self.views = [self._usable(a) for a in self.views]

    def _usable(self, a):
        """The library takes strides that are all 0 for those of a contiguous array.  So of an array
        whose rows are all the same row one head is copied, and repeated for each batch and head."""
        steps = self.kind.strides(a)
        if steps is None:
            return self.kind.contiguous(a)
        if any(step or n <= 1 for step, n in zip(steps, a.shape[:-1])):
            return a
        head = self.kind.contiguous(a[(0,) * (a.ndim - 2)])
        return self.kind.repeated(head, tuple(a.shape))

    def contiguous(self):
        """Copies all that are not contiguous."""
        self.views = [self.kind.contiguous(a) for a in self.views]
        return self

    def is_contiguous(self):
        """Are the views contiguous, and is o?"""
        return not self.rows_first and all(
            self.kind.strides(a) == self.kind.strides(self.kind.contiguous(a))
            for a in self.views)

    def add_scores(self, bias, sinks, causal, window, softcap, scale):
        """What acts on the scores."""
        left, right = window
        self.options.update(causal=causal, softcap=softcap, scale=scale,
                            window=(left, right) != (-1, -1), window_left=left,
                            window_right=right)
        for name, a in (("bias", bias), ("sinks", sinks)):
            if a is None:
                continue
            if self.kind.type_of(name, a) != c_library.F32:
                raise FiveStepsError(f"{name} is {a.dtype}; give float32")
            self.owned[name] = self.kind.contiguous(a)

    def add_packed(self, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
        """Sequences one after another: batch is their number, the lengths are the longest."""
        sizes = self.sizes
        sums = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
        for name, a in sums.items():
            self.owned[name] = self.kind.integers(name, a)
        if cu_seqlens_q.shape != cu_seqlens_k.shape:
            raise FiveStepsError(f"cu_seqlens_q has {cu_seqlens_q.shape[0]} elements, cu_seqlens_k "
                                 f"{cu_seqlens_k.shape[0]}; give them alike")
        self.options.update(total_q=sizes["seqlen_q"], total_k=sizes["seqlen_k"])
        longest_q = max_seqlen_q or self.kind.longest(cu_seqlens_q)
        longest_k = max_seqlen_k or self.kind.longest(cu_seqlens_k)
        sizes.update(batch=cu_seqlens_q.shape[0] - 1,
                     seqlen_q=min(longest_q, sizes["seqlen_q"]),
                     seqlen_k=min(longest_k, sizes["seqlen_k"]))

    def check_scores(self):
        """Bias and sinks fit the sizes."""
        sizes = self.sizes
        shapes = {"bias": (sizes["seqlen_q"], sizes["seqlen_k"]), "sinks": (sizes["heads_q"],)}
        names = {"bias": "[seqlen_q, seqlen_k]", "sinks": "[heads_q]"}
        for name, shape in shapes.items():
            a = self.owned.get(name)
            if a is not None and tuple(a.shape) != shape:
                raise FiveStepsError(f"{name} is {list(a.shape)}; give {names[name]} = "
                                     f"{list(shape)}")

    def outputs(self):
        """o in the layout of q, and lse."""
        o = self.kind.empty(tuple(self.like.shape[:-1]) + (self.sizes["head_dim_v"],), self.like)
        lse = tuple(self.views[0].shape[:-1])
        return o, self.kind.empty_float(lse, self.like)

    def _strides(self, a):
        """Those of a view.  The library leaves aside the stride of a dimension of one element; 1
        there, as for a batch or head that is not there, keeps the others from being all 0."""
        steps = [1 if n == 1 else step for step, n in zip(self.kind.strides(a), a.shape[:-1])]
        return c_library.Strides(*([1] * (3 - len(steps)) + steps))

    def problem(self, o, lse, rows_first=None):
        """The library's problem; o lies as q did, or with its rows after the heads."""
        if rows_first is not False:
            o = self.heads_first(o)
        address, (q, k, v) = self.kind.address, self.views
        owned = {name: address(a) for name, a in self.owned.items()}
        return c_library.AttentionProblem(
            type=self.number, q=address(q), k=address(k), v=address(v), o=address(o),
            lse=address(lse), q_strides=self._strides(q), k_strides=self._strides(k),
            v_strides=self._strides(v), o_strides=self._strides(o), **owned, **self.options,
            **self.sizes, **self.kind.place(self.like))
