"""test_python_defects.py: what users of the Python package ran into, one test each."""
import ast
import doctest
import inspect
import pathlib
import pickle

import numpy as np
import pytest

from five_steps_here import KINDS, WITH_TORCH, five_steps, given, taken, torch
from helpers import normal

PACKAGE = pathlib.Path(five_steps.__file__).parent
refused = five_steps.FiveStepsError


def test_out_that_is_read_only_is_refused():
    """It was a segmentation fault, or constants that changed."""
    q = normal(2, 3, 8)
    out = np.frombuffer(bytes(q.nbytes), "f4").reshape(q.shape)
    with pytest.raises(refused, match="read-only"):
        five_steps.attention(q, q, q, out=out)
    assert not out.any()


def test_new_keys_are_checked_before_any_is_written():
    """Page -1 was another sequence's."""
    new, table = normal(2, 1, 2, 8), np.array([[0], [-1]])
    for at in (-1, 3):
        table[1] = at
        pools = [np.zeros((3, 2, 4, 8), "f4") for _ in "kv"]
        with pytest.raises(refused, match="page_table has page"):
            five_steps.decode(new[:, 0], *pools, table, 1, k_new=new, v_new=new)
        assert not any(pool.any() for pool in pools)


@WITH_TORCH
def test_what_only_a_gpu_knows_is_not_the_last(monkeypatch):
    """Where the host looks at no numbers, PyTorch stops at page n_pages, but took -1 for the last, and length -1
    for the last row of the table's last page."""
    monkeypatch.setattr(five_steps.arrays.Torch, "knows", lambda self, a: False)
    new, pools = torch.ones(2, 1, 2, 8), [torch.zeros(3, 2, 4, 8) for _ in "kv"]
    for at, length in ((-1, 1), (3, 1), (2, -1), (2, -4), (2, 4)):
        for dtype in (torch.int64, torch.int32):
            numbers = torch.tensor([1, length], dtype=dtype)
            with pytest.raises(IndexError, match="index [0-9]+ is out of bounds"):
                five_steps.append(new, new, *pools, torch.tensor([[0], [at]], dtype=dtype), numbers)
    assert not any(pool[1:].any() for pool in pools)
    assert five_steps.append(new, new, *pools, torch.tensor([[0], [2]]), 1) == 2 and pools[1][2, :, 1].all()


@pytest.mark.parametrize("kind", KINDS)
def test_append_takes_integers_of_any_size(kind):
    """PyTorch takes no index of 8 or 16 bits; page 2 in uint8 was a mask."""
    new = given(kind, normal(2, 1, 2, 8))
    for of_table, of_length in (("u1", "u1"), ("i1", "i2"), ("i2", "i8"), ("i4", "i4"), ("i8", "i1")):
        pools = [given(kind, np.zeros((3, 2, 4, 8), "f4")) for _ in "kv"]
        table, lengths = np.array([[0], [2]], of_table), np.array([0, 1], of_length)
        after = five_steps.append(new, new, *pools, given(kind, table), given(kind, lengths))
        assert taken(after).tolist() == [1, 2] and taken(pools[1])[2, :, 1].all()


def test_append_checks_what_it_is_given():
    pools, table = [np.zeros((3, 4, 8, 8), "f4") for _ in "kv"], np.array([[0], [1]])
    new, one = normal(2, 1, 4, 8), normal(2, 1, 1, 8)
    for arrays, options, words in (((new, new), {"layout": "pages_frist"}, "layout is"),
                                   ((one, one), {}, "k_new is"), ((new, one), {}, "v_new is")):
        with pytest.raises(refused, match=words):
            five_steps.append(*arrays, *pools, table, 1, **options)
    for wrong in (np.array([0, 1]), np.array([[0]]), np.array([[0.0], [1.0]])):
        with pytest.raises(refused, match=r"page_table is .*; give int32 \[batch, pages of one\]"):
            five_steps.append(new, new, *pools, wrong, 1)
        with pytest.raises(refused, match=r"page_table is .*; give int32 \[batch, pages of one\]"):
            five_steps.decode(new[:, 0], *pools, wrong, 1)
    for wrong in (np.array([1]), np.array([1.0, 2.0]), 1.5, "1", -1):
        with pytest.raises(refused, match="seqlen_k is"):
            five_steps.append(new, new, *pools, table, wrong)
    pools = [np.zeros((2, 4, 300, 8), "f4") for _ in "kv"]
    after = five_steps.append(new, new, *pools, table, np.array([255, 3], "u1"))
    assert after.tolist() == [256, 4] and pools[0][0, :, 255].all() and not pools[0][0, :, 0].any()


def test_examples_of_the_docstrings_run():
    from five_steps import operations
    for name in five_steps.__all__:
        function = getattr(operations, name, None)
        if not inspect.isfunction(function) or name.startswith("scaled") and torch is None:
            continue
        found, = doctest.DocTestFinder(recurse=False).find(
            function, name, globs={"five_steps": five_steps, "numpy": np})
        assert found.examples, name
        assert not doctest.DocTestRunner().run(found).failed, name


def test_the_stub_has_the_parameters_of_the_functions():
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            real = inspect.signature(getattr(five_steps, node.name)).parameters
            assert [a.arg for a in (*node.args.args, *node.args.kwonlyargs)] == [*real], node.name


def test_an_error_of_the_library_can_be_pickled():
    error = pickle.loads(pickle.dumps(five_steps.LibraryError(4, "no GPU")))
    assert (error.code, str(error)) == (4, "no GPU")


def test_the_package_says_what_it_was_built_with():
    assert five_steps.c_library.library().built_with in five_steps.built_with()


@WITH_TORCH
def test_a_derivative_notices_that_out_was_written():
    """It was silently the gradient of another function."""
    q = torch.randn(2, 4, 8)
    out = torch.randn(2, 4, 8)
    leaf = torch.ones(2, 4, 8, requires_grad=True)
    product = leaf * out
    with torch.no_grad():
        five_steps.attention(q, q, q, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@WITH_TORCH
def test_a_scale_in_a_tensor_has_its_gradient():
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().float().unbind()
    scale = torch.tensor(0.3, requires_grad=True)
    got, = torch.autograd.grad(five_steps.attention(q, k, v, scale=scale).square().sum(), scale)
    o = torch.nn.functional.scaled_dot_product_attention(q * scale, k, v, scale=1.0)
    torch.testing.assert_close(got, torch.autograd.grad(o.square().sum(), scale)[0], rtol=1e-4, atol=1e-5)


@WITH_TORCH
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_batched_or_nested_is_refused_by_name():
    """PyTorch's internal errors came through."""
    q = torch.randn(1, 3, 8, requires_grad=True)
    with pytest.raises(refused, match="is_grads_batched"):
        torch.autograd.grad(five_steps.attention(q, q, q), q, torch.ones(2, 1, 3, 8), is_grads_batched=True)
    with pytest.raises(refused, match="q is a nested tensor"):
        five_steps.attention(torch.nested.nested_tensor([q[0]]), q, q)


@WITH_TORCH
def test_a_window_is_whole_also_the_second_time():
    q = torch.randn(1, 3, 8)
    for _ in range(2):
        five_steps.attention(q, q, q, window=(1, 1))
        with pytest.raises(refused, match="window is .*1.0"):
            five_steps.attention(q, q, q, window=(np.float64(1), 1))
    with pytest.raises(refused, match="window is .*1.0"):
        five_steps.decode(q, q[:, None], q[:, None], None, 1, window=1.0)
