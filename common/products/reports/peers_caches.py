"""peers_caches.py: the part of peers.py with one new query per sequence over caches of different lengths.

Through the Python packages: ours, FlashAttention-3, FlashInfer (with tensor cores,
which are faster here) and PyTorch's attention with a mask (it knows no pages).  Caches of [sequences,
longest, heads, d], or pages of 64 keys; lengths are all equal, or drawn between half and all of the longest.
Cold.  Bytes are those of the keys and values that are visible.
"""
import itertools

from accept import compare, reference
from peers_methods import version_of
from peers_shapes import Shape

DIM, PAGE = 128, 64
# sequences, heads of q and of k, the longest
CACHES = [Shape(b, hq, hk, 1, n, DIM, 0) for b, hq, hk, n in (
    (64, 32, 8, 8192), (128, 32, 8, 4096), (64, 32, 8, 1024), (64, 64, 8, 4096), (128, 64, 8, 1024))]


class Cache:
    """Keys and values of some sequences: as rows, and in pages that lie in a drawn order.  coded: in e4m3."""

    def __init__(self, run, shape, drawn, coded=False):
        self.torch = torch = run.torch
        self.shape, self.decode = shape, run.five_steps.decode
        b, n = shape.batch, shape.seqlen_k
        q, *self.rows = run.tensors(shape, layout="blhd")
        self.q, self.rows = q[:, :, 0].contiguous(), [x.transpose(1, 2) for x in self.rows]
        type_ = torch.float8_e4m3fn if coded else torch.bfloat16
        self.known = self.rows = [x.to(type_).bfloat16() for x in self.rows]
        self.lengths = torch.randint(n // 2 if drawn else n, n + 1, (b,), device="cuda").int()
        self.table = torch.randperm(b * n // PAGE, device="cuda").int().reshape(b, -1)
        self.pages = [torch.empty_like(x).reshape(-1, PAGE, shape.heads_kv, DIM) for x in self.rows]
        for page, x in zip(self.pages, self.rows):
            page[self.table.flatten().long()] = x.reshape(page.shape)
        self.rows, self.pages = ([x.to(type_) for x in of] for of in (self.rows, self.pages))

    def five_steps(self, paged):
        """Ours."""
        of, table = (self.pages, self.table) if paged else (self.rows, None)
        return lambda: self.decode(self.q, *of, table, self.lengths, layout="pages_first")

    def flash_attention_3(self, paged):
        """Its own choice of splits."""
        from flash_attn_interface import flash_attn_with_kvcache
        of, table = (self.pages, self.table) if paged else (self.rows, None)
        return lambda: flash_attn_with_kvcache(self.q[:, None], *of, cache_seqlens=self.lengths,
                                               page_table=table)[:, 0]

    def flashinfer(self, paged):
        """Pages only; its plan is made once, as for all layers of a model."""
        import flashinfer
        used = (self.lengths + PAGE - 1) // PAGE
        ends = self.torch.cat([used.new_zeros(1), used.cumsum(0)]).int()
        which = self.torch.cat([row[:n] for row, n in zip(self.table, used.tolist())])
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self.torch.empty(256 << 20, dtype=self.torch.uint8, device="cuda"),
            use_tensor_cores=True)
        wrapper.plan(ends, which, ((self.lengths - 1) % PAGE + 1).int(), self.shape.heads_q,
                     self.shape.heads_kv, DIM, PAGE, q_data_type=self.q.dtype,
                     kv_data_type=self.pages[0].dtype)
        return (lambda: wrapper.run(self.q, tuple(self.pages))) if paged else None

    def pytorch_efficient(self, paged):
        """Padded caches, with a mask."""
        k, v = (x.transpose(1, 2) for x in self.rows)
        seen = self.torch.arange(self.shape.seqlen_k, device="cuda") < self.lengths[:, None]
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return None if paged else lambda: attend(self.q[:, :, None], k, v, enable_gqa=True,
                                                 attn_mask=seen[:, None, None])[:, :, 0]


def measure_one(run, shape, drawn, paged, coded=False):
    """One problem by every library; in e4m3 by those that take a query in 16 bits over it."""
    cache = Cache(run, shape, drawn, coded)
    keys, first = int(cache.lengths.sum()), int(cache.lengths[0])
    moved = 4.0 * DIM * (shape.heads_kv * keys / (1 + coded) + shape.heads_q * shape.batch)
    what = f"{'pages' if paged else 'rows'}; {'drawn' if drawn else 'equal'} lengths{'; e4m3' * coded}"
    p = run.problem(shape, "bf16", f"{what}, {keys} keys", "read",
                    flops=4.0 * DIM * shape.heads_q * keys, bytes_predicted=moved, peak_bytes=0,
                    work=moved, note=what)
    for name in ("five_steps", "flashinfer") if coded else (
            "five_steps", "flash-attention-3", "flashinfer", "pytorch-efficient"):
        def make(name=name):
            try:
                return getattr(cache, name.replace("-", "_"))(paged)
            except ImportError:
                return None
        p.add(name, make, stage="05_flash_cuda" if name == "five_steps" else "peer")
    one = shape._replace(batch=1, seqlen_k=first)
    known = reference(run.torch, one, "bf16", cache.q[:1, :, None],
                      *(x[:1, :first].transpose(1, 2) for x in cache.known))
    p.check(lambda o: compare(one, o[:1, :, None], known))
    run.measure(p, ("cold",))


def measure(run, coded=False):
    """All of them; coded: those of equal lengths in pages, in e4m3."""
    run.compilers["flashinfer"] = f"flashinfer {version_of('flashinfer-python')}"
    ways = [(False, True)] if coded else itertools.product((True, False), repeat=2)
    with run.torch.no_grad():
        for shape, (drawn, paged) in itertools.product(CACHES, ways):
            measure_one(run, shape, drawn, paged, coded)
