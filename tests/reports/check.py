"""check.py: what the measuring scripts do with times and errors, without a GPU or PyTorch.

    python3 tests/reports/check.py REPORTS NAME

REPORTS is common/reports, NAME one of the functions below.  Clocks and tensors are stand-ins.
Exit status 0 when the facts of NAME hold.
"""
import argparse
import contextlib
import csv
import io
import math
import os
import sys
import tempfile

sys.path.insert(0, sys.argv[1])

import accept  # noqa: E402
import measurements  # noqa: E402
import peers_cpu  # noqa: E402
import peers_gpu  # noqa: E402
import peers_shapes  # noqa: E402
import peers_softmax  # noqa: E402
import rounds  # noqa: E402
import tables  # noqa: E402
import timeline  # noqa: E402


class Column(list):
    """A tensor of one dimension, as far as compare() needs one."""

    def double(self):
        return self

    def abs(self):
        return Column(abs(x) for x in self)

    def __sub__(self, other):
        return Column(a - b for a, b in zip(self, other))

    def max(self):
        return math.nan if any(x != x for x in self) else max(self)


class Output:
    """The same values in every head."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        return Column(self.values)


class Clock:
    """Time is what the calls add to it; `order` is who called, "flush" among them."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def flush(self):
        self.order.append("flush")

    def record(self):
        return self.now

    def wait(self):
        pass

    @staticmethod
    def seconds(begin, end):
        return end - begin

    def method(self, name, seconds):
        """A call that takes the next of `seconds`, the last one for ever."""
        left = list(seconds)

        def call():
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
        return call


def times(median, spread=1.0, regime="cold"):
    return rounds.Times([median / spread, median, median * spread], 3, regime)


def published(checked, medians):
    """(lines, wrong) that publish() writes for these errors."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "a.csv")
        writer = measurements.Writer(path, "invented, GPU", "cc", {"driver": "1"})
        shape = peers_shapes.tokens(4096, 128, 0)
        about = {name: peers_gpu.about_of(name, shape, "bf16", "bhld", "gemm", 1, {})
                 for name in medians}
        known = {name: times(t) for name, t in medians.items()}
        known[peers_gpu.CEILING] = times(2.0, 1.25)
        peers_gpu.publish(writer, about, known, checked, 8e12)
        writer.file.close()
        with open(path, encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        with open(os.path.join(place, "a.machine.txt"), encoding="utf-8") as file:
            assert "driver: 1" in file.read()
        return lines, writer.wrong


def nan_is_never_accepted():
    assert math.isnan(accept.worst([0.0, math.nan])) and math.isnan(accept.worst([math.nan, 0]))
    assert math.isnan(accept.worst([])) and accept.worst([1, 3, 2]) == 3
    assert accept.accepted(1, 1) and not accept.accepted(1.1, 1)
    assert not accept.accepted(math.nan, 1) and not accept.accepted(1, math.nan)
    shape = (1, 2, 2, 4, 4, 8, 0)
    known = [(Column([1.0, 2.0]), 0.1)] * 2
    error, allowed = accept.compare(shape, Output([1.0, 2.05]), known)
    assert abs(error - 0.05) < 1e-9 and accept.accepted(error, allowed)
    error, allowed = accept.compare(shape, Output([1.0, math.nan]), known)
    assert math.isnan(error) and not accept.accepted(error, allowed)


def a_wrong_result_is_not_published():
    right = {"pytorch-cudnn": (1e-3, 2e-3), "pytorch-flash": (1e-3, 2e-3)}
    medians = dict.fromkeys(right, 1.0)
    lines, wrong = published(right, medians)
    assert len(lines) == 2 and not wrong
    for bad in ((math.nan, 2e-3), (1e-3, math.nan), (3e-3, 2e-3), (math.nan, ""),
                (math.inf, 2e-3)):
        lines, wrong = published({**right, "pytorch-flash": bad}, medians)
        assert [line["variant"] for line in lines] == ["pytorch-cudnn"], bad
        assert len(wrong) == 1 and "pytorch-flash" in wrong[0], wrong


def a_line_says_its_conditions():
    lines, _ = published({}, {"pytorch-flash": 1.0, "pytorch-cudnn": 1.0})
    flash, cudnn = lines
    assert flash["flags"] == "cold; bhld; lse" and cudnn["flags"] == "cold; bhld; no lse"
    assert flash["machine"] == "invented; GPU" or "," not in flash["machine"]
    # the ceiling is the best of its repeats: 8e12 in 2 / 1.25 s
    assert abs(float(flash["ceiling"]) - 8e12 / 1.6 / 1e9) < 1, flash["ceiling"]
    flops = 4 * 128 * 4 * 16 * 4096**2
    assert abs(float(flash["pct_ceiling"]) - 100 * flops / 5e12) < 0.01


def cold_calls_are_flushed_shuffled_and_equally_many():
    clock = Clock()
    methods = {name: clock.method(name, [t]) for name, t in (("a", 1.0), ("b", 2.0),
                                                              ("c", 3.0))}
    seen = rounds.cold(clock, methods, 60)
    assert {t.calls for t in seen.values()} == {10}, seen
    assert [seen[name].median for name in "abc"] == [1, 2, 3]
    calls = clock.order[3:]  # after the first, unmeasured calls
    assert calls[::2] == ["flush"] * (len(calls) // 2) and "flush" not in calls[1::2]
    orders = {tuple(calls[1::2][n:n + 3]) for n in range(3, 33, 3)}
    assert len(orders) > 2 and all(sorted(order) == ["a", "b", "c"] for order in orders)


def sustained_calls_are_not_flushed_and_equally_many():
    clock = Clock()
    methods = {name: clock.method(name, [t]) for name, t in (("a", 1.0), ("b", 3.0))}
    seen = rounds.sustained(clock, methods, 200, blocks=5)
    assert "flush" not in clock.order
    assert {t.calls for t in seen.values()} == {50} and seen["b"].median == 3
    assert seen["a"].regime == "sustained"
    assert "aaaaaaaaaa" in "".join(clock.order)


def an_unstable_method_is_measured_again():
    noisy = [1.0, 1.0] + [1.0, 2.0, 2.0, 2.0, 2.0]  # warm-up, first call; one attempt
    clock = Clock()
    seen = rounds.cold(clock, {"a": clock.method("a", noisy + [1.0])}, 5, 5, 5)
    assert seen["a"].stable and seen["a"].median == 1.0
    assert clock.order.count("a") == 2 + 2 * 5
    clock = Clock()  # never quiet: three attempts, and it says so
    never = [1.0, 2.0, 3.0, 4.0, 5.0] * 20
    seen = rounds.cold(clock, {"a": clock.method("a", never)}, 5, 5, 5)
    assert not seen["a"].stable and clock.order.count("a") == 2 + 3 * 5
    assert rounds.Times([1.0, 1.04], 2, "cold").stable


def the_parts_hold_the_shapes_that_are_named():
    assert peers_shapes.tokens(4096, 128, 1) == (4, 16, 16, 4096, 4096, 128, 1)
    untuned = peers_shapes.planned(["untuned"], "bf16")
    assert {1000, 3000, 5000, 12345} <= {s[0][4] for s in untuned}
    assert {80, 96, 192} <= {s[0][5] for s in untuned}
    assert any(s[0][1:3] == (32, 8) for s in untuned)
    assert all(s[2] == ("cold", "sustained") for s in untuned)
    assert {s[3] for s in peers_shapes.planned(["layouts"], "bf16")} == {"blhd"}
    assert peers_shapes.pairs_of((1, 1, 1, 2, 4, 8, 1)) == 3 + 4
    assert peers_shapes.pairs_of((2, 1, 1, 4, 4, 8, 1)) == 16
    assert peers_shapes.is_decode((1, 32, 4, 1, 9, 64, 0))
    for text in ("1,2,3", "1,1,1,1,1,1,1,1"):
        try:
            peers_shapes.shape_of(text)
            raise AssertionError(text)
        except argparse.ArgumentTypeError:
            pass


class FakeTorch:
    """PyTorch as far as peers_cpu.append() needs it."""
    __version__ = "0"

    def __init__(self, finite):
        self.finite, self.nn = finite, self
        self.functional = self

    def randn(self, *_):
        return self

    empty = randn

    def softmax(self, *_, **__):
        return self

    def set_num_threads(self, _):
        pass

    def isfinite(self, _):
        return self

    def all(self):
        return self.finite


def pytorch_on_the_cpu_is_checked_too():
    line = dict.fromkeys(measurements.COLUMNS, "0")
    line.update(stage="01_naive", variant="naive", op="softmax", device="cpu", dtype="f32",
                rows="2", cols="3", threads="1", median_s="0.5", gbps="1", gflops="",
                pct_ceiling="10")
    # a clock that stands still in a call cannot be divided by: one that ticks
    peers_cpu.seconds_of.__defaults__ = (iter([n / 8 for n in range(1000)]).__next__,)
    for finite in (True, False):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "a.csv")
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, measurements.COLUMNS)
                writer.writeheader()
                writer.writerow(line)
            said = io.StringIO()
            import pathlib
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = peers_cpu.append(pathlib.Path(path), FakeTorch(finite))
            with open(path, encoding="utf-8") as file:
                lines = list(csv.DictReader(file))
            assert status == (0 if finite else 1), said.getvalue()
            assert len(lines) == (2 if finite else 1), lines
            assert finite or "WRONG" in said.getvalue()
            assert not finite or lines[1]["flags"] == "sustained"


def softmax_rows_are_checked_too():
    """The copy is the ceiling; a NaN beside it is not published."""
    class Work:
        dtype, rows, cols = "f32", 4, 8
        stages = {"copy": "peer", "pytorch-softmax": "peer", "gpu_x": "3"}
        predicted = dict.fromkeys(stages, 256.0)
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "a.csv")
        writer = measurements.Writer(path, "GPU", "cc")
        shown = peers_softmax.publish(
            writer, Work, {name: times(t) for name, t in (
                ("copy", 1.0), ("pytorch-softmax", 2.0), ("gpu_x", 1.25))},
            {"pytorch-softmax": (1e-7, 1e-6), "gpu_x": (math.nan, 1e-6)})
        writer.file.close()
        with open(path, encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    assert shown == {"copy": 100.0, "pytorch-softmax": 50.0}, shown
    assert [line["variant"] for line in lines] == ["copy", "pytorch-softmax"]
    assert len(writer.wrong) == 1 and "gpu_x" in writer.wrong[0]


def a_ratio_is_of_one_run():
    """Of a problem in both files only the later run's rows count, whatever it left out."""
    def row(variant, keys, date):
        shape = dict.fromkeys(tables.SHAPE, 0)
        return argparse.Namespace(**{**shape, "seqlen_k": keys}, variant=variant, op="attention",
                                  dtype="bf16", device="gpu", causal=0, layout="bhld", date=date)
    ladder = [row("a", 1, "1"), row("b", 1, "1"), row("a", 2, "1"), row("a", 3, "3")]
    later = [row("b", 1, "2"), row("b", 3, "2")]
    assert [(r.variant, r.seqlen_k, r.date) for r in tables.latest_run(ladder, later)] == \
        [("a", 2, "1"), ("a", 3, "3"), ("b", 1, "2")]


def marks_of_a_launch_become_bars():
    """The clock comes round; waits are named by what follows; neighbours that do the same are
    one bar; nothing that begins after the window is kept."""
    marks = timeline.read_marks(
        ["0 w 4294967290", "0 c 10", "0 w 30", "4 w 4294967295", "4 w 40", "4 t 50", "4 q 70",
         "4 w 90", "4 v 100", "4 p 120", "4 s 400", "4 s 450", "4 p 500", "4 w 510", "4 s 520",
         "4 o 600", "4 w 700"])
    assert timeline.roles(marks) == {"producer": 0, "consumer 0": 4}
    assert timeline.roles([0, 1, 2, 3]) == {"warpgroup": 0}
    assert timeline.bars_of(marks[0]) == (0, [("e", 16), ("c", 20)])
    begin, bars = timeline.bars_of(marks[4])
    assert begin == 5
    assert " ".join(f"{letter}{cycles}" for letter, cycles in bars) == \
        "x41 k10 t20 q20 u10 v20 p280 s100 p20 s80 o100", bars
    assert sum(cycles for _, cycles in bars) == 701
    assert timeline.bars_of(marks[4], window=60) == (5, bars[:3])


FACTS = [f for name, f in sorted(globals().items()) if callable(f)
         and getattr(f, "__module__", "") == "__main__" and name.count("_") >= 3]

if __name__ == "__main__":
    for fact in FACTS:
        if sys.argv[2] in (fact.__name__, "all"):
            fact()
            print(fact.__name__)
