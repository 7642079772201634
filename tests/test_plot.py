"""The figures: drawn from CSV, and the same from the same CSV."""
import pathlib

import pytest

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
import invented  # noqa: E402
from helpers import BUILD, ROOT  # noqa: E402
import figures_stages  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
from test_tables import write  # noqa: E402

PROGRAM = BUILD / "03_online_softmax"
FIXTURE = ROOT / "tests/fixture"


@pytest.fixture
def drawn(capsys):
    """drawn(OUT, options...): (status, names of the files in OUT, what was said)."""
    def draw(out, *options):
        status = results.guarded("plot.py", lambda: plot.main(
            ["--out", out, "--fixture", str(FIXTURE), *map(str, options)]))
        return status, sorted(path.name for path in pathlib.Path(out).glob("*")), \
            "".join(capsys.readouterr())
    return draw


def measured(ladder):
    rows, counted = invented.ladder()
    write(rows if ladder else invented.stages(gpu=True))
    if ladder:
        write(counted, "profile_05_flash_cuda.csv")


@pytest.mark.parametrize("measure, options, wanted", [
    (lambda: measured(False), ["--program", PROGRAM],
     ["arc.png", "flash.png", "map.png", "memory.png"]),
    (lambda: measured(False), ["roofline_cpu.png", "roofline_gpu.png"],
     ["roofline_cpu.png", "roofline_gpu.png"]),
    (lambda: measured(True), ["staircase.png"], ["staircase.png"]),
    (lambda: None, ["swizzle.png", "fragments.png"], ["fragments.png", "swizzle.png"])])
def test_figures_are_drawn_and_are_the_same_again(drawn, measure, options, wanted):
    measure()
    for out in ("one", "two"):
        status, names, said = drawn(out, "--results", "results", *options)
        assert status == 0 and names == wanted, said
    for name in wanted:
        first, second = (pathlib.Path(out, name).read_bytes() for out in ("one", "two"))
        assert first == second and first[:4] == b"\x89PNG", name


def test_the_arc_takes_the_ladder_that_was_measured_as_a_whole():
    measured(False)
    rows = invented.ladder()[0]
    write(rows.query("seqlen_k != 4096"), "hopper/ladder.csv")
    shown = dict(figures_stages.arc_groups(figures_stages.with_ladder(
        results.Data(pathlib.Path("results")))))["GPU, bfloat16"]
    wgmma = next(row for row in shown if row.variant == "wgmma")
    assert wgmma.gflops == invented.ladder_rate("wgmma") and wgmma.length == 1024


@pytest.mark.parametrize("options, word", [
    (["--head", "12"], "out of bounds"), (["--fixture", "nowhere"], "nowhere"),
    (["--program", "./nothing"], "nothing")])
def test_what_stops_the_map_is_named(drawn, options, word):
    status, names, said = drawn("out", "--program", PROGRAM, *options)
    assert status == 1 and word in said and not names


def test_missing_columns_skip_a_figure_with_one_line(drawn):
    write(invented.stages().drop(columns="peak_bytes"))
    status, names, said = drawn("out", "--results", "results")
    assert status == 0 and {"arc.png"} <= {*names} and "flash.png" not in names
    assert "flash.png not drawn: no bf16 measurement of stage 5 on a GPU" in said
    assert "memory.png not drawn: no measurements of it" in said
    status, _, said = drawn("out", "--results", "missing")
    assert status == 2 and "missing: has no .csv files" in said
    with pytest.raises(SystemExit):
        drawn("out", "dance")
