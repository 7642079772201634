"""The tables: made from CSV, once, and one line for every malformed file."""
import pathlib
import re
import sys

import pytest

pd = pytest.importorskip("pandas")
import invented  # noqa: E402
import ladder  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402
from helpers import ROOT, run  # noqa: E402


def write(rows, name="a.csv"):
    path = pathlib.Path("results", name)
    path.parent.mkdir(exist_ok=True, parents=True)
    rows.to_csv(path, index=False)
    return path


@pytest.fixture
def made(capsys):
    """made(NAME...): (status, text of t.md after its tables were made, what was said)."""
    def make(*names, text=None, options=()):
        ladder.listed.cache_clear()
        page = pathlib.Path("t.md")
        page.write_text(text if text is not None else "".join(
            f"<!-- table:{name} begin -->\n<!-- table:{name} end -->\n" for name in names))
        status = results.guarded("tables.py", lambda: tables.main(
            ["--results", "results", *options, "t.md"]))
        return status, page.read_text(), "".join(capsys.readouterr())
    return make


def holds(text, *wanted):
    for want in wanted:
        assert want in text, f"not '{want}' in:\n{text}"


def test_committed_pages_hold_the_tables_of_the_committed_files():
    """Which proves what stands in each table; further tests are about what no page shows."""
    run(sys.executable, "common/products/reports/tables.py", "--results", "notes/results", "--check", cwd=ROOT)


@pytest.mark.parametrize("spoil, word", [
    (lambda text: None, "no .csv files"),
    (lambda text: "", "cannot be read"),
    (lambda text: text.split("\n")[0], "no measurements"),
    (lambda text: text.replace("median_s", "median", 1), "'median_s'"),
    (lambda text: re.sub("(?m)^(1,simd.*?),", r"\1;", text, count=1), "fewer fields"),
    (lambda text: re.sub("(.*\n.*\n.*\n.*)\n", r"\1,\n", text, count=1), "passed data had"),
    (lambda text: text.replace(",20,", ",many,", 1), '"many"'),
    (lambda text: text.replace("\n1,", "\n9,", 1), "'9'"),
    (lambda text: text.replace("\n1,", "\n,", 1), "stage"),
    (lambda text: text.replace(",4e-07,", ",nan,", 1), "max_err"),
    (lambda text: text.replace(",4e-07,", ",1,", 1), "a wrong result is not published"),
    (lambda text: text.replace(",4e-07,", ",inf,", 1), "a wrong result is not published"),
    (lambda text: b"\xff\xfe", "cannot be read"),
    (lambda text: text[:900], "a.csv")])
def test_malformed_csv_is_refused_with_one_line(made, spoil, word):
    path = write(invented.stages())
    spoiled = spoil(path.read_text())
    if spoiled is None:
        path.unlink()
    else:
        path.write_bytes(spoiled if isinstance(spoiled, bytes) else spoiled.encode())
    old = "<!-- table:limits-attention begin -->\nold\n<!-- table:limits-attention end -->\n"
    status, text, said = made(text=old)
    assert status == 2 and said.count("\n") == 1 and word in said and text == old, said


def test_columns_are_read_by_name(made):
    """In any order; one that an old file lacks is empty, one that is new does no harm."""
    rows = invented.stages()
    write(rows)
    want = made("limits-attention", "limits-softmax")[1]
    write(rows.assign(watts=3)[["watts", *rows.columns[::-1]]])
    assert made("limits-attention", "limits-softmax")[1] == want
    write(rows.drop(columns=["flags", "min_s"]))
    status, text, said = made("limits-attention", "limits-softmax")
    assert status == 0 and text == want, said
    write(rows.drop(columns="gflops"))
    assert made("roofs")[0] == 1  # a table that needs the column says so


def test_tables_are_rewritten_once_and_checked(made):
    write(invented.stages(gpu=True))
    names = ["limits-attention", "limits-softmax", "stages"]
    status, text, _ = made(*names, options=["--check"])
    assert status == 1 and "|" not in text
    status, text, said = made(*names)
    assert status == 0 and len(re.findall(r"(?m)^\| :-- \|", text)) == 3, said
    assert made(text=text, options=["--check"])[0] == 0
    assert made(text=text.replace("invented GPU", "other GPU"), options=["--check"])[0] == 1


@pytest.mark.parametrize("text, word", [
    ("<!-- table:dance begin -->\n<!-- table:dance end -->\n", "'dance'"),
    ("\n<!-- table:roofs begin -->\n", "t.md:2"),
    ("<!-- table:roofs end -->\n", "t.md:1"),
    ("<!-- table:roofs begin -->\n<!-- table:stages end -->\n", "t.md:2")])
def test_marks_without_partner_and_unknown_tables_are_refused(made, text, word):
    write(invented.stages(gpu=True))
    status, now, said = made(text=text)
    assert status == 2 and word in said and now == text


@pytest.mark.parametrize("change, share, note", [
    ({"pct_ceiling": 130}, "(130 %†)", "*† a cache served some of the passes.*"),
    ({"pct_ceiling": 900, "median_s": 0.0001}, "(900 %‡)", "*‡ above its ceiling: an error until explained.*")])
def test_tables_mark_what_exceeds_the_ceiling(made, change, share, note):
    """A share above the ceiling is none: the table says so, and why where that is known."""
    write(invented.stages().assign(**change))
    holds(made("limits-softmax")[1], share, note)


def test_of_several_runs_the_middle_one_and_the_least_and_largest_ratio(made):
    """The library always reaches 400 TFLOP/s."""
    speeds = {"steep": (300, 500, 400), "x30": (200, 300)}
    write(pd.concat(invented.table([
        invented.attention(stage, variant, "gpu", "bf16", 1000 * speed, 8e5, 4096)
        for stage, variant, speed in ((5, ladder.LAST, ours), ("peer", "pytorch-cudnn", 400))
    ]).assign(flags=f"cold; bhld; lse; {data}", date=f"2000-01-0{day + 1}")
        for data, runs in speeds.items() for day, ours in enumerate(runs)), "hopper/hard.csv")
    holds(made("adversarial")[1], "ratio: times as fast as the fastest library, `tuned`, the least "
          "and the largest of 2 to 3 runs.", "| steep, d = 64 | 400 (0.0040) | 400 (0.0040) | 0.75–1.25 |",
          "| x30, d = 64 | 200 (0.0040) | 400 (0.0040) | 0.50–0.75 |")


RATIOS = "what,mask,took_us,of\na,0,10,0.9 (1k); 0.95 (2k)\na,1,20,\nb,0,12,1.2 (1k)\nb,1,18,\n"


@pytest.mark.parametrize("rule, want", [
    ("^a :: of :: ([\\d.]+) \\( :: less 0", "5 to 10"), ("^a :: of ::  :: less 0", "10"),
    ("^b / (.) over ^a / (.) :: took, µs ::  :: 2", "0.90 to 1.20"),
    ("^b / (.) over ^a / (.) :: took, µs ::  :: most more 0", "20"),
    ("^. / 0 :: took, µs ::  :: median 1", "11.0"), ("^. / 0 :: took, µs ::  :: least 0", "10")])
def test_numbers_in_running_text_are_read_out_of_tables(made, rule, want):
    pathlib.Path("results").mkdir()
    pathlib.Path("results/r.csv").write_text(RATIOS)
    text = f"It is <!--n x-->7<!--/n--> %.\n\n<!-- numbers\nx = file-r :: {rule}\n-->\n"
    status, now, said = made(text=text)
    assert status == 0 and now == text.replace(">7<", f">{want}<"), said
    assert made(text=now, options=["--check"])[0] == 0 and made(text=text, options=["--check"])[0] == 1


@pytest.mark.parametrize("rules, word", [
    ("", "'x'"), ("x = file-r :: ^a :: of ::  :: 0\ny = file-r :: ^a :: of ::  :: 0", "'y'"),
    ("x = file-r :: ^c :: of ::  :: 0", "no such cell"), ("x = file-r :: ^a :: for ::  :: 0", "no such cell"),
    ("x = file-r :: ^a :: of ::  :: worse 0", "number 'x'"), ("x = file-q :: ^a :: of ::  :: 0", "no file"),
    ("x = file-r :: ^a :: of", "number 'x'"), ("x = file-r :: ^a :: of ::  :: 0", "first in its line")])
def test_a_number_whose_rule_finds_nothing_is_refused(made, rules, word):
    pathlib.Path("results").mkdir()
    pathlib.Path("results/r.csv").write_text(RATIOS)
    line = "It is " * (word != "first in its line")
    text = f"{line}<!--n x-->7<!--/n-->\n<!-- numbers\n{rules}\n-->\n"
    status, now, said = made(text=text)
    assert status == 2 and word in said and now == text, said
