#!/usr/bin/env python3
"""plot.py: draws the figures from CSV files that the stages' `bench` wrote.

    python3 common/reports/plot.py --results DIR --out DIR [--machine TEXT] [--program STAGE]

reads every DIR/*.csv (columns: design of the results, one line a measurement) and draws

    arc.png       every stage, every rung and the libraries at one length
    length.png    time and throughput against length, every stage on the same work
    ceiling.png   percent of the machine's ceiling against length
    flash.png     16-bit attention against length: stage 5 and its peers
    ladder.png    every variant of stage 5 and its peers at one length
    traffic.png   bytes predicted by theory against bytes measured
    error.png     largest error as a share of the allowed one
    memory.png    peak memory against length
    gpu_traffic.png  stages 1 to 3 on a GPU: traffic predicted and counted, and time
    gpu_rows.png     softmax on a GPU against row length: the copy, PyTorch and ours
    map.png       the fixture's attention map, computed by the stage program STAGE

A figure whose columns are empty is skipped with one line.  Exit status: 0 drawn; 1
nothing drawn; 2 bad usage or a malformed file (one line: file, what is wrong); 77 no matplotlib.
"""
import argparse
import pathlib
import sys

from style import draw_all  # first: it ends the program where matplotlib is missing
from plot_arc import draw_arc
from plot_checks import draw_error, draw_traffic
from plot_gpu import draw_flash, draw_gpu_rows, draw_gpu_traffic, draw_ladder
from plot_lengths import draw_ceiling, draw_length, draw_memory
from plot_map import draw_map
from results import Malformed, read_results

FIGURES = (draw_arc, draw_length, draw_ceiling, draw_flash, draw_ladder, draw_traffic,
           draw_error, draw_memory, draw_gpu_traffic, draw_gpu_rows)


def main():
    """Draws what the files have; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draws the figures from CSV files.")
    parser.add_argument("--results", type=pathlib.Path, help="directory of the CSV files")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where to draw")
    parser.add_argument("--machine", default="", help="part of the machine's name")
    parser.add_argument("--program", help="stage program that computes the attention map")
    parser.add_argument("--fixture", type=pathlib.Path, default="tests/fixture")
    parser.add_argument("--head", type=int, default=9, help="head of the attention map")
    arguments = parser.parse_args()
    if not arguments.results and not arguments.program:
        parser.error("--results or --program is needed")
    jobs = {}
    if arguments.results:
        rows = read_results(arguments.results, arguments.machine)
        for draw in FIGURES:
            jobs[draw.__name__[5:] + ".png"] = lambda draw=draw: draw(rows)
    if arguments.program:
        jobs["map.png"] = lambda: draw_map(arguments.program, arguments.fixture,
                                           arguments.head)
    return 0 if draw_all(jobs, arguments.out) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"plot.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"plot.py: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
