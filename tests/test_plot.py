"""The figures: drawn from CSV, and the same from the same CSV."""
import pathlib

import pytest

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
import invented  # noqa: E402
from helpers import BUILD, ROOT  # noqa: E402
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


@pytest.mark.parametrize("options, wanted", [
    (["--program", PROGRAM], ["arc.png", "flash.png", "map.png"]),
    (["--results", ROOT / "notes/results", "roofline_cpu.png", "roofline_gpu.png", "staircase.png"],
     ["roofline_cpu.png", "roofline_gpu.png", "staircase.png"])])
def test_figures_are_drawn_and_are_the_same_again(drawn, options, wanted):
    write(invented.stages(gpu=True))
    for out in ("one", "two"):
        status, names, said = drawn(out, "--results", "results", *options)
        assert status == 0 and names == wanted, said
    for name in wanted:
        first, second = (pathlib.Path(out, name).read_bytes() for out in ("one", "two"))
        assert first == second and first[:4] == b"\x89PNG", name


@pytest.mark.parametrize("options, word", [
    (["--head", "12"], "out of bounds"), (["--fixture", "nowhere"], "nowhere"),
    (["--program", "./nothing"], "nothing")])
def test_what_stops_the_map_is_named(drawn, options, word):
    status, names, said = drawn("out", "--program", PROGRAM, *options)
    assert status == 1 and word in said and not names


def test_missing_columns_skip_a_figure_with_one_line(drawn):
    write(invented.stages())
    status, names, said = drawn("out", "--results", "results")
    assert status == 0 and {"arc.png"} <= {*names} and "flash.png" not in names
    assert "flash.png not drawn: no bf16 measurement of stage 5 on a GPU" in said
    status, _, said = drawn("out", "--results", "missing")
    assert status == 2 and "missing: has no .csv files" in said
    with pytest.raises(SystemExit):
        drawn("out", "dance")
