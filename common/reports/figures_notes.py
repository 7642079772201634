"""figures_notes.py: figures of the notes, from numbers that are computed here."""
import math
import random

import numpy as np

import accept
from registry import figure
from style import offset, plt

F = np.float32
U = 2.0 ** -24  # roundoff of float
KAPPA = 1.0     # exp here is the double one, rounded once
LOOK = {"svg_hashsalt": "notes", "font_size": 9}


def exp32(x):
    """The exponential of a float, correctly rounded but for rare ties."""
    return F(math.exp(float(x)))


def axes_of(title, xlabel, ylabel, base=None, both=False):
    """A figure and its axes, logarithmic of base `base`."""
    drawn, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    if base:
        axes.set_xscale("log", base=base)
    if both:
        axes.set_yscale("log", base=base)
    return drawn, axes


def line(axes, x, y, label, colour, style="-"):
    """A line with its name at its right end."""
    axes.plot(x, y, style, color=colour, linewidth=1.4)
    axes.annotate(label, (x[-1], y[-1]), (4, 0), textcoords="offset points", fontsize=8,
                  color=colour, va="center", annotation_clip=False)


def checkpoints(n):
    return sorted({int(round(10 ** (i / 6))) for i in range(6 * int(math.log10(n)) + 1)} - {1})


@figure("mean_drift.svg", "notes", **LOOK)
def mean_drift(data):  # pylint: disable=unused-argument
    """Relative error of the running mean in two codings, with their bounds: a million values
    between 2.97e38 and 3e38, as in the tests of the mean."""
    n, rng = 10 ** 6, np.random.default_rng(1)
    x = (3e38 * (1 - 0.01 * rng.random(n))).astype(F)
    exact = np.cumsum(x.astype(float) / 1e38) / np.arange(1, n + 1) * 1e38
    at, weighted, increment = {*checkpoints(n)}, F(0), F(0)
    ks, errors = [], {"weighted": [], "increment": []}
    for k in range(1, n + 1):
        divisor, value = F(k), x[k - 1]
        weighted = weighted * (F(k - 1) / divisor) + value / divisor
        increment = increment + (value - increment) / divisor
        if k in at:
            ks.append(k)
            for name, mean in (("weighted", weighted), ("increment", increment)):
                errors[name].append(max(abs(float(mean) / exact[k - 1] - 1), U / 16))
    drawn, axes = axes_of("Running mean of values near 3e38", "values so far, k",
                          "relative error", 10, True)
    ks = np.array(ks, float)
    line(axes, ks, (1.5 * ks + 1) * U, "bound, weighted", "tab:red", "--")
    line(axes, ks, (0.5 * ks + 5) * U, "bound, increment", "tab:blue", "--")
    line(axes, ks, errors["weighted"], "weighted", "tab:red")
    line(axes, ks, errors["increment"], "increment", "tab:blue")
    return drawn


@figure("entropy.svg", "notes", **LOOK)
def entropy(data):  # pylint: disable=unused-argument
    """The mean distance from the maximum, the entropy, ln n."""
    n, rng = 1024, np.random.default_rng(2)
    spread = 2.0 ** np.arange(-4, 11, 0.5)
    z = rng.standard_normal(n)
    d_mean, h = [], []
    for sigma in spread:
        d = sigma * (z.max() - z)
        p = np.exp(-d) / np.exp(-d).sum()
        d_mean.append((p * d).sum())
        h.append(-(p[p > 0] * np.log(p[p > 0])).sum())
    drawn, axes = axes_of(f"{n} normal scores", "standard deviation of the scores", "", 2)
    axes.set_ylim(0, 1.08 * math.log(n))
    line(axes, spread, np.full(len(spread), math.log(n)), "ln n", "black", "--")
    line(axes, spread, h, "", "tab:orange")
    line(axes, spread, d_mean, "", "tab:blue")
    for name, x, y, colour in (("entropy H(p)", 2, h, "tab:orange"),
                               ("mean distance", 0.25, d_mean, "tab:blue")):
        offset(axes, name, (x, np.interp(x, spread, y)), (8, 8), color=colour,
               ha="left" if x > 1 else "right", va="baseline")
    return drawn


def online(scores):
    """(m, l) after each score, in float."""
    m, l = F(-np.inf), F(0)
    for x in scores:
        if x > m:
            l = l * exp32(m - x) + F(1) if l else F(1)
            m = x
        else:
            l = l + exp32(x - m)
        yield m, l


@figure("online_bound.svg", "notes", **LOOK)
def online_bound(data):  # pylint: disable=unused-argument
    """Error of the online denominator against its bound."""
    n, rng = 10 ** 5, random.Random(3)
    drawn, axes = axes_of("Online denominator", "scores so far, n", "relative error / u", 10, True)
    rows = {"random": [F(rng.gauss(0, 4)) for _ in range(n)],
            "ascending": [F(j * 2.0 ** -7) for j in range(n)]}
    for (name, row), colour in zip(rows.items(), ("tab:blue", "tab:red")):
        at, ns, errors, bounds, rises, last = {*checkpoints(n)}, [], [], [], -1, F(-np.inf)
        for k, (m, l) in enumerate(online(row), 1):
            rises += bool(m > last)
            last = m
            if k not in at:
                continue
            d = float(m) - np.array(row[:k], float)
            exact = np.exp(-d).sum()
            ns.append(k)
            errors.append(max(abs(float(l) / exact - 1) / U, 2.0 ** -6))
            bounds.append((np.exp(-d) * d).sum() / exact + KAPPA + (k - 1) + rises * (KAPPA + 1))
        line(axes, ns, bounds, f"bound, {name}", colour, "--")
        line(axes, ns, errors, name, colour)
    axes.texts[0].set_position((4, -6))
    axes.texts[2].set_position((4, 6))
    return drawn


def tiles(s, v, size=64):
    for first in range(0, len(s), size):
        yield s[first:first + size], v[first:first + size]


def lse_form_error(s, v, exact):
    """Of attention that keeps lse and an o that is divided after every tile."""
    lse, m, o = F(-np.inf), F(-np.inf), F(0)
    for s_t, v_t in tiles(s, v):
        m_new = max(s_t.max(), lse)
        p = np.array([exp32(x - m_new) for x in s_t], F)
        o = (o * exp32(m - m_new) if m > -np.inf else F(0)) + F((p * v_t).sum(dtype=F))
        old = exp32(lse - m_new) if lse > -np.inf else F(0)
        lse = m_new + F(math.log(old + p.sum(dtype=F)))
        m = m_new
    return abs(float(o * exp32(m - lse)) - exact)


def pair_form_error(s, v, exact):
    """Of attention that keeps m, l and o."""
    m, l, o = F(-np.inf), F(0), F(0)
    for s_t, v_t in tiles(s, v):
        m_new = max(s_t.max(), m)
        p = np.array([exp32(x - m_new) for x in s_t], F)
        factor = exp32(m - m_new) if m > -np.inf else F(0)
        l = l * factor + p.sum(dtype=F)
        o = o * factor + F((p * v_t).sum(dtype=F))
        m = m_new
    return abs(float(o / l) - exact)


@figure("lse_form.svg", "notes", **LOOK)
def lse_form(data):  # pylint: disable=unused-argument
    """Error of the LSE form against that of (m, l), for growing scores."""
    n, rng, shifts = 4096, np.random.default_rng(4), 2.0 ** np.arange(0, 15)
    errors = {lse_form_error: [], pair_form_error: []}
    for shift in shifts:
        worst = dict.fromkeys(errors, 0.0)
        for _ in range(4):
            s = (rng.standard_normal(n) + shift).astype(F)
            v = (0.5 + 0.5 * rng.random(n)).astype(F)
            p = np.exp(s.astype(float) - float(s.max()))
            exact = (p * v).sum() / p.sum()
            for form in errors:
                worst[form] = accept.worst([worst[form], form(s, v, exact) / U])
        for form, line_of in errors.items():
            line_of.append(worst[form])
    drawn, axes = axes_of(f"Attention over {n} keys in tiles of 64, values in [1/2, 1]",
                          "size of the scores", "largest error of o / u", 2, True)
    bound = [n / 64 * (shift + 2 * math.log(n) + 2) for shift in shifts]
    line(axes, shifts, bound, "T (|L| + ...)", "tab:red", "--")
    line(axes, shifts, errors[lse_form_error], "LSE form", "tab:red")
    line(axes, shifts, errors[pair_form_error], "(m, l, o)", "tab:blue")
    return drawn


@figure("kinks.svg", "notes", **LOOK)
def kinks(data):  # pylint: disable=unused-argument
    """Two data sets that no fixed number of sums tells apart."""
    sets = {"{-3, -1, 0, 1, 3}": [-3, -1, 0, 1, 3], "{4, -1, -1, -1, -1}": [4, -1, -1, -1, -1]}
    s = np.linspace(-5, 6, 441)
    drawn, axes = axes_of("Same number, mean, sum of distances and of squares; other kinks",
                          "s", "sum of |x - s|")
    for (name, x), colour in zip(sets.items(), ("tab:blue", "tab:red")):
        line(axes, s, np.abs(np.subtract.outer(s, x)).sum(axis=1), name, colour)
        values = sorted(set(x))
        axes.plot(values, [sum(abs(a - b) for a in x) for b in values], "o", color=colour,
                  markersize=4)
    axes.axvline(0, color="gray", linewidth=0.8)
    axes.annotate("common mean", (0, 28), (4, 0), textcoords="offset points", fontsize=8,
                  color="gray")
    axes.set_ylim(0, 32)
    axes.texts[0].set_position((4, 5))
    axes.texts[1].set_position((4, -5))
    return drawn
