"""test_python_torch.py: the Python package as PyTorch's users meet it, on the CPU: repeated calls,
torch.compile, autocast, threads, and the models of transformers."""
import pathlib
import re
import sys
import sysconfig

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import helpers  # noqa: E402
from five_steps_here import five_steps  # noqa: E402
from helpers import compare, normal  # noqa: E402

SUMS_Q, SUMS_K = (torch.tensor(a, dtype=torch.int32) for a in ([0, 3, 3, 12], [0, 5, 7, 20]))


def tensors(*shapes, seed=1):
    return [torch.from_numpy(normal(*shape, seed=seed + i)) for i, shape in enumerate(shapes)]


def problem(seed=1):
    return tensors((2, 4, 9, 16), (2, 4, 13, 16), (2, 4, 13, 16), seed=seed)


def test_a_view_of_other_sign_has_its_sign():
    """z.conj().imag has the memory of z.imag, which was taken as it lies."""
    q, k, v = problem()
    other = torch._neg_view(v)
    assert (five_steps.attention(q, k, other) == five_steps.attention(q, k, -v)).all()
    assert (five_steps.softmax(other) == five_steps.softmax(-v)).all()
    assert (five_steps.decode(q[:, :, 0], k, other, None, 5) == five_steps.decode(q[:, :, 0], k, -v, None, 5)).all()


# --- Calls that repeat. ---

def both_ways(monkeypatch, function, *arrays, **options):
    """The quick way is taken, and gives what the general way gives."""
    from five_steps import operations, quick, torch_operations
    if quick._tensors is None:
        pytest.skip("the package's extension was not built, or PyTorch is older than 2.10")
    with monkeypatch.context() as change:
        change.setattr(quick, "_tensors", None)
        general = getattr(five_steps, function)(*arrays, return_lse=True, **options)
    with monkeypatch.context() as change:
        change.setattr(operations, "decode_call", None)
        for name in ("attention_call", "decode_call"):
            change.setattr(torch_operations, name, None)
        quickly = getattr(five_steps, function)(*arrays, return_lse=True, **options)
        assert torch.equal(quickly[0], getattr(five_steps, function)(*arrays, **options))
    for mine, want in zip(quickly, general):
        assert mine.shape == want.shape and mine.dtype == want.dtype
        torch.testing.assert_close(mine, want)


@pytest.mark.parametrize("options", [
    {}, {"causal": True, "scale": 0.3}, {"window": [3, 1], "softcap": 2.0}, {"layout": "blhd"},
    {"sinks": torch.randn(4)}, {"sinks": torch.randn(4), "layout": "blhd"},
    *({"bias": torch.randn(shape)} for shape in ((9, 13), (4, 9, 13), (1, 4, 1, 13), (1, 13))),
    *({"bias": torch.rand(shape) > 0.3} for shape in ((9, 13), (2, 1, 1, 13))),
    {"bias": torch.randn(2, 4, 9, 20)[..., :13]},
    {"cu_seqlens_q": SUMS_Q, "cu_seqlens_k": SUMS_K, "max_seqlen_q": 9, "max_seqlen_k": 13}], ids=list)
def test_plain_calls_take_the_quick_way(monkeypatch, options):
    q, k, v = problem()
    if "layout" in options:
        q, k, v = (torch.randn(2, 9, 3, 4, 16)[:, :, i] for i in range(3))
    if "cu_seqlens_q" in options:
        q, k, v = tensors((12, 4, 8), (20, 2, 8), (20, 2, 8))
    both_ways(monkeypatch, "attention", q, k, v[..., :5], **options)
    both_ways(monkeypatch, "attention", *(a.bfloat16() for a in (q, k, v)), **options)
    if not options:
        both_ways(monkeypatch, "attention", q[0, 0], k[0, 0], v[0, 0])
        both_ways(monkeypatch, "attention", q, k[:, :2], v[:, :2])


@pytest.mark.parametrize("changed", [(r'VERSION "', 'VERSION "9.'), (r"\n.*\*q_scale;.*", "")])
def test_an_extension_of_another_header_is_left_aside_with_a_word(tmp_path, changed):
    """Beside a library whose problem is longer it would leave the last fields as they are."""
    if not (helpers.BUILD / "five_steps_tensors.abi3.so").exists():
        pytest.skip("built without Python.h")
    room, package = helpers.ROOT / "common/products/library", pathlib.Path(five_steps.__file__).parent
    (tmp_path / "five_steps.h").write_text(re.sub(*changed, (room / "five_steps.h").read_text()))
    (tmp_path / "libfive_steps.so").symlink_to(helpers.BUILD / "libfive_steps.so")
    (tmp_path / "python").mkdir()
    (tmp_path / "python/tensors.c").write_text((room / "python/tensors.c").read_text())
    helpers.run("cc", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", tmp_path / "python/tensors.c", "-o",
                tmp_path / "five_steps_tensors.abi3.so")
    result = helpers.run(sys.executable, "-c", "import torch, five_steps; a = torch.ones(1, 1, 2, 8); "
                         "print(five_steps.attention(a, a, a).sum().item())", env={
                             "PYTHONPATH": str(package.parent), "FIVE_STEPS_LIBRARY": str(tmp_path / "libfive_steps.so")})
    assert result.out.strip() == "16.0" and "five_steps_tensors.abi3.so is not used" in result.err, result


@pytest.mark.parametrize("queries", [0, 2])
def test_decoding_takes_the_quick_way(monkeypatch, queries):
    """One number of keys and one for each sequence; a padded cache and pages."""
    q, cache = torch.randn(3, *[queries] * bool(queries), 4, 8), tensors((3, 20, 2, 8), (3, 20, 2, 8))
    pools, table = tensors((15, 2, 4, 8), (15, 2, 4, 8)), torch.randperm(15).int().reshape(3, 5)
    for keys in (7, torch.tensor([2, 20, 9]).int()):
        both_ways(monkeypatch, "decode", q, *(a.transpose(1, 2) for a in cache), None, keys)
        both_ways(monkeypatch, "decode", q, *cache, None, keys, layout="pages_first", window=4)
        both_ways(monkeypatch, "decode", q, *pools, table, keys, sinks=torch.randn(4), scale=0.2)
        for codes in (torch.int8, torch.float8_e4m3fn):
            both_ways(monkeypatch, "decode", q, *((8 * a).to(codes) for a in pools), table, keys,
                      k_scale=torch.rand(3, 2), v_scale=torch.rand(3, 2))


def test_what_looks_like_an_earlier_call_may_be_refused():
    """Its options are known already; its shapes are checked still."""
    q, k, v = tensors((1, 2, 4, 8), (1, 4, 13, 8), (1, 4, 13, 8))
    five_steps.decode(q, k, v, None, 5)
    for keys in (14, 2 ** 64 - 1, 2 ** 64):
        with pytest.raises(five_steps.FiveStepsError, match="hold 13 keys"):
            five_steps.decode(q, k, v, None, keys)
    with pytest.raises(five_steps.FiveStepsError, match="give q"):
        five_steps.decode(q, k[0], v[0], None, 5)

    a, sums = torch.randn(2, 4, 2, 8), torch.tensor([0, 2, 4]).int()
    packed = {"cu_seqlens_q": sums, "cu_seqlens_k": sums, "max_seqlen_q": 2, "max_seqlen_k": 2}
    five_steps.attention(a[0], a[0], a[0], **packed)
    with pytest.raises(five_steps.FiveStepsError, match="packed arrays"):
        five_steps.attention(a, a, a, **packed)
    with pytest.raises(five_steps.FiveStepsError, match="bias"):
        five_steps.attention(a[0], a[0], a[0], bias=torch.zeros(4, 4), **packed)
    with pytest.raises(five_steps.FiveStepsError, match="cu_seqlens_q is"):
        two = torch.tensor([[0, 4], [0, 4]]).int()
        five_steps.attention(a[0], a[0], a[0], cu_seqlens_q=two, cu_seqlens_k=two, max_seqlen_q=4,
                             max_seqlen_k=4)


def test_a_call_that_looks_like_an_earlier_one():
    """It takes its own arrays and options: a scale in a tensor that is written to, a window in a list, a
    bias of other values; and lse where it asks for it."""
    scale, bias = torch.tensor(1.0), torch.zeros(9, 13)
    for seed, value in enumerate((0.5, 0.1)):
        q, k, v = problem(seed)
        scale.fill_(value)
        bias.normal_()
        for window in ([2, 0], [4, 1]):
            options = {"scale": scale, "window": window, "bias": bias}
            want, want_lse = helpers.attention(q, k, v, **options | {"scale": value, "bias": bias.numpy()})
            o, lse = five_steps.attention(q, k, v, return_lse=True, **options)
            compare(o, want, 2e-6)
            compare(lse, want_lse, 2e-6)
            assert torch.equal(o, five_steps.attention(q, k, v, **options))


# --- PyTorch around it. ---

def test_rows_that_no_gpu_takes_are_copied(monkeypatch):
    """Widths that are no multiple of 16 bytes gave a bare TypeError."""
    def of_a_gpu(a):
        steps = list(a.stride())
        return steps if all(s % 4 == 0 for s, n in zip(steps[:-1], a.shape) if n > 1) else None
    from five_steps import quick
    monkeypatch.setattr(quick, "_tensors", None)
    monkeypatch.setattr(five_steps.arrays.Torch, "strides", staticmethod(of_a_gpu))
    rows, one = torch.randn(2, 9, 4, 6), torch.randn(6).expand(2, 4, 9, 6)
    for q, k in ((rows.transpose(1, 2), one), (one, rows.transpose(1, 2)), (one, one)):
        compare(five_steps.attention(q, k, k), helpers.attention(q.numpy(), k.numpy(), k.numpy())[0], 2e-6)


def test_autocast_is_honoured():
    """As PyTorch's own attention: q, k and v are cast."""
    q, k, v = problem()
    with torch.autocast("cpu", torch.bfloat16):
        o = five_steps.attention(q, k, v)
    assert o.dtype == torch.bfloat16
    assert torch.equal(o, five_steps.attention(*(a.bfloat16() for a in (q, k, v))))


def test_compiled_without_a_graph_break():
    """torch.compile of a function that calls the operators."""
    def f(q, k, v):
        o, lse = five_steps.attention(2 * q, k, v, causal=True, window=(3, 0), softcap=5.0, return_lse=True)
        turned = five_steps.attention(*(a.transpose(1, 2) for a in (q, k, v)), layout="blhd",
                                      sinks=q[0, :, 0, 0])
        o = o + turned.transpose(1, 2)
        o = o + five_steps.decode(q[:, :, 0], k, v, None, 4)[:, :, None]
        return five_steps.softmax(o, 1) + lse[..., None]
    arrays = tensors((1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    with torch.no_grad():
        got = torch.compile(f, fullgraph=True, backend="eager")(*arrays)
        assert torch.equal(got, f(*arrays))


# --- transformers. ---

SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
         "max_position_embeddings": 128}
MODELS = {"llama": ("LlamaConfig", {}),
          "mistral": ("MistralConfig", {"sliding_window": 5}),
          "gemma2": ("Gemma2Config", {"sliding_window": 6, "attn_logit_softcapping": 3.0}),
          "gpt_oss": ("GptOssConfig", {"sliding_window": 7, "num_local_experts": 2,
                                       "num_experts_per_tok": 1})}


def model_of(name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import five_steps.transformers  # noqa: F401
    kind, more = MODELS[name]
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**SMALL, **more)).eval()


def tokens_of(padded):
    """Two texts, and where they are none."""
    torch.manual_seed(2)
    tokens = torch.randint(1, 97, (2, 12))
    seen = torch.ones_like(tokens)
    if padded:
        seen[0, :5], tokens[0, :5] = 0, 0
    return tokens, seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
def test_models_of_transformers_agree_with_eager(name, padded):
    """Prefill with and without padding, then decoding from the cache, then a static cache."""
    model, (tokens, seen), results = model_of(name), tokens_of(padded), {}
    for way in ("eager", "five_steps"):
        model.set_attn_implementation(way)
        with torch.no_grad():
            logits = model(tokens, attention_mask=seen).logits[seen.bool()]
            text = [model.generate(tokens, attention_mask=seen, max_new_tokens=9, do_sample=False, **cache)
                    for cache in ({}, {"cache_implementation": "static"})]
        results[way] = logits, *text
    compare(results["five_steps"][0], results["eager"][0].numpy(), 1e-4, what="logits")
    for mine, eager in zip(results["five_steps"][1:], results["eager"][1:]):
        assert torch.equal(mine, eager)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
def test_a_training_step_of_transformers_agrees_with_eager(name, padded):
    """The gradient of every weight, sinks included.  No token is predicted from the padding."""
    model, (tokens, seen), results = model_of(name).train(), tokens_of(padded), {}
    labels = tokens.masked_fill((seen == 0) | (seen.roll(1, 1) == 0), -100)
    for way in ("eager", "five_steps"):
        model.set_attn_implementation(way)
        model.zero_grad()
        model(tokens, attention_mask=seen, labels=labels, use_cache=False).loss.backward()
        results[way] = {name: a.grad.clone() for name, a in model.named_parameters() if a.grad is not None}
    assert results["eager"].keys() == results["five_steps"].keys()
    for weight, want in results["eager"].items():
        compare(results["five_steps"][weight], want.numpy(), 1e-4, what=weight)


def test_the_model_learns_and_writes_as_with_pytorch():
    result = helpers.run(sys.executable, helpers.ROOT / "common/products/library/models/train.py", "--steps", 12,
                         "--write", 60)
    assert "in the first 10 steps" in result.out and "same text: The softmax" in result.out, result
