"""test_backward.py: `run --do` gives the gradients of sum(do * o), judged by the equations in
float64, which are judged by differences of the forward pass."""
import numpy as np
import pytest

from helpers import attention, compare, load, normal, option_words, refused, save, stage, visible

OUTPUTS = [f"--{name}={name}.npy" for name in ("dq", "dk", "dv")]


def run_backward(number, q, k, v, do, *words, **options):
    stage(number, "run", *option_words(q=q, k=k, v=v, do=do, **options), *OUTPUTS, *words)


@np.errstate(over="ignore")  # of exp where nothing is seen
def gradients(q, k, v, do, *, causal=False, window=None, softcap=None, sinks=None, bias=None):
    """dq, dk, dv, dsinks and dbias of (heads, rows, dim) arrays."""
    group, scale = q.shape[0] // k.shape[0], q.shape[-1] ** -0.5
    o, lse = attention(q, k, v, causal=causal, window=window, softcap=softcap, sinks=sinks,
                       bias=bias)
    k, v = (np.repeat(x.astype("f8"), group, axis=0) for x in (k, v))
    s = q.astype("f8") @ np.swapaxes(k, -1, -2) * scale
    slope = 1 - np.tanh(s / softcap) ** 2 if softcap else 1
    s = softcap * np.tanh(s / softcap) if softcap else s
    seen = visible(*s.shape[-2:], causal, window)
    p = np.where(seen & np.isfinite(lse[..., None]),
                 np.exp(s + (0 if bias is None else bias) - np.nan_to_num(lse)[..., None]), 0)
    big_d = (do * o).sum(-1, keepdims=True)
    of_bias = p * (do @ np.swapaxes(v, -1, -2) - big_d)
    ds = of_bias * slope
    dk, dv = np.swapaxes(ds, -1, -2) @ q * scale, np.swapaxes(p, -1, -2) @ do
    dsinks = None
    if sinks is not None:
        dsinks = -(np.exp(sinks[:, None, None] - lse[..., None]) * big_d).sum((1, 2))
    return (ds @ k * scale, *(x.reshape(-1, group, *x.shape[1:]).sum(1) for x in (dk, dv)), dsinks,
            None if bias is None else of_bias.sum(0))


OPTIONS = [{}, {"causal": True}, {"window": (2, 1)}, {"softcap": 0.7}, {"bias": True},
           {"sinks": True}, {"causal": True, "softcap": 2, "sinks": True, "bias": True}]


def problem(options):
    arrays = [normal(*shape, seed=i) for i, shape in
              enumerate([(4, 5, 8), (2, 7, 8), (2, 7, 6), (4, 5, 6)])]
    options = dict(options)
    if options.get("bias"):
        options["bias"] = normal(5, 7, seed=5)
        options["bias"][1, 2] = options["bias"][3] = -np.inf
    if options.get("sinks"):
        options["sinks"] = normal(4, seed=6)
    return arrays, options


@pytest.mark.parametrize("options", OPTIONS)
def test_the_equations_are_the_slopes_of_the_forward_pass(options):
    (q, k, v, do), options = problem(options)
    wrt = [x.astype("f8") for x in (q, k, v)]
    if "sinks" in options:
        wrt.append(options["sinks"].astype("f8"))
    got = gradients(q, k, v, do, **options)

    def loss():
        sinks = {"sinks": wrt[3]} if len(wrt) > 3 else {}
        return (attention(*wrt[:3], **(options | sinks))[0] * do).sum()
    for x, gradient in zip(wrt, got):
        for at in list(np.ndindex(x.shape))[::7]:
            old, ends = x[at], []
            for step in (1e-5, -1e-5):
                x[at] = old + step
                ends.append(loss())
            x[at] = old
            assert abs((ends[0] - ends[1]) / 2e-5 - gradient[at]) < 1e-7, at


@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("options", OPTIONS)
def test_run_writes_the_gradients(options, number):
    arrays, options = problem(options)
    run_backward(number, *arrays, *["--dsinks=dsinks.npy"] * ("sinks" in options),
                 *["--dbias=dbias.npy"] * ("bias" in options), **options)
    for name, want in zip(("dq", "dk", "dv", "dsinks", "dbias"), gradients(*arrays, **options)):
        if want is not None:
            compare(load(f"{name}.npy"), want, 2e-6, name)


def test_packed_sequences():
    """The second has one key and no queries; of the third a query sees no key."""
    (q, k, v, do), sinks = problem({})[0], np.linspace(-1, 1, 4)
    ends = {"cu_seqlens_q": np.array([0, 2, 2, 5]), "cu_seqlens_k": np.array([0, 3, 4, 6])}
    run_backward(4, q, k[:, :6], v[:, :6], do, "--dsinks=dsinks.npy", causal=True, sinks=sinks, **ends)
    first, last = (gradients(q[:, a:b], k[:, c:d], v[:, c:d], do[:, a:b], causal=True, sinks=sinks)
                   for a, b, c, d in ((0, 2, 0, 3), (2, 5, 4, 6)))
    none = np.zeros((2, 1, 8))
    compare(load("dq.npy"), np.concatenate([first[0], last[0]], 1), 2e-6)
    compare(load("dk.npy"), np.concatenate([first[1], none, last[1]], 1), 2e-6)
    compare(load("dsinks.npy"), first[3] + last[3], 2e-6)


def test_a_seed_drops_the_same_weights_in_every_stage():
    """Of two stages' kernels, forward and backward; of another seed others."""
    q, k, v, do = problem({})[0]
    results = []
    for number, seed in ((4, 7), (5, 7), (5, 8)):
        run_backward(number, q, k, v, do, "--dropout=0.5", f"--seed={seed}")
        results.append([load(f"{name}.npy") for name in ("dq", "dk", "dv")])
    for a, b, other in zip(*results):
        compare(a, b, 2e-6)
        assert abs(a - other).max() > 0.01
    refused(4, "run", *option_words(q=q, k=k, v=v, do=do), *OUTPUTS, "--dropout=1", says="--dropout: is 1; give a "
            "probability below 1")


def test_two_dimensions_and_what_is_refused():
    arrays = problem({})[0]
    run_backward(4, *(x[0] for x in arrays))
    compare(load("dk.npy"), gradients(*(x[:1] for x in arrays))[1][0], 2e-6)
    words = ["run", *option_words(**dict(zip(("q", "k", "v", "do"), arrays)))]
    refused(4, *words, *OUTPUTS[:-1], says="--dv is missing")
    refused(4, *words, *OUTPUTS, "--o", "o.npy", says="run: ")
    refused(4, *words, *OUTPUTS, "--dsinks", "dsinks.npy", says="--sinks is missing")
    refused(4, *words, *OUTPUTS, "--dbias", "dbias.npy", says="--bias is missing")
    refused(3, *words, *OUTPUTS, says="no variant of this stage does this backward")
    save("do.npy", arrays[3][..., :3])
    refused(4, *words, *OUTPUTS, says="--do: do.npy: is [4, 5, 3]; give [heads_q, seqlen_q, "
                                      "head_dim_v] = [4, 5, 6]")
