"""similar.py: whose answers are alike, for a person to read.

    make similar SUBMISSIONS=dir [PUBLIC=dir] [LAST=dir]

Compares the students' parts of all files of one name with each other, with the solutions of this
repository and of PUBLIC, and with last year's submissions (LAST): the share of runs of five words
that both have, names of variables left out.  Prints the pairs that share most, the
most alike first.  Short answers are alike by nature: look at what two files share
beyond the task, a mistake or an odd order.  This is no proof and no mark."""
import argparse
import itertools
import pathlib
import re
import sys

from exercises import exercises
from forms import fail, formed, parts_of
from submissions import collect, contents, printable

RUN, LEAST, MOST_LINES = 5, 0.6, 200
WORD = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[^\s\w]{1,2}|\S")
KEPT = set("if else for while do return break continue switch case float double int size_t const static "
           "struct void expf logf fmaxf fminf sizeof INFINITY isnan".split())
NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*#.*$", re.S | re.M)


def runs_of(text):
    """All runs of RUN words of the student's part."""
    parts = parts_of(text)
    code = NOT_CODE.sub(" ", "\n".join(parts[1]) if parts else text)
    words = [x if x in KEPT or not (x[0].isalpha() or x[0] == "_") else "v" for x in WORD.findall(code)]
    return {tuple(words[i:i + RUN]) for i in range(len(words) - RUN + 1)}


def files_of(folder, chosen, kind):
    """exercise -> [(who, runs)] of a folder of submissions, or of files in any folders."""
    found = {}
    if folder and not pathlib.Path(folder).is_dir():
        fail(f"{kind.upper()}: '{folder}' is no folder")
    for name, student in collect(pathlib.Path(folder), chosen)[0].items() if folder else ():
        for exercise, paths in student.files.items():
            data, why = contents(paths[0])
            if not why:
                who = name if kind == "submissions" else f"{kind}: {name}"
                found.setdefault(exercise, []).append((who, runs_of(data.decode(errors="replace"))))
    return found


def pairs(options):
    chosen = exercises()
    mine, public, last = (files_of(folder, chosen, kind) for kind, folder in vars(options).items())
    for x in chosen:
        nothing = runs_of(x.skeleton())
        here = [(who, runs - nothing) for who, runs in mine.get(x.name, [])]
        others = [("the solution", runs_of(formed(x.text))), *public.get(x.name, []), *last.get(x.name, [])]
        for (a, left), (b, right) in [*itertools.combinations(here, 2), *itertools.product(here, others)]:
            both = len(left | (right - nothing))
            if both:
                yield len(left & right) / both, x.name, a, b


def main():
    parser = argparse.ArgumentParser(description="whose answers are alike")
    for name in ("submissions", "public", "last"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")
    if not options.submissions:
        fail("SUBMISSIONS: make similar SUBMISSIONS=dir")
    found = sorted((x for x in pairs(options) if x[0] >= LEAST), reverse=True)
    for share, name, a, b in found[:MOST_LINES]:
        print(f"{share:4.0%}  {name:16} {printable(a)}  --  {printable(b)}")
    print(f"{len(found)} pairs share {LEAST:.0%} or more; read them before you ask anybody")
    return 0


if __name__ == "__main__":
    sys.exit(main())
