"""figures_notes.py: figures of the notes: the online denominator in float, computed here beside the
bound of notes/numerics.md; and a training of common/products/library/models."""
import math
import random

import numpy as np

from registry import figure
from results import read_lines
from style import plt

F = np.float32
U = 2.0 ** -24  # roundoff of float
KAPPA = 1.0     # exp here is the double one, rounded once
LOOK = {"svg_hashsalt": "notes", "font_size": 9}


def exp32(x):
    """The exponential of a float, correctly rounded but for rare ties."""
    return F(math.exp(float(x)))


def online(scores):
    """(m, l, how often m rose) after each score, in float."""
    m, l, rises = F(-np.inf), F(0), -1
    for x in scores:
        if x > m:
            l, m, rises = l * exp32(m - x) + F(1) if l else F(1), x, rises + 1
        else:
            l = l + exp32(x - m)
        yield m, l, rises


@figure("online_bound.svg", "notes", **LOOK)
def online_bound(data):  # pylint: disable=unused-argument
    """Error of the online denominator against its bound."""
    n, rng = 10 ** 5, random.Random(3)
    rows = {"random": [F(rng.gauss(0, 4)) for _ in range(n)],
            "ascending": [F(j * 2.0 ** -7) for j in range(n)]}
    at = {int(round(10 ** (i / 6))) for i in range(31)} - {1}
    drawn, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.set_title("Online denominator", fontsize=10)
    axes.set(xlabel="scores so far, n", ylabel="relative error / u", xscale="log", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    for (name, row), colour, shift in zip(rows.items(), ("tab:blue", "tab:red"), (-6, 6)):
        points = []
        for k, (m, l, rises) in enumerate(online(row), 1):
            if k in at:
                d = float(m) - np.array(row[:k], float)
                exact = np.exp(-d).sum()
                points.append((k, max(abs(float(l) / exact - 1) / U, 2.0 ** -6),
                               (np.exp(-d) * d).sum() / exact + KAPPA + (k - 1) + rises * (KAPPA + 1)))
        ns, errors, bounds = zip(*points)
        for y, text, style, up in ((bounds, f"bound, {name}", "--", shift), (errors, name, "-", 0)):
            axes.plot(ns, y, style, color=colour, linewidth=1.4)
            axes.annotate(text, (ns[-1], y[-1]), (4, up), textcoords="offset points", fontsize=8,
                          color=colour, va="center", annotation_clip=False)
    return drawn


@figure("training.svg", "notes", **LOOK)
def training(data):
    """A small language model trained with both attentions: notes/serving.md."""
    rows = data.file("library/training.csv", read_lines)
    rows = rows.astype({"step": float, "loss": float})
    drawn, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.set(xlabel="step", ylabel="loss, nats per character")
    axes.spines[["top", "right"]].set_visible(False)
    for name, words, width, colour in (("pytorch", "PyTorch", 3.5, "#f2b0b0"),
                                       ("five_steps", "ours", 1, "tab:blue")):
        one = rows[rows.attention == name]
        axes.plot(one.step, one.loss, color=colour, linewidth=width, label=words)
    axes.legend(frameon=False, title=f"{rows.machine[0]}, {rows.date[0][:10]}")
    return drawn
