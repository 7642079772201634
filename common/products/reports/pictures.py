"""pictures.py: what an execution shows: the phases of mbarriers, and the attention map of a real
sentence."""
import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np

from registry import figure
from results import NoData
from style import GREY as CAPTION
from style import offset, plt

COLOURS = ["#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d9d9", "#c7e9c0", "#fdae6b"]


# --- The phases of mbarriers ---

def barrier_events(program):
    """(what, thread, barrier, phase) of one tile of rung 9 with 6 blocks of keys, executed on the CPU;
    barriers in the order in which they are set up."""
    with tempfile.TemporaryDirectory() as place:
        words = []
        for name, rows in (("q", 128), ("k", 768), ("v", 768)):
            np.save(f"{place}/{name}.npy", np.zeros((rows, 128), "<f2"))
            words += [f"--{name}", f"{place}/{name}.npy"]
        done = subprocess.run([program, "run", *words, "--o", f"{place}/o.npy", "--device", "cpu", "--variant",
                               "warp_specialized"], env=os.environ | {"CUDA_ON_CPU_TRACE": f"{place}/trace"},
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoData(f"{program} run failed: {done.stderr.strip()}")
        lines = pathlib.Path(place, "trace").read_text(encoding="ascii").splitlines()
    events = [(what, int(thread), int(address), int(phase))
              for what, thread, address, phase in (line.split(",") for line in lines)]
    names = [address for what, _, address, _ in events if what == "begins"]
    return [(what, thread, names.index(address), phase) for what, thread, address, phase in events]


def bars(events):
    """(lane, begin, end, kind, text) of what the threads do, and of what lies in the stages."""
    since, block = {}, {}
    for at, (what, thread, barrier, _) in enumerate(events, 1):
        stage, full, lane = (barrier - 1) // 2, barrier % 2, 6 + thread // 128 if thread else 0
        if what == "flips":
            text = ("read ", "copy ")[full] if at - since[stage, full] > 2 else ""
            yield 1 + 3 * stage, since[stage, full], at, full, f"{text}{block[stage]}"
            since[stage, 0] = at
        elif what == "waits":
            since[thread] = at
        elif what == "passes":
            if thread in since:
                yield lane, since.pop(thread), at, 5, "waits"
            since[thread, barrier] = at
        elif full:  # the producer issues a copy
            block[stage] = block.get(stage, stage - 2) + 2
            since[stage, 1] = at
            yield 0, at - 1, at, 1, block[stage]
        else:
            yield lane, since[thread, barrier - 1], at, 0, block[stage]


@figure("phases.png", "notes", font_size=9, savefig_dpi=160)
def phases(data):
    """The two stages of K between a producer and two consumers: who copies, reads and waits when, and
    the phase bits of the four mbarriers, event by event of an execution on the CPU."""
    program = pathlib.Path(data.options.program or "").parent / "05_flash_cuda"
    if not program.is_file():
        raise NoData(f"no {program}; make build makes it")
    # Barriers 1 to 4 are k_full[0], k_empty[0], k_full[1] and k_empty[1].
    events = [event for event in barrier_events(program) if event[0] != "begins" and 1 <= event[2] <= 4
              and (event[0] == "flips" or event[1] in (0, 128, 256))]
    drawn, axes = plt.subplots(figsize=(8.2, 3.6), layout="constrained")
    lanes = ["producer", "stage 0", "k_full[0]", "k_empty[0]", "stage 1", "k_full[1]", "k_empty[1]",
             "consumer 0", "consumer 1"]
    axes.set(xlim=(0, len(events)), ylim=(len(lanes) - 0.1, -0.2), xlabel="events, in order", xticks=[])
    axes.set_yticks([lane + 0.4 for lane in range(len(lanes))], lanes)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for lane, begin, end, kind, text in bars(events):
        axes.add_patch(plt.Rectangle((begin, lane + 0.1), end - begin, 0.6, facecolor=COLOURS[1 - kind]
                                     if kind < 2 else COLOURS[kind]))
        axes.text((begin + end) / 2, lane + 0.42, text, fontsize=7, ha="center", va="center")
    for barrier, lane in zip(range(1, 5), (2, 3, 5, 6)):
        changes = [(at, phase) for at, (what, _, of, phase) in enumerate(events, 1)
                   if what == "flips" and of == barrier]
        times, bits = zip((0, 0), *changes, (len(events), changes[-1][1]))
        axes.step(times, [lane + 0.65 - 0.5 * bit for bit in bits], where="post", color="black", linewidth=1)
    return drawn


# --- The attention map ---

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
