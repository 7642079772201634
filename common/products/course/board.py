"""board.py: a page with the marks of a class, from what `make grade` wrote.

    make board MARKS=marks OUT=board.html [NAMES=1]

MARKS is the folder that `make grade` and `make grade-projects` wrote.

One file without scripts and without anything from elsewhere, to be put on any web server.
Without NAMES each student stands under an alias, which only their own feedback tells.
Exit status: 0 written; 2 bad usage."""
import argparse
import html
import json
import pathlib
import sys

from forms import fail
from marks import write_text

STYLE = """body { font: 16px/1.4 sans-serif; margin: 2em auto; padding: 0 1em; width: fit-content; max-width: 100% }
div { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .2em .5em; text-align: right }
th:nth-child(2), td:nth-child(2) { text-align: left }
td:nth-child(2) { max-width: 18em; overflow-wrap: break-word }
thead span { writing-mode: vertical-rl; transform: rotate(180deg) }
thead th { vertical-align: bottom; border-bottom: 1px solid #888 }
td.full { background: #cfe8cf } td.part { background: #f6eac0 } td.none { color: #999 }"""


def cell(mark):
    if not mark:  # the others have a mark for it
        return '<td class="none">0</td>'
    kind = "full" if mark["marks"] == mark["points"] else "part" if mark["marks"] else "none"
    timed = mark.get("timed") or {}
    share = timed.get("share", 0) / (timed.get("solution") or 100)
    return f'<td class="{kind}">{mark["marks"]:g}{f"<br><small>{share:.0%}</small>" if timed else ""}</td>'


def page(students, names):
    """Students by their marks; who has the same marks shares the place."""
    points = {x: y["points"] for one in students.values() for x, y in one["exercises"].items()}
    rows, place, before = [], 0, None
    order = sorted(students, key=lambda s: (-students[s]["marks"], students[s]["alias"]))
    for i, student in enumerate(order, 1):
        one = students[student]
        place = place if one["marks"] == before else i
        before = one["marks"]
        shown = student if names else one["alias"]
        rows.append(f"<tr><td>{place}</td><td>{html.escape(shown)}</td><td>{before:g}</td>"
                    + "".join(cell(one["exercises"].get(x)) for x in points) + "</tr>")
    heads = "".join(f"<th><span>{html.escape(name)}</span><br>{n}</th>" for name, n in points.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Softmax to FlashAttention: the board</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>
<h1>The board</h1>
<p>{len(students)} students, {sum(points.values())} points. Green: all points; yellow: some. Below the points of a
project: its speed as a share of the reference solution's, or on a GPU of the ceiling.</p>
<div><table><thead><tr><th></th><th>student</th><th>marks</th>{heads}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div></body></html>
"""


def read(marks):
    """What make grade and make grade-projects wrote there."""
    students = {}
    for path in sorted(marks.glob("*s.json")):
        for name, one in json.loads(path.read_text(encoding="utf-8"))["students"].items():
            known = students.setdefault(name, {**one, "marks": 0, "exercises": {}})
            known["marks"] = round(known["marks"] + one["marks"], 1)
            known["exercises"].update(one["exercises"])
    return students


def main():
    parser = argparse.ArgumentParser(description="a page with the marks of a class")
    parser.add_argument("--marks", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    source, out = pathlib.Path(options.marks), pathlib.Path(options.out)
    if out.is_dir():
        out /= "board.html"
    try:
        students = read(source)
        text = page(students, options.names)
    except (OSError, ValueError, KeyError, TypeError):
        fail(f"MARKS: '{source}' is not what make grade writes")
    if not students:
        fail(f"MARKS: '{source}' has no marks; make grade writes them")
    try:
        write_text(out, text)
    except OSError as error:
        fail(f"OUT: '{out}' cannot be written: {error.strerror}")
    print(f"{len(students)} students: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
