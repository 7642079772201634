#!/usr/bin/env python3
"""training.py: what a call costs the host, and a training step of a model, beside PyTorch's attention.

    python3 common/products/reports/training.py --csv notes/results/hopper/training.csv [--device cuda]

Host: the time until a call returns, while the device's queue never fills; the least of several blocks.
Step: forward and backward pass of a bf16 decoder of 12 layers, 768 wide, 12 heads; ours against the fastest
of PyTorch's attention kernels, in turn, the least of each.  On a CPU the model is a small one.
Exit status: 0; 77 without PyTorch.
"""
import functools
import os
import pathlib
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "library", "python"))

from measurements import command_line, commit_here, now, torch_or_skip  # noqa: E402

COLUMNS = "what,case,five_steps_us,pytorch_us,pytorch / five_steps,measured"


def least(torch, calls, repeats, blocks, wait=False):
    """Microseconds per call of each, in turn.  wait: until the device is done."""
    times = {name: [] for name in calls}
    done = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for _ in range(blocks):
        for name, call in calls.items():
            done()
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            if wait:
                done()
            times[name].append((time.perf_counter() - begin) / repeats)
            done()
    return {name: 1e6 * min(each) for name, each in times.items()}


def attentions(torch, five_steps):
    """Attention of [batch, heads, length, d] by name: ours, and each of PyTorch's kernels."""
    sdpa, kernels = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention.SDPBackend
    found = {"ours": lambda q, k, v: five_steps.attention(q, k, v, causal=True),
             "default": lambda q, k, v: sdpa(q, k, v, is_causal=True)}
    if torch.cuda.is_available():
        def only(kernel, q, k, v):
            with torch.nn.attention.sdpa_kernel(kernel):
                return sdpa(q, k, v, is_causal=True)
        for kernel in (kernels.CUDNN_ATTENTION, kernels.FLASH_ATTENTION):
            found[kernel.name] = functools.partial(only, kernel)
    return found


def host(torch, five_steps, device):
    """The calls of a model, each as (what, case, times)."""
    def tensor(*shape):
        return torch.randn(shape, device=device, dtype=torch.bfloat16)
    leaves = [tensor(1, 4, 64, 64).requires_grad_() for _ in "qkv"]
    d_o, mask = tensor(1, 4, 64, 64), torch.rand(64, 64, device=device) > 0.3
    plain = [a.detach() for a in leaves]
    q, cache = tensor(8, 16, 128), [tensor(8, 16, 1024, 128) for _ in "kv"]
    lengths = torch.full((8,), 1000, dtype=torch.int32, device=device)
    seen = (torch.arange(1024, device=device) < 1000).expand(8, 1, 1, 1024)
    ours, theirs = five_steps.attention, torch.nn.functional.scaled_dot_product_attention
    small = "1 x 4 heads x 64 x 64; d = 64"
    calls = {
        ("forward with gradient", small): (lambda: ours(*leaves), lambda: theirs(*leaves)),
        ("forward", small): (lambda: ours(*plain), lambda: theirs(*plain)),
        ("forward with a mask", small): (lambda: ours(*plain, bias=mask),
                                         lambda: theirs(*plain, attn_mask=mask)),
        ("decode", "8 x 16 heads x 1000 keys; d = 128"): (
            lambda: five_steps.decode(q, *cache, None, lengths, max_seqlen_k=1000),
            lambda: theirs(q[:, :, None], *cache, attn_mask=seen))}
    for name, pair in calls.items():
        yield *name, least(torch, dict(zip(("ours", "default"), pair)), 200, 9)
    results = {name: f(*leaves) for name, f in (("ours", ours), ("default", theirs))}
    yield "backward", small, least(torch, {name: functools.partial(
        torch.autograd.grad, o, leaves, d_o, retain_graph=True) for name, o in results.items()}, 200, 9)


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


def steps(torch, five_steps, device):
    """A training step, eager and compiled."""
    sizes = (12, 768, 12) if device == "cuda" else (2, 64, 4)
    for batch, length in ((32, 512), (4, 4096), (1, 16384)) if device == "cuda" else ((2, 64),):
        x = torch.randn(batch, length, sizes[1], device=device, dtype=torch.bfloat16)
        for way in ("eager", "compiled"):
            calls = {}
            for name, attend in attentions(torch, five_steps).items():
                torch.manual_seed(1)
                net = model(torch, attend, *sizes).to(device, torch.bfloat16)
                torch._dynamo.reset()
                if way == "compiled":
                    net = torch.compile(net, backend="inductor" if device == "cuda" else "aot_eager")

                def step(net=net):
                    net.zero_grad(set_to_none=True)
                    net(x).square().mean().backward()
                try:
                    for _ in range(3):
                        step()
                    calls[name] = step
                except RuntimeError as error:
                    print(f"{name}, {way}: {error}", file=sys.stderr)
            yield f"training step; {way}", f"{batch} x {length} tokens", least(torch, calls, 3, 7, True)


def main():
    """The exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--csv", help="append the measurements to this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default="host,steps")
    args = parser.parse_args()
    torch = torch_or_skip("training", args.device == "cuda")
    import five_steps
    machine = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    measured = f"{machine}; torch {torch.__version__}; commit {commit_here()}; {now()[:10]}"
    path = pathlib.Path(args.csv or os.devnull)
    fresh = not path.exists() or not path.stat().st_size
    with path.open("a", encoding="utf-8") as file:
        if fresh:
            print(COLUMNS, file=file)
        for part in args.parts.split(","):
            for what, case, times in {"host": host, "steps": steps}[part](torch, five_steps, args.device):
                ours = times.pop("ours")
                best = min(times.values())
                print(what, case, f"{ours:.1f}", f"{best:.1f}", f"{best / ours:.2f}", measured, sep=",",
                      file=file, flush=True)
                print(f"{what}, {case}: {ours:.1f} us", {n: round(t, 1) for n, t in times.items()}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
