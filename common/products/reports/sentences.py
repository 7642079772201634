"""sentences.py: measured numbers in running text, read out of the tables of tables.py.

A number stands in its sentence, not first in a line (Markdown takes what begins with a comment for
HTML), as <!--n NAME-->1 to 3<!--/n-->.  A comment on the same page says
where it comes from, a line for each NAME (a line that begins with a space goes on):

    <!-- numbers
    NAME = TABLE :: ROWS :: COLUMNS :: CELL :: FORM
    -->

ROWS is found in a row of TABLE, whose cells stand with " / " between.  `A over B` divides the number
of a row that A finds by that of the row that B finds with the same groups.  COLUMNS matches the
headings.  CELL, a regular expression, captures numbers (empty: the first one).  FORM is a number of
decimals, after `percent` for 100 x, `more` for 100 (x - 1), `less` for 100 (1 - x) or `longer` for
100 (1 / x - 1), and before these `least` or `most` where not the whole range is wanted.
"""
import re

from results import Malformed, NoData

MARK = re.compile(r"(<!--n ([\w-]+)-->).*?(<!--/n-->)", re.S)
BLOCK = re.compile(r"<!-- numbers\n(.*?)\n-->", re.S)
OF = {"": lambda x: x, "percent": lambda x: 100 * x, "more": lambda x: 100 * (x - 1),
      "less": lambda x: 100 * (1 - x), "longer": lambda x: 100 * (1 / x - 1)}
FORM = re.compile(r"(?:(least|most) )?(?:(percent|more|less|longer) )?(\d)")


def found(lines, rows, columns, cell):
    """{(groups of the row, or the row where there are none, heading, place): number} of the cells."""
    heads, _, *body = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    matches = ((row, re.search(rows, " / ".join(row))) for row in body)
    return {(match.groups() or (*row,), head, at.start(i)): float(at[i])
            for row, match in matches if match
            for head, text in zip(heads, row) if re.fullmatch(columns, head)
            for at in re.finditer(cell or r"^([\d.]+)", text)
            for i in range(1, 1 + at.re.groups) if at[i]}


def number(rule, make_table):
    """The text of a number."""
    table, rows, columns, cell, form = (part.strip() for part in rule.split("::"))
    lines, (rows, *below) = make_table(table), rows.split(" over ")
    values = found(lines, rows, columns, cell)
    if below:
        under = found(lines, below[0], columns, cell)
        values = {key: x / under[key] for key, x in values.items() if key in under}
    if not values:
        raise ValueError("no such cell")
    which, of, decimals = FORM.fullmatch(form).groups()
    x = sorted(map(OF[of or ""], values.values()))
    chosen = {"least": x[:1], "most": x[-1:], None: [x[0], x[-1]]}[which]
    return " to ".join(dict.fromkeys(f"{y:.{decimals}f}" for y in chosen))


def fill(path, text, make_table):
    """text with every number in running text made anew."""
    block = BLOCK.search(text)
    rules = dict(re.findall(r"(?m)^(\S+) = (.*)", re.sub(r"\n +", " ", block[1]))) if block else {}
    marked = {mark[2] for mark in MARK.finditer(text)}
    if marked ^ rules.keys():
        raise Malformed(f"{path}: a number without its rule, or a rule without: {sorted(marked ^ rules.keys())}")
    if first := re.search(r"(?m)^ *<!--n ([\w-]+)-->", text):
        raise Malformed(f"{path}: number '{first[1]}' is first in its line")
    texts = {}
    for name, rule in rules.items():
        try:
            texts[name] = number(rule, make_table)
        except (ValueError, AttributeError, re.error, ZeroDivisionError, NoData) as error:
            raise Malformed(f"{path}: number '{name}': {error}") from None
    return MARK.sub(lambda mark: mark[1] + texts[mark[2]] + mark[3], text)
