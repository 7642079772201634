"""test_python_checks.py: all is checked before anything is written; what has no gradient says so; and
what torch.compile and the FLOP counter see of decode and dropout."""
import sys

import numpy as np
import pytest

from five_steps_here import KINDS, WITH_TORCH, five_steps, given, taken, torch
from helpers import normal, run

refused = five_steps.FiveStepsError
NEW, TABLE = normal(2, 1, 2, 8), np.array([[0], [1]])


def pools_of(kind):
    """Pages of 4 keys, all 0."""
    return [given(kind, np.zeros((3, 2, 4, 8), "f4")) for _ in "kv"]


@pytest.mark.parametrize("what", ["out read-only", "v_pages read-only", "v_pages", "overlaps the output o"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_by_a_step_that_is_refused(kind, what):
    """decode(k_new=) wrote its keys first; append wrote k before it looked at v."""
    if kind == "torch" and "read-only" in what:
        pytest.skip("PyTorch has no such tensors")
    (k, v), new = pools_of(kind), given(kind, NEW.copy())
    q, table, out = new[:, 0] + 0, given(kind, TABLE), given(kind, np.zeros((2, 2, 8), "f4"))
    if "read-only" in what:
        (out if what.startswith("out") else v).flags.writeable = False
    q = out if "overlaps" in what else q
    v = v[:2] if what == "v_pages" else v
    with pytest.raises(refused, match=what.replace(" read-only", " is read-only|is")):
        five_steps.decode(q, k, v, table, 1, k_new=new, v_new=new, out=out)
    assert not taken(k).any() and not taken(v).any() and not taken(out).any()
    if what.startswith("v_pages r"):
        with pytest.raises(refused, match="v_pages is read-only"):
            five_steps.append(new, new, k, v, table, 1)
        assert not k.any()


@WITH_TORCH
@pytest.mark.parametrize("what", ["scale", "softcap", "k_scale", "v_scale", "sinks", "k_new", "q"])
def test_a_gradient_that_decode_has_not_is_refused(what):
    """That of a scale was lost without a word; that of new keys went into the pages."""
    (k, v), new = pools_of("torch"), torch.from_numpy(NEW)
    q, table, options = new[:, 0] + 0, torch.from_numpy(TABLE), {"k_new": new, "v_new": new}
    leaf = {"k_new": new, "q": q, "sinks": torch.ones(2)}.get(what, torch.tensor([0.5])[0])
    leaf = leaf.clone().requires_grad_()
    if "_scale" in what:
        k, v = k.to(torch.int8), v.to(torch.int8)
        options.update(k_scale=0.5, v_scale=0.5)
    options, q = (options, leaf) if what == "q" else (options | {what: leaf}, q)
    with pytest.raises(refused, match="gradient"):
        five_steps.decode(q, k, v, table, 1, **options)
    assert not k.any() and not v.any()
    with torch.no_grad():
        assert five_steps.decode(q, k, v, table, 1, **options).isfinite().all() and k.any()
    if what == "softcap":
        with pytest.raises(refused, match="softcap has a gradient"):
            five_steps.attention(q, q, q, softcap=leaf)


@WITH_TORCH
def test_decoding_with_new_keys_is_compiled_whole():
    """It looked at the numbers of keys, which broke the graph."""
    new, table = torch.from_numpy(NEW), torch.from_numpy(TABLE)

    def step(k, v, n):
        return five_steps.decode(new[:, 0], k, v, table, n, k_new=new, v_new=new)
    with torch.no_grad():
        for n in (1, torch.tensor([1, 2])):
            pools = pools_of("torch"), pools_of("torch")
            got = torch.compile(step, fullgraph=True, backend="eager")(*pools[0], n)
            torch.testing.assert_close(got, step(*pools[1], n))
            assert all(map(torch.equal, *pools)) and pools[0][0].any()


@WITH_TORCH
def test_transformations_of_functions_are_refused_by_name():
    """append looked at the pages that vmap hid."""
    q, new = torch.randn(3, 2, 4, 8), torch.from_numpy(NEW)
    for transformed, a in ((torch.func.vmap(lambda q: five_steps.attention(q, q, q)), q),
                           (torch.func.vmap(lambda q: five_steps.decode(q[:, 0], q, q, None, 3)), q[:, None]),
                           (torch.func.vmap(lambda a: five_steps.append(a, a, *pools_of("torch"), None, 1)), new[None]),
                           (torch.func.grad(lambda q: five_steps.softmax(q).sum()), q)):
        with pytest.raises(refused, match="torch.func"):
            transformed(a)


@WITH_TORCH
def test_dropout_is_compiled_whole():
    """The same weights are dropped, forward and backward; without a seed others in each call."""
    leaves = [torch.randn(1, 2, 6, 8, requires_grad=True) for _ in "qkv"]
    bias = torch.randn(2, 6, 6, requires_grad=True)

    def f(*arrays):
        return five_steps.scaled_dot_product_attention(*arrays, bias, dropout_p=0.5, seed=7)
    results = [torch.autograd.grad(g(*leaves).square().sum(), (*leaves, bias))
               for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager"))]
    for mine, want in zip(*results):
        torch.testing.assert_close(mine, want)
    g = torch.compile(lambda q, k, v: five_steps.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
                      fullgraph=True, backend="aot_eager")
    drawn = [torch.manual_seed(seed) and g(*leaves) for seed in (1, 1)] + [g(*leaves)]
    assert torch.equal(*drawn[:2]) and not torch.equal(*drawn[1:])


@WITH_TORCH
def test_flops_of_packed_sequences_and_of_decode_are_counted():
    """Packed sequences counted as one long one, and decode as nothing."""
    from torch.utils.flop_counter import FlopCounterMode
    sums = torch.tensor([0, 3, 8], dtype=torch.int32)
    q, cache = torch.randn(8, 4, 16, requires_grad=True), torch.randn(2, 2, 20, 16)

    def packed():
        five_steps.attention(q, q[:, :2], q[:, :2, :8], cu_seqlens_q=sums, cu_seqlens_k=sums).sum().backward()
    with torch.no_grad():
        steps = [lambda n=n: five_steps.decode(q[:4].reshape(2, 2, 4, 16), cache, cache, None, n)
                 for n in (7, torch.tensor([5, 9]))]
    pairs = 4 * (3 * 3 + 5 * 5)
    for function, want in ((packed, 2 * pairs * (16 + 8) + 2 * pairs * (3 * 16 + 2 * 8)),
                           *((step, 2 * 4 * 2 * 14 * 32) for step in steps)):
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(function is packed):
            function()
        assert counter.get_total_flops() == want


@WITH_TORCH
def test_a_backward_pass_needs_little_memory():
    """It had 211 MB beside q, k, v, o and d_o; the three gradients are 25 MB of these."""
    code = """if 1:
        import re, sys, torch
        sys.path.insert(0, sys.argv[1])
        import five_steps
        def status(name):
            return int(re.search(name + r":\\s*(\\d+)", open("/proc/self/status").read())[1])
        def backward(n):
            q, k, v = torch.zeros(3, 1, 8, n, 64).unbind()
            o = five_steps.attention(*(a.requires_grad_() for a in (q, k, v)))
            d_o, before = torch.ones_like(o), status("VmRSS")
            open("/proc/self/clear_refs", "w").write("5")  # VmHWM starts again
            torch.autograd.grad(o, (q, k, v), d_o)
            return status("VmHWM") - before
        backward(64)
        print(backward(4096))"""
    package = str(five_steps.__path__[0]).removesuffix("five_steps")
    done = run(sys.executable, "-c", code, package)
    assert 25_000 < int(done.out) < 80_000, f"{done.out} kB"
