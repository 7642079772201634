"""peers_run.py: what all parts of peers.py have in common, and calls.py: timing kernels and libraries in turn.

A program makes a Run of its options, and for each problem a Problem: the calls by name, and of each
the fields of its line.  Run.measure() times them beside each other in each regime (rounds.py),
writes the lines and prints one.
"""
import functools
import os
import pathlib
import sys
import warnings

from measurements import Writer, command_line, torch_or_skip
from peers_methods import ALL_PEERS, compilers, with_memory
from rounds import CpuClock, CudaClock, cold, sustained

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "library", "python"))
REGIMES = {"cold": cold, "sustained": sustained}
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class Run:
    """Options, PyTorch, clock and CSV of a script.  Ends the program with 77 without a GPU, unless --device is another."""

    def __init__(self, doc, options=()):
        """options: {flag: settings of add_argument}."""
        self.name = pathlib.Path(sys.argv[0]).stem
        parser = command_line(doc)
        parser.add_argument("--csv", help="append the measurements to this file")
        parser.add_argument("--library", default="build/libfive_steps.so", help="our kernels")
        parser.add_argument("--seconds", type=float, default=0.4,
                            help="for all methods of a problem together")
        for flag, settings in dict(options).items():
            parser.add_argument(flag, **settings)
        self.args = parser.parse_args()
        self.device = getattr(self.args, "device", "cuda")
        self.torch = torch = torch_or_skip(self.name, int(self.device == "cuda"))
        warnings.filterwarnings("ignore")  # PyTorch says at length why a backend refuses
        torch.manual_seed(1)
        self.clock, self.compilers = CpuClock, compilers(torch)
        if self.device == "cuda":
            memory = torch.cuda.get_device_properties(0).total_memory
            self.clock = CudaClock(torch, torch.zeros(min(256 << 20, memory // 64), device="cuda"))

    @functools.cached_property
    def writer(self):
        """Of the lines of measurements."""
        return Writer(self.args.csv, self.torch.cuda.get_device_name(),
                      self.compilers["pytorch-cudnn"], gpu=True)

    @functools.cached_property
    def five_steps(self):
        """The Python package."""
        import five_steps
        self.compilers["five_steps"] = five_steps.c_library.library().built_with.replace(",", " ")
        return five_steps

    @functools.cache
    def ceiling(self, kind, dtype):
        """(a call, what it does): 'gemm', a large matrix product, or 'read', the sum of an array."""
        if kind == "read":
            x = self.torch.randn(1 << 29, device="cuda")
            return x.sum, 4.0 * 2**29
        a, b = (self.normal(8192, 8192, dtype=dtype) for _ in range(2))
        return (lambda: a @ b), 2.0 * 8192**3

    def normal(self, *shape, dtype="bf16"):
        """Normal numbers."""
        return self.torch.randn(*shape, device="cuda").to(getattr(self.torch, TYPES[dtype]))

    def tensors(self, shape, dtype="bf16", layout="bhld"):
        """q, k and v, normal numbers."""
        return shape.arrays(lambda batch, heads, length, dim: self.normal(batch, heads, length, dim, dtype=dtype)
                            if layout == "bhld" else self.normal(batch, length, heads, dim, dtype=dtype).transpose(1, 2))

    def problem(self, shape, dtype, layout, kind, **fields):
        """An attention; kind: 'gemm' or 'read', the ceiling."""
        return Problem(self, f"{dtype} {layout} {shape.text()}", self.ceiling(kind, dtype),
                       shape.fields(dtype) | {"ceiling_kind": kind} | fields)

    def measure(self, problem, regimes, chosen=None):
        """Measures, writes the lines; chosen(times): the methods that are measured sustained,
        too."""
        names = [*problem.calls]
        for regime in regimes:
            times, ceiling = problem.timed(names, lambda calls, time=REGIMES[regime]: time(
                self.clock, calls, self.args.seconds))
            written = publish(self.writer, problem, times, ceiling)
            names = chosen(times) if chosen else names
            print(f"{problem.text} {regime}, G/s:  " + "  ".join(
                f"{name.removeprefix('pytorch-')} {rate:.0f}" for name, rate in written.items())
                + f"  ceiling {ceiling:.0f}", flush=True)

    def status(self):
        """Names what was wrong; the exit status."""
        return self.writer.status(self.name)


class Problem:
    """One problem: `calls` and the fields `about` by name.  A field "work" is what a call does, in
    units of the ceiling; "note" goes into the flags."""

    def __init__(self, run, text, ceiling, fields):
        """ceiling: (a call, what it does); fields: of every line."""
        self.run, self.text, self.ceiling, self.fields = run, text, ceiling, fields
        self.calls, self.about, self.errors = {}, {}, {}

    def add(self, name, make, library=None, **fields):
        """Adds a method unless make() gives None because it refuses the problem.  A field may be
        a function, which is asked after that."""
        call, more = with_memory(self.run.torch, make)
        if call:
            fields = {key: value() if callable(value) else value for key, value in fields.items()}
            self.calls[name] = call
            own = {"stage": "peer" if name in ALL_PEERS else "05_flash_cuda",
                   "compiler": library.compiler if library else self.run.compilers[name]}
            self.about[name] = self.fields | own | fields | {
                "peak_bytes": more + self.fields["peak_bytes"]}

    def timed(self, names, time):
        """({name: Times}, the ceiling in G/s: the best repeat of a call in the same rounds)."""
        times = time({name: self.calls[name] for name in names} | {"": self.ceiling[0]})
        return times, self.ceiling[1] / times.pop("").least / 1e9

    def check(self, compare):
        """Keeps (error, allowed) of each result.  A library has a rule of its own: its error is
        published unless it is NaN."""
        for name, call in self.calls.items():
            error, allowed = compare(call())
            self.errors[name] = error, "" if name in ALL_PEERS else allowed


def publish(writer, problem, times, ceiling):
    """Writes a line per method of one problem in one regime; {name: rate} of those written."""
    written = {}
    for name, t in times.items():
        fields = dict(problem.about[name])
        rate, note = fields.pop("work") / t.median / 1e9, fields.pop("note")
        error, allowed = problem.errors.get(name, ("", ""))
        flags = [t.regime, note, "" if t.stable else "unstable"]
        if writer.write(variant=name, median_s=t.median, min_s=t.least, reps=t.calls,
                        ceiling=ceiling, pct_ceiling=100 * rate / ceiling, max_err=error,
                        allowed_err=allowed, flags="; ".join(filter(None, flags)), **fields):
            written[name] = rate
    return written
