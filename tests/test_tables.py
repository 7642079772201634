"""The tables: made from CSV, once, and one line for every malformed file."""
import pathlib
import re

import pytest

pytest.importorskip("pandas")
import invented  # noqa: E402
import ladder  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402


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


def test_tables_of_the_ladder_say_where_each_rung_wins(made):
    rows, counted = invented.ladder()
    write(rows), write(counted, "profile_05_flash_cuda.csv")
    write(invented.hard(rows), "hopper/hard.csv")
    (first,) = rows[rows.seqlen_k == 4096][:1].to_dict("records")
    write(invented.table([first | {"variant": name, "median_s": seconds} for name, seconds in (
        ("tensor_cores", 1.5), ("async_copies", 0.5), ("async_copies", 0.4),
        ("tensor_cores", 1.6))]), "hopper/ladder.csv")
    status, text, said = made("roofs", "counters", "steps-4-4", "decode",
                              "stage-5-attention", "hopper", "hopper-sustained", "headline")
    assert status == 0, said
    last = invented.LAST
    holds(text, "| split_kv | 6711 |",  # 67 MB in 10 us
          "| d = 64 | 900 (83 %) |",  # 743 of the roof's 900
          "the last kernel reaches **743 TFLOP/s, 2.48 times as fast as cuDNN** (bf16, head_dim "
          "128, 4k keys, no mask; one call at a time",
          "| 4 async_copies | 128 | 149 | 19 | 50 |  | 30 | 40 | 0.5 | 12 | 1.7 |",
          "4k keys", "| 3.50 ± 0.50 | tensor cores busy 13 to 19 %; shared memory busy 40 to 40 % |",
          f"| {last} | 819 |",  # 67 MB in 82 us
          " 743 (2.48) |", " 1486 (2.48) |")  # each regime by itself


@pytest.mark.parametrize("commit, cold, said", [
    (invented.BASE["commit"], " 594 (1.98–2.48) |", "1.98 to 2.48 times as fast as cuDNN"),
    ("another", " 594 (1.98) |", "1.98 times as fast as cuDNN")])
def test_runs_of_one_commit_give_the_least_and_the_largest_ratio(made, commit, cold, said):
    rows, _ = invented.ladder()
    write(rows)
    write(invented.hard(rows), "hopper/hard.csv")
    rows = rows[rows.variant.isin((invented.LAST, "heavy_first", "pytorch-cudnn"))]
    later = rows.assign(date="2000-01-03T00:00:00Z", commit=commit)
    later.loc[later.variant == invented.LAST, "median_s"] *= 1.25
    write(invented.pd.concat([rows, later]), results.LAST_RUNGS)
    holds(made("hopper", "headline")[1], cold, said)


def test_another_gpu_has_files_of_its_own(made):
    """NAME@h100 is made from them alone, and the headline names both GPUs."""
    rows, _ = invented.ladder()
    other = rows.assign(machine="other GPU", median_s=rows.median_s / 2)
    write(rows), write(invented.hard(rows), "hopper/hard.csv")
    write(other, "hopper/h100_last_rungs.csv")
    status, text, said = made("hopper@h100", "headline")
    assert status == 0 and text.count("*invented GPU") == 0, said
    holds(text, "| d = 128 | ", " 1486 (2.48) |", "On one invented GPU the last kernel reaches **743",
          "On one other GPU: 1486 TFLOP/s, 2.48 times as fast as cuDNN (1 runs).")
    status, _, said = made("adversarial@h100")
    assert status == 1 and "no file results/hopper/h100_hard.csv" in said


def test_a_library_that_is_measured_appears_in_the_tables(made):
    rows, _ = invented.ladder()
    fourth = rows[rows.variant == "pytorch-cudnn"].assign(variant="flash-attention-4")
    fourth = fourth.assign(gflops=fourth.gflops * 2, median_s=fourth.median_s / 2)
    write(rows), write(fourth, "b.csv"), write(invented.hard(rows), "hopper/hard.csv")
    holds(made("hopper", "headline", "adversarial")[1], "best of cuDNN and FlashAttention-4)",
          " 743 (1.24) |", "1.24 times as fast as FlashAttention-4**",
          "the last kernel is 2.48 times as fast", "| steep, d = 128 | 435 (0.0040) | 743 (0.0040) | "
          "300 (0.0040) | 2.48 |")


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
    want = made("limits-attention", "stage-4-attention")[1]
    write(rows.assign(watts=3)[["watts", *rows.columns[::-1]]])
    assert made("limits-attention", "stage-4-attention")[1] == want
    write(rows.drop(columns=["peak_bytes", "flags", "min_s"]))
    status, text, said = made("limits-attention", "stage-4-attention")
    assert status == 0 and text == want, said
    write(rows.drop(columns="gflops"))
    assert made("roofs")[0] == 1  # a table that needs the column says so


def test_tables_are_rewritten_once_and_checked(made):
    write(invented.stages(gpu=True))
    names = ["limits-attention", "limits-softmax", "stages", "stage-4-attention", "stage-3-softmax"]
    status, text, _ = made(*names, options=["--check"])
    assert status == 1 and "|" not in text
    status, text, said = made(*names)
    assert status == 0 and len(re.findall(r"(?m)^\| :-- \|", text)) == 5, said
    assert made(text=text, options=["--check"])[0] == 0
    assert made(text=text.replace("invented GPU", "other GPU"), options=["--check"])[0] == 1


def test_files_of_one_run_have_a_ratio(made):
    (first,) = invented.stages()[:1].to_dict("records")
    write(invented.table([
        first | {"variant": "window: 256 keys", "median_s": 0.002,
                 "flags": "ideal_s 0.001; bound 0.8"},
        first | {"variant": "layout: views", "median_s": 0.002, "flags": "ideal_s 0.001"}]),
        "hopper/serving.csv")
    first |= {"device": "gpu", "batch": 64, "heads_q": 32, "heads_kv": 8, "seqlen_q": 1,
              "seqlen_k": 8192, "flags": "cold; pages; drawn lengths"}
    write(invented.table([first | {"variant": name, "stage": stage, "median_s": s, "gbps": 4 / s}
                          for name, stage, s in (("five_steps", 5, 0.001), ("a", "peer", 0.003),
                                                 ("b", "peer", 0.002))]), "hopper/decode.csv")
    _, text, said = made("serving", "decode-lengths")
    holds(text + said, "| 0.50 | 0.80 |", "| 0.50 |  |",
          "drawn lengths, pages | 4000 | 1333 | 2000 | 2.00 |")


def test_stage_tables_follow_the_list_of_the_stage(made):
    write(invented.stages(gpu=True))
    for order in (("tiled", "threads"), ("threads", "tiled")):
        pathlib.Path("04_here").mkdir(exist_ok=True)
        pathlib.Path("04_here/variants.c").write_text(
            "... *const variants[] = {\n &%s,\n &%s,\n NULL,\n};\n" % order)
        assert re.search(r"(?m)^. (tiled|threads) ", made("stage-4-attention")[1])[1] == order[0]


def test_an_output_that_was_not_compared_has_no_error(made):
    rows = invented.stages()
    rows.loc[rows.variant == "threads", ["max_err", "allowed_err"]] = float("nan")
    write(rows)
    text = made("stage-4-attention")[1]
    assert re.search(r"\| tiled .* 4.0e-07 / 2.0e-06 \|", text) and re.search(r"\| threads .* \|  \|", text)


def test_further_machines_stand_in_files_of_their_own(made):
    rows = invented.stages()
    write(rows)
    other = rows[rows.seqlen_k != 256]
    other = other.assign(machine="other machine; 16 cores", median_s=other.median_s / 2,
                         gflops=2 * other.gflops)
    # more lines do not make a further machine the first one
    write(invented.pd.concat([other] * 3), "cpu_b.csv")
    status, text, said = made("limits-attention", "cpu-peers-b")
    assert text.count("other machine") == 0 and "no measurement of PyTorch on the CPU" in said
    holds(text, "*invented machine")
    status, text, said = made("untuned")
    assert status == 1 and "|" not in text and "no measurement of the last rung beside" in said


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
    ({"pct_ceiling": 130}, "130 %† of copy", "*† a cache served some of the passes.*"),
    ({"pct_ceiling": 900, "median_s": 0.0001}, "900 %‡ of copy",
     "*‡ above its ceiling: an error until explained.*"),
    ({"pct_ceiling": 107, "ceiling_kind": "gemm", "device": "gpu"}, "107 %§ of gemm",
     "*§ faster than the library's matrix product.*")])
def test_tables_mark_what_exceeds_the_ceiling(made, change, share, note):
    """A share above the ceiling is none: the table says so, and why where that is known."""
    write(invented.stages().assign(**change))
    holds(made("stage-3-softmax")[1], share, note)


def test_each_cause_alone_beside_what_was_counted(made):
    rows, counted = invented.blocks()
    write(rows), write(counted, "profile_01_naive.csv")
    status, text, said = made("gpu-blocks")
    assert status == 0, said
    holds(text, "| gpu_thread_per_row | f32 | [256k, 1k] | 1024 | 60.0 ms | 3.50 G | 32.0 | 87.5 % |",
          "| gpu_thread_per_row | f32 | [4k, 64k] | 16 | 120 ms | 3.50 G | 31.5 | 87.5 % |",
          "| gpu_block_per_row | f32 | [16, 16M] | 16 | 80.0 ms | 3.50 G | 4.0 |")
    # a line without repeats has no time of its own: no other table shows [16, 16M]
    text = made("stage-1-softmax")[1]
    holds(text, "| gpu_block_per_row | GPU | f32 | 64k | 2.00 ms |",
          " / 3758 |")  # 3.5 G of 1074 MB were counted
    assert "16M" not in text
