#!/usr/bin/env python3
"""generate.py: a small language model that writes text with our attention, beside PyTorch's.

    python3 common/library/models/generate.py [--device cuda] [--tokens 200] [--steps 300]

A decoder of 4 layers and 4 heads of 32 reads characters.  It is trained once, for about a
minute, on the notes of this repository (PyTorch's attention; ours has no gradient yet), and the
weights are kept in build/.  Then it continues a prompt, always with the likeliest character:

    prefill   the whole prompt at once, causal
    decode    one query a step against all keys so far, kept in pages of 16 keys that are taken
              from a pool as the text grows

In float32 both attentions must write the same text.

Exit status: 0 the texts are the same; 1 they differ; 77 PyTorch is missing.
"""
import argparse
import glob
import hashlib
import importlib.util
import os
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
sys.path.insert(0, os.path.join(ROOT, "common", "library", "python"))
LAYERS, HEADS, WIDTH, CONTEXT, PAGE = 4, 4, 128, 512, 16
PROMPT = "The softmax of a row is computed in "


def corpus():
    """All notes as one text of plain characters."""
    text = ""
    for path in sorted(glob.glob(os.path.join(ROOT, "notes", "*.md"))):
        with open(path, encoding="utf-8") as f:
            text += f.read()
    return "".join(c for c in text if 32 <= ord(c) < 127 or c == "\n")


def weights(torch):
    """Random weights: what `forward` reads, by name."""
    def matrix(rows, columns, scale=1.0):
        return (torch.randn(rows, columns) * scale / columns**0.5).requires_grad_()
    w = {"token": (torch.randn(128, WIDTH) * 0.1).requires_grad_(),
         "place": (torch.randn(CONTEXT, WIDTH) * 0.1).requires_grad_()}
    for i in range(LAYERS):
        w[f"qkv{i}"] = matrix(3 * WIDTH, WIDTH)
        w[f"o{i}"] = matrix(WIDTH, WIDTH, 0.5)
        w[f"up{i}"] = matrix(4 * WIDTH, WIDTH)
        w[f"down{i}"] = matrix(WIDTH, 4 * WIDTH, 0.5)
    return w


def forward(torch, w, tokens, first, attend):
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


def pytorch(torch, q, k, v, causal):
    """PyTorch's attention on [batch, n, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal).transpose(1, 2)


def train(torch, text, steps):
    """Weights after `steps` steps of Adam on 32 pieces of 64 characters."""
    torch.manual_seed(1)
    data = torch.tensor(list(text.encode()))
    w = weights(torch)
    adam = torch.optim.AdamW(w.values(), lr=4e-3, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 4e-3, max(steps, 1), pct_start=0.1)
    for step in range(steps):
        at = torch.randint(len(data) - 65, (32,))
        pieces = torch.stack([data[i:i + 65] for i in at])
        logits = forward(torch, w, pieces[:, :-1], 0,
                         lambda _, q, k, v: pytorch(torch, q, k, v, True))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        adam.step()
        rate.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item():.3f} nats a character", flush=True)
    return {name: x.detach() for name, x in w.items()}


def trained(torch, steps):
    """The weights from build/, or newly trained ones."""
    text = corpus()
    key = hashlib.sha256(f"{steps} {LAYERS} {WIDTH} {text}".encode()).hexdigest()[:12]
    path = os.path.join(ROOT, "build", "models", f"generate_{key}.pt")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save(train(torch, text, steps), path)
    return torch.load(path, weights_only=True)


class Contiguous:
    """The keys and values so far in one array per layer; attention by PyTorch."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.kv = [None] * LAYERS

    def attend(self, layer, q, k, v):
        """Attention of the new queries to all keys so far."""
        torch = self.torch
        old = self.kv[layer]
        k, v = (k, v) if old is None else (torch.cat([old[0], k], 1), torch.cat([old[1], v], 1))
        self.kv[layer] = k, v
        return pytorch(torch, q, k, v, old is None)


class Paged:
    """The keys and values in pages of PAGE keys from a pool; attention by ours.  The pages of
    a text lie in the pool in any order: here the last ones are given out first."""

    def __init__(self, torch, device):
        pages = CONTEXT // PAGE
        shape = (LAYERS, 2, pages, HEADS, PAGE, WIDTH // HEADS)
        self.pool = torch.zeros(shape, device=device)
        self.free = list(range(pages))
        self.table = torch.zeros(1, pages, dtype=torch.int32, device=device)
        self.torch, self.device = torch, device
        self.keys = [0] * LAYERS
        self.pages = 0

    def append(self, layer, k, v):
        """Writes n keys and values [1, n, heads, head_dim] behind those of the layer."""
        first, n = self.keys[layer], k.shape[1]
        while self.pages * PAGE < first + n:
            self.table[0, self.pages] = self.free.pop()
            self.pages += 1
        for i in range(n):
            page = self.table[0, (first + i) // PAGE]
            self.pool[layer, 0, page, :, (first + i) % PAGE] = k[0, i]
            self.pool[layer, 1, page, :, (first + i) % PAGE] = v[0, i]
        self.keys[layer] += n

    def attend(self, layer, q, k, v):
        """Attention of the new queries to all keys so far."""
        import five_steps
        self.append(layer, k, v)
        if q.shape[1] > 1:  # the prompt: the keys are all new
            return five_steps.attention(q, k, v, causal=True, layout="blhd")
        o = five_steps.decode(q[:, 0], *self.pool[layer], self.table, self.keys[layer])
        return o[:, None]


def write(torch, w, cache, device, n):
    """n characters after the prompt, and the seconds that they took."""
    text = PROMPT.encode()
    tokens = torch.tensor([list(text)], device=device)
    begin, first, out = time.perf_counter(), 0, []
    for _ in range(n):
        logits = forward(torch, w, tokens, first, cache.attend)
        first += tokens.shape[1]
        tokens = logits[:, -1:].argmax(-1)
        out.append(tokens)
    out = torch.cat(out, 1)[0].tolist()
    return "".join(map(chr, out)), time.perf_counter() - begin


def main():
    """The exit status."""
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--tokens", type=int, default=200, help=f"at most {CONTEXT - len(PROMPT)}")
    p.add_argument("--steps", type=int, default=300, help="of training; 0: random weights")
    args = p.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("generate: the Python package torch is not installed; skipped")
        return 77
    import torch
    if args.device == "cuda" and not torch.cuda.is_available():
        print("generate: PyTorch sees no GPU; skipped")
        return 77
    w = {name: x.to(args.device) for name, x in trained(torch, args.steps).items()}
    with torch.no_grad():
        theirs, their_time = write(torch, w, Contiguous(torch, args.device), args.device,
                                   args.tokens)
        ours, our_time = write(torch, w, Paged(torch, args.device), args.device, args.tokens)
    print(PROMPT + ours)
    print(f"{args.tokens} characters: PyTorch {args.tokens / their_time:.0f} a second, "
          f"ours {args.tokens / our_time:.0f}")
    print("same text" if ours == theirs else f"DIFFERENT TEXT; PyTorch: {theirs}")
    return 0 if ours == theirs else 1


if __name__ == "__main__":
    sys.exit(main())
