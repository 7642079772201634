"""board.py: a page with the marks of a class, from what `make grade` wrote.

    make board MARKS=marks OUT=board.html [NAMES=1]

MARKS is the folder that one run wrote, or a folder of such folders (slurm_array.sh).

One file without scripts and without anything from elsewhere, to be put on any web server.
Without NAMES each student stands under an alias, which only their own feedback tells.
Exit status: 0 written; 2 bad usage."""
import argparse
import html
import json
import pathlib
import sys

STYLE = """body { font: 16px/1.4 sans-serif; margin: 2em auto; padding: 0 1em; width: fit-content; max-width: 100% }
div { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .2em .5em; text-align: right }
th:nth-child(2), td:nth-child(2) { text-align: left }
td:nth-child(2) { max-width: 18em; overflow-wrap: break-word }
thead span { writing-mode: vertical-rl; transform: rotate(180deg) }
thead th { vertical-align: bottom; border-bottom: 1px solid #888 }
td.full { background: #cfe8cf } td.part { background: #f6eac0 } td.none { color: #999 }"""


def fail(text):
    print(f"board: {text}", file=sys.stderr)
    sys.exit(2)


def cell(mark):
    kind = "full" if mark["marks"] == mark["points"] else "part" if mark["marks"] else "none"
    return f'<td class="{kind}">{mark["marks"]:g}</td>'


def page(grades, names):
    """Students by their marks; who has the same marks shares the place."""
    students = grades["students"]
    rows, place, before = [], 0, None
    order = sorted(students, key=lambda s: (-students[s]["marks"], students[s]["alias"]))
    for i, student in enumerate(order, 1):
        one = students[student]
        place = place if one["marks"] == before else i
        before = one["marks"]
        shown = student if names else one["alias"]
        rows.append(f"<tr><td>{place}</td><td>{html.escape(shown)}</td><td>{before:g}</td>"
                    + "".join(cell(x) for x in one["exercises"].values()) + "</tr>")
    first = next(iter(students.values()))["exercises"]
    heads = "".join(f"<th><span>{html.escape(name)}</span><br>{x['points']}</th>" for name, x in first.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Softmax to FlashAttention: the board</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>
<h1>The board</h1>
<p>{len(students)} students, {grades['points']} points. Green: all points of an exercise; yellow: some.</p>
<div><table><thead><tr><th></th><th>student</th><th>marks</th>{heads}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div></body></html>
"""


def read(marks):
    """The grades of one run, or of several put together."""
    paths = [marks / "grades.json"] if (marks / "grades.json").exists() else \
        sorted(marks.glob("*/grades.json")) or [marks / "grades.json"]
    together = None
    for path in paths:
        grades = json.loads(path.read_text(encoding="utf-8"))
        if together is None:
            together = grades
        elif set(grades["students"]) & set(together["students"]):
            fail(f"MARKS: '{path}' has a student who has marks already")
        elif grades["points"] != together["points"]:
            fail(f"MARKS: '{path}' is about other exercises than '{paths[0]}'")
        else:
            together["students"].update(grades["students"])
    return together


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
        grades = read(source)
        text = page(grades, options.names)
    except OSError as error:
        fail(f"MARKS: '{source}' cannot be read: {error.strerror}; make grade writes it")
    except (ValueError, KeyError, StopIteration, TypeError):
        fail(f"MARKS: '{source}' is not what make grade writes")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"OUT: '{out}' cannot be written: {error.strerror}")
    print(f"{len(grades['students'])} students: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
