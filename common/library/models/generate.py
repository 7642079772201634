#!/usr/bin/env python3
"""generate.py: a small language model that writes text with our attention, beside PyTorch's.

    python3 common/library/models/generate.py [--device cuda] [--tokens 200] [--steps 300]

The model of train.py is trained once, for about a minute, with our attention, and the weights are
kept in build/.  Then it continues a prompt, always with the likeliest character:

    prefill   the whole prompt at once, causal
    decode    one query a step against all keys so far, kept in pages of 16 keys that are taken
              from a pool as the text grows

In float32 both attentions must write the same text.

Exit status: 0 the texts are the same; 1 they differ; 77 PyTorch is missing.
"""
import argparse
import hashlib
import sys
import time

from train import CONTEXT, HEADS, LAYERS, ROOT, WIDTH, corpus, forward, ours, pytorch, torch_or_none, train

PAGE = 16
PROMPT = "The softmax of a row is computed in "


def trained(torch, steps):
    """The weights from build/, or newly trained ones."""
    key = hashlib.sha256(f"{steps} {LAYERS} {WIDTH} {corpus()}".encode()).hexdigest()[:12]
    path = ROOT / f"build/models/generate_{key}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(train(torch, ours, steps)[0], path)
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
        return pytorch(layer, q, k, v, old is None)


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

    def grow(self, keys):
        """Takes pages from the pool until they hold so many keys."""
        while self.pages * PAGE < keys:
            self.table[0, self.pages] = self.free.pop()
            self.pages += 1

    def attend(self, layer, q, k, v):
        """Attention of the new queries to all keys so far."""
        import five_steps
        before, n = self.keys[layer], q.shape[1]
        self.keys[layer] += n
        self.grow(self.keys[layer])
        return five_steps.decode(q, *self.pool[layer], self.table, before, k_new=k, v_new=v)


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
    torch = torch_or_none(args, "generate")
    if torch is None:
        return 77
    w = {name: x.to(args.device) for name, x in trained(torch, args.steps).items()}
    with torch.no_grad():
        theirs, their_time = write(torch, w, Contiguous(torch, args.device), args.device,
                                   args.tokens)
        text, our_time = write(torch, w, Paged(torch, args.device), args.device, args.tokens)
    print(PROMPT + text)
    print(f"{args.tokens} characters: PyTorch {args.tokens / their_time:.0f} a second, "
          f"ours {args.tokens / our_time:.0f}")
    print("same text" if text == theirs else f"DIFFERENT TEXT; PyTorch: {theirs}")
    return 0 if text == theirs else 1


if __name__ == "__main__":
    sys.exit(main())
