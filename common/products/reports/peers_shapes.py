"""peers_shapes.py: the problems of attention that peers.py measures, in parts."""
import argparse
import typing

LENGTHS = [128 << n for n in range(8)]


class Shape(typing.NamedTuple):
    """The numbers of an attention; v: head_dim_v where it is another than head_dim."""
    batch: int
    heads_q: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    causal: int
    v: int = 0

    @property
    def head_dim_v(self):
        return self.v or self.head_dim

    def pairs(self):
        """Query-key pairs that are credited: all, or exactly half when causal and square."""
        nq, nk = self.seqlen_q, self.seqlen_k
        of_a_head = nq * nk if not self.causal else nq * nk / 2 if nq == nk else \
            sum(max(0, min(nk, i + 1 + nk - nq)) for i in range(nq))
        return self.batch * self.heads_q * of_a_head

    def flops(self, of_qk=2, of_v=2):
        """2 (head_dim + head_dim_v) per credited pair; of backward 6 and 4."""
        return float((of_qk * self.head_dim + of_v * self.head_dim_v) * self.pairs())

    def bytes(self, dtype):
        """q, k, v and o, each once."""
        rows = self.heads_q * self.seqlen_q + self.heads_kv * self.seqlen_k
        return (4.0 if dtype == "f32" else 2.0) * self.batch * rows * (
            self.head_dim + self.head_dim_v)

    def arrays(self, make):
        """q, k and v, each by make(batch, heads, length, head_dim)."""
        return (make(self.batch, self.heads_q, self.seqlen_q, self.head_dim),
                make(self.batch, self.heads_kv, self.seqlen_k, self.head_dim),
                make(self.batch, self.heads_kv, self.seqlen_k, self.head_dim_v))

    def is_decode(self):
        """Few queries per key head: bound by reading K and V."""
        return self.seqlen_q * (self.heads_q // self.heads_kv) <= 16

    def fields(self, dtype):
        """The columns of an attention."""
        sizes = {name: value for name, value in self._asdict().items() if name != "v"}
        return {"op": "attention", "dtype": dtype, "rows": 0, "cols": 0, **sizes,
                "head_dim_v": self.head_dim_v}

    def text(self):
        """'b4 h16/16 4096x4096 d128 causal'."""
        return (f"b{self.batch} h{self.heads_q}/{self.heads_kv} {self.seqlen_q}x{self.seqlen_k} "
                f"d{self.head_dim}{f'/{self.v}' * bool(self.v)}{' causal' * bool(self.causal)}")


def shape_of(text):
    """batch,heads_q,heads_kv,seqlen_q,seqlen_k,head_dim,causal[,head_dim_v]"""
    try:
        return Shape(*map(int, text.split(",")))
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"'{text}' is not {shape_of.__doc__}") from None


def tokens(seqlen, head_dim, causal):
    """About 16k tokens, about 2048 columns over all heads."""
    heads = max(1, 2048 // head_dim)
    return Shape(max(1, 16384 // seqlen), heads, heads, seqlen, seqlen, head_dim, causal)


def grid(lengths, head_dims):
    return [tokens(n, d, c) for d in head_dims for c in (0, 1) for n in lengths]


DECODE = [shape_of(text) for text in (
    "16,16,16,1,8192,128,0", "16,16,16,1,65536,128,0", "16,32,4,1,8192,128,0",
    *(f"1,16,16,1,{n},128,0" for n in LENGTHS + [32768, 65536]))]
# shapes, type, whether also sustained, layout; untuned: lengths, groups and head dimensions at
# which no threshold or tile was chosen, the last as MLA's prefill asks
PARTS = {
    "lengths": (grid(LENGTHS, (64, 128, 256)), None, True, "bhld"),
    "untuned": (grid((1000, 3000, 5000, 12345), (64, 128))
                + [Shape(4, 32, 8, 4096, 4096, 128, c) for c in (0, 1)]
                + grid((4096,), (80, 96, 192))
                + [Shape(4, 16, 16, 4096, 4096, 192, c, 128) for c in (0, 1)],
                None, True, "bhld"),
    "layouts": (grid((1024, 8192), (64, 128)), None, True, "blhd"),
    "decode": (DECODE, None, False, "bhld"),
    "float": (grid(LENGTHS, (64, 128))
              + [Shape(b, hq, hk, 1, 8192, 128, 0)
                 for b, hq, hk in ((16, 16, 16), (1, 16, 16), (16, 32, 4))],
              "f32", False, "bhld"),
    "backward": (grid(LENGTHS[:1:-1], (64, 128, 256)), None, True, "bhld")}


def planned(parts, dtype):
    """(shape, dtype, regimes, layout, op) of every problem in the parts."""
    return [(shape, own or dtype, ("cold", "sustained") if both else ("cold",), layout,
             "backward" if part == "backward" else "attention")
            for part in parts for shapes, own, both, layout in [PARTS[part]] for shape in shapes]
