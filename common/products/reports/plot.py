#!/usr/bin/env python3
"""plot.py: draws the figures, from the CSV files of a folder.

    python3 common/products/reports/plot.py --out DIR [--results DIR] [--program STAGE] [NAME...]

Without NAME: arc, what plain `make` draws, and map, the attention map of the fixture, where STAGE is the
stage program that computes it.  A figure whose data are missing is skipped with one line.  Exit status: 0
drawn; 1 nothing drawn; 2 bad usage or a malformed file (one line: file, what is wrong); 77 no
matplotlib or pandas.
"""
import argparse
import pathlib
import sys

try:
    import figures_stages  # noqa: F401  (these three fill the registry)
    import figures_ladder  # noqa: F401
    import figures_map  # noqa: F401
    from style import save
except ImportError as missing:
    print(f"plot.py: {missing}; install matplotlib and pandas "
          "(apt install python3-matplotlib python3-pandas)", file=sys.stderr)
    sys.exit(77)
from registry import FIGURES
from results import Data, NoData, guarded


def main(argv=None):
    """Draws what the files have; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draws the figures from CSV files.")
    parser.add_argument("--results", type=pathlib.Path, help="directory of the CSV files")
    parser.add_argument("--out", type=pathlib.Path, default="build/plots", help="where to draw")
    parser.add_argument("--program", help="stage program that computes the attention map")
    parser.add_argument("--fixture", type=pathlib.Path, default="tests/fixture")
    parser.add_argument("--head", type=int, default=9, help="head of the attention map")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    arguments = parser.parse_args(argv)
    data = Data(arguments.results or pathlib.Path("build/results"))
    data.options = arguments
    names = arguments.names or ["arc"] * bool(arguments.results) + ["map"] * bool(arguments.program)
    if not names or {*names} - {*FIGURES}:
        parser.error(f"no figure {', '.join({*names} - {*FIGURES}) or 'named'}; there are {', '.join(FIGURES)}")
    if names != ["map"]:
        data.rows  # pylint: disable=pointless-statement  # malformed files stop it here
    status, path = 1, arguments.out
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            save(FIGURES[name](data), path / f"{name}.png")
            print(f"plot.py: {path / name}.png")
            status = 0
        except NoData as missing:
            print(f"plot.py: {name} not drawn: {missing}")
    return status


if __name__ == "__main__":
    sys.exit(guarded("plot.py", main))
