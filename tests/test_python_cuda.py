"""test_python_cuda.py: the Python package on a GPU against the definition in float64, beyond what the other
tests of the package do there: views, pages, captured graphs, threads with a stream each, a second GPU."""
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

import helpers  # noqa: E402
from five_steps_here import five_steps  # noqa: E402
from helpers import compare  # noqa: E402

ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(*shape, dtype=torch.bfloat16, seed=1):
    """Normal numbers on the GPU."""
    draw = torch.Generator(device="cuda").manual_seed(seed + sum(shape))
    return torch.randn(*shape, device="cuda", generator=draw).to(dtype)


def problem(*sizes, dtype=torch.bfloat16, keys=None):
    """q, k and v [batch, heads, length, dim]."""
    return [random(*(sizes if i == 0 or keys is None else keys), dtype=dtype, seed=i) for i in range(3)]


def exact(a):
    return a.double().cpu().numpy() if torch.is_tensor(a) else a


def agrees(got, q, k, v, **options):
    """o and lse are those of the definition."""
    want = helpers.attention(*map(exact, (q, k, v)), **{n: exact(a) for n, a in options.items()})
    compare(exact(got[0]), want[0], ALLOWED[got[0].dtype])
    compare(exact(got[1]), want[1], 2e-3, what="lse")


def in_threads(work, arguments):
    """What work returns for each argument, in a new thread each; raises what one of them does."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(work, arguments))


def test_a_tensor_at_an_odd_address_is_copied():
    room = random(4 * 100 * 64 + 1)
    q, k, v = room[1:].reshape(1, 4, 100, 64), *problem(1, 4, 100, 64)[1:]
    agrees(five_steps.attention(q, k, v, return_lse=True), q, k, v)


def test_views_are_used_as_they_lie():
    """Slices of a packed QKV tensor and rows before heads: the same bits as contiguous arrays, and
    no memory for copies."""
    views = random(2, 512, 3, 8, 128).unbind(2)  # [batch, length, heads, dim]
    for more in ({}, {"causal": True}, {"window": (64, 0)}):
        want = five_steps.attention(*(a.transpose(1, 2).contiguous() for a in views), **more)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = five_steps.attention(*views, layout="blhd", **more)
        took = torch.cuda.max_memory_allocated() - before
        assert torch.equal(got.transpose(1, 2), want), more
        assert took < got.nbytes + (1 << 20), "a view was copied"


@pytest.mark.parametrize("page", [16, 64, 256])
@pytest.mark.parametrize("layout", ["heads_first", "pages_first"])
def test_pages(page, layout):
    """Keys in pages against keys in a row; one number of keys, and one for each sequence."""
    pages = 1024 // page
    table = torch.randperm(3 * pages, device="cuda").int().reshape(3, pages)
    q = random(3, 8, 128)
    pools = [random(3 * pages, 2, page, 128, seed=s) for s in (2, 3)]
    k, v = (pool[table].transpose(1, 2).reshape(3, 2, 1024, 128) for pool in pools)
    pools = [pool.transpose(1, 2).contiguous() if layout == "pages_first" else pool for pool in pools]
    for n, more in ((1, {}), (page + 1, {}), (1000, {"window": 300}),
                    (1024, {"softcap": 4.0, "sinks": random(8, dtype=torch.float32)}), ([1, 700, 1024], {})):
        keys = torch.tensor(n, dtype=torch.int32, device="cuda") if isinstance(n, list) else n
        o, lse = five_steps.decode(q, *pools, table, keys, layout=layout, return_lse=True, **more)
        more = dict(more, window=(more["window"], -1)) if "window" in more else more
        for b, each in enumerate(n if isinstance(n, list) else [n] * 3):
            agrees((o[b, :, None], lse[b, :, None]), q[b, :, None], k[b, :, :each], v[b, :, :each], **more)


def test_a_captured_graph_computes_anew():
    q, k, v = problem(2, 8, 300, 64)
    pools = [random(20, 8, 16, 64, seed=s) for s in (4, 5)]
    table = torch.randperm(20, device="cuda").int().reshape(2, 10)
    lengths = torch.tensor([150, 31], dtype=torch.int32, device="cuda")

    def work():
        o, lse = five_steps.attention(q, k, v, causal=True, return_lse=True)
        steps = [five_steps.decode(q[:, :, 0].contiguous(), *pools, table, n) for n in (150, lengths)]
        return (*five_steps.merge(o, lse, o, lse), *steps, five_steps.softmax(o))
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
        assert all(torch.equal(a, b) for a, b in zip(got, work()))


def test_threads_with_a_stream_each():
    def work(n):
        with torch.cuda.stream(torch.cuda.Stream()):
            q, k, v = problem(2, 4, 64 + 32 * n, 64)
            for _ in range(20):
                agrees(five_steps.attention(q, k, v, causal=True, return_lse=True), q, k, v, causal=True)
    in_threads(work, range(4))


def test_threads_that_have_called_nothing_before():
    """A new thread has no current context, which the copy engine's maps need; calls that look alike
    have a workspace each."""
    q, k, v = problem(2, 16, 512, 64)
    want = five_steps.attention(q, k, v, causal=True)
    for _ in range(10):
        in_threads(lambda _: [torch.testing.assert_close(
            five_steps.attention(q, k, v, causal=True), want, rtol=0, atol=0) for _ in range(30)], range(4))


def test_graphs_beside_calls():
    """A graph that is replayed on a stream of its own, while calls that look alike run."""
    q, k, v = problem(2, 16, 512, 64)
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
        assert torch.equal(o, want) and torch.equal(got, want)


def test_operators_and_compile():
    from five_steps import torch_operations as t
    q = random(2, 3, 64, 64)
    torch.library.opcheck(t._attention, (q, q, q, *[None] * 5, 0, 0, True, -1, -1, 0.0, 0.0, False))

    def f(q, k, v):
        return five_steps.softmax(five_steps.attention(2 * q, k, v, causal=True))
    with torch.no_grad():
        got = torch.compile(f, fullgraph=True, backend="aot_eager")(q, q, q)
        assert torch.equal(got, f(q, q, q))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_the_tensors_device_counts():
    """Not the current one; also on a side stream and in a graph."""
    q, k, v = problem(1, 2, 100, 64)
    want = five_steps.attention(q, k, v)
    there = [a.to("cuda:1") for a in (q, k, v)]
    assert torch.equal(five_steps.attention(*there).to("cuda:0"), want)
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert torch.equal(five_steps.attention(*there).to("cuda:0"), want)


# --- Sizes beyond 2^31 elements. ---

def some_rows(o, q, k, v, rows):
    """Rows (head, query) of o are those of the definition."""
    for h, i in rows:
        want, _ = helpers.attention(*(exact(a) for a in (q[h, i:i + 1], k[h], v[h])))
        compare(exact(o[h, i:i + 1]), want, ALLOWED[o.dtype])


RUNGS = re.findall(r"^(?:RUNG|BESIDE)\((\w+)", (helpers.ROOT / "05_flash_cuda/rungs.h").read_text(), re.M)


@pytest.mark.long
@pytest.mark.parametrize("kernel", RUNGS)
@pytest.mark.parametrize("heads, queries, keys", [(260, 130_000, 64), (520, 64, 65_000)])
def test_four_billion_elements_in_every_kernel(kernel, heads, queries, keys):
    """Of q and o, or of k and v: an offset in 32 bits finds other numbers.  Rows are chosen at the
    start, beyond element 2^31, beyond 2^32 and at the end."""
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = problem(heads, queries, 128, keys=(heads, keys, 128), dtype=dtype)
        call = five_steps.calls.attention_call((q, k, v, *[None] * 5), 0, 0, False, -1, -1, 0.0, 0.0, False, False, False)
        call.fields["kernel"] = kernel.encode()
        try:
            o, _ = call.compute()
        except five_steps.FiveStepsError:  # another type, or fewer queries
            continue
        return some_rows(o, q, k, v, [(0, 0), (heads * 51 // 100, 5), (heads - 3, 60), (heads - 1, queries - 1)])
    pytest.skip("neither this shape nor these types")


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["gpu_registers", "gpu_shared", "gpu_cluster", "gpu_two_pass", "gpu_one_pass"])
def test_softmax_of_four_billion_elements(kernel):
    x = random((1 << 20) + 7, 4099)
    y = torch.empty_like(x)
    c = five_steps.c_library
    call = c.problem("softmax", kernel=kernel.encode(), rows=len(x), cols=4099, device=c.GPU, type=c.BF16,
                     x=x.data_ptr(), y=y.data_ptr())
    five_steps.calls.run(five_steps.arrays.kind_of({"x": x}), x, "softmax", call)
    for row in (0, (1 << 31) // 4099, (1 << 32) // 4099, len(x) - 1):
        compare(exact(y[row]), helpers.softmax(exact(x[row])), ALLOWED[x.dtype] / 4)


@pytest.mark.long
def test_three_hundred_thousand_heads():
    q, k, v = (random(1, 320_000, 3, 64, seed=s) for s in range(3))
    some_rows(five_steps.attention(q, k, v)[0], q[0], k[0], v[0], [(0, 0), (65_536, 1), (319_999, 2)])


@pytest.mark.long
def test_two_hundred_thousand_sequences():
    n = 200_000
    sums = (torch.arange(n + 1, device="cuda") * 5).int()
    q, k, v = (random(5 * n, 2, 64, seed=s) for s in range(3))
    o = five_steps.attention(q, k, v, causal=True, cu_seqlens_q=sums, cu_seqlens_k=sums,
                             max_seqlen_q=5, max_seqlen_k=5)
    for b in (0, 70_001, n - 1):
        part = slice(5 * b, 5 * b + 5)
        want, _ = helpers.attention(*(exact(a[part].transpose(0, 1)) for a in (q, k, v)), causal=True)
        compare(exact(o[part].transpose(0, 1)), want, ALLOWED[o.dtype])


@pytest.mark.long
def test_a_pool_of_eight_billion_elements():
    pages = 8_200_000
    k, v = (torch.zeros(pages, 1, 16, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    table = torch.tensor([[pages - 1, 5, pages // 2]], dtype=torch.int32, device="cuda")
    q = random(1, 4, 64)
    for pool, seed in ((k, 2), (v, 3)):
        pool[table[0].long()] = random(3, 1, 16, 64, seed=seed)
    o = five_steps.decode(q, k, v, table, 41)
    rows = [pool[table[0].long()].reshape(1, 48, 64)[:, :41] for pool in (k, v)]
    compare(exact(o[0, :, None]), helpers.attention(exact(q[0, :, None]), *map(exact, rows))[0],
            ALLOWED[o.dtype])
