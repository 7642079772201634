"""calls.py: the arguments of attention and decode, checked, as a problem of the library."""
import contextlib
import ctypes

from . import c_library, eight_bits
from .arrays import FiveStepsError, as_rows, kind_of, type_of
from .options import score_fields


NAMES = "q", "k", "v", "bias", "sinks", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k"  # of attention's arrays


class Call:
    """A problem of attention on its way: its arrays, which have to live until it is done, and its
    fields."""

    def __init__(self, arrays):
        """arrays {name: array or None}: all that were given; q first."""
        self.kind = kind_of(arrays)
        self.like = arrays["q"]
        self.type_of_o = eight_bits.type_of_o(self.kind, self.like)
        self.fields, self.kept = {}, {}

    def keep(self, name, a):
        """The array becomes the problem's of that name."""
        self.kept[name] = a
        self.fields[name] = self.kind.address(a)

    def keep_rows(self, **arrays):
        """The same of q, k or v [..., rows, width], with its strides."""
        for name, a in arrays.items():
            a, self.fields[name + "_strides"] = as_rows(self.kind, a)
            self.keep(name, a)

    def sinks(self, sinks):
        """A logit per query head."""
        if sinks is not None:
            self.kind.check("sinks", sinks, self.kind.f32, "[heads_q]", (self.fields["heads_q"],))
            self.keep("sinks", self.kind.contiguous(sinks))

    def bias(self, bias):
        """Added to the scores: [seqlen_q, seqlen_k], or what is broadcast to [batch, heads_q,
        seqlen_q, seqlen_k].  Of booleans: True where a key is visible."""
        if bias is None:
            return
        kind, f = self.kind, self.fields
        shape = f["batch"], f["heads_q"], f["seqlen_q"], f["seqlen_k"]
        fits = bias.ndim <= 4 and all(n in (1, want) for n, want in zip(
            tuple(bias.shape)[::-1], shape[::-1]))
        if not fits or not bias.ndim:
            raise FiveStepsError(f"bias is {list(bias.shape)}; give what is broadcast to [batch, "
                                 f"heads_q, seqlen_q, seqlen_k] = {list(shape)}")
        if bias.dtype == kind.bool:
            bias = kind.module.where(bias, 0.0, float("-inf"))
        elif bias.dtype not in kind.types:
            raise FiveStepsError(f"bias is {bias.dtype}; give {kind.wanted}, or booleans")
        bias = kind.to(bias, kind.f32)
        steps = kind.floats_apart(bias)
        if bias.shape[-1] != shape[-1] or steps is None or steps[-1] != 1:
            bias = kind.contiguous(kind.module.broadcast_to(bias, (*bias.shape[:-1], shape[-1])))
        self.keep("bias", bias)
        steps = [0] * (4 - bias.ndim) + [0 if n == 1 else step for n, step in
                                         zip(bias.shape, kind.floats_apart(bias))]
        f.update(bias_is_strided=1, bias_strides=c_library.Strides(*steps[:3]))

    def alibi(self, slopes, ahead):
        """A bias of -slope |i + seqlen_k - seqlen_q - j|: a Toeplitz matrix per head, of which one
        row of all distances is written.  ahead: seqlen_k - seqlen_q, a number or one per sequence.
        slopes: float32, [heads_q] or [batch, heads_q]."""
        kind, f = self.kind, self.fields
        if slopes is None:
            return
        heads, nq, nk = f["heads_q"], f["seqlen_q"], f["seqlen_k"]
        kind.check("alibi_slopes", slopes, kind.f32, "[heads_q] or [batch, heads_q]", (heads,), (f["batch"], heads))
        if "bias" in f:
            raise FiveStepsError("bias and alibi_slopes are both given; give their sum as a bias")
        if nq == 0:
            return
        steps = kind.range(nq + nk - 1, slopes) - (nq - 1)  # j - i of the matrix's diagonals
        if hasattr(ahead, "shape"):
            ahead = ahead[:, None, None]
        distances = kind.contiguous(kind.to(abs(steps - ahead) * -slopes[..., None], kind.f32))
        self.keep("bias", distances)
        f["bias"] += 4 * (nq - 1)
        f.update(bias_is_strided=1, bias_strides=c_library.Strides(
            (nq + nk - 1) * heads if distances.ndim == 3 else 0, nq + nk - 1, 2 ** 64 - 1))

    def integers(self, name, a, words, *shape):
        """An array of integers of that shape, one after another, in 32 bits.  A number beyond them
        becomes the largest or least, which the library refuses; it does not wrap."""
        self.kind.check(name, a, self.kind.i32, words, shape)
        if a.itemsize > 4:
            a = a.clip(-2 ** 31, 2 ** 31 - 1)
        return self.kind.contiguous(self.kind.to(a, self.kind.i32))

    def results(self, shape, out, view, of_lse):
        """o of that shape, or `out`; view(o) has its heads before its rows, as lse [..., heads,
        rows] has."""
        kind = self.kind
        if out is not None:
            kind.check("out", out, self.type_of_o, "[..., head_dim_v]", tuple(shape))
        self.o_is_new = out is None
        self.o = kind.empty(shape, self.like, self.type_of_o) if out is None else out
        self.lse = kind.empty(of_lse, self.like, kind.f32)
        self.view = view(self.o)
        self.keep_rows(o=self.view)
        self.keep("lse", self.lse)

    def straighten(self):
        """Copies the rows that no kernel takes as they lie.  False: all were copied before."""
        rows = {name: self.kept[name] for name in ("q", "k", "v", "o")}
        copies = {name: self.kind.contiguous(a) for name, a in rows.items()}
        for name, a in copies.items():
            self.keep(name, a)
            self.fields[name + "_strides"] = c_library.Strides()
        return any(copies[name] is not a for name, a in rows.items())

    def problem(self):
        """The library's."""
        return c_library.problem("attention", **self.fields, **self.kind.place(self.like))

    def check(self):
        """Refuses what cannot be, and writes nothing."""
        if not self.o_is_new:
            self.kind.check_writable("out", self.o)
        self.run("attention", computes=False)

    def compute(self):
        """o and lse [..., heads, rows]."""
        if not self.o_is_new:
            self.kind.check_writable("out", self.o)
            self.kind.note_written(self.o)
        self.run("attention")
        if self.kept["o"] is not self.view:
            self.view[...] = self.kept["o"]
        return eight_bits.as_numbers(self.kind, self.o), self.lse

    def run(self, name, computes=True):
        """The library's function; of arrays that no kernel takes as they lie, on copies."""
        try:
            run(self.kind, self.like, name, self.problem(), computes)
        except FiveStepsError as error:
            if error.code != c_library.UNSUPPORTED or not self.straighten():
                raise
            run(self.kind, self.like, name, self.problem(), computes)

    def gradients(self, lse, d_o, of_bias=False):
        """dq, dk, dv, dsinks and dbias (or None), contiguous with heads before rows: of a call whose `out`
        was the forward pass's o, from its lse and from the gradient of o (heads before rows).  of_bias: that
        of the bias is wanted, which lies one after another."""
        kind, names = self.kind, ("q", "k", "v", "sinks", *["bias"] * of_bias)
        results = {"d" + name: kind.empty(tuple(self.kept[name].shape), self.kept[name])
                   for name in names if name in self.kept}
        for name, a in (("lse", kind.contiguous(lse)), ("d_o", kind.contiguous(d_o)), *results.items()):
            self.keep(name, a)
        self.run("attention_backward")
        return [results.get("d" + name) for name in ("q", "k", "v", "sinks", "bias")]


def run(kind, like, name, problem, computes=True):
    """The library's function of that name, with the workspace that it asks for; merge and quantise need none.
    Without `computes` it is only asked, and refuses what it can without looking into arrays."""
    so = c_library.library(problem.device)
    with relayed(), kind.on_device(like):
        work = []
        if name not in ("merge", "quantise"):
            size = so.workspace(name, problem)
            memory = kind.empty((max(size, 1),), like, kind.byte)
            work = [kind.address(memory), size]
        if computes:
            so.call(name, problem, *work)


@contextlib.contextmanager
def relayed():
    """What the library says of a caller's mistake: "scale: is nan; ..."."""
    try:
        yield
    except c_library.LibraryError as error:
        if error.code in (c_library.INVALID, c_library.UNSUPPORTED):
            raise FiveStepsError(str(error).replace(": is ", " is ", 1), error.code) from None
        raise


def _sizes(q, k, v):
    """The sizes of q, k and v [batch, heads, rows, width] (or without batch and heads), by the library."""
    shapes, problem = [tuple(a.shape) for a in (q, k, v)], c_library.AttentionProblem()
    numbers = [(ctypes.c_size_t * len(x))(*x) for x in ([*map(len, shapes)], sum(shapes, ()))]
    with relayed():
        c_library.library().call("attention_shapes", problem, *numbers)
    return {name: getattr(problem, name) for name in (
        "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v")}


def attention_call(arrays, max_seqlen_q, max_seqlen_k, causal, left, right, softcap, scale,
                   invariant, deterministic, dropout, rows_first, out=None, codes=None, scales=(), kernel=None):
    """rows_first: the rows lie before the heads; a max_seqlen of 0 is found from the prefix sums.  codes: the
    type of v, if it has 8 bits, and the scales of q, k and v; kernel: the one to take.  With dropout its seed
    follows the arrays."""
    given = dict(zip(NAMES, arrays))
    call = Call({**given, "out": out})
    kind, rows = call.kind, {name: given[name] for name in "qkv"}
    of_q = eight_bits.name_of(rows["q"])
    number = eight_bits.TYPES.get(of_q) or type_of(kind, {"q": rows["q"]} if codes else rows)

    def view(a):
        return a.swapaxes(-3, -2) if rows_first else a
    views = {name: view(a) for name, a in rows.items()}
    f = call.fields
    f.update(type=number, kernel=kernel and kernel.encode(), **_sizes(**views))
    ahead = f["seqlen_k"] - f["seqlen_q"]
    if given["cu_seqlens_q"] is not None:
        ahead = _packed(call, given["cu_seqlens_q"], given["cu_seqlens_k"], max_seqlen_q, max_seqlen_k)
    call.keep_rows(**views)
    f.update(score_fields(causal, left, right, softcap, scale, invariant, deterministic, dropout))
    if dropout:
        f["seed"] = int(arrays[len(NAMES)])
    eight_bits.describe(call, codes, scales)
    call.sinks(given["sinks"])
    call.bias(given["bias"])
    call.alibi(given["alibi_slopes"], ahead)
    q = rows["q"]
    if out is None and not rows_first and kind.has_rows_first(q):  # so is o in memory
        out = kind.empty((q.shape[0], q.shape[2], q.shape[1], f["head_dim_v"]), q, call.type_of_o).swapaxes(1, 2)
    call.results((*q.shape[:-1], f["head_dim_v"]), out, view, tuple(views["q"].shape[:-1]))
    return call


def _packed(call, sums_q, sums_k, longest_q, longest_k):
    """Sequences one after another: batch is their number, the lengths are the longest.  Gives
    seqlen_k - seqlen_q of each."""
    kind, f = call.kind, call.fields
    if sums_q.ndim != 1 or sums_q.shape[0] == 0 or sums_q.shape != sums_k.shape:
        raise FiveStepsError(f"cu_seqlens_q is {list(sums_q.shape)}, cu_seqlens_k {list(sums_k.shape)}; "
                             "give both alike, [sequences + 1]")
    sums = {"cu_seqlens_q": sums_q, "cu_seqlens_k": sums_k}
    for name, a in sums.items():
        sums[name] = call.integers(name, a, "[sequences + 1]", *a.shape)
        call.keep(name, sums[name])
    lengths = [a[1:] - a[:-1] for a in sums.values()]
    longest = [given or (int(n.max()) if n.shape[0] else 0)  # on a GPU the host waits for it
               for given, n in zip((longest_q, longest_k), lengths)]
    f.update(total_q=f["seqlen_q"], total_k=f["seqlen_k"], batch=sums_q.shape[0] - 1,
             seqlen_q=min(longest[0], f["seqlen_q"]), seqlen_k=min(longest[1], f["seqlen_k"]))
    return lengths[1] - lengths[0]


def decode_call(arrays, seqlen_k, left, softcap, scale, invariant, pages_first, out=None, codes=None,
                scales=()):
    """arrays: q, k, v, page_table (None: sequence b has page b alone), sinks, alibi_slopes, and the
    number of keys of each sequence, or None where all have seqlen_k; else seqlen_k is the most."""
    names = ("q", "k_pages", "v_pages", "page_table", "sinks", "alibi_slopes", "seqlen_k")
    q, k, v, table, sinks, slopes, lengths = arrays
    call = Call({**dict(zip(names, arrays)), "out": out})
    kind, f, short = call.kind, call.fields, q.ndim == 3

    def view(a):
        return (a[:, None] if short else a).swapaxes(-3, -2)
    f["type"] = type_of(kind, {"q": q} if codes else {"q": q, "k_pages": k, "v_pages": v})
    k, v = (a.swapaxes(-3, -2) if pages_first and a.ndim == 4 else a for a in (k, v))
    if q.ndim not in (3, 4) or k.ndim != 4 or v.ndim != 4 or k.shape[:3] != v.shape[:3]:
        raise FiveStepsError(f"q is {list(q.shape)}, k_pages {list(arrays[1].shape)}, v_pages "
                             f"{list(arrays[2].shape)}; give q [batch, heads_q, head_dim] or [batch, "
                             "queries, heads_q, head_dim], k_pages and v_pages [pages, heads_kv, "
                             "page_size, head_dim]; only their head_dim may differ")
    batch, room = q.shape[0], k.shape[2]
    if table is not None:
        call.keep("page_table", call.integers("page_table", table, "[batch, pages of one]", batch, *table.shape[-1:]))
        f.update(page_size=room, n_pages=k.shape[0], pages_per_sequence=table.shape[1])
        room *= table.shape[1]
    elif k.shape[0] != batch:
        raise FiveStepsError(f"without a page_table each sequence has a page; there are {k.shape[0]} "
                             f"for {batch}")
    if seqlen_k > room:
        raise FiveStepsError(f"seqlen_k is {seqlen_k}; the pages of a sequence hold {room} keys")
    if table is None:
        k, v = k[:, :, :seqlen_k], v[:, :, :seqlen_k]
    f.update(_sizes(q=view(q)[:1], k=k[:1], v=v[:1]), batch=batch, seqlen_k=seqlen_k)
    if lengths is not None:
        call.keep("seqlens_k", call.integers("seqlen_k", lengths, "[batch]", batch))
    queries = f["seqlen_q"]
    call.keep_rows(q=view(q), k=k, v=v)
    f.update(score_fields(queries > 1, left, -1, softcap, scale, invariant))
    eight_bits.describe(call, codes, scales)
    call.sinks(sinks)
    call.alibi(slopes, (seqlen_k if lengths is None else lengths) - queries)
    call.results((*q.shape[:-1], f["head_dim_v"]), out, view, (batch, f["heads_q"], queries))
    if short:
        call.lse = call.lse[..., 0]
    return call
