"""test_cuda.py: the Python package on a GPU against the definition in float64.  Skipped by name
where PyTorch is missing or sees no GPU."""
import math
import unittest
from concurrent.futures import ThreadPoolExecutor

try:
    import torch
except ImportError as error:
    raise SystemExit("skipped: PyTorch is not installed") from error
if not torch.cuda.is_available():
    raise SystemExit("skipped: PyTorch sees no GPU")

import five_steps

ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
TYPES = (torch.float16, torch.bfloat16)


def random(*shape, dtype=torch.bfloat16, seed=1):
    """Normal numbers on the GPU."""
    draw = torch.Generator(device="cuda").manual_seed(seed + sum(shape))
    return torch.randn(*shape, device="cuda", generator=draw).to(dtype)


def defined(q, k, v, causal=False, scale=None, bias=None, window=(-1, -1), softcap=None,
            sinks=None):
    """o and lse of [batch, heads, length, dim] by the definition."""
    q, k, v = (a.double() for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (a.repeat_interleave(group, 1) for a in (k, v))
    s = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    nq, nk = s.shape[-2:]
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias.double()
    behind = (torch.arange(nk, device="cuda")
              - (torch.arange(nq, device="cuda")[:, None] + nk - nq))
    hidden = behind > (0 if causal else window[1] if window[1] >= 0 else nk)
    if window[0] >= 0:
        hidden |= behind < -window[0]
    s = s.masked_fill(hidden, -math.inf)
    if sinks is not None:
        column = sinks.double()[None, :, None, None].expand(*s.shape[:-1], 1)
        s = torch.cat([s, column], -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    return (torch.softmax(s, -1) @ v).nan_to_num(), torch.logsumexp(s, -1)


def in_threads(work, arguments):
    """What work returns for each argument, in a new thread each; raises what one of them does."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(work, arguments))


class OnGpu(unittest.TestCase):
    """Everything that a CUDA tensor may be used for."""

    def agrees(self, got, want):
        """o and lse."""
        o, lse = got
        self.assertLess((o.double() - want[0]).abs().max().item(), ALLOWED[o.dtype])
        self.assertTrue(torch.allclose(lse.double(), want[1], atol=2e-3), "lse")

    def test_agrees_with_the_definition(self):
        """Each type, with what a call may ask for."""
        options = ({}, {"causal": True}, {"window": (100, 0)}, {"window": (5, 9)},
                   {"softcap": 2.0, "scale": 0.3}, {"sinks": random(8, dtype=torch.float32)},
                   {"causal": True, "softcap": 5.0, "sinks": random(8, dtype=torch.float32)},
                   {"bias": random(200, 333, dtype=torch.float32)})
        for dtype in ALLOWED:
            q = random(2, 8, 200, 64, dtype=dtype)
            k, v = (random(2, 2, 333, 64, dtype=dtype, seed=s) for s in (2, 3))
            for more in options:
                with self.subTest(dtype=dtype, more=list(more)):
                    self.agrees(five_steps.attention(q, k, v, return_lse=True, **more),
                                defined(q, k, v, **more))

    def test_views_are_used_as_they_lie(self):
        """Slices of a packed QKV tensor and rows before heads: the same bits as contiguous
        arrays, and no memory for copies."""
        qkv = random(2, 512, 3, 8, 128)
        views = qkv.unbind(2)  # [batch, length, heads, dim]
        for more in ({}, {"causal": True}, {"window": (64, 0)}):
            plain = [a.transpose(1, 2).contiguous() for a in views]
            want = five_steps.attention(*plain, **more)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            got = five_steps.attention(*views, layout="blhd", **more)
            took = torch.cuda.max_memory_allocated() - before
            self.assertTrue((got.transpose(1, 2) == want).all(), more)
            self.assertLess(took, got.nbytes + (1 << 20), "a view was copied")

    def test_packed_sequences(self):
        """Each sequence for itself gives the same."""
        lengths = [1, 130, 0, 257, 64]
        sums = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
        for dtype in TYPES:
            q = random(sum(lengths), 4, 64, dtype=dtype)
            k, v = (random(sum(lengths), 2, 64, dtype=dtype, seed=s) for s in (2, 3))
            for more in ({}, {"causal": True}, {"window": (50, 0), "softcap": 3.0}):
                o, lse = five_steps.attention(q, k, v, cu_seqlens_q=sums, cu_seqlens_k=sums,
                                              return_lse=True, **more)
                for begin, n in zip(sums.tolist(), lengths):
                    if n:
                        part = slice(begin, begin + n)
                        want = defined(*(a[part].transpose(0, 1)[None] for a in (q, k, v)), **more)
                        self.agrees((o[part].transpose(0, 1)[None], lse[None, :, part]), want)

    def test_pages(self):
        """Keys in pages of every size against keys in a row."""
        for page in (16, 64, 256):
            pages = 1024 // page
            table = torch.randperm(3 * pages, device="cuda").int().reshape(3, pages)
            q = random(3, 8, 128)
            pools = [random(3 * pages, 2, page, 128, seed=s) for s in (2, 3)]
            k, v = (pool[table].transpose(1, 2).reshape(3, 2, 1024, 128) for pool in pools)
            for n, more in ((1, {}), (page + 1, {}), (1000, {"window": 300}),
                            (1024, {"softcap": 4.0, "sinks": random(8, dtype=torch.float32)})):
                o, lse = five_steps.decode(q, *pools, table, n, return_lse=True, **more)
                if "window" in more:
                    more = {"window": (more["window"], -1)}
                want = defined(q[:, :, None], k[:, :, :n], v[:, :, :n], **more)
                self.agrees((o[:, :, None], lse[:, :, None]), want)

    def test_softmax_and_merge(self):
        """Rows of several lengths; two halves of the keys give the whole."""
        for dtype in ALLOWED:
            for cols in (1, 100, 1000, 50257):
                x = random(7, cols, dtype=dtype)
                error = (five_steps.softmax(x).double() - torch.softmax(x.double(), -1)).abs()
                self.assertLess(error.max().item(), ALLOWED[dtype] / 4)
        q, k, v = (random(1, 4, 256, 64, seed=s) for s in range(3))
        halves = [five_steps.attention(q, k[:, :, part], v[:, :, part], return_lse=True)
                  for part in (slice(0, 100), slice(100, 256))]
        self.agrees(five_steps.merge(*halves[0], *halves[1]), defined(q, k, v))

    def test_graph_capture(self):
        """A captured graph computes anew from what lies in its inputs."""
        q, k, v = (random(2, 8, 300, 64, seed=s) for s in range(3))
        pools = [random(20, 8, 16, 64, seed=s) for s in (4, 5)]
        table = torch.randperm(20, device="cuda").int().reshape(2, 10)

        def work():
            o, lse = five_steps.attention(q, k, v, causal=True, return_lse=True)
            step = five_steps.decode(q[:, :, 0].contiguous(), *pools, table, 150)
            return (*five_steps.merge(o, lse, o, lse), step, five_steps.softmax(o))
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = work()
        for seed in (7, 8):
            for a in (q, k, v, *pools):
                a.copy_(random(*a.shape, seed=seed))
            graph.replay()
            torch.cuda.synchronize()
            for a, b in zip(got, work()):
                self.assertTrue((a == b).all())

    def test_threads_and_streams(self):
        """Four threads with a stream each, with shapes that differ."""
        wrong = []

        def work(n):
            with torch.cuda.stream(torch.cuda.Stream()):
                q, k, v = (random(2, 4, 64 + 32 * n, 64, seed=s) for s in range(3))
                want, _ = defined(q, k, v, causal=True)
                for _ in range(50):
                    o = five_steps.attention(q, k, v, causal=True)
                    error = (o.double() - want).abs().max().item()
                    if not error < ALLOWED[o.dtype]:
                        wrong.append((n, error))
        in_threads(work, range(4))
        self.assertEqual(wrong, [])

    def test_threads_on_one_stream(self):
        """Calls that look alike have a workspace each."""
        q, k, v = (random(2, 16, 512, 64, seed=s) for s in range(3))
        want = five_steps.attention(q, k, v, causal=True)
        wrong = []

        def work(_):
            for _ in range(300):
                if not (five_steps.attention(q, k, v, causal=True) == want).all():
                    wrong.append(1)
        in_threads(work, range(4))
        self.assertEqual(wrong, [])

    def test_threads_that_have_called_nothing_before(self):
        """A new thread has no current context, which the copy engine's maps need."""
        q, k, v = (random(2, 4, 512, 64, seed=s) for s in range(3))
        want = five_steps.attention(q, k, v, causal=True)
        for _ in range(10):
            for o in in_threads(lambda _: five_steps.attention(q, k, v, causal=True), range(4)):
                self.assertTrue((o == want).all())

    def test_graphs_beside_calls(self):
        """A graph that is replayed on a stream of its own, while calls that look alike run."""
        q, k, v = (random(2, 16, 512, 64, seed=s) for s in range(3))
        want = five_steps.attention(q, k, v, causal=True)
        torch.cuda.synchronize()
        graph, own = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=own):
            got = five_steps.attention(q, k, v, causal=True)
        for _ in range(200):
            with torch.cuda.stream(own):
                graph.replay()
            o = five_steps.attention(q, k, v, causal=True)
            torch.cuda.synchronize()
            self.assertTrue((o == want).all() and (got == want).all())

    def test_operators(self):
        """PyTorch's check, and torch.compile of the whole."""
        from five_steps import torch_operations as t
        q = random(2, 3, 64, 64)
        options = (None, None, None, None, 0, 0, True, -1, -1, 0.0, 0.0, False)
        torch.library.opcheck(t._attention, (q, q, q, *options))

        def f(q, k, v):
            return five_steps.softmax(five_steps.attention(2 * q, k, v, causal=True))
        with torch.no_grad():
            got = torch.compile(f, fullgraph=True, backend="aot_eager")(q, q, q)
            self.assertTrue((got == f(q, q, q)).all())

    @unittest.skipIf(torch.cuda.device_count() < 2, "there is one GPU")
    def test_the_tensors_device_counts(self):
        """Not the current one."""
        q, k, v = (random(1, 2, 100, 64, seed=s) for s in range(3))
        want = five_steps.attention(q, k, v)
        got = five_steps.attention(*(a.to("cuda:1") for a in (q, k, v)))
        self.assertTrue((got.cpu() == want.cpu()).all())


if __name__ == "__main__":
    unittest.main()
