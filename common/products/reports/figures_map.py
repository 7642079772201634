"""figures_map.py: the attention map of a real sentence, computed by a stage program."""
import pathlib
import re
import subprocess
import tempfile

import numpy as np

from registry import figure
from results import NoData
from style import GREY as CAPTION
from style import offset, plt


def attention_map(program, fixture):
    """softmax(q k^T / sqrt(head_dim)) [heads, seqlen, seqlen]: attention to the unit vectors."""
    heads, seqlen, _ = np.load(fixture / "q.npy").shape
    with tempfile.TemporaryDirectory() as place:
        np.save(f"{place}/v.npy", np.broadcast_to(np.eye(seqlen, dtype="<f4"), (heads, seqlen, seqlen)))
        done = subprocess.run([program, "run", "--q", fixture / "q.npy", "--k", fixture / "k.npy",
                               "--v", f"{place}/v.npy", "--o", f"{place}/o.npy"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoData(f"{program} run failed: {done.stderr.strip()}")
        return np.load(f"{place}/o.npy")


@figure("map.png", "map")
def attention(data):
    """Which tokens attend to which in the fixture's sentence, computed by a stage program.  The
    largest weights between different words are named."""
    program, fixture, head = data.options.program, data.options.fixture, data.options.head
    if not program:
        raise NoData("--program names the stage program that computes it")
    try:
        maps = attention_map(program, fixture)
        p = maps[head]
        tokens = (fixture / "tokens.txt").read_text(encoding="utf-8").split()
        model = re.search(r"\*\*Model\*\*: [\w-]+/(\S+),",
                          (fixture / "README.md").read_text(encoding="utf-8"))[1]
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise NoData(str(error)) from None
    n = len(tokens)
    drawn = plt.figure(figsize=(8, 9.6))
    axis = drawn.add_axes([0.115, 0.16, 0.79, 0.75])
    image = axis.imshow(np.sqrt(p), cmap="magma_r", vmin=0, vmax=1, aspect="auto")
    axis.set_yticks(range(n), tokens, fontsize=7)
    axis.set_xticks([])
    axis.tick_params(length=1.5, pad=1.5)
    for i, token in enumerate(tokens):  # on two levels: a line is wider than a cell
        line = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.4, "shrinkA": 0,
                "shrinkB": 0}
        axis.annotate(token, (i, n - 0.5), (0, -3 - 47 * (i % 2)), rotation=90, fontsize=7,
                      textcoords="offset points", ha="center", va="top",
                      arrowprops=line if i % 2 else None)
    name_largest(axis, p, tokens)
    bar = drawn.add_axes([0.92, 0.16, 0.018, 0.75])
    marks = [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1]
    drawn.colorbar(image, cax=bar, ticks=[mark ** 0.5 for mark in marks])
    bar.set_yticklabels([f"{100 * mark:g} %" for mark in marks], fontsize=8)
    for y, text, look in (
            (0.988, "Which tokens does each token attend to?", {"fontsize": 10, "weight": "bold"}),
            (0.966, "Row i shows how query i, the token at the left, divides its "
             "weight of 100 % among the keys, the tokens below.\n"
             f"This is head {head} of {len(maps)}, counted from 0, of a layer of {model}. The colour "
             "follows the square root of the weight.", {"fontsize": 8}),
            (0.02, f"computed by {pathlib.Path(program).name} from {fixture}",
             {"fontsize": 7.5, "color": CAPTION})):
        drawn.text(0.01, y, text, va="top", **look)
    return drawn


def name_largest(axis, p, tokens, count=12):
    """Writes query and key beside the largest weights that join two different places, the
    sentence's begin and end left out."""
    p = p[1:-1, 1:-1] * (1 - np.eye(len(tokens) - 2))
    for at in np.argsort(p, axis=None)[::-1][:count]:
        i, j = (int(x) + 1 for x in np.unravel_index(at, p.shape))
        left = j > len(tokens) / 2
        offset(axis, f"{tokens[i]} \N{RIGHTWARDS ARROW} {tokens[j]}", (j, i), (-8 if left else 8, 0),
               fontsize=8.5, ha="right" if left else "left",
               bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.75})
