"""figures_map.py: the attention map of a real sentence, computed by a stage program."""
import pathlib
import re
import subprocess
import tempfile

import numpy as np

from registry import figure
from results import NoData
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


@figure("map")
def attention(data):
    """Which tokens attend to which in the fixture's sentence, computed by a stage program.  The
    largest weights between different words are named."""
    program, fixture, head = data.options.program, data.options.fixture, data.options.head
    if not program:
        raise NoData("--program names the stage program that computes it")
    try:
        maps = attention_map(program, fixture)
        if not 0 <= head < len(maps):
            raise NoData(f"no head {head}; there are 0 to {len(maps) - 1}")
        p = maps[head]
        tokens = (fixture / "tokens.txt").read_text(encoding="utf-8").split()
        model = re.search(r"\*\*Model\*\*: [\w-]+/(\S+),",
                          (fixture / "README.md").read_text(encoding="utf-8"))[1]
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise NoData(str(error)) from None
    drawn, axis = plt.subplots(figsize=(8, 9), layout="constrained")
    image = axis.imshow(np.sqrt(p), cmap="magma_r", vmin=0, vmax=1, aspect="auto")
    axis.set_yticks(range(len(tokens)), tokens, fontsize=7)
    axis.set_xticks(range(len(tokens)), tokens, fontsize=5.5, rotation=90)
    axis.set_title(f"Which tokens does each token attend to? Row i: query i's weights. Head {head} of {len(maps)} of a "
                   f"layer of {model}.\nComputed by {pathlib.Path(program).name} from {fixture}.", fontsize=9, loc="left")
    marks = [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1]
    drawn.colorbar(image, ticks=[mark ** 0.5 for mark in marks], aspect=50).ax.set_yticklabels(
        [f"{100 * mark:g} %" for mark in marks], fontsize=8)
    # names beside the largest weights that join two different places, the sentence's begin and end left out
    inner = p[1:-1, 1:-1] * (1 - np.eye(len(tokens) - 2))
    for at in np.argsort(inner, axis=None)[:-13:-1]:
        i, j = (int(x) + 1 for x in np.unravel_index(at, inner.shape))
        left = j > len(tokens) / 2
        offset(axis, f"{tokens[i]} \N{RIGHTWARDS ARROW} {tokens[j]}", (j, i), (-8 if left else 8, 0),
               ha="right" if left else "left",
               bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.75})
    return drawn
