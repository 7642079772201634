"""tables_files.py: tables of single files: several machines, serving, a course, and any file as
it stands."""
import pathlib
import re

from registry import table
from results import Malformed, NoData, each, read_lines
from words import grid, markdown, provenance, si, significant


def source(row, *more):
    """The provenance of a file that is one run: its first line's."""
    date = row.date[:10]
    return ["", "*" + "; ".join([row.machine, row.compiler, f"commit {row.commit}", date, *more])
            + ".*"]


@table("file-(.+)")
def file(data, name):  # pylint: disable=unused-argument
    """notes/results/NAME.csv as it stands."""
    path = pathlib.Path("notes/results") / f"{name}.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    lines = read_lines(path)
    header = [re.sub("_us$", ", µs", cell).replace("_", " ") for cell in lines.columns]
    return markdown(header, lines.values.tolist())


# --- Several GPUs, several processes ---

def problem_of(row):
    """A row's problem in words."""
    if row.seqlen_q == 1:
        return f"decoding: 1 query, {si(row.seqlen_k)} keys"
    if row.seqlen_q != row.seqlen_k:
        return f"{si(row.seqlen_q)} queries, {si(row.seqlen_k)} keys"
    return f"{si(row.seqlen_q)} x {si(row.seqlen_k)}" + (", causal" if row.causal else "")


def way_of(row):
    """'ring' of 'ring-2'."""
    return row.variant.rsplit("-", 1)[0]


def machines_line(rows):
    """The cells of one problem: each method's latest time."""
    times = {row.variant: row for row in rows}
    single = times.get("tuned") or times.get("split_kv")
    best, *others = sorted((row for name, row in times.items()
                            if row.stage == "5" and name.rsplit("-", 1)[-1].isdigit()),
                           key=lambda row: row.median_s)
    others = [row for row in times.values() if row in others]
    peer = min((row for row in rows if row.stage == "peer"), key=lambda row: row.median_s,
               default=None)
    return [problem_of(best),
            f"{1e3 * single.median_s:.2f} ms" if single else "does not fit",
            f"{way_of(best)}: {1e3 * best.median_s:.2f} ms",
            f"{single.median_s / best.median_s:.2f}" if single else "",
            ", ".join(f"{way_of(row)} {1e3 * row.median_s:.2f}" for row in others),
            f"{1e3 * peer.median_s:.2f} ms ({peer.median_s / best.median_s:.2f})"
            if peer else ""]


@table("multi-gpu")
def multi_gpu(data):
    """Several GPUs beside one, from multi_gpu/times.csv."""
    rows, shapes = each(data.file("multi_gpu/times.csv")), {}
    for row in rows:
        shapes.setdefault((row.seqlen_q == 1, row.seqlen_q != row.seqlen_k, -row.seqlen_q,
                           row.causal, row.seqlen_k), []).append(row)
    gpus = int(max(row.threads for row in rows))
    row = rows[0]
    return ["16 heads, d = 128, bf16. Speed-up: one GPU's time over that of the fastest way. "
            "Peer: PyTorch's context_parallel in the same run (its time over ours).", ""] + \
        markdown(["problem", "one GPU", f"{gpus} GPUs", "speed-up", "other ways, ms", "peer"],
                 [machines_line(shapes[key]) for key in sorted(shapes)]) + \
        ["", f"*{gpus} x {row.machine}; {row.compiler}; commit {row.commit}; {row.date[:10]}.*"]


@table("ranks")
def ranks(data):
    """Several processes beside as many threads, from multi_gpu/ranks.csv."""
    rows = data.file("multi_gpu/ranks.csv")
    methods, row = list(rows.variant.unique()), each(rows)[0]
    times, lines = rows.groupby(["causal", "variant"]).median_s.median(), []
    for causal in sorted({*rows.causal}):
        one = times[causal, "all_cores"]
        lines.append(["causal" if causal else "full"] + [
            f"{1e3 * times[causal, name]:.0f} ms"
            + ("" if name == "all_cores" else f" ({one / times[causal, name]:.2f})")
            for name in methods])
    return [f"{row.heads_q:.0f} heads, {si(row.seqlen_k)} queries and keys, "
            f"d = {row.head_dim:.0f}, f32. In brackets: times as fast as threads.", ""] + \
        markdown(["mask"] + [f"{row.threads:.0f} threads" if name == "all_cores" else
                             "{}, {} ranks".format(*name.rsplit("-", 1)) for name in methods],
                 lines) + source(row, f"median of {len(rows) // len(methods) // len(lines)} rounds")


# --- Serving ---

BASELINES = {"layout": "arrays [B, H, L, D]", "packed": "a batch of equal lengths",
             "window": "the share of the pairs in the time of all keys",
             "paged": "the same keys in a row"}


def number_in(row, name):
    """ideal_s or bound of the row's flags; None where it is not there."""
    found = re.search(rf"{name} ([0-9.e+-]+)", row.flags)
    return float(found[1]) if found else None


def serving_shape(row):
    """Heads, lengths, d and mask in words."""
    heads = f"{row.heads_q:.0f}" + ("" if row.heads_q == row.heads_kv else f"/{row.heads_kv:.0f}")
    lengths = f"{si(row.seqlen_k)} keys" if row.seqlen_q == 1 \
        else f"{si(row.seqlen_q)} x {si(row.seqlen_k)}"
    return f"{row.batch:.0f} x {heads} heads, {lengths}, d = {row.head_dim:.0f}" \
        + (f" and {row.head_dim_v:.0f}" if row.head_dim_v != row.head_dim else "") \
        + (", causal" if row.causal else "")


@table("serving")
def serving(data):
    """What windows, packed sequences, pages and layouts cost, and the host's time of a call, from
    hopper/serving.csv."""
    rows, cells, calls = each(data.file("hopper/serving.csv")), [], []
    for row in rows:
        feature, _, name = row.variant.partition(": ")
        ideal, bound = number_in(row, "ideal_s"), number_in(row, "bound")
        if feature == "call":
            calls.append(f"{1e6 * row.median_s:.1f} µs of the host from Python, "
                         f"{1e6 * ideal:.1f} µs from C ({serving_shape(row)})")
            continue
        speed = f"{row.gbps:.0f} GB/s" if feature == "paged" else \
            f"{row.gflops / 1000:.0f} TFLOP/s"
        cells.append([feature, name.replace(";", ","), serving_shape(row),
                      f"{1e3 * row.median_s:.3f} ms", speed, f"{ideal / row.median_s:.2f}",
                      f"{bound:.2f}" if bound else ""])
    return ["bf16, calls back to back, through the Python package. Ratio: the time of "
            + "; ".join(f"{text} ({name})" for name, text in BASELINES.items())
            + " over the measured time. Bound: the ratio of a kernel whose only loss is that it "
            "computes whole blocks of keys.", "",
            *markdown(["feature", "", "shape", "time", "speed", "ratio", "bound"], cells),
            "", "One call takes " + "; ".join(calls) + "."] + source(rows[0])


@table("decode-lengths")
def decode_lengths(data):
    """One new query per sequence over caches of different lengths, from hopper/decode.csv."""
    rows = each(data.file("hopper/decode.csv"))
    names, cells, methods = {}, {}, dict.fromkeys(row.variant for row in rows)
    for row in rows:
        place, lengths = row.flags.split("; ")[1:3]
        names.setdefault(f"{row.batch:.0f} x {row.heads_q:.0f}/{row.heads_kv:.0f} heads, up to "
                         f"{si(row.seqlen_k)} keys, {lengths}, {place}", {})[row.variant] = row
    for name, line in names.items():
        cells |= {(name, of): f"{row.gbps:.0f}" for of, row in line.items()}
        peer = min((row.median_s for row in line.values() if row.stage == "peer"), default=None)
        if "five_steps" in line and peer:
            cells[name, "ratio"] = f"{peer / line['five_steps'].median_s:.2f}"
    return ([f"GB/s of the keys and values that are visible, d = 128, bf16, {rows[0].flags.split(';')[0]}"
             "; ratio: times as fast as the best of the others.", ""]
            + grid(["caches", *methods, "ratio"], cells, names, [*methods, "ratio"])
            + provenance(rows))


@table("libraries-(forward|backward)")
def libraries(data, which):
    """The shapes that were measured beside FlashAttention-3 and -4, every method of the run."""
    folder = {"forward": "hopper", "backward": "backward"}[which]
    rows = each(data.file(f"{folder}/libraries.csv"))
    rows = [row for row in rows if row.variant != "pytorch-flash"]
    methods = sorted(dict.fromkeys(row.variant for row in rows), key=lambda name: (
        name.endswith("deterministic") or name == "gradient_in_order",
        name.startswith(("pytorch", "flash"))))
    names, cells = {}, {}
    for row in rows:
        name = f"{serving_shape(row)}, {row.regime}"
        names[name], cells[name, row.variant] = True, f"{row.gflops / 1000:.0f}"
    return (["TFLOP/s, bf16.", ""] + grid(["shape", *methods], cells, names, methods)
            + provenance(rows))


@table("library_cpu")
def library_cpu(data):
    """The package's attention on a CPU against PyTorch's, from library/cpu.csv."""
    rows = data.file("library/cpu.csv")
    keys, cells = sorted(rows.seqlen_k.unique()), []
    for kind, part in rows.groupby(["dtype", "threads", "head_dim", "causal"], sort=False):
        best = part.pivot_table(index="seqlen_k", columns="variant", values="min_s", aggfunc="min")
        ratio = best["pytorch"] / best["five_steps"]
        cells.append([kind[0], f"{kind[1]:.0f}", f"{kind[2]:.0f}", "causal" if kind[3] else "full",
                      *(f"{ratio[n]:.2f}" if n in ratio else "" for n in keys)])
    return ["Time of PyTorch's attention over the time of ours, for so many queries and keys; the least time "
            "of each, in turn, through Python. 8 heads up to 1k keys, 2 beyond.", "",
            *markdown(["", "threads", "d", "", *map(si, keys)], cells)] + source(each(rows)[0])


# --- A course ---

TARGETS = pathlib.Path("common/grader/targets.csv")
CPU_SPEED = re.compile(r"^ \* Speed: \S+, half of the points at (\S+) % of (\w+), all at (\S+) %\.$",
                       re.M)
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# by a project's ceiling: the operation, the types, the length of its rows or keys
GPU_WORK = {"copy": ("softmax", ("f32",), 65536), "gemm": ("attention", ("f16", "bf16"), 8192)}


def cpu_targets():
    """Projects in C: the head of each file names its shares, its solution reaches the second."""
    for path in sorted(pathlib.Path(".").glob("0*/exercises/projects/*.c")):
        found = CPU_SPEED.search(path.read_text(encoding="utf-8"))
        if not found:
            raise Malformed(f"{path}: no line 'Speed: ...'")
        half, ceiling, most = found.groups()
        yield [f"`{path.stem}`", "any CPU, one core", f"{half} % of {ceiling}",
               f"{most} % of {ceiling}", "reached by its solution"]


def judged_share(row):
    """Percent of the ceiling, as the judge counts: softmax reads and writes each row once."""
    if row.op == "attention":
        return row.pct_ceiling
    return 100 * 2e-9 * row.rows * row.cols * BYTES[row.dtype] / row.median_s / row.ceiling


def best_measured(rows, pattern, kind):
    """Our fastest kernel at the project's row length or head dimension on such a GPU, or None."""
    op, dtypes, length = GPU_WORK[kind]
    rows = rows.query(
        "device == 'gpu' and op == @op and dtype in @dtypes and stage not in ('peer', 'roof') and "
        "ceiling_kind == @kind and ceiling > 0 and length == @length and head_dim in (0, 128) and "
        "causal == 0 and regime == 'cold'")
    return max(each(rows[rows.machine.str.contains(pattern)]), key=judged_share, default=None)


@table("targets")
def targets(data):
    """The projects of a course: shares for half and all points, and what of it we measured."""
    lines = list(cpu_targets())
    for line in each(read_lines(TARGETS)):
        found = None if line.pattern == "." else \
            best_measured(data.all, line.pattern, line.ceiling)
        lines.append([f"`{line.project}`", line.machine, f"{line.half_at} % of {line.ceiling}",
                      f"{line.all_at} % of {line.ceiling}",
                      f"{significant(judged_share(found), 2)} % by `{found.variant}`, "
                      f"{found.machine.split('; ')[-1]}" if found else "no"])
    return markdown(["project", "machine", "half of the points", "all", "measured"], lines)
