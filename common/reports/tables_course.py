"""tables_course.py: the targets of a course's projects, which of them we have measured, and what
the judge of a GPU said of each program of projects-check."""
import csv
import pathlib
import re

from results import Malformed, NoData
from tables_text import significant, table

TARGETS = pathlib.Path("common/grader/targets.csv")
CPU_SPEED = re.compile(r"^ \* Speed: \S+, half of the points at (\S+) % of (\w+), all at (\S+) %\.$", re.M)
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# by a project's ceiling: the operation, the types, the length of its rows or keys
GPU_WORK = {"copy": ("softmax", ("f32",), 65536), "gemm": ("attention", ("f16", "bf16"), 8192)}


def cpu_lines():
    """Projects in C: the head of each file names its shares, its solution reaches the second."""
    out = []
    for path in sorted(pathlib.Path(".").glob("0*/exercises/projects/*.c")):
        found = CPU_SPEED.search(path.read_text(encoding="utf-8"))
        if not found:
            raise Malformed(f"{path}: no line 'Speed: ...'")
        half, ceiling, most = found.groups()
        out.append([f"`{path.stem}`", "any CPU, one core", f"{half} % of {ceiling}",
                    f"{most} % of {ceiling}", "reached by its solution"])
    return out


def share(row):
    """Percent of the ceiling, as the judge counts: softmax reads and writes each row once."""
    if row.op == "attention":
        return row.pct_ceiling
    return 100 * 2e-9 * row.rows * row.cols * BYTES[row.dtype] / row.median_s / row.ceiling


def best(rows, pattern, ceiling):
    """Our fastest kernel at the project's row length or head dimension on such a GPU, or None."""
    op, dtypes, length = GPU_WORK[ceiling]
    fitting = [row for row in rows if row.device == "gpu" and row.op == op and row.dtype in dtypes
               and row.stage not in ("peer", "roof") and row.ceiling_kind == ceiling and row.ceiling
               and row.length == length and row.head_dim in (None, 0, 128) and not row.causal
               and row.regime == "cold" and re.search(pattern, row.machine)]
    return max(fitting, key=share, default=None)


def gpu_lines(rows):
    out = []
    with open(TARGETS, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found = None if line["pattern"] == "." else best(rows, line["pattern"], line["ceiling"])
            out.append([f"`{line['project']}`", line["machine"],
                        f"{line['half_at']} % of {line['ceiling']}",
                        f"{line['all_at']} % of {line['ceiling']}",
                        f"{significant(share(found), 2)} % by `{found.variant}`, {found.machine.split('; ')[-1]}"
                        if found else "no"])
    return out


def targets_table(rows):
    """A line for each project and machine: shares for half and all points; what we measured."""
    return table(["project", "machine", "half of the points", "all", "measured"],
                 cpu_lines() + gpu_lines(rows))


def projects_table(directory):
    """A line for each program of projects-check, as the last run on a GPU left them."""
    path = directory / "course" / "projects.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    with open(path, newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    sources = {f"{x['machine']}; driver {x['driver']}; commit {x['commit']}; {x['date']}" for x in lines}
    if len(sources) != 1 or any(x["ok"] != "1" for x in lines):
        raise Malformed(f"{path}: not one run, or a program is not judged as it should be")
    # without the times, and without the linker's details
    said = [re.sub(r"(% of \w+), .*|: \(.*", r"\1", x["said"]) for x in lines]
    cells = [[f"`{x['project']}`", x["program"], f"{x['points']} of {x['of']}", words, x["runs"],
              x["seconds"]] for x, words in zip(lines, said)]
    return table(["project", "program", "points", "what the judge says", "runs", "seconds"],
                 cells) + ["", f"*{sources.pop()}.*"]
