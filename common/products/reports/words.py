"""words.py: numbers, units and Markdown, for tables and figures."""

MOST_PERCENT = 105  # a share above this is none: see ceiling_exceeded() in common/core/measurement
CACHED, GEMM, WRONG = "†", "§", "‡"
MARKS = {CACHED: "a cache served some of the passes",
         GEMM: "faster than the library's matrix product",
         WRONG: "above its ceiling: an error until explained"}


def si(value):
    """'4k' for 4096; powers of two in units of 1024."""
    value = int(value)
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)


def significant(value, digits=3):
    """'1234', '12.3', '0.00123': at least so many digits, never an exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - int(f"{abs(value):e}".split("e")[1]))
    return f"{value:.{places}f}"


def rate(gflops):
    """'10.4 GFLOP/s', '3.13 TFLOP/s': TFLOP/s from 1000 GFLOP/s on."""
    return f"{significant(gflops)} GFLOP/s" if gflops < 999.5 \
        else f"{significant(gflops / 1000)} TFLOP/s"


def seconds(value):
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * scale >= 1 or unit == "µs":
            return f"{significant(value * scale)} {unit}"


def panel_text(head_dim, causal):
    return f"d = {head_dim:.0f}{', causal' if causal else ''}"


def shape_text(row):
    """'4k x 64k' of softmax; '2 x 32/8 heads, 1 query, 8k keys, d = 192 and 128, causal'."""
    if not row.seqlen_k:
        return f"{si(row.rows)} x {si(row.cols)}"
    heads = f"{row.heads_q:.0f}" + (f"/{row.heads_kv:.0f}" if row.heads_q != row.heads_kv else "")
    heads = f"{row.batch:.0f} x {heads} heads, " if row.batch > 1 else \
        f"{heads} heads, " if row.heads_q > 1 else ""
    lengths = f"1 query, {si(row.seqlen_k)} keys" if row.seqlen_q == 1 \
        else f"{si(row.seqlen_q)} x {si(row.seqlen_k)}"
    dims = f", d = {row.head_dim:.0f}" \
        + (f" and {row.head_dim_v:.0f}" if row.head_dim_v != row.head_dim else "")
    return heads + lengths + dims + ", causal" * bool(row.causal)


def mark_of(row):
    """'' or the mark of a share of the ceiling that cannot be one."""
    if row.pct_ceiling <= MOST_PERCENT:
        return ""
    if row.ceiling_kind == "copy" and row.ceiling and row.rows and row.cols:
        size = 4 if row.dtype == "f32" else 2
        once = 2 * size * row.rows * row.cols / row.median_s / 1e9  # x read, y written
        if 100 * once <= MOST_PERCENT * row.ceiling:
            return CACHED
    return GEMM if row.ceiling_kind == "gemm" and row.device == "gpu" else WRONG


def share_of(row, kind=""):
    """'98 %', '98 % of fma' or '187 %† of copy'; '' when no ceiling was measured."""
    if not row.pct_ceiling:
        return ""
    return f"{row.pct_ceiling:.0f} %{mark_of(row)}" + (f" of {kind}" if kind else "")


def interval(ratios):
    """'1.10–1.13', the least and the largest of some ratios; '1.10' where they are the same."""
    return "–".join(dict.fromkeys(f"{x:.2f}" for x in (min(ratios), max(ratios))))


def of_runs(sizes, text):
    """The text with the number of runs, '3', or '1 to 3' where cells differ; '' of single ones."""
    least, most = min(sizes), max(sizes)
    return text.format(f"{least} to {most}" if least < most else most) if most > 1 else ""


def in_brackets(text):
    return f" ({text})" if text else ""


def footnotes(lines):
    """Lines of Markdown that explain the marks in the lines of a table."""
    text = "\n".join(lines)
    notes = [f"{mark} {why}" for mark, why in MARKS.items() if mark in text]
    return ["", "*" + "; ".join(notes) + ".*"] if notes else []


def markdown(header, lines):
    """A table: the first column and those of prose left, the others right."""
    prose = [max((len(line[c]) for line in lines), default=0) > 40
             for c in range(len(header))]
    rule = [":--" if left or not c else "--:" for c, left in enumerate(prose)]
    return ["| " + " | ".join(cells) + " |" for cells in [header, rule] + lines]


def listing(rows, columns):
    """A table of a line per row; columns: {heading: its text of a row}."""
    return markdown([*columns], [[text(row) for text in columns.values()] for row in rows])


def grid(first, cells, names=None, columns=None, head=str):
    """A table of cells {(name, column): text}, empty where there is none; in the order of
    `names` and `columns`, or in that of the cells.  head: the heading of a column."""
    names = dict.fromkeys(name for name, _ in cells) if names is None else names
    columns = [*dict.fromkeys(column for _, column in cells)] if columns is None else [*columns]
    return markdown([first, *map(head, columns)],
                    [[name] + [cells.get((name, column), "") for column in columns]
                     for name in names])


def days_of(dates):
    """'2026-01-02', or the first and the last of several days with ' to ' between."""
    days = sorted({date[:10] for date in dates if date})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def provenance(rows):
    """The sentence under a table that says where it comes from; rows: a table of pandas or a list."""
    rows = list(rows.itertuples() if hasattr(rows, "itertuples") else rows)
    machine, compiler, commit = (", ".join(sorted({getattr(row, name) for row in rows} - {""}))
                                 for name in ("machine", "compiler", "commit"))
    when = days_of(row.date for row in rows) or "unknown date"
    return ["", f"*{machine}; {compiler}; commit {commit}; {when}.*"] if rows else []
