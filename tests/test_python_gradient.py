"""test_python_gradient.py: derivatives of the Python package's operations, on the CPU and, where there
is one, on a GPU, against PyTorch's own of the definition in float64."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from five_steps_here import five_steps  # noqa: E402
from helpers import compare, normal  # noqa: E402

devices = pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * torch.cuda.is_available())
ALLOWED = {torch.float32: 4e-6, torch.float16: 1e-2, torch.bfloat16: 8e-2}
SINKS, BIAS = torch.from_numpy(normal(4)), torch.from_numpy(normal(9, 13))
OPTIONS = [{}, {"causal": True}, {"window": (2, 3)}, {"window": (4, 0), "causal": True},
           {"softcap": 1.5, "scale": 0.7}, {"sinks": SINKS}, {"bias": BIAS},
           {"bias": BIAS[None, None, :1].repeat(2, 1, 1, 1) > -0.5},
           {"bias": torch.from_numpy(normal(2, 4, 9, 13))}, {"alibi_slopes": SINKS.abs()},
           {"causal": True, "softcap": 2.0, "sinks": SINKS, "bias": BIAS, "window": (6, 0)}]
options = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")


def tensors(*shapes, dtype=torch.float32, device="cpu", seed=1):
    """Leaves of normal numbers."""
    return [torch.from_numpy(normal(*shape, seed=seed + i)).to(device, dtype).requires_grad_()
            for i, shape in enumerate(shapes)]


def problem(**more):
    return tensors((2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 24), **more)


def definition(q, k, v, causal=False, scale=None, window=(-1, -1), softcap=None, sinks=None, bias=None,
               alibi_slopes=None):
    """o and lse in float64, by operations that PyTorch differentiates."""
    k, v = (a.double().repeat_interleave(q.shape[-3] // k.shape[-3], -3) for a in (k, v))
    n, m = q.shape[-2], k.shape[-2]
    at = torch.arange(n, device=q.device)[:, None] + m - n
    j = torch.arange(m, device=q.device)
    s = q.double() @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    s = s if softcap is None else softcap * torch.tanh(s / softcap)
    if alibi_slopes is not None:
        bias = -alibi_slopes[:, None, None].double() * (at - j).abs()
    if bias is not None:
        s = s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias.double()
    left, right = (m + n if w < 0 else w for w in window)
    s = s.masked_fill((j < at - left) | (j > at + (min(right, 0) if causal else right)), -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double()[:, None, None].expand(*s.shape[:-1], 1)], -1)
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(lse == -torch.inf, 0, lse)[..., None])
    return p[..., :m] @ v, lse


def gradients(results, leaves, seed=9):
    """Of a sum of the results, each with drawn weights."""
    draw = [torch.from_numpy(normal(*a.shape, seed=seed + i)).to(a) for i, a in enumerate(results)]
    try:
        return torch.autograd.grad(results, leaves, draw)
    except five_steps.FiveStepsError as error:
        if error.code == five_steps.c_library.UNSUPPORTED and leaves[0].is_cuda:
            pytest.skip(f"on a GPU {error}")
        raise


def same(got, want, dtype=torch.float32):
    for name, a, b in zip(("dq", "dk", "dv", "dsinks"), got, want):
        compare(*(x.detach().double().cpu().numpy() for x in (a, b)), ALLOWED[dtype], what=name)


def on(device, given):
    """The options there; sinks take part in the derivative."""
    given = {n: a.to(device) if torch.is_tensor(a) else a for n, a in given.items()}
    return {n: a.detach().clone().requires_grad_() if n == "sinks" else a for n, a in given.items()}


# --- Attention. ---

@devices
@options
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
def test_every_option_in_every_type(device, options, dtype):
    """lse takes part in float32; o alone in 16 bits, and rows before heads."""
    leaves, given = problem(dtype=dtype, device=device), on(device, options)
    everything = [*leaves, *(a for n, a in given.items() if n == "sinks")]
    n = 2 if dtype == torch.float32 else 1
    o, lse = five_steps.attention(*leaves, return_lse=True, **given)
    want = gradients(definition(*leaves, **given)[:n], everything)
    same(gradients((o, lse)[:n], everything), want, dtype)
    turned = five_steps.attention(*(a.transpose(1, 2) for a in leaves), layout="blhd", **given)
    if n == 1:
        same(gradients((turned.transpose(1, 2),), everything), want, dtype)


@devices
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (2, 1), "softcap": 2.0},
                                     {"sinks": SINKS}, {"bias": BIAS}], ids=lambda o: "+".join(o) or "plain")
def test_packed_sequences(device, options):
    """Of which some are empty: each for itself gives the same; keys without queries get 0."""
    ends_q, ends_k = [0, 3, 3, 12, 14], [0, 5, 7, 20, 20]
    leaves, given = tensors((14, 4, 8), (20, 2, 8), (20, 2, 6), device=device), on(device, options)
    everything = [*leaves, *(a for n, a in given.items() if n == "sinks")]
    sums = {"cu_seqlens_" + n: torch.tensor(e, dtype=torch.int32, device=device)
            for n, e in (("q", ends_q), ("k", ends_k))}
    got = gradients((five_steps.attention(*leaves, **sums, **given),), everything)
    parts = []
    for b in range(4):
        q, k, v = (a[ends[b]:ends[b + 1]].transpose(0, 1)
                   for a, ends in zip(leaves, (ends_q, ends_k, ends_k)))
        own = dict(given, bias=given["bias"][:q.shape[1], :k.shape[1]]) if "bias" in given else given
        parts.append(definition(q, k, v, **own)[0].transpose(0, 1))
    same(got, gradients((torch.cat(parts),), everything))
    assert (got[1][5:7] == 0).all() and (got[2][5:7] == 0).all()


def test_what_no_kernel_supports_is_computed_in_another_way(monkeypatch):
    """As on a GPU: packed sequences one at a time, 16 bits in float32."""
    gradients_of = five_steps.calls.Call.gradients

    def some(call, *more):
        if "cu_seqlens_q" in call.fields or call.like.dtype != torch.float32:
            raise five_steps.FiveStepsError("no kernel", five_steps.c_library.UNSUPPORTED)
        return gradients_of(call, *more)
    monkeypatch.setattr(five_steps.calls.Call, "gradients", some)
    for given in ({}, {"sinks": SINKS}, {"bias": BIAS}):
        test_packed_sequences("cpu", given)
        test_every_option_in_every_type("cpu", given, torch.bfloat16)


@devices
def test_rows_and_keys_that_see_nothing_get_zero(device):
    """More queries than keys under a causal mask, no keys, no queries, no batch."""
    q, k, v = tensors((2, 6, 8), (2, 4, 8), (2, 4, 8), device=device)
    dq, dk, dv = gradients((five_steps.attention(q, k, v, causal=True),), (q, k, v))
    assert (dq[:, :2] == 0).all() and dq[:, 2].abs().max() < 1e-6 and dq[:, 3:].all()
    assert dk.isfinite().all() and dv.isfinite().all()
    for nq, nk, batch in ((3, 0, 2), (0, 3, 2), (3, 3, 0)):
        leaves = tensors((batch, 2, nq, 8), (batch, 2, nk, 8), (batch, 2, nk, 8), device=device)
        sinks = torch.zeros(2, device=device, requires_grad=True)
        *got, d_sinks = torch.autograd.grad(
            [a.sum() for a in five_steps.attention(*leaves, sinks=sinks, return_lse=True)], (*leaves, sinks))
        assert all((a == 0).all() for a in got)
        assert (d_sinks == (batch * nq if nk == 0 else 0)).all()  # without keys lse is the sink


# --- Softmax and merge. ---

@devices
def test_softmax_and_merge(device):
    x, = tensors((3, 4, 5), device=device)
    for dim in (0, 2):
        same(gradients((five_steps.softmax(x, dim),), (x,)),
             gradients((torch.softmax(x.double(), dim),), (x,)))
    q, k, v = problem(device=device)
    halves = [five_steps.attention(q, k[:, :, part], v[:, :, part], return_lse=True)
              for part in (slice(0, 5), slice(5, 5), slice(5, 13))]
    merged = five_steps.merge(*five_steps.merge(*halves[0], *halves[1]), *halves[2])
    same(gradients(merged, (q, k, v)), gradients(definition(q, k, v), (q, k, v)))


# --- PyTorch around it. ---

@pytest.mark.parametrize("name", ["", "alibi_slopes", "bias"])
def test_compiled_and_checkpointed(name):
    """The same bits from torch.compile's graph and a checkpoint, which gives what is saved once."""
    more = {name: torch.ones(4) if "slopes" in name else torch.ones(9, 13, requires_grad=True)} if name else {}

    def f(q, k, v):
        o = five_steps.attention(2 * q, k, v, causal=True, **more)
        return (five_steps.softmax(o) * o).sum()
    leaves = problem()
    want = torch.autograd.grad(f(*leaves), leaves)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    kept = torch.utils.checkpoint.checkpoint(f, *leaves, use_reentrant=False)
    for got in (torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(kept, leaves)):
        same(got, want)


REFUSED = {
    "alibi_slopes": lambda q: five_steps.attention(q, q, q, alibi_slopes=q[0, :, 0, 0]),
    "out has no gradient": lambda q: five_steps.attention(q, q, q, out=torch.empty_like(q)),
    "decode has no gradient": lambda q: five_steps.decode(q[:, :, 0], q, q, None, 3),
    "second derivative": lambda q: torch.autograd.grad(torch.autograd.grad(
        five_steps.attention(q, q, q).sum(), q, create_graph=True)[0].sum(), q)}


@pytest.mark.parametrize("words", REFUSED)
def test_a_gradient_that_there_is_not_is_refused(words):
    q, = tensors((2, 2, 4, 8))
    with pytest.raises(five_steps.FiveStepsError, match=words):
        REFUSED[words](q)
    if "second" not in words:
        with torch.no_grad():
            REFUSED[words](q)


FUNCTIONS = {
    "attention": lambda q: five_steps.attention(q, q.detach(), q.detach()),
    "decode": lambda q: five_steps.decode(q[:, :, 0], q.detach(), q.detach(), None, 3),
    "softmax": lambda q: five_steps.softmax(q, 1),
    "merge": lambda q: five_steps.merge(q, q[..., 0].detach(), q, q[..., 0].detach())[0]}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_forward_derivative_is_refused(function):
    """It was a tangent of 0, or None."""
    q = torch.randn(2, 2, 4, 8)
    with pytest.raises(five_steps.FiveStepsError, match="forward-mode"), torch.autograd.forward_ad.dual_level():
        function(torch.autograd.forward_ad.make_dual(q, q))
