#!/usr/bin/env python3
"""plot_map.py: draws which tokens attend to which, computed by a stage program.

    python3 common/reports/plot_map.py --program build/03_online_softmax --out build/plots
        [--fixture DIR] [--head 9]

DIR (default tests/fixture) holds q.npy and k.npy [heads, seqlen, head_dim] and tokens.txt,
the words that the rows belong to.  The program computes attention with the identity matrix in
place of v: o = P I = P, the attention map.  Writes map.png.  Exit status: 0 drawn; 1 not
drawn (why); 77 no matplotlib.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

from results import NoData
from style import GREY, draw_all, plt
import numpy as np


def attention_map(program, fixture):
    """softmax(q k^T / sqrt(head_dim)) [heads, seqlen, seqlen]."""
    q = np.load(fixture / "q.npy")
    heads, seqlen, _ = q.shape
    with tempfile.TemporaryDirectory() as place:
        identity, o = f"{place}/identity.npy", f"{place}/map.npy"
        np.save(identity, np.broadcast_to(np.eye(seqlen, dtype="<f4"),
                                          (heads, seqlen, seqlen)))
        done = subprocess.run([program, "run", "--q", fixture / "q.npy", "--k",
                               fixture / "k.npy", "--v", identity, "--o", o],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NoData(f"{program} run failed: {lines[-1]}")
        return np.load(o)


def draw_map(program, fixture, head):
    """One head's map with its tokens."""
    try:
        maps = attention_map(program, fixture)
        p = maps[head]
        tokens = (fixture / "tokens.txt").read_text(encoding="utf-8").split()
    except (OSError, ValueError, IndexError) as error:
        raise NoData(str(error)) from None
    n = len(tokens)
    figure = plt.figure(figsize=(8, 9.6))
    axis = figure.add_axes([0.115, 0.16, 0.79, 0.75])
    image = axis.imshow(np.sqrt(p), cmap="magma_r", vmin=0, vmax=1, aspect="auto")
    axis.set_yticks(range(n))
    axis.set_yticklabels(tokens, fontsize=7)
    axis.set_xticks([])
    axis.tick_params(length=1.5, pad=1.5)
    for i, token in enumerate(tokens):  # on two levels: a line is wider than a cell
        line = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.4, "shrinkA": 0,
                "shrinkB": 0}
        axis.annotate(token, (i, n - 0.5), (0, -3 - 47 * (i % 2)), rotation=90, fontsize=7,
                      textcoords="offset points", ha="center", va="top",
                      arrowprops=line if i % 2 else None)
    bar = figure.add_axes([0.92, 0.16, 0.018, 0.75])
    marks = [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1]
    figure.colorbar(image, cax=bar, ticks=[mark ** 0.5 for mark in marks])
    bar.set_yticklabels([f"{100 * mark:g} %" for mark in marks], fontsize=8)
    figure.text(0.01, 0.988, "Which tokens does each token attend to?", fontsize=10, va="top",
                weight="bold")
    figure.text(0.01, 0.966, "Row i shows how query i, the token at the left, divides its "
                "weight of 100 % among the keys, the tokens below.\n"
                f"This is head {head} of {len(maps)} of the layer, counted from 0. The colour "
                "follows the square root of the weight: small weights stay visible.",
                fontsize=8, va="top")
    figure.text(0.01, 0.008, f"computed by {pathlib.Path(program).name} from {fixture}",
                fontsize=7.5, color=GREY, va="bottom")
    return figure


def main():
    """Draws one map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="stage program that computes it")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where to draw")
    parser.add_argument("--fixture", type=pathlib.Path, default="tests/fixture")
    parser.add_argument("--head", type=int, default=9)
    arguments = parser.parse_args()
    return 0 if draw_all({"map.png": lambda: draw_map(
        arguments.program, arguments.fixture, arguments.head)}, arguments.out) else 1


if __name__ == "__main__":
    sys.exit(main())
