"""test_python_cuda.py: the Python package on a GPU against the definition in float64, beyond what the other
tests of the package do there: views, pages, captured graphs, threads with a stream each, a second GPU."""
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

import helpers  # noqa: E402
from five_steps_here import five_steps, taken  # noqa: E402
from helpers import compare  # noqa: E402

PACKAGE = pathlib.Path(five_steps.__file__).parent
ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(*shape, dtype=torch.bfloat16, seed=1):
    """Normal numbers on the GPU."""
    draw = torch.Generator(device="cuda").manual_seed(seed + sum(shape))
    return torch.randn(*shape, device="cuda", generator=draw).to(dtype)


def problem(*sizes, dtype=torch.bfloat16, keys=None):
    """q, k and v [batch, heads, length, dim]."""
    return [random(*(sizes if i == 0 or keys is None else keys), dtype=dtype, seed=i) for i in range(3)]


def agrees(got, q, k, v, **options):
    """o and lse are those of the definition."""
    want = helpers.attention(*map(taken, (q, k, v)), **{
        n: taken(a) if torch.is_tensor(a) else a for n, a in options.items()})
    compare(taken(got[0]), want[0], ALLOWED[got[0].dtype])
    compare(taken(got[1]), want[1], 2e-3, what="lse")


def in_threads(work, arguments):
    """What work returns for each argument, in a new thread each; raises what one of them does."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(work, arguments))


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


@pytest.mark.parametrize("numbers", ["[[0], [-1]]), 1", "[[0], [2]]), at([1, -1])"])
def test_a_page_or_row_that_does_not_exist_stops_the_device(numbers):
    """In a process of its own, whose device is lost.  Both were the last ones."""
    code = ("import torch, five_steps\nat = lambda a: torch.tensor(a, device='cuda')\n"
            "new, pools = at(1.0).expand(2, 1, 2, 8), [at(0.0).expand(3, 2, 4, 8).clone() for _ in 'kv']\n"
            f"five_steps.append(new, new, *pools, at({numbers})\ntorch.cuda.synchronize()")
    made = helpers.run(sys.executable, "-c", code, env={"PYTHONPATH": PACKAGE.parent}, want=None)
    assert made.code and "device-side assert" in made.err, made


def test_threads_that_have_called_nothing_before():
    """A new thread has no current context, which the copy engine's maps need; calls that look alike
    have a workspace each."""
    q, k, v = problem(2, 16, 512, 64)
    want = five_steps.attention(q, k, v, causal=True)
    for _ in range(10):
        in_threads(lambda _: [torch.testing.assert_close(
            five_steps.attention(q, k, v, causal=True), want, rtol=0, atol=0) for _ in range(30)], range(4))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_the_tensors_device_counts():
    """Not the current one; also on a side stream and in a graph."""
    q, k, v = problem(1, 2, 100, 64)
    want = five_steps.attention(q, k, v)
    there = [a.to("cuda:1") for a in (q, k, v)]
    assert torch.equal(five_steps.attention(*there).to("cuda:0"), want)
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert torch.equal(five_steps.attention(*there).to("cuda:0"), want)
