#!/usr/bin/env python3
"""train.py: a small language model trained with our attention, beside PyTorch's from the same seed.

    make library; python3 common/products/library/models/train.py [--device cuda] [--steps 200] [--csv FILE] [--write 200]

A decoder of 4 layers and 4 heads of 32 reads characters: the READMEs and notes of this repository.
Both attentions see the same pieces of text in the same order.  A step rounds differently, and what
differs by a rounding at first differs more later; so the losses are compared after 10 steps, and in
the mean over the last tenth.  Then the model may write: in float32 both attentions write the same text.

Exit status: 0 the losses and texts agree; 1 they do not; 77 PyTorch is missing.
"""
import argparse
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "common/products/library/python"))
try:
    import torch
except ImportError:
    sys.exit(print("train: the Python package torch is not installed; skipped") or 77)
import five_steps  # noqa: E402  pylint: disable=wrong-import-position

LAYERS, HEADS, WIDTH, CONTEXT, PAGE = 4, 4, 128, 512, 16
PROMPT = "The softmax of a row is computed in "
PIECES, LENGTH = 32, 64  # of text in a step, and the characters of each


def corpus():
    """All READMEs and notes as one text of plain characters."""
    paths = [*sorted(ROOT.glob("**/README.md")), *sorted(ROOT.glob("notes/*.md"))]
    text = "".join(path.read_text(encoding="utf-8") for path in paths
                   if "build" not in path.relative_to(ROOT).parts)
    return "".join(c for c in text if 32 <= ord(c) < 127 or c == "\n")


def weights():
    """Random weights: what `forward` reads, by name."""
    def matrix(rows, columns, scale=1.0):
        return torch.randn(rows, columns) * scale / columns**0.5
    w = {"token": torch.randn(128, WIDTH) * 0.1, "place": torch.randn(CONTEXT, WIDTH) * 0.1}
    for i in range(LAYERS):
        w[f"qkv{i}"] = matrix(3 * WIDTH, WIDTH)
        w[f"o{i}"] = matrix(WIDTH, WIDTH, 0.5)
        w[f"up{i}"] = matrix(4 * WIDTH, WIDTH)
        w[f"down{i}"] = matrix(WIDTH, 4 * WIDTH, 0.5)
    return w


def forward(w, tokens, first, attend):
    """Logits of the next character after each token; tokens [batch, n] stand at first, ....
    attend(layer, q, k, v) gets and gives [batch, n, heads, head_dim]."""
    f = torch.nn.functional
    n = tokens.shape[1]
    x = w["token"][tokens] + w["place"][first:first + n]
    for i in range(LAYERS):
        qkv = f.linear(f.layer_norm(x, (WIDTH,)), w[f"qkv{i}"]).unflatten(-1, (3, HEADS, -1))
        o = attend(i, *qkv.unbind(2)).flatten(-2)
        x = x + f.linear(o, w[f"o{i}"])
        x = x + f.linear(f.gelu(f.linear(f.layer_norm(x, (WIDTH,)), w[f"up{i}"])), w[f"down{i}"])
    return f.layer_norm(x, (WIDTH,)) @ w["token"].T


def pytorch(_layer, q, k, v):
    """PyTorch's attention on [batch, n, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ours(_layer, q, k, v):
    """The same by this library."""
    return five_steps.attention(q, k, v, causal=True, layout="blhd")


def train(attend, steps, device="cpu"):
    """Weights after `steps` steps of Adam, the loss of each in nats per character, and the seconds."""
    torch.manual_seed(1)
    data = torch.tensor(list(corpus().encode()))
    w = {name: x.to(device).requires_grad_() for name, x in weights().items()}
    adam = torch.optim.AdamW(w.values(), lr=4e-3, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 4e-3, max(steps, 11), pct_start=0.1)
    losses, begin = [], time.perf_counter()
    for step in range(steps):
        at = torch.randint(len(data) - LENGTH - 1, (PIECES,))
        pieces = torch.stack([data[i:i + LENGTH + 1] for i in at]).to(device)
        logits = forward(w, pieces[:, :-1], 0, attend)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        adam.step()
        rate.step()
        losses.append(loss.item())
        if step % 50 == 49:
            print(f"step {step + 1}: {losses[-1]:.3f} nats per character", flush=True)
    return {name: x.detach() for name, x in w.items()}, losses, time.perf_counter() - begin


def text_of(w, n, device, paged):
    """n characters after PROMPT, each time the likeliest.  paged: the prompt at once, then one query a
    step, with the keys in pages of a pool that are taken in any order; else PyTorch reads the whole text
    for each character."""
    pages, before = CONTEXT // PAGE, 0
    pool = torch.zeros(LAYERS, 2, pages, HEADS, PAGE, WIDTH // HEADS, device=device)
    table = torch.randperm(pages, device=device).int()[None]

    def attend(layer, q, k, v):
        return five_steps.decode(q, *pool[layer], table, before, k_new=k, v_new=v)
    text = torch.tensor([list(PROMPT.encode())], device=device)
    for _ in range(n):
        logits = forward(w, text[:, before:], before, attend if paged else pytorch)
        before = text.shape[1] if paged else 0
        text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
    return "".join(map(chr, text[0].tolist()))


def agree(one, other):
    """Are these the losses of the same training?"""
    early = max(abs(a - b) for a, b in zip(one[:10], other))
    last = max(len(one) // 10, 1)
    late = abs(sum(one[-last:]) / sum(other[-last:]) - 1)
    print(f"largest difference in the first 10 steps: {early:.1e} (at most 1e-3); of the mean loss of "
          f"the last {last}: {100 * late:.2f} % (at most 3 %)")
    return early <= 1e-3 and late <= 0.03


def write(path, runs, device):
    """The losses of both with what they were measured on, as CSV."""
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True, check=False).stdout.strip()
    machine = torch.cuda.get_device_name() if device == "cuda" else next(
        (line.partition(": ")[2].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
         if line.startswith("model name")), platform.machine()) + f" {os.cpu_count()} cores"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = ["step,attention,loss,seconds,device,dtype,date,commit,machine,compiler"] + [
        f"{step},{name},{loss:.5f},{seconds:.1f},{device},f32,{now},{commit},{machine},torch {torch.__version__}"
        for name, (_, losses, seconds) in runs.items() for step, loss in enumerate(losses, 1)]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    """The exit status."""
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--csv", help="write the losses to this file")
    p.add_argument("--write", type=int, default=0, help=f"characters, at most {CONTEXT - len(PROMPT)}")
    args = p.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        return print("train: PyTorch sees no GPU; skipped") or 77
    runs = {name: train(attend, args.steps, args.device)
            for name, attend in (("five_steps", ours), ("pytorch", pytorch))}
    for name, (_, losses, seconds) in runs.items():
        print(f"{name}: {losses[-1]:.3f} nats per character after {args.steps} steps, {seconds:.1f} s")
    if args.csv:
        write(args.csv, runs, args.device)
    with torch.no_grad():
        text, other = (text_of(runs["five_steps"][0], args.write, args.device, paged) for paged in (True, False))
    if args.write:
        print("same text" if text == other else f"PyTorch: {other}\nDIFFERENT TEXT", text, sep=": ")
    return 0 if agree(*(losses for _, losses, _ in runs.values())) and text == other else 1


if __name__ == "__main__":
    sys.exit(main())
