"""tables.py: rewrites the tables of measurements in the Markdown files from CSV.

    python3 common/products/reports/tables.py [--results DIR] [--check] [FILE.md ...]
    python3 common/products/reports/tables.py --list          the names of all tables

A table stands between the lines

    <!-- table:NAME begin -->
    <!-- table:NAME end -->

in README.md, NN_*/README.md, notes/*.md or the files given, and the numbers in the sentences there
(sentences.py).  Every table can stand on every page; NAME@h100 is the same table of another GPU's files (results.py).  The same CSV gives the
same bytes.  Exit status: 0; 1 with --check when a file would change, or when a table lacks its
data; 2 bad usage, a malformed CSV or a mark that is unknown or has no partner.
"""
import argparse
import functools
import os
import pathlib
import re
import sys

import tables_files  # noqa: F401  (these four fill the registry)
import tables_gpu  # noqa: F401
import tables_ladder  # noqa: F401
import tables_stages  # noqa: F401
from registry import TABLES
from results import Data, Malformed, NoData, guarded
from sentences import BLOCK, MARK as NUMBER, fill
from words import footnotes, provenance

MARK = re.compile(r"^ *<!-- table:\S+ (?:begin|end) -->$", re.M)
MARKED = re.compile(r"^( *<!-- table:(\S+) begin -->\n)(.*?)(^ *<!-- table:\2 end -->$)", re.M | re.S)


def make_table(name, data):
    """The lines of the table called NAME or NAME@MACHINE."""
    name, _, machine = name.partition("@")
    data = Data(data.directory, machine) if machine else data
    for pattern, make in TABLES.items():
        found = re.fullmatch(pattern, name)
        if found:
            sentence, lines, rows = make(data, *found.groups())
            return [sentence, ""] * bool(sentence) + lines + provenance(rows) + footnotes(lines)
    raise Malformed(f"no table '{name}'; there are {', '.join(TABLES)}")


def rewrite(path, text, data, missing):
    """text with every table made anew; a table without data stays and is added to
    missing."""
    def where(at):
        return f"{path}:{text.count(chr(10), 0, at) + 1}"

    def made(match):
        try:
            return match[1] + "\n".join([*make_table(match[2], data), match[4]])
        except Malformed as error:
            raise Malformed(f"{where(match.start())}: {error}") from None
        except NoData as error:
            missing.append(f"{where(match.start())}: table '{match[2]}' left as it is: {error}")
            return match[0]
    paired = {match.start(group) for match in MARKED.finditer(text) for group in (1, 4)}
    for mark in MARK.finditer(text):
        if mark.start() not in paired:
            raise Malformed(f"{where(mark.start())}: '{mark[0].strip()}' has no partner")
    return MARKED.sub(made, text)


def replace(path, text):
    """Writes a file beside, then renames it."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--results", type=pathlib.Path, default="notes/results")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if "
                        "a file would change")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args(argv)
    if arguments.list:
        for name, make in TABLES.items():
            print(f"{name:32} {' '.join(make.__doc__.split(chr(10) * 2)[0].split())}")
        return 0
    patterns = ("README.md", "[0-9]*/README.md", "notes/*.md")
    files = arguments.files or [path for pattern in patterns
                                for path in sorted(pathlib.Path(".").glob(pattern))]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    texts = {path: text for path, text in texts.items()
             if "<!-- table:" in text or BLOCK.search(text) or NUMBER.search(text)}
    if not texts:
        print("tables.py: no file has a table")
        return 0
    data, missing, status = Data(arguments.results), [], 0
    new = {path: rewrite(path, text, data, missing) for path, text in texts.items()}
    if not missing:
        table_of = functools.cache(lambda name: make_table(name, data))
        new = {path: fill(path, text, table_of) for path, text in new.items()}
    for path, text in new.items():
        if text == texts[path]:
            continue
        print(f"tables.py: {path} {'would change' if arguments.check else 'rewritten'}")
        if arguments.check:
            status = 1
        else:
            replace(path, text)
    for line in missing:
        print(f"tables.py: {line}", file=sys.stderr)
    return 1 if missing else status


if __name__ == "__main__":
    sys.exit(guarded("tables.py", main))
