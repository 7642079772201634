"""figures_notes.py: figures of the notes: numbers that are computed here, attention and its denominator
in float beside the bounds of notes/numerics.md; and a training of common/library/models."""
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


def draw(title, xlabel, ylabel, base, lines):
    """Lines (x, y, name, colour, style, shift of the name) with logarithmic axes."""
    drawn, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_xscale("log", base=base)
    axes.set_yscale("log", base=base)
    for x, y, name, colour, style, shift in lines:
        axes.plot(x, y, style, color=colour, linewidth=1.4)
        axes.annotate(name, (x[-1], y[-1]), (4, shift), textcoords="offset points", fontsize=8,
                      color=colour, va="center", annotation_clip=False)
    return drawn


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
    lines = []
    for (name, row), colour, shift in zip(rows.items(), ("tab:blue", "tab:red"), (-6, 6)):
        points = []
        for k, (m, l, rises) in enumerate(online(row), 1):
            if k in at:
                d = float(m) - np.array(row[:k], float)
                exact = np.exp(-d).sum()
                points.append((k, max(abs(float(l) / exact - 1) / U, 2.0 ** -6),
                               (np.exp(-d) * d).sum() / exact + KAPPA + (k - 1) + rises * (KAPPA + 1)))
        ns, errors, bounds = zip(*points)
        lines += [(ns, bounds, f"bound, {name}", colour, "--", shift),
                  (ns, errors, name, colour, "-", 0)]
    return draw("Online denominator", "scores so far, n", "relative error / u", 10, lines)


def tiled_error(s, v, exact, by_lse):
    """Of attention in tiles of 64 that keeps (m, l, o), or lse and an o divided after each."""
    m, l, lse, o = F(-np.inf), F(0), F(-np.inf), F(0)
    for first in range(0, len(s), 64):
        s_t, v_t = s[first:first + 64], v[first:first + 64]
        m_new = max(s_t.max(), lse if by_lse else m)
        p = np.array([exp32(x - m_new) for x in s_t], F)
        o = (o * exp32(m - m_new) if m > -np.inf else F(0)) + F((p * v_t).sum(dtype=F))
        if by_lse:
            l = exp32(lse - m_new) if lse > -np.inf else F(0)
            lse = m_new + F(math.log(l + p.sum(dtype=F)))
        else:
            l = l * (exp32(m - m_new) if m > -np.inf else F(0)) + p.sum(dtype=F)
        m = m_new
    return abs(float(o * exp32(m - lse) if by_lse else o / l) - exact)


@figure("lse_form.svg", "notes", **LOOK)
def lse_form(data):  # pylint: disable=unused-argument
    """Error of the LSE form against that of (m, l), for growing scores."""
    n, rng, shifts = 4096, np.random.default_rng(4), 2.0 ** np.arange(0, 15)
    errors = {True: [], False: []}
    for shift in shifts:
        worst = dict.fromkeys(errors, 0.0)
        for _ in range(4):
            s = (rng.standard_normal(n) + shift).astype(F)
            v = (0.5 + 0.5 * rng.random(n)).astype(F)
            p = np.exp(s.astype(float) - float(s.max()))
            exact = (p * v).sum() / p.sum()
            for form in errors:
                worst[form] = np.max([worst[form], tiled_error(s, v, exact, form) / U])
        for form, line in errors.items():
            line.append(worst[form])
    bound = [n / 64 * (shift + 2 * math.log(n) + 2) for shift in shifts]
    return draw(f"Attention over {n} keys in tiles of 64, values in [1/2, 1]",
                "size of the scores", "largest error of o / u", 2,
                [(shifts, bound, "T (|L| + ...)", "tab:red", "--", 0),
                 (shifts, errors[True], "LSE form", "tab:red", "-", 0),
                 (shifts, errors[False], "(m, l, o)", "tab:blue", "-", 0)])


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
