"""tables_files.py: tables of single files: several machines, serving, and any file as it stands."""
import pathlib
import re
import sys

import pandas as pd

from measure import PARTS
from registry import table
from results import each, middle_run, read_lines
from words import grid, interval, listing, markdown, of_runs, shape_text, si


@table("file-(.+)")
def file(data, name):
    """NAME.csv as it stands; what all of its lines say of the measurement stands below, once."""
    lines, note = data.file(f"{name}.csv", read_lines), []
    if "measured" in lines and lines.measured.nunique() == 1:
        note = ["", f"*{lines.pop('measured')[0]}.*"]
    header = [re.sub("^us$", "µs", re.sub("[_ ]us$", ", µs", cell)).replace("_", " ") for cell in lines.columns]
    return "", markdown(header, lines.values.tolist()) + note, []


@table("parts")
def parts(_):
    """The parts of measure.py and their files."""
    return "", markdown(["file", "holds", "part"], [[f"`{part.file}`", part.what + f"; {part.runs} runs" * (part.runs > 1),
                                                      f"`{name}`"] for name, part in PARTS.items()]), []


@table("exercises-(practice|assignments)")
def exercises(_, kind):
    """The exercises of the course, as the heads of their solutions have them."""
    sys.path.append(str(pathlib.Path(__file__).parents[1] / "course"))
    from source import exercises as all_of_them
    found = [x for x in all_of_them() if (x.kind == "assignment") == (kind == "assignments")]
    hours = sum(float(x.time.split()[0]) / (60 if "minute" in x.time else 1) for x in found)
    words, uses = ("assignments", ["includes"]) if kind == "assignments" else ("exercises", [])
    return f"{len(found)} {words}, {sum(x.points for x in found)} points, about {hours:.0f} hours:", markdown(
        ["session", "file", "points", "time at home", "task", *uses],
        [[str(x.number), f"`{x.name}`", str(x.points), x.time, x.title, *[", ".join(f"`{y}`" for y in x.uses)] * len(uses)]
         for x in found]), []


# --- 8 bits ---

@table("eight-bits-(scores|sums)")
def eight_bits(data, of):
    """What attention in 8 bits errs by, in percent of o's root mean square: of sums, on inputs whose
    values have a mean; of scores, on the others."""
    rows = data.file("eight_bits/errors.csv", read_lines)
    of_sums = rows.input.str.contains("mean of v|needle")
    ways = r"bf16|e4m3 cache|.*sum.*|largest.*" if of == "sums" else r"bf16|.*cache|sum of 1 .*|.*(smooth|rotat|int8).*"
    return "", grid("way", {
        (row.way, row.input.removeprefix("mean of v 1, ").replace("columns with an offset", "an offset")):
        f"{100 * float(row.error):.2g}" + (f", found {float(row.found):.0f} %" if row.found else "")
        for row in rows[(of_sums == (of == "sums")) & rows.way.str.fullmatch(ways)].itertuples()}), []


def of_eight_bits(data, note, op="attention"):
    """{(method, 'causal 8k'): its lines, cold and sustained}."""
    found = {}
    for row in each(data.file("hopper/eight_bits.csv", read_lines)):
        if row.op == op and row.flags.split("; ", 1)[1].startswith(f"bhld; {note}"):
            mask = "causal" if int(row.causal) else "full"
            found.setdefault((row.variant.replace(";", ","), f"{mask} {si(int(row.seqlen_k))}"), []).append(row)
    return found


def rates_beside(found, peer):
    """Cells of rates, cold / sustained, and their shares of the peer's."""
    def text(row, other):
        rate, of_peer = float(row.gflops) / 1000, float(other.gflops) / 1000
        return f"{rate:.0f}" + f" ({rate / of_peer:.2f})" * (row is not other)
    return {(method, problem): " / ".join(map(text, rows, found[peer, problem]))
            for (method, problem), rows in found.items()}


@table("eight-bits-gpu")
def eight_bits_gpu(data):
    """TFLOP/s beside FlashAttention-3's in the same run."""
    found = of_eight_bits(data, "no lse")
    row = next(iter(found.values()))[0]
    return (f"d = 128, cold / sustained, TFLOP/s (of FlashAttention-3's); {row.machine}, {row.date[:10]}, commit "
            f"{row.commit}.", grid("kernel", rates_beside(found, "flash-attention-3")), [])


@table("eight-bits-errors")
def eight_bits_errors(data):
    """Errors on a GPU, in percent of o's root mean square, before q, k and v are rounded: of the inputs as they
    are, and smoothed and rotated."""
    rows = each(data.file("hopper/eight_bits_errors.csv", read_lines))
    return "", grid("kernel", {
        (f"{row.method.replace(';', ',')}{', smoothed and rotated' * bool(row.way)}", row.input.replace(";", ",")):
        f"{100 * float(row.error):.2g}" + (f", found {100 * float(row.found):.0f} %" if row.found else "")
        for row in rows if row.way in ("", "both") and "tile" not in row.method}), []


@table("eight-bits-caches")
def eight_bits_caches(data):
    """A prefill over a cache in 8 bits beside one in 16, and codes made of numbers."""
    times = {(f"{method}, µs", problem): " / ".join(f"{1e6 * float(row.median_s):.0f}" for row in rows)
             for (method, problem), rows in of_eight_bits(data, "", "quantise").items()}
    return "", grid("way", rates_beside(of_eight_bits(data, "lse; prefill"), "cache in bf16") | times), []


# --- Several GPUs, several processes ---

@table("multi-gpu")
def multi_gpu(data):
    """Several GPUs beside one, from multi_gpu/times.csv."""
    rows = data.file("multi_gpu/times.csv")
    rows = rows.assign(text=[shape_text(row) for row in each(rows)], place=rows.seqlen_q == 1).sort_values(
        ["place", "seqlen_q", "causal", "seqlen_k", "median_s"], ascending=[True, False, True, True, True])
    lines = []
    for text, problem in rows.groupby("text", sort=False):
        single = problem[problem.variant.isin(("tuned", "split_kv"))].median_s.max()
        ours = problem[(problem.stage == "5") & problem.variant.str.contains("-")]
        best, peer = ours.median_s.min(), problem[problem.stage == "peer"].median_s.min()
        ways = [f"{name.rsplit('-', 1)[0]} {1e3 * took:.2f}" for name, took in zip(ours.variant, ours.median_s)]
        lines.append([text, f"{1e3 * single:.2f} ms" if single == single else "does not fit", ", ".join(ways),
                      f"{single / best:.2f}".replace("nan", ""),
                      f"{1e3 * peer:.2f} ms ({peer / best:.2f})" if peer == peer else ""])
    return ("bf16. Speed-up: one GPU's time over that of the fastest way. "
            "Peer: PyTorch's context_parallel in the same run (its time over ours).", markdown(
                ["problem", "one GPU", f"{rows.threads.max():.0f} GPUs, ms", "speed-up", "peer"], lines), rows)


@table("ranks")
def ranks(data):
    """Several processes beside as many threads, from multi_gpu/ranks.csv."""
    rows = data.file("multi_gpu/ranks.csv")
    row, times = each(rows)[0], rows.groupby(["causal", "variant"]).median_s.median()
    cells = {("causal" if causal else "full", name): f"{1e3 * took:.0f} ms" + (
        "" if name == "all_cores" else f" ({times[causal, 'all_cores'] / took:.2f})")
        for (causal, name), took in times.items()}
    return (f"{row.heads_q:.0f} heads, {si(row.seqlen_k)} queries and keys, "
            f"d = {row.head_dim:.0f}, f32; medians. In brackets: times as fast as threads.",
            grid("mask", cells, ["causal", "full"][:rows.causal.nunique()][::-1], rows.variant.unique(),
                 lambda name: f"{row.threads:.0f} threads" if name == "all_cores" else
                 "{}, {} ranks".format(*name.rsplit("-", 1))), rows)


# --- Serving ---

BASELINES = {"packed": "a batch of equal lengths",
             "window": "the share of the pairs in the time of all keys",
             "scores": "the same without it"}
PEER = "flash-attention-4"


@table("serving")
def serving(data):
    """What windows, packed sequences, sinks and a soft cap cost, beside FlashAttention-4, from
    hopper/serving.csv."""
    runs = data.file("hopper/serving.csv")
    what = ["variant", "batch", "heads_q", "seqlen_k", "head_dim", "causal"]
    for of in ("ideal", PEER):
        runs[of] = pd.to_numeric(runs["flags"].str.extract(rf"{of}_s ([0-9.e+-]+)")[0]) / runs.median_s
    ratios = runs.groupby(what)[["ideal", PEER]].agg(interval)

    def ratio(row, of):
        return ratios[of][tuple(getattr(row, name) for name in what)].replace("nan", "")
    return ("bf16, calls back to back, through the Python package. Ratio: the time of "
            + "; ".join(f"{text} ({name})" for name, text in BASELINES.items())
            + " over the measured time. Last column: times as fast as FlashAttention-4 in the same rounds"
            + of_runs(runs.groupby(what).size(), "; the least and the largest ratio of {} runs") + ".",
            listing(each(middle_run(runs, what)), {
                "feature": lambda row: row.variant.split(": ")[0],
                "": lambda row: row.variant.split(": ")[1].replace(";", ","),
                "shape": shape_text, "time": lambda row: f"{1e3 * row.median_s:.3f} ms",
                "speed": lambda row: f"{row.gflops / 1000:.0f} TFLOP/s",
                "ratio": lambda row: ratio(row, "ideal"),
                "FlashAttention-4": lambda row: ratio(row, PEER)}), runs)
