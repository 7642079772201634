"""measurements.py: writes measurements as lines of CSV, and what machine they are of.  What the
scripts that measure share; they need no pandas.

The columns are those of `bench`.  `flags` says the regime, the layout and whether the method
writes lse ("cold; bhld; lse").  What does not fit into a column stands beside the CSV in a
file with the same stem, STEM.machine.txt: driver, power limit and clocks.
"""
import argparse
import datetime
import importlib
import math
import os
import pathlib
import re
import subprocess
import sys

from accept import accepted

ROOT = pathlib.Path(__file__).resolve().parents[3]
ABOUT = "name,driver_version,power.limit,power.max_limit,clocks.max.sm,clocks.max.mem,clocks.sm," \
    "clocks.mem,temperature.gpu,ecc.mode.current,vbios_version"


def output_of(*command):
    """What a command prints, or '' where it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def read_columns():
    """{column: TEXT, or a kind of number} of what `bench` writes: any stage's program says it."""
    built = sorted((ROOT / os.environ.get("BUILD", "build")).glob("0[1-5]_*"))
    if not built:
        sys.exit("no stage is built yet, whose program names the columns: make build")
    return dict(line.split(",") for line in output_of(built[0], "list", "--columns").split())


KINDS = read_columns()


def commit_here():
    """The commit of the sources; COMMIT in the environment overrides it."""
    return os.environ.get("COMMIT") or output_of("git", "rev-parse", "--short=10", "HEAD") \
        or "unknown"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_name():
    """Of this machine, and how many cores it has."""
    known = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{known[1] if known else 'a CPU'} {os.cpu_count()} cores"


def command_line(doc):
    """A parser that describes the script by the first line of its docstring."""
    return argparse.ArgumentParser(description=doc.strip().splitlines()[0])


def torch_or_skip(name, gpus=1):
    """PyTorch; without it or without that many GPUs a line, and the program ends with 77."""
    try:
        torch = importlib.import_module("torch")
        seen = torch.cuda.device_count() if gpus and torch.cuda.is_available() else 0
        if seen >= gpus:
            return torch
        why = f"PyTorch sees {seen} GPUs, not {gpus}"
    except ImportError:
        why = "PyTorch is not installed"
    print(f"{name}: {why}; skipped")
    sys.exit(77)


class Writer:
    """Appends measurements to a CSV file; without a path it only counts."""

    def __init__(self, path, machine, compiler, gpu=False):
        self.file, self.wrong = None, []
        self.common = {"device": "gpu", "threads": 0, "commit": commit_here(),
                       "machine": machine.replace(",", " "), "compiler": compiler}
        if not path:
            return
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a", encoding="utf-8")
        if not path.stat().st_size:
            print(",".join(KINDS), file=self.file)
        if gpu:
            lines = output_of("nvidia-smi", f"--query-gpu={ABOUT}", "--format=csv").splitlines()
            path.with_suffix(".machine.txt").write_text("".join(
                f"{name}: {value}\n" for name, value in
                zip(*(line.split(", ") for line in lines[:2]))), encoding="utf-8")

    def write(self, **fields):
        """One line, unless its error is above the allowed one or NaN: such a result is
        never published but remembered in `wrong`.  Returns whether it was written.  Rates
        follow from bytes_predicted and flops where they are not given."""
        error, allowed = fields.get("max_err", ""), fields.get("allowed_err", "")
        limit = math.inf if allowed == "" else allowed
        if error != "" and not accepted(error, limit):
            self.wrong.append(f"{fields['variant']}: error {error:.3g}, allowed {limit:.3g}")
            return False
        for rate, amount in (("gbps", "bytes_predicted"), ("gflops", "flops")):
            if fields.get(amount) not in (None, ""):
                fields.setdefault(rate, float(fields[amount]) / fields["median_s"] / 1e9)
        row = {**self.common, **fields, "date": now()}
        if self.file:
            text = [row.get(column, "") for column in KINDS]
            print(",".join(f"{x:.6g}" if isinstance(x, float) else str(x).replace(",", ";")
                           for x in text), file=self.file, flush=True)
        return True

    def status(self, name):
        """Names what was wrong; the exit status."""
        for line in self.wrong:
            print(f"{name}: WRONG, not written: {line}", file=sys.stderr)
        return 1 if self.wrong else 0
