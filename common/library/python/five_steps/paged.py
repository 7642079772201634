"""paged.py: attention of one new query a sequence to keys that lie in pages."""
import math

from . import c_library
from .arrays import FiveStepsError, is_tensor, kind_of, same_type
from .operations import call_library, torch_operations


def _sizes(q, k_pages, v_pages, page_table):
    """The sizes of the problem, checked against each other."""
    shapes = [a.ndim for a in (q, k_pages, v_pages, page_table)]
    if shapes != [3, 4, 4, 2]:
        raise FiveStepsError("give q [batch, heads_q, head_dim], k_pages and v_pages [pages, "
                             "heads_kv, page_size, head_dim], page_table [batch, pages of one]")
    (batch, heads_q, dim), (pages, heads_kv, page_size, dim_k) = q.shape, k_pages.shape
    if tuple(v_pages.shape[:3]) != (pages, heads_kv, page_size):
        raise FiveStepsError(f"k_pages is {list(k_pages.shape)}, v_pages {list(v_pages.shape)}; "
                             "only head_dim may differ")
    if dim != dim_k:
        raise FiveStepsError(f"head_dim is {dim} in q and {dim_k} in k_pages")
    if page_table.shape[0] != batch:
        raise FiveStepsError(f"page_table has {page_table.shape[0]} rows, q {batch} sequences")
    return {"batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seqlen_q": 1,
            "head_dim": dim, "head_dim_v": v_pages.shape[3], "page_size": page_size,
            "n_pages": pages, "pages_per_sequence": page_table.shape[1]}


class DecodeCall:
    """The arguments of a decode, checked."""

    def __init__(self, q, k_pages, v_pages, page_table, sinks, window_left, softcap, scale):
        self.kind = kind_of(q=q, k_pages=k_pages, v_pages=v_pages, page_table=page_table,
                            sinks=sinks)
        self.like, self.sizes = q, _sizes(q, k_pages, v_pages, page_table)
        self.number = same_type(self.kind, q=q, k_pages=k_pages, v_pages=v_pages)
        owned = {"q": q, "k": k_pages, "v": v_pages}
        if sinks is not None:
            if self.kind.type_of("sinks", sinks) != c_library.F32 \
                    or tuple(sinks.shape) != q.shape[1:2]:
                raise FiveStepsError(f"sinks is {sinks.dtype} {list(sinks.shape)}; give float32 "
                                     f"[heads_q] = [{q.shape[1]}]")
            owned["sinks"] = sinks
        self.owned = {name: self.kind.contiguous(a) for name, a in owned.items()}
        self.owned["page_table"] = self.kind.integers("page_table", page_table.reshape(-1))
        self.options = {"window": window_left >= 0, "window_left": window_left,
                        "window_right": -1, "softcap": softcap, "scale": scale}

    def outputs(self):
        """o [batch, heads_q, head_dim_v] and lse [batch, heads_q]."""
        rows = tuple(self.like.shape[:2])
        return (self.kind.empty(rows + (self.sizes["head_dim_v"],), self.like),
                self.kind.empty_float(rows, self.like))

    def problem(self, o, lse, seqlen_k):
        """The library's problem."""
        address = self.kind.address
        room = self.sizes["pages_per_sequence"] * self.sizes["page_size"]
        if not 0 <= seqlen_k <= room:
            raise FiveStepsError(f"seqlen_k is {seqlen_k}; the pages of a sequence hold {room} "
                                 "keys")
        return c_library.AttentionProblem(
            type=self.number, seqlen_k=seqlen_k, o=address(o), lse=address(lse), **self.options,
            **{name: address(a) for name, a in self.owned.items()}, **self.sizes,
            **self.kind.place(self.like))


def compute_decode(arrays, seqlen_k, options, _return_lse=True):
    """o [batch, heads_q, head_dim_v] and lse [batch, heads_q]; arrays and options: the arguments
    of DecodeCall."""
    call = DecodeCall(*arrays, *options)
    o, lse = call.outputs()
    problem = call.problem(o, lse, seqlen_k)
    if math.prod(o.shape):
        call_library("attention", call.kind, call.like, problem)
    return o, lse


def decode(q, k_pages, v_pages, page_table, seqlen_k, *, scale=None, window=None, softcap=None,
           sinks=None, return_lse=False):
    """Attention of one query per sequence to its first seqlen_k keys, which lie in pages.  All
    sequences of a call have the same seqlen_k.  (The C library takes a length for each:
    cu_seqlens_k.)

    q [batch, heads_q, head_dim].  k_pages [pages, heads_kv, page_size, head_dim], v_pages
    [pages, heads_kv, page_size, head_dim_v]: a pool for all sequences.  page_table [batch, pages
    of one], int32: key j of sequence b lies in page page_table[b, j // page_size], row
    j % page_size.  window=n: only the last n keys and the newest one.  scale, softcap, sinks as
    in attention().  Gives o [batch, heads_q, head_dim_v] and, with return_lse, lse [batch,
    heads_q] in float32.  On a GPU the table is not checked.
    """
    if isinstance(seqlen_k, (list, tuple)) or getattr(seqlen_k, "ndim", 0):
        raise FiveStepsError("seqlen_k is a list; give one number: the sequences of a call have the "
                             "same number of keys")
    if scale is not None and (not math.isfinite(scale) or scale == 0):
        raise FiveStepsError(f"scale is {scale}; give a finite number other than 0")
    if softcap is not None and not 0 < softcap < math.inf:
        raise FiveStepsError(f"softcap is {softcap}; give a finite number above 0")
    if window is not None and window < 0:
        raise FiveStepsError(f"window is {window}; give the number of earlier keys, or None")
    compute = torch_operations().decode if is_tensor(q) else compute_decode
    o, lse = compute((q, k_pages, v_pages, page_table, sinks), int(seqlen_k),
                     (-1 if window is None else int(window), float(softcap or 0),
                      float(scale or 0)), bool(return_lse))
    return (o, lse) if return_lse else o
