#!/usr/bin/env python3
"""calls.py: what calls of the Python package take, a CSV file for each part.

    python3 common/products/reports/calls.py training --csv notes/results/hopper/training.csv
    python3 common/products/reports/calls.py same_bits --csv notes/results/hopper/same_bits.csv
    python3 common/products/reports/calls.py cache --csv notes/results/hopper/cache.csv
    python3 common/products/reports/calls.py same_bits --device cpu --csv notes/results/library/same_bits.csv

training   beside PyTorch's attention: the time of the host until a call returns, while the device's queue
           never fills; until forward and backward pass are done, with dropout and with the gradient of a
           bias; a training step of a bf16 decoder of 12 layers, 768 wide, 12 heads, beside the fastest of
           PyTorch's kernels, its blocks compiled or not (on a CPU a small model).  The least of several blocks.
same_bits  the price of `invariant` and `deterministic`: a call without and with the promise
cache      a step of decoding with keys and values in bfloat16, in e4m3 and in int8
           Of both: medians of up to 20 calls in turn, on a GPU by events, each after a flush of the L2 cache.

Exit status: 0; 77 without PyTorch or a GPU.
"""
import functools
import os
import random
import sys
import types

from measurements import commit_here, cpu_name, now
from peers_run import Run
from rounds import CpuClock, cold, one_attempt

HEADS = 32, 8


class Here(Run):
    """PyTorch, the package and the device."""

    gpu = property(lambda self: self.device == "cuda")

    @property
    def measured(self):
        machine = self.torch.cuda.get_device_name() if self.gpu else cpu_name()
        return f"{machine}; torch {self.torch.__version__}; commit {commit_here()}; {now()[:10]}"

    def tensor(self, *shape, dtype=None):
        return self.torch.randn(shape, device=self.device, dtype=dtype or self.torch.bfloat16)

    def leaves(self, *shape):
        return [self.tensor(*shape).requires_grad_() for _ in "qkv"]

    def medians(self, calls):
        """Microseconds of each call."""
        return [1e6 * t.median for t in cold(self.clock, calls, 1.0).values()]

    def least(self, calls, repeats, blocks, wait=False):
        """Microseconds per call of each, in turn.  wait: until the device is done."""
        done = self.torch.cuda.synchronize if self.gpu else CpuClock.wait

        def record():
            if wait:
                done()
            return CpuClock.record()
        host = types.SimpleNamespace(flush=done, record=record, wait=done, seconds=CpuClock.seconds)
        times = one_attempt(host, calls, blocks, repeats, True, random.Random(1))
        return {name: 1e6 * min(each) for name, each in times.items()}


# --- Training ---

def beside_pytorch(what, case, times):
    """The cells of a line; of PyTorch's kernels the fastest."""
    print(what, case, {name: round(t, 1) for name, t in times.items()}, flush=True)
    ours = times.pop("ours")
    best = min(times.values())
    return what, case, f"{ours:.1f}", f"{best:.1f}", f"{best / ours:.2f}"


def attentions(here):
    """Attention of [batch, heads, length, d] by name: ours, and each of PyTorch's kernels."""
    torch = here.torch
    sdpa, kernels = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention.SDPBackend
    found = {"ours": lambda q, k, v: here.five_steps.attention(q, k, v, causal=True),
             "default": lambda q, k, v: sdpa(q, k, v, is_causal=True)}
    if here.gpu:
        def only(kernel, q, k, v):
            with torch.nn.attention.sdpa_kernel(kernel):
                return sdpa(q, k, v, is_causal=True)
        for kernel in (kernels.CUDNN_ATTENTION, kernels.FLASH_ATTENTION):
            found[kernel.name] = functools.partial(only, kernel)
    return found


def host(here):
    """The calls of a model."""
    torch, tensor = here.torch, here.tensor
    leaves = here.leaves(1, 4, 64, 64)
    d_o, mask = tensor(1, 4, 64, 64), torch.rand(64, 64, device=here.device) > 0.3
    plain = [a.detach() for a in leaves]
    q, cache = tensor(8, 16, 128), [tensor(8, 16, 1024, 128) for _ in "kv"]
    lengths = torch.full((8,), 1000, dtype=torch.int32, device=here.device)
    seen = (torch.arange(1024, device=here.device) < 1000).expand(8, 1, 1, 1024)
    ours, theirs = here.five_steps.attention, torch.nn.functional.scaled_dot_product_attention
    small = "1 x 4 heads x 64 x 64; d = 64"
    results = [f(*leaves) for f in (ours, theirs)]
    for what, case, *pair in (
            ("forward with gradient", small, lambda: ours(*leaves), lambda: theirs(*leaves)),
            ("forward", small, lambda: ours(*plain), lambda: theirs(*plain)),
            ("forward with a mask", small, lambda: ours(*plain, bias=mask),
             lambda: theirs(*plain, attn_mask=mask)),
            ("decode", "8 x 16 heads x 1000 keys; d = 128",
             lambda: here.five_steps.decode(q, *cache, None, lengths, max_seqlen_k=1000),
             lambda: theirs(q[:, :, None], *cache, attn_mask=seen)),
            ("backward", small, *(functools.partial(torch.autograd.grad, o, leaves, d_o, retain_graph=True)
                                  for o in results))):
        yield beside_pytorch(what, case, here.least(dict(zip(("ours", "default"), pair)), 200, 9))


def dot_products(here):
    """Forward and backward pass of PyTorch's function and ours, until they are done."""
    torch, n = here.torch, 1024 if here.gpu else 128
    leaves, d_o = here.leaves(4, 12, n, 64), here.tensor(4, 12, n, 64)
    bias = here.tensor(1, 12, n, n).requires_grad_()
    for what, inputs, known in (("dropout 0.1; causal", leaves, {"dropout_p": 0.1, "is_causal": True}),
                                ("gradient of a bias", [*leaves, bias], {"attn_mask": bias})):
        calls = {name: lambda f=f, inputs=inputs, known=known: torch.autograd.grad(
            f(*leaves, **known), inputs, d_o) for name, f in (
                ("ours", here.five_steps.scaled_dot_product_attention),
                ("default", torch.nn.functional.scaled_dot_product_attention))}
        for call in calls.values():
            call()
        yield beside_pytorch(what, f"4 x 12 heads x {n} x {n}; d = 64", here.least(calls, 5, 7, True))


def model(torch, attend, layers, width, heads):
    """A decoder's blocks."""
    nn = torch.nn

    class Block(nn.Module):
        """Attention, then two layers."""

        def __init__(self):
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            """x [batch, length, width]."""
            qkv = self.qkv(self.norm(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.o(attend(*qkv.unbind(0)).transpose(1, 2).flatten(-2))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
    return nn.Sequential(*[Block() for _ in range(layers)])


def training_step(here, attend, sizes, x, compiled):
    """A training step, called a few times, or None where PyTorch refuses."""
    torch = here.torch
    torch.manual_seed(1)
    net = model(torch, attend, *sizes).to(here.device, x.dtype)
    if compiled:  # block by block: all have the same code, so one is compiled for all
        for block in net:
            block.compile(backend="inductor" if here.gpu else "aot_eager")

    def step():
        net.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
    try:
        for _ in range(3):
            step()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None
    return step


def training(here):
    """The calls; then training steps, eager, and compiled with ours and the kernel that was the fastest."""
    yield from host(here)
    yield from dot_products(here)
    sizes = (12, 768, 12) if here.gpu else (2, 64, 4)
    for batch, length in ((32, 512), (4, 4096), (1, 16384)) if here.gpu else ((2, 64),):
        x, names = here.tensor(batch, length, sizes[1]), attentions(here)
        here.torch._dynamo.reset()
        for compiled in (False, True):
            calls = {name: training_step(here, attend, sizes, x, compiled) for name, attend in names.items()}
            times = here.least({name: call for name, call in calls.items() if call}, 3, 7, True)
            names = {name: names[name] for name in sorted(times, key=lambda name: (name != "ours", times[name]))[:2]}
            if len(names) == 2 and "ours" in names:
                yield beside_pytorch(f"training step; {'compiled' if compiled else 'eager'}",
                                     f"{batch} x {length} tokens", times)


# --- The same bits ---

def promises(here):
    """(what, case, call(promise)); on a CPU in two types, and a gradient has a fixed order there anyway."""
    five_steps, torch = here.five_steps, here.torch
    prefills = ((1, 16384, 128, True), (4, 4096, 128, True), (4, 4096, 64, False)) if here.gpu else ((1, 1024, 64, True),)
    decodes = ((64, 4096), (8, 8192), (1, 32768), (16, 1024), (1, 2048)) if here.gpu else ((1, 256), (1, 4096))
    for dtype in (torch.bfloat16,) if here.gpu else (torch.float32, torch.bfloat16):
        name, tensor = "" if here.gpu else f"{str(dtype)[6:]}; ", functools.partial(here.tensor, dtype=dtype)
        for batch, length, d, causal in prefills:
            q, k, v = (tensor(batch, heads, length, d) for heads in (HEADS[0] if here.gpu else 8, *2 * HEADS[1:]))
            heads = f"{batch} x 32/8" if here.gpu else f"{name}8"
            yield "prefill; invariant", f"{heads} heads x {length}; d = {d}{'; causal' * causal}", \
                functools.partial(five_steps.attention, q, k, v, causal=causal)
        for batch, keys in decodes:
            q, k, v = tensor(batch, HEADS[0], 128), *(tensor(batch, HEADS[1], keys, 128) for _ in "kv")
            yield "decode; invariant", f"{name or f'{batch} x '}32/8 heads x {keys} keys; d = 128", functools.partial(
                five_steps.decode, q, k, v, None, keys)
    for length, d, causal in ((4096, 64, True), (4096, 128, True), (4096, 128, False), (16384, 128, True)) * here.gpu:
        leaves, d_o = here.leaves(16384 // length, 16, length, d), here.tensor(16384 // length, 16, length, d)
        case = f"{16384 // length} x 16 heads x {length}; d = {d}{'; causal' * causal}"
        yield "forward; deterministic", case, functools.partial(
            five_steps.attention, *(a.detach() for a in leaves), causal=causal)
        results = {deterministic: five_steps.attention(*leaves, causal=causal, deterministic=deterministic)
                   for deterministic in (False, True)}
        yield "backward; deterministic", case, lambda deterministic=False, results=results, leaves=leaves, d_o=d_o: \
            torch.autograd.grad(results[deterministic], leaves, d_o, retain_graph=True)


def same_bits(here):
    """Without and with the promise."""
    for what, case, call in promises(here):
        plain, asked = here.medians({"a": call, "b": functools.partial(call, **{what.split("; ")[1]: True})})
        yield what, case, f"{plain:.1f}", f"{asked:.1f}", f"{asked / plain:.2f}"


# --- A cache in 8 bits ---

CACHES = [(64, 32, 8, 8192, 128, 1, False), (64, 32, 8, 8192, 128, 1, True), (16, 32, 8, 32768, 128, 1, False),
          (1, 32, 8, 131072, 128, 1, False), (8, 32, 8, 8192, 128, 1, False), (1, 32, 8, 8192, 128, 1, False),
          (128, 32, 8, 1024, 128, 1, False), (64, 64, 8, 8192, 128, 1, False), (16, 32, 32, 8192, 128, 1, False),
          (64, 32, 8, 8192, 64, 1, False), (32, 16, 4, 8192, 256, 1, False),
          (64, 32, 8, 8192, 128, 4, False)]  # batch, heads of q and of k, keys, head_dim, queries, in pages


def cache(here):
    """The same numbers in three types, as far as the types hold them."""
    torch, page = here.torch, 64
    for batch, heads_q, heads_kv, keys, d, queries, paged in CACHES:
        shape = (batch * keys // page, page, heads_kv, d) if paged else (batch, keys, heads_kv, d)
        q = here.tensor(batch, queries, heads_q, d)
        kv = [here.tensor(*shape).mul_(32).clamp_(-127, 127) for _ in "kv"]
        table = torch.randperm(len(kv[0]), device=here.device).int().reshape(batch, -1) if paged else None
        scales = {name: torch.full((batch, heads_kv), 1 / 32, device=here.device) for name in ("k_scale", "v_scale")}
        bf16, e4m3, int8 = here.medians({name: functools.partial(
            here.five_steps.decode, q, *(a.to(getattr(torch, name)) for a in kv), table, keys,
            layout="pages_first", **known) for name, known in (
                ("bfloat16", {"scale": d ** -0.5 / 32}), ("float8_e4m3fn", scales), ("int8", scales))})
        case = (f"{batch} x {heads_q}/{heads_kv} heads x {keys} keys; d = {d}" + "; pages" * paged
                + f"; {queries} queries" * (queries > 1))
        yield (case, f"{bf16:.1f}", f"{e4m3:.1f}", f"{int8:.1f}", f"{bf16 / e4m3:.2f}", f"{bf16 / int8:.2f}",
               f"{2e-3 * batch * heads_kv * keys * d / e4m3:.0f}")


PARTS = {"training": (training, "what,case,five_steps_us,pytorch_us,pytorch / five_steps"),
         "same_bits": (same_bits, "what,case,us,with the promise us,ratio"),
         "cache": (cache, "case,bf16 us,e4m3 us,int8 us,bf16 / e4m3,bf16 / int8,e4m3 GB/s")}


def main():
    """The exit status."""
    here = Here(__doc__, {"part": {"choices": PARTS}, "--device": {"default": "cuda", "choices": ["cuda", "cpu"]}})
    measure, columns = PARTS[here.args.part]
    with open(here.args.csv or os.devnull, "w", encoding="utf-8") as file:
        print(f"{columns},measured", file=file)
        for cells in measure(here):
            print(*cells, sep=", ", flush=True)
            print(*cells, here.measured, sep=",", file=file, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
