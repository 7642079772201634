#!/usr/bin/env python3
"""plot.py: draws the figures, from the CSV files of a folder.

    python3 common/products/reports/plot.py --out DIR [--results DIR] [--program STAGE] [NAME...]

NAME is a figure or a group of figures: bench, what plain `make` draws; ladder,
from measurements of their own; map, the attention map of
the fixture, computed by the stage program STAGE.  Without NAME: bench and map.  `--list`
names all.  A figure whose data are missing is skipped with one line.  Exit status: 0 drawn;
1 nothing drawn; 2 bad usage or a malformed file (one line: file, what is wrong); 77 no
matplotlib or pandas.
"""
import argparse
import pathlib
import sys

try:
    import figures_stages  # noqa: F401  (these three fill the registry)
    import figures_gpu  # noqa: F401
    import figures_map  # noqa: F401
    from style import plt, save
except ImportError as missing:
    print(f"plot.py: {missing}; install matplotlib and pandas "
          "(apt install python3-matplotlib python3-pandas)", file=sys.stderr)
    sys.exit(77)
from registry import FIGURES
from results import Data, NoData, guarded


def draw_all(names, data, out):
    """Draws every figure that has data.  Returns how many."""
    drawn = 0
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        _, draw, settings = FIGURES[name]
        try:
            with plt.rc_context(settings):
                save(draw(data), out / name)
            drawn += 1
            print(f"plot.py: {out / name}")
        except NoData as missing:
            print(f"plot.py: {name} not drawn: {missing}")
    return drawn


def main(argv=None):
    """Draws what the files have; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draws the figures from CSV files.")
    parser.add_argument("--results", type=pathlib.Path, help="directory of the CSV files")
    parser.add_argument("--out", type=pathlib.Path, default="build/plots", help="where to draw")
    parser.add_argument("--program", help="stage program that computes the attention map")
    parser.add_argument("--fixture", type=pathlib.Path, default="tests/fixture")
    parser.add_argument("--head", type=int, default=9, help="head of the attention map")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("names", nargs="*", metavar="NAME")
    data = Data(pathlib.Path("build/results"))
    data.options = arguments = parser.parse_args(argv)
    if arguments.list:
        for name, (group, draw, _) in FIGURES.items():
            print(f"{group:9} {name:20} {' '.join(draw.__doc__.split())}")
        return 0
    data.directory = arguments.results or data.directory
    wanted = {*(arguments.names or ["bench"] * bool(arguments.results)
                + ["map"] * bool(arguments.program))}
    names = [name for name, (group, _, _) in FIGURES.items() if {name, group} & wanted]
    unknown = wanted - {*names} - {FIGURES[name][0] for name in names}
    if unknown or not names:
        parser.error(f"no figure {', '.join(unknown) or 'named'}; --list names them")
    if {"bench", "ladder"} & {FIGURES[name][0] for name in names}:
        data.rows  # pylint: disable=pointless-statement  # malformed files stop it here
    return 0 if draw_all(names, data, arguments.out) else 1


if __name__ == "__main__":
    sys.exit(guarded("plot.py", main))
