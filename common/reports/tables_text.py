"""tables_text.py: numbers, units and Markdown of the tables.  For tables.py and the modules
that make its tables.
"""
from results import listed  # noqa: F401  (the makers of tables find it here)


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


def table(header, lines):
    """Markdown: the first column and those of prose left, the others right."""
    prose = [max((len(line[c]) for line in lines), default=0) > 40
             for c in range(len(header))]
    rule = [":--" if left or not c else "--:" for c, left in enumerate(prose)]
    return ["| " + " | ".join(cells) + " |" for cells in [header, rule] + lines]


def provenance(rows):
    """The sentence under a table that says where it comes from."""
    def joined(column):
        return ", ".join(sorted({str(getattr(row, column)) for row in rows
                                 if getattr(row, column)}))
    days = sorted({row.date[:10] for row in rows if row.date})
    when = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "unknown date"
    return ["", f"*{joined('machine')}; {joined('compiler')}; commit {joined('commit')}; "
            f"{when}.*"]
