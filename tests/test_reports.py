"""What is published: tables and figures are those of the CSV files, malformed files are refused in one line,
and the measuring scripts keep back a wrong result."""
import math
import pathlib
import shutil
import sys
import types

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
from helpers import BUILD, ROOT, lines_of, run  # noqa: E402

REPORTS = ROOT / "common/products/reports"
sys.path.insert(0, str(REPORTS))
import accept  # noqa: E402
import measurements  # noqa: E402
import peers_run  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
import rounds  # noqa: E402
import tables  # noqa: E402
from peers_shapes import tokens  # noqa: E402


# --- Tables. ---

@pytest.fixture
def made(capsys):
    """made(text, OPTION...): (status, text of a page after its tables were made, what was said)."""
    def make(text, *options):
        page = pathlib.Path("t.md")
        page.write_text(text)
        status = results.guarded("tables.py", lambda: tables.main(["--results", "results", *options, "t.md"]))
        return status, page.read_text(), "".join(capsys.readouterr())
    pathlib.Path("results").mkdir()
    return make


def marked(name, text="old"):
    return f"<!-- table:{name} begin -->\n{text}\n<!-- table:{name} end -->\n"


def test_committed_pages_hold_the_tables_of_the_committed_files():
    """Which proves what stands in each table."""
    run(sys.executable, REPORTS / "tables.py", "--results", "notes/results", "--check", cwd=ROOT)


@pytest.mark.parametrize("old, new, word", [
    ("median_s", "median", "'median_s'"), (",cpu,f32,", ";cpu,f32,", "fewer fields"), (",152,", ",many,", '"many"'),
    ("\n01_naive", "\n9_naive", "stage is '9'"), ("7.0502e-08", "nan", "max_err"),
    ("7.0502e-08", "1", "a wrong result is not published"), ("", None, "no .csv files")])
def test_malformed_csv_is_refused_with_one_line(made, old, new, word):
    if new is not None:
        text = (ROOT / "notes/results/cpu.csv").read_text(encoding="utf-8")
        assert old in text
        pathlib.Path("results/cpu.csv").write_text(text.replace(old, new, 1))
    status, text, said = made(marked("limits-attention"))
    assert status == 2 and said.count("\n") == 1 and word in said and text == marked("limits-attention"), said


def test_tables_are_rewritten_once_and_checked(made):
    shutil.copy(ROOT / "notes/results/cpu.csv", "results")
    old = marked("limits-attention")
    assert made(old, "--check")[:2] == (1, old)
    status, text, said = made(old)
    assert status == 0 and "\n| :-- |" in text, said
    assert made(text, "--check")[0] == 0 and made(text.replace("microkernel", "other"), "--check")[0] == 1


@pytest.mark.parametrize("text, word", [
    (marked("dance"), "'dance'"), ("\n<!-- table:roofs begin -->\n", "t.md:2"), ("<!-- table:roofs end -->\n", "t.md:1"),
    ("It is <!--n x-->7<!--/n--> %.\n", "'x'"),
    ("It is <!--n x-->7<!--/n--> %.\n<!-- numbers\nx = file-r :: ^c :: of ::  :: 0\n-->\n", "no such cell")])
def test_marks_that_mean_nothing_are_refused(made, text, word):
    shutil.copy(ROOT / "notes/results/cpu.csv", "results")
    pathlib.Path("results/r.csv").write_text("what,of\na,0.9\n")
    status, now, said = made(text)
    assert status == 2 and word in said and now == text, said


def test_a_number_in_running_text_is_read_out_of_its_table(made):
    pathlib.Path("results/r.csv").write_text("what,mask,of\na,0,10\na,1,20\n")
    text = "It is <!--n x-->7<!--/n--> %.\n\n<!-- numbers\nx = file-r :: ^a / 1 :: of ::  :: 0\n-->\n"
    status, now, said = made(text)
    assert status == 0 and now == text.replace(">7<", ">20<"), said
    assert made(now, "--check")[0] == 0 and made(text, "--check")[0] == 1


def test_what_all_lines_of_a_file_say_stands_once_below(made):
    for lines, last in (("a,1,X\nb,2,X\n", "*X.*"), ("a,1,X\nb,2,Y\n", "| b | 2 | Y |")):
        pathlib.Path("results/r.csv").write_text("what,bf16 us,measured\n" + lines)
        text = made(marked("file-r"))[1]
        assert "| what | bf16, µs |" in text and text.split("\n")[-3:] == [last, "<!-- table:file-r end -->", ""], text


# --- Figures. ---

def test_a_figure_without_its_data_is_named_and_the_others_are_drawn(capsys):
    lines = (ROOT / "notes/results/cpu.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    at = lines[0].split(",").index("seqlen_q")
    pathlib.Path("results").mkdir()
    pathlib.Path("results/cpu.csv").write_text("".join(line for line in lines if line.split(",")[at] in ("seqlen_q", "256", "1024")))
    names = [name for name in plot.FIGURES if name != "map"]
    assert plot.main(["--results", "results", *names]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == len(names) and "arc.png" in said and "roofline_cpu not drawn: no variant" in said, said


@pytest.mark.parametrize("options", [["map", "--program", BUILD / "03_online_softmax"], ["arc", "roofline_cpu"]])
def test_figures_are_drawn_and_are_the_same_again(options):
    for out in ("one", "two"):
        assert not plot.main(["--out", out, "--fixture", str(ROOT / "tests/fixture"), "--results",
                              str(ROOT / "notes/results"), *map(str, options)])
    drawn = sorted(path.name for path in pathlib.Path("one").iterdir())
    assert len(drawn) == len(options) - (options[0] == "map") * 2
    for name in drawn:
        first, second = (pathlib.Path(out, name).read_bytes() for out in ("one", "two"))
        assert first == second and first[:4] == b"\x89PNG", name


# --- What is measured. ---

def test_nan_is_never_accepted():
    assert accept.accepted(1, 1) and not accept.accepted(1.1, 1)
    assert not accept.accepted(math.nan, 1) and not accept.accepted(1, math.nan)


@pytest.mark.parametrize("bad", [(math.nan, 2e-3), (1e-3, math.nan), (3e-3, 2e-3), (math.nan, ""), (math.inf, 2e-3)])
def test_a_wrong_result_is_not_published(bad, capsys):
    writer = measurements.Writer("a.csv", "invented, GPU", "cc", gpu=True)
    shape = tokens(4096, 128, 0)
    fields = shape.fields("bf16") | {"stage": "peer", "flops": shape.flops(), "note": "bhld; lse",
                                     "work": shape.flops(), "bytes_predicted": shape.bytes("bf16")}
    problem = types.SimpleNamespace(about={"a": fields, "b": fields}, errors={"a": (1e-3, 2e-3), "b": bad})
    peers_run.publish(writer, problem, {name: rounds.Times([1.0] * 3, 3, "cold") for name in "ab"}, 6400.0)
    writer.file.close()
    line, = lines_of("a.csv")
    flops = 4 * 128 * 4 * 16 * 4096**2
    assert line["variant"] == "a" and abs(float(line["pct_ceiling"]) - 100 * flops / 6.4e12) < 0.01
    assert len(writer.wrong) == 1 and "b" in writer.wrong[0] and writer.status("x") == 1
    assert "WRONG, not written" in capsys.readouterr().err
