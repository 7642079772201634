"""test_python_dot_product.py: PyTorch's signature, the gradient of a bias, and dropout, beside PyTorch's
own function and the definition; and the models that need them."""
import numpy
import pytest

from five_steps_here import EVERYWHERE, WITH_TORCH, five_steps, torch

pytestmark = WITH_TORCH
devices = pytest.mark.parametrize("device", [name for name in EVERYWHERE if name == "cuda"] + ["cpu"])
if torch:
    R, PEER, OURS = torch.randn, torch.nn.functional.scaled_dot_product_attention, (
        five_steps.scaled_dot_product_attention)
    SHAPES = {
        "causal, few queries": ([R(2, 4, 5, 8), R(2, 4, 7, 8), R(2, 4, 7, 8)], {"is_causal": True}),
        "causal, few keys": ([R(2, 4, 7, 8), R(2, 4, 5, 8), R(2, 4, 5, 8)], {"is_causal": True}),
        "no heads": ([R(5, 8), R(7, 8), R(7, 3)], {}),
        "no batch": ([R(3, 5, 8), R(3, 7, 8), R(3, 7, 8)], {"scale": 0.3}),
        "five dimensions": ([R(3, 2, 4, 5, 8), R(3, 2, 4, 7, 8), R(3, 2, 4, 7, 8), torch.rand(5, 7) > .3], {}),
        "and a mask of five": ([R(3, 2, 4, 5, 8), R(3, 2, 4, 7, 8), R(3, 2, 4, 7, 8), R(3, 1, 1, 5, 7)], {}),
        "broadcast": ([R(1, 4, 5, 8), R(2, 1, 7, 8), R(2, 4, 7, 8), R(4, 5, 7)], {}),
        "one bias for all batches": ([R(2, 4, 5, 8), R(2, 4, 7, 8), R(2, 4, 7, 8), R(1, 4, 5, 7)], {}),
        "groups": ([R(2, 4, 5, 8), R(2, 2, 7, 8), R(2, 2, 7, 8), R(2, 1, 1, 7)], {"enable_gqa": True})}
    MASKS = {"none": (False, None), "causal": (True, None), "bias": (False, R(4, 21, 21)),
             "booleans": (False, (torch.rand(21, 21) > 0.4) | torch.eye(21).bool())}
else:
    SHAPES = MASKS = {}


def agree(mine, want):
    for a, b in zip(mine, want):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@devices
@pytest.mark.parametrize("name", SHAPES)
def test_it_is_pytorchs_function(name, device):
    """And so are the gradients, that of a mask of numbers too."""
    arrays, options = SHAPES[name]
    arrays = [a.to(device).requires_grad_(a.is_floating_point()) for a in arrays]
    results = []
    for function in (OURS, PEER):
        o = function(*arrays, **options)
        results.append((o, *torch.autograd.grad(o.square().sum(), [a for a in arrays if a.requires_grad])))
    agree(*results)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (2, 1)}, {"softcap": 2.0},
                                     {"layout": "blhd"}, {"sinks": [0.5, 1.0]}], ids=str)
def test_a_bias_has_its_gradient_with_every_option(options):
    """Against the gradient of the definition, whose bias is added to q's product with more columns."""
    if "sinks" in options:
        options = {"sinks": torch.tensor(options["sinks"])}
    q, k, v = R(2, 2, 5, 8), R(2, 2, 5, 8), R(2, 2, 5, 8)
    bias, d_o = R(2, 5, 5, requires_grad=True), R(2, 2, 5, 8)

    def loss(b):
        o, lse = five_steps.attention(q, k, v, bias=b, return_lse=True, **options)
        return (o * d_o).sum() + lse.square().sum()
    if "layout" in options:
        q, k, v, d_o = (a.transpose(1, 2) for a in (q, k, v, d_o))
    got, = torch.autograd.grad(loss(bias), bias)
    with torch.no_grad():
        for at in ((0, 0, 0), (1, 4, 2), (0, 3, 4), (1, 2, 1)):
            apart = torch.zeros_like(bias)
            apart[at] = 0.02
            want = (loss(bias + apart) - loss(bias - apart)) / 0.04
            torch.testing.assert_close(got[at], want, rtol=0.02, atol=0.005)


def kept(seed, p, heads, rows, keys):
    """[heads, rows, keys]: is the weight kept?  Philox4x32-10, whose four numbers belong to a pair and to those
    8 queries or 8 keys on."""
    h, i, j = (a.astype(numpy.uint64) for a in numpy.indices((heads, rows, keys)))
    low, u = numpy.uint64(2 ** 32 - 1), numpy.uint64
    x = [i // u(16) * u(8) + i % u(8), j // u(16) * u(8) + j % u(8), h, h * u(0)]
    for r in range(10):
        keys_of = [u(seed % 2 ** 32 + r * 0x9e3779b9) & low, u(seed // 2 ** 32 + r * 0xbb67ae85) & low]
        a, b = u(0xd2511f53) * x[0], u(0xcd9e8d57) * x[2]
        x = [(b >> u(32)) ^ x[1] ^ keys_of[0], b & low, (a >> u(32)) ^ x[3] ^ keys_of[1], a & low]
    number = numpy.choose((i // u(8) % u(2) * u(2) + j // u(8) % u(2)).astype(int), x)
    return torch.from_numpy(number >= int(numpy.float32(p) * 2.0 ** 32))


@devices
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("seed", [5, 2 ** 45 + 3])
def test_dropout_is_the_definitions(name, seed, device):
    """The same weights are dropped in the backward pass; the gradient of a bias knows it too."""
    causal, mask = MASKS[name]
    mask = mask if mask is None else mask.detach().to(device)
    leaves = [R(2, 4, 21, 8, device=device, requires_grad=True) for _ in "qkv"]
    arrays = [*leaves, mask]
    if name == "bias":
        leaves.append(mask.requires_grad_())
    keep = kept(seed, 0.3, 8, 21, 21).reshape(2, 4, 21, 21).to(device)
    s = leaves[0] @ leaves[1].transpose(-1, -2) / 8**0.5
    if causal:
        s = s.masked_fill(~torch.ones(21, 21, device=device).tril().bool(), -torch.inf)
    if mask is not None:
        s = s + (mask if name == "bias" else torch.where(mask, 0, -torch.inf))
    want = (torch.nan_to_num(torch.softmax(s, -1)) * keep / 0.7) @ leaves[2]
    got, d_o = OURS(*arrays, 0.3, causal, seed=seed), R(2, 4, 21, 8, device=device)
    agree([got, *torch.autograd.grad(got, leaves, d_o)], [want, *torch.autograd.grad(want, leaves, d_o)])


def test_dropout_follows_pytorchs_seed_and_drops_what_it_says():
    q, k, v = torch.zeros(1, 8, 64, 8), torch.zeros(1, 8, 64, 8), torch.ones(1, 8, 64, 8)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(OURS(q, k, v, dropout_p=0.25))
    assert torch.equal(*results[:2]) and not torch.equal(*results[1:])
    assert abs(results[0].mean().item() - 1) < 0.02
    assert not OURS(q, k, v, dropout_p=1.0).any()
    for seed in (-1, 2.5, "1"):
        with pytest.raises(five_steps.FiveStepsError, match="seed is"):
            OURS(q, k, v, dropout_p=0.25, seed=seed)


def test_neighbouring_seeds_drop_other_weights():
    """Rows of neighbouring seeds, heads and queries.  Seeds up to 2^200 are seeds."""
    q, k, v = torch.zeros(8, 8, 8, 8), torch.zeros(8, 8, 64, 8), torch.eye(64).expand(8, 8, 64, 64)
    kept_of = [OURS(q, k, v, dropout_p=0.5, seed=seed) > 0 for seed in (7, 8, 2 ** 200)]
    rows = [row[:, :, i].flatten() for row in kept_of for i in range(8)]
    agreement = [(a == b).float().mean().item() for n, a in enumerate(rows) for b in rows[:n]]
    assert max(agreement) < 0.6, "4096 weights, kept or dropped by fair coins"


@pytest.mark.parametrize("words, given", [
    ("attn_mask and is_causal", {"attn_mask": 1, "is_causal": True}), ("dropout_p is 2.0", {"dropout_p": 2.0})])
def test_what_cannot_be_is_refused(words, given):
    q = R(1, 2, 3, 8)
    if "attn_mask" in given:
        given = given | {"attn_mask": torch.ones(3, 3)}
    with pytest.raises(five_steps.FiveStepsError, match=words):
        OURS(q, q, q, **given)
