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


@figure("eight_bits.svg", "notes", **LOOK)
def eight_bits(data):
    """What attention in 8 bits errs by: on columns unlike the others, and in long rows (notes/eight_bits.md)."""
    rows = data.file("eight_bits/errors.csv", read_lines)
    rows = rows.assign(percent=100 * rows.error.astype(float), n=rows["keys"].astype(int))
    drawn, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.9), layout="constrained", width_ratios=[1.15, 1])
    inputs = {"normal, 1k keys": "like the others", "columns with an offset": "offset by 30", "wide columns": "8 times as wide"}
    for at, (way, words, colour, mark) in enumerate((
            ("sum of 1 tile", "e4m3", "tab:red", "o"), ("smoothed", "e4m3, smoothed", "tab:orange", "v"),
            ("rotated", "e4m3, rotated", "tab:purple", "s"), ("int8 scores", "int8", "tab:blue", "o"),
            ("int8 scores smoothed", "int8, smoothed", "tab:cyan", "v"),
            ("int8 scores smoothed and rotated", "int8, both", "tab:green", "D"), ("bf16", "bf16", "0.4", "x"))):
        found = [rows.percent[(rows.input == x) & (rows.way == way)].iloc[0] for x in inputs]
        left.plot([x + 0.09 * (at - 3) for x in range(3)], found, mark, color=colour, markersize=6, label=words,
                  fillstyle="none")
    left.set(title="Rounding q and k: every 32nd column is", ylabel="error of o, percent", yscale="log",
             ylim=(0.2, 100), xlim=(-0.5, 2.5))
    left.set_xticks(range(3), inputs.values())
    left.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    for way, words, colour, up in (
            ("one sum", "one sum", "tab:red", 0), ("sum of 64 tiles", "64 tiles", "tab:orange", 0),
            ("sum of 8 tiles", "8 tiles", "tab:purple", 0), ("sum of 1 tile", "1 tile", "tab:blue", 5),
            ("float sums", "float", "tab:green", -5), ("bf16", "bf16", "0.4", 0)):
        one = rows[(rows.way == way) & rows.input.str.startswith("mean of v")]
        right.plot(one.n, one.percent, "o-", color=colour, markersize=3, linewidth=1.4)
        right.annotate(words, (one.n.iloc[-1], one.percent.iloc[-1]), (6, up), textcoords="offset points", fontsize=8,
                       color=colour, va="center", annotation_clip=False)
    right.set(title="Adding p v: float sums after so many tiles", xlabel="keys", xscale="log", yscale="log", xlim=(900, 420000))
    right.set_xticks([1024, 8192, 32768, 131072], ["1k", "8k", "32k", "128k"])
    right.minorticks_off()
    for axes in (left, right):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    return drawn
