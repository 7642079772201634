"""The measuring scripts, with clocks, tensors and libraries that are stand-ins: what is measured
how often, and that no wrong result is published."""
import importlib.util
import math
import pathlib
import sys
import types

import numpy as np
import pytest

from helpers import ROOT, lines_of, run

REPORTS = ROOT / "common/products/reports"
sys.path.insert(0, str(REPORTS))
import accept  # noqa: E402
import measurements  # noqa: E402
import peers_run  # noqa: E402
import rounds  # noqa: E402
import timeline  # noqa: E402
from peers_shapes import Shape, argparse, planned, shape_of, tokens  # noqa: E402

SHAPE = Shape(1, 2, 2, 4, 4, 8, 0)


class Tensor(np.ndarray):
    """An array with the methods of a tensor that the scripts call."""

    def double(self):
        return self.astype("f8").view(Tensor)

    def abs(self):
        return np.abs(self)


def tensor(*shape, dtype="f4", fill=0.0):
    return np.full(shape, fill, dtype).view(Tensor)


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

    def method(self, name, *seconds):
        """A call that takes the next of `seconds`, the last one for ever."""
        left = list(seconds)

        def call():
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
        return call


def times(median):
    return rounds.Times([median] * 3, 3, "cold")


def published(medians, errors):
    """(lines, writer) of publish() for a problem of these medians and errors."""
    pathlib.Path("a.csv").unlink(missing_ok=True)
    writer = measurements.Writer("a.csv", "invented, GPU", "cc", gpu=True)
    shape = tokens(4096, 128, 0)
    fields = shape.fields("bf16") | {"stage": "peer", "flops": shape.flops(), "note": "bhld; lse",
                                     "work": shape.flops(), "bytes_predicted": shape.bytes("bf16")}
    problem = types.SimpleNamespace(about=dict.fromkeys(medians, fields), errors=errors)
    written = peers_run.publish(writer, problem, {name: times(t) for name, t in medians.items()},
                                6400.0)
    writer.file.close()
    assert pathlib.Path("a.machine.txt").exists()
    lines = lines_of("a.csv")
    assert [line["variant"] for line in lines] == [*written]
    return lines, writer


def test_nan_is_never_accepted():
    assert accept.accepted(1, 1) and not accept.accepted(1.1, 1)
    assert not accept.accepted(math.nan, 1) and not accept.accepted(1, math.nan)
    o = tensor(1, 2, 4, 8)
    known = [(tensor(4, 8), 0.1)] * 2
    o[0, 1, 3, 7] = 0.05
    error, allowed = accept.compare(SHAPE, o, known)
    assert abs(error - 0.05) < 1e-6 and accept.accepted(error, allowed)
    o[0, 0, 3, 7] = math.nan
    error, allowed = accept.compare(SHAPE, o, known)
    assert math.isnan(error) and not accept.accepted(error, allowed)


@pytest.mark.parametrize("bad", [(math.nan, 2e-3), (1e-3, math.nan), (3e-3, 2e-3),
                                 (math.nan, ""), (math.inf, 2e-3)])
def test_a_wrong_result_is_not_published(bad, capsys):
    medians, right = {"a": 1.0, "b": 1.0}, (1e-3, 2e-3)
    lines, writer = published(medians, {"a": right, "b": right})
    assert len(lines) == 2 and writer.status("x") == 0
    lines, writer = published(medians, {"a": right, "b": bad})
    assert [line["variant"] for line in lines] == ["a"]
    assert len(writer.wrong) == 1 and "b" in writer.wrong[0]
    assert writer.status("x") == 1 and "WRONG, not written" in capsys.readouterr().err


def test_a_line_says_its_conditions():
    (line,), _ = published({"flash-attention-3": 2.0}, {})
    assert line["flags"] == "cold; bhld; lse" and line["max_err"] == ""
    assert line["machine"] == "invented  GPU" and line["op"] == "attention"
    flops = 4 * 128 * 4 * 16 * 4096**2
    assert abs(float(line["pct_ceiling"]) - 100 * flops / 2 / 6.4e12) < 0.01
    assert abs(float(line["gflops"]) / (flops / 2e9) - 1) < 1e-4
    once = 2 * 128 * 4 * 4 * 16 * 4096  # bytes of q, k, v and o
    assert abs(float(line["gbps"]) / (once / 2e9) - 1) < 1e-4


def test_cold_calls_are_flushed_shuffled_and_equally_many():
    clock = Clock()
    methods = {name: clock.method(name, t) for name, t in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    seen = rounds.cold(clock, methods, 60)
    assert {t.calls for t in seen.values()} == {10}
    assert [seen[name].median for name in "abc"] == [1, 2, 3]
    calls = clock.order[3:]  # after the first, unmeasured calls
    assert calls[::2] == ["flush"] * (len(calls) // 2) and "flush" not in calls[1::2]
    orders = {tuple(calls[1::2][n:n + 3]) for n in range(3, 33, 3)}
    assert len(orders) > 2 and all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_sustained_calls_are_not_flushed_and_equally_many():
    clock = Clock()
    methods = {name: clock.method(name, t) for name, t in (("a", 1.0), ("b", 3.0))}
    seen = rounds.sustained(clock, methods, 200, blocks=5)
    assert "flush" not in clock.order and "aaaaaaaaaa" in "".join(clock.order)
    assert {t.calls for t in seen.values()} == {50} and seen["b"].median == 3


@pytest.mark.parametrize("seconds, stable, attempts", [
    ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0], True, 2),
    ([1.0, 2.0, 3.0, 4.0, 5.0] * 20, False, 3)])  # never quiet: it says so
def test_an_unstable_method_is_measured_again(seconds, stable, attempts):
    clock = Clock()
    seen = rounds.cold(clock, {"a": clock.method("a", *seconds)}, 5, 5, 5)
    assert seen["a"].stable == stable and clock.order.count("a") == 2 + attempts * 5


def test_the_parts_hold_the_shapes_that_are_named():
    assert tokens(4096, 128, 1) == (4, 16, 16, 4096, 4096, 128, 1, 0)
    untuned = planned(["untuned"], "bf16")
    assert {1000, 3000, 5000, 12345} <= {s[0].seqlen_k for s in untuned}
    assert {80, 96, 192} <= {s[0].head_dim for s in untuned} and any(s[0].v for s in untuned)
    assert all(s[2] == ("cold", "sustained") for s in untuned)
    assert {s[1:] for s in planned(["layouts", "float", "backward"], "bf16")} == {
        ("bf16", ("cold", "sustained"), "blhd", "attention"), ("f32", ("cold",), "bhld", "attention"),
        ("bf16", ("cold", "sustained"), "bhld", "backward")}
    assert Shape(1, 1, 1, 2, 4, 8, 1).pairs() == 3 + 4
    assert Shape(2, 1, 1, 4, 4, 8, 1).pairs() == 16
    mla = shape_of("1,1,1,2,2,6,0,4")
    assert mla.flops() == 2 * (6 + 4) * 4 and mla.flops(6, 4) == (6 * 6 + 4 * 4) * 4
    assert mla.bytes("bf16") == 2 * (6 + 6 + 4 + 4) * 2
    assert shape_of("1,32,4,1,9,64,0").is_decode()
    for text in ("1,2,3", "1,1,1,2,2,6,0,4,5", "1,1,1,2,2,six,0"):
        with pytest.raises(argparse.ArgumentTypeError):
            shape_of(text)


@pytest.mark.parametrize("script", ["peers", "calls training", "timeline", "peers_cpu"])
def test_without_pytorch_or_a_gpu_a_script_is_skipped(script):
    """In a line that says why; before that it reads its options."""
    if script == "peers_cpu" and importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is installed: it would measure")
    script, *part = script.split()
    done = run(sys.executable, "-B", REPORTS / f"{script}.py", *part, "--csv", "a.csv", want=77,
               env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.out.count("\n") == 1 and "; skipped" in done.out
    assert not pathlib.Path("a.csv").exists()
    assert run(sys.executable, "-B", REPORTS / f"{script}.py", "--dance", want=2).err


def test_marks_of_a_launch_become_bars():
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
    assert begin == 5 and sum(cycles for _, cycles in bars) == 701
    assert " ".join(f"{letter}{cycles}" for letter, cycles in bars) == \
        "x41 k10 t20 q20 u10 v20 p280 s100 p20 s80 o100"
    assert timeline.bars_of(marks[4], window=60) == (5, bars[:3])
