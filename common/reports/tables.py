"""tables.py: rewrites the tables of measurements in the Markdown files from CSV.

    python3 common/reports/tables.py [--results DIR] [--machine TEXT] [--check] [FILE.md ...]

A table stands between the lines

    <!-- table:NAME begin -->
    <!-- table:NAME end -->

in README.md, NN_*/README.md, notes/*.md or the files given.  NAME is one of

    attention     attention by length, the best variant of each stage
    softmax       softmax by length, likewise
    memory        peak memory of attention by length
    cpu-peers     our fastest CPU variant and PyTorch, shape by shape
    machines      a line a CPU: plain attention of each stage, and the fastest
    ladder        stage 5 and its peers in 16 bits, TFLOP/s by head_dim and causal
    ladder-f32    the same in float32
    hopper        the last rung: TFLOP/s and the ratio to the better of cuDNN and
                  FlashAttention-3 by length, cold; hopper-sustained: calls back to back
    untuned       the same at lengths, groups and head dimensions that nothing was tuned on
    layouts       the same with arrays [batch, length, heads, head_dim]
    headline      the most stable length of 4k keys or more, head_dim 128, in one sentence
    file-NAME     notes/results/NAME.csv as it stands
    targets       the projects of a course: shares for half and all points, and what of it we measured
    projects      the programs of projects-check: points, and what the judge of a GPU said
    gpu-traffic   GPU softmax: reads and writes of the matrix, predicted and counted; time
    gpu-blocks    stage 1's GPU softmax: few blocks and scattered accesses, each alone
    gpu-rows      GPU softmax by row length and type: percent of a copy, ours and PyTorch
    stages        a line a stage: idea, passes, bytes; memory and speed of its plain and
                  of its fastest attention, at the longest length that all have done
    lesson-N      the same softmax and the same attention by the CPU variants that lesson N
                  compares: time, share of the ceiling, memory
    stage-N-OP    every variant of stage N doing OP (softmax, attention, ...) at its
                  largest length, square if it can be: time, rate, share of the
                  ceiling, bytes, error; in stages 1 to 4 the CPU's variants come first
    multi-gpu     several GPUs beside one, from notes/results/multi_gpu
    attempts      what was tried on a ring of two GPUs, from the same
    ranks         several processes beside as many threads, from the same
    serving       what windows, packed sequences, pages and layouts cost, from hopper/serving.csv
    crossover, roofs, decode, gpu-memory, counters, steps-A-B
                  stage 5's ladder: see tables_ladder.py
    limits-OP     softmax or attention on the CPU: each variant of stages 1 to 4 that was
                  measured on most shapes, and its share of the ceiling

Every table can stand on every page.  NAME? may lack its data and then says so.  NAME@PART
takes the machine whose name contains PART, for example limits-attention@EPYC; without it, that
of cpu.csv.
The same CSV gives the same bytes.  Exit status: 0; 1 with --check when a file would
change, or when a table lacks its data; 2 bad usage, a malformed CSV or a mark that is
unknown or has no partner.
"""
import argparse
import csv
import os
import pathlib
import re
import sys

import tables_course
import tables_cpu
import tables_gpu
import tables_ladder
import tables_lessons
import tables_multi_gpu
import tables_rows
import tables_serving
import tables_stages
import tables_text
from accept import accepted
from results import (SHAPE, Malformed, NoData, choose_machine, footnotes, latest_of, read_all,
                     read_file, still_listed, usual)
from tables_text import table

MARK = re.compile(r"<!-- table:(\S+) (begin|end) -->")
# made from the usual measurements of one CPU and one GPU
USUAL = {"stages": tables_stages.stages_table, "attention": tables_stages.attention_table,
         "softmax": tables_stages.softmax_table, "memory": tables_stages.memory_table,
         "limits-softmax": lambda rows: tables_stages.limits_table(rows, "softmax"),
         "limits-attention": lambda rows: tables_stages.limits_table(rows, "attention"),
         "cpu-peers": tables_cpu.peers_table,
         "ladder": tables_gpu.ladder_table,
         "ladder-f32": lambda rows: tables_gpu.ladder_table(rows, f32=True),
         "gpu-traffic": tables_gpu.gpu_traffic_table, "gpu-rows": tables_gpu.gpu_rows_table}
# the last rungs beside the libraries, measured more often than the whole ladder: a run of its
# own, because runs differ by more than two rungs do
LAST_RUNGS = pathlib.Path("hopper", "last_rungs.csv")
# made from both regimes and all layouts, and from that run
EVERY = {"hopper": tables_gpu.hopper_table, "headline": tables_gpu.headline,
         "hopper-sustained": lambda every: tables_gpu.hopper_table(every, "sustained"),
         "untuned": tables_gpu.untuned_table, "layouts": tables_gpu.layouts_table}


def latest_run(rows, others):
    """rows and others; of a problem that both have measured only the later run, because a ratio
    of two runs is none."""
    def problem(row):
        return (row.op, row.dtype, row.device, row.causal, row.layout,
                *(getattr(row, column) for column in SHAPE))
    latest = [{}, {}]
    for dates, some in zip(latest, (rows, others)):
        for row in some:
            dates[problem(row)] = max(row.date, dates.get(problem(row), ""))
    return [row for mine, other, some in ((*latest, rows), (*latest[::-1], others))
            for row in some if mine[problem(row)] >= other.get(problem(row), "")]


class Data:
    """The measurements of a directory; of each part of a machine's name those chosen."""

    def __init__(self, directory, machine):
        self.directory, self.machine, self.chosen = directory, machine, {}
        rows, newer = read_all(directory, machine, roofs=True), directory / LAST_RUNGS
        self.all = still_listed(latest_of(rows))
        if newer.exists():
            rows = latest_run(rows, read_file(newer))
        self.beside_peers = still_listed(latest_of(rows))
        for row in self.all + self.beside_peers:
            limit = float("inf") if row.allowed_err is None else row.allowed_err
            if row.max_err is not None and not accepted(row.max_err, limit):
                raise Malformed(f"{directory}: {row.variant} of {row.date}: error "
                                f"{row.max_err:g}, allowed {limit:g}: a wrong result is not "
                                "published")

    def of(self, machine, beside_peers=False):
        """Both regimes, one CPU and one GPU."""
        key = machine, beside_peers
        if key not in self.chosen:
            self.chosen[key] = choose_machine(self.beside_peers if beside_peers else self.all,
                                              machine)
        return self.chosen[key]


def file_table(where, name):
    """A CSV file as it stands."""
    path = pathlib.Path("notes/results") / f"{name}.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise Malformed(f"{where}: {path} is not a table")
    header = [re.sub("_us$", ", µs", cell).replace("_", " ") for cell in lines[0]]
    return table(header, lines[1:])


def make_table(where, mark, data):
    """The lines of the table called mark: NAME, or NAME@PART of a machine's name."""
    name, _, machine = mark.partition("@")
    if machine and not any(machine in row.machine for row in data.all):
        raise Malformed(f"{where}: no measurement of a machine '{machine}'")
    every = data.of(machine or data.machine)
    rows = usual(every)
    lines = tables_ladder.make(name, rows, data.directory, tables_text)
    if lines:
        return lines
    every, rows = ([row for row in some if row.stage != "roof"] for some in (every, rows))
    if name in USUAL:
        return USUAL[name](rows)
    if name in EVERY:
        every = data.of(machine or data.machine, beside_peers=True)
        return EVERY[name]([row for row in every if row.stage != "roof"])
    if name == "multi-gpu":
        return tables_multi_gpu.multi_gpu_table(data.directory)
    if name == "attempts":
        return tables_multi_gpu.attempts_table(data.directory)
    if name == "ranks":
        return tables_multi_gpu.ranks_table(data.directory)
    if name == "gpu-blocks":
        return tables_rows.rows_table(rows, data.directory)
    if name == "serving":
        return tables_serving.serving_table(data.directory)
    if name == "machines":
        return tables_stages.machines_table(rows, data.all)
    if name == "targets":
        return tables_course.targets_table(data.all)
    if name == "projects":
        return tables_course.projects_table(data.directory)
    if name.startswith("file-"):
        return file_table(where, name[len("file-"):])
    match = re.fullmatch(r"lesson-([1-4])", name)
    if match:
        return tables_lessons.lesson_table(rows, match[1])
    match = re.fullmatch(r"stage-([1-5])-([a-z_]+)", name)
    if not match:
        raise Malformed(f"{where}: no table '{name}'; there are {', '.join([*USUAL, *EVERY])}, "
                        "machines, gpu-blocks, multi-gpu, ranks, targets, projects, crossover, "
                        "roofs, decode, gpu-memory, counters, steps-A-B, attempts, file-NAME, lesson-N and stage-N-OP")
    return tables_stages.stage_table(rows, *match.groups())


def rewrite(path, text, data, missing):
    """text with every table made anew; a table without data stays and is added to
    missing."""
    out, old, name, begun = [], [], None, 0
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}:{number}"
        mark = MARK.fullmatch(line.strip())
        if mark and (mark[2] == "begin") != (name is None):
            raise Malformed(f"{where}: '{line.strip()}' has no partner")
        if mark and mark[2] == "begin":
            name, begun, old = mark[1], number, []
            out.append(line)
        elif mark:
            if mark[1] != name:
                raise Malformed(f"{where}: table '{name}' ends as '{mark[1]}'")
            try:
                lines = make_table(where, name.rstrip("?"), data)
                out += lines + footnotes(lines)
            except NoData as error:
                if name.endswith("?"):
                    out += [f"Not measured yet: {error}."]
                else:
                    missing.append(f"{where}: table '{name}' left as it is: {error}")
                    out += old
            out.append(line)
            name = None
        else:
            (out if name is None else old).append(line)
    if name is not None:
        raise Malformed(f"{path}:{begun}: table '{name}' has no end mark")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description="Rewrites tables in Markdown from CSV.")
    parser.add_argument("--results", type=pathlib.Path, default="notes/results")
    parser.add_argument("--machine", default="", help="part of the machine's name")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if "
                        "a file would change")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    here = pathlib.Path(".")
    files = arguments.files or [path for pattern in ("README.md", "[0-9]*/README.md",
                                                     "notes/*.md")
                                for path in sorted(here.glob(pattern))]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    texts = {path: text for path, text in texts.items() if "<!-- table:" in text}
    if not texts:
        print("tables.py: no file has a table")
        return 0
    data = Data(arguments.results, arguments.machine)
    missing, status = [], 0
    new = {path: rewrite(path, text, data, missing)
           for path, text in texts.items()}
    for path, text in new.items():
        if text == texts[path]:
            continue
        print(f"tables.py: {path} {'would change' if arguments.check else 'rewritten'}")
        status = 1 if arguments.check else status
        if not arguments.check:
            beside = path.with_name(f".{path.name}.tmp")
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, path)
    for line in missing:
        print(f"tables.py: {line}", file=sys.stderr)
    return 1 if missing else status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"tables.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"tables.py: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
