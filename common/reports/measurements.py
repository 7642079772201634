"""measurements.py: writes measurements as lines of CSV, and what machine they are of.

The columns are those of `bench`.  `flags` says the regime, the layout and whether the method
writes lse ("cold; bhld; lse").  What does not fit into a column stands beside the CSV in a
file with the same stem, STEM.machine.txt: driver, CUDA, cuDNN and FlashAttention-3 versions,
power limit, clocks.
"""
import datetime
import math
import os
import subprocess

from accept import accepted

COLUMNS = ("stage variant op device dtype rows cols batch heads_q heads_kv seqlen_q "
           "seqlen_k head_dim head_dim_v causal threads median_s min_s reps "
           "bytes_predicted bytes_measured flops gbps gflops ceiling_kind ceiling "
           "pct_ceiling peak_bytes max_err allowed_err date commit machine compiler "
           "flags").split()
QUERIES = ("name", "driver_version", "power.limit", "power.max_limit", "clocks.max.sm",
           "clocks.max.mem", "clocks.sm", "clocks.mem", "temperature.gpu", "ecc.mode.current",
           "vbios_version")


def output_of(command):
    """What a command prints, or '' where it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def commit_here():
    """The commit of the sources; COMMIT in the environment overrides it."""
    return os.environ.get("COMMIT") or \
        output_of(["git", "rev-parse", "--short=10", "HEAD"]).strip() or "unknown"


def describe_machine(versions):
    """Lines 'name: value' of the GPU and of the versions given."""
    names = [query.replace(".", " ").replace("_", " ") for query in QUERIES]
    values = output_of(["nvidia-smi", f"--query-gpu={','.join(QUERIES)}",
                        "--format=csv,noheader"]).split("\n", maxsplit=1)[0].split(", ")
    if len(values) != len(names):
        values = ["unknown"] * len(names)
    return [f"{name}: {value}" for name, value in
            [*zip(names, values), *versions.items()]]


class Writer:
    """Appends measurements to a CSV file; without a path it only counts."""

    def __init__(self, path, machine, compiler, versions=None):
        self.path, self.file, self.wrong = path, None, []
        self.common = {"device": "gpu", "threads": 0, "commit": commit_here(),
                       "machine": machine.replace(",", " "), "compiler": compiler}
        if not path:
            return
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        new = not os.path.exists(path) or os.path.getsize(path) == 0
        self.file = open(path, "a", encoding="utf-8")
        if new:
            print(",".join(COLUMNS), file=self.file)
        if versions is not None:
            beside = os.path.splitext(path)[0] + ".machine.txt"
            with open(beside, "w", encoding="utf-8") as file:
                print(*describe_machine(versions), sep="\n", file=file)

    def write(self, **fields):
        """One line, unless its error is above the allowed one or NaN: such a result is
        never published but remembered in `wrong`.  Returns whether it was written."""
        error, allowed = fields.get("max_err", ""), fields.get("allowed_err", "")
        limit = math.inf if allowed == "" else allowed
        if error != "" and not accepted(error, limit):
            self.wrong.append(f"{fields['variant']}: error {error:.3g}, allowed {limit:.3g}")
            return False
        now = datetime.datetime.now(datetime.timezone.utc)
        row = {**self.common, **fields, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        if self.file:
            text = [row.get(column, "") for column in COLUMNS]
            print(",".join(f"{x:.6g}" if isinstance(x, float) else str(x).replace(",", ";")
                           for x in text), file=self.file, flush=True)
        return True
