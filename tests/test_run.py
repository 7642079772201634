"""test_run.py: `run` on real data: every form of file, every option, every stage, judged by the
definitions in float64 (helpers.py); where outputs go; what is refused."""
import subprocess

import numpy as np
import pytest

from helpers import (BUILD, FIXTURE, ROOT, STAGES, attention, compare, load, normal, option_words,
                     refused, run, save, softmax, stage)

EVERY = range(1, 6)
FILES = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "o.npy", "--lse",
         "lse.npy"]
PACKED = ["--cu-seqlens-q", "cq.npy", "--cu-seqlens-k", "ck.npy"]
ON_CPU = ["--device", "cpu"]


def save_qkv(*, q=(5, 3), k=(7, 3), dv=4, dtype="f4"):
    arrays = normal(*q, seed=1), normal(*k, seed=2), normal(*k[:-1], dv, seed=3)
    return [load(save(f"{name}.npy", x, dtype)) for name, x in zip("qkv", arrays)]


def expect(want, allowed=1e-5):
    compare(load("o.npy"), want[0], allowed, "o")
    compare(load("lse.npy"), want[1], 2 * allowed, "lse")


def variants(number):
    lines = stage(number, "list").out.splitlines()
    return [line.split()[0] for line in lines
            if not line.startswith("#") and "attention" in line and "f32" in line]


@pytest.mark.parametrize("number", EVERY)
def test_fixture_is_right_in_every_variant(number):
    at = ROOT / "tests/fixture"
    for choice in [[]] + [["--variant", name] for name in variants(number)]:
        result = stage(number, "run", *FIXTURE, "--o", "o.npy", "--lse", "lse.npy",
                       *choice, want=None)
        if result.code == 77 or "not support" in result.err:
            continue
        assert result.code == 0, (choice, result)
        expect((load(at / "o.npy"), load(at / "lse.npy")))


@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("before", [(), (6,), (2, 6)])
def test_two_three_and_four_dimensions(number, before):
    kv = before[:-1] + (2,) if before else ()
    q, k, v = save_qkv(q=(*before, 5, 3), k=(*kv, 7, 3))
    stage(number, *FILES)
    expect(attention(q, k, v))


@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [0, 1])
@pytest.mark.parametrize("scale", [None, -0.25])
def test_causal_bias_and_scale(number, causal, biased, scale):
    q, k, v = save_qkv(q=(4, 9, 8), k=(2, 13, 8), dv=5)
    bias = normal(9, 13, seed=4)
    bias[0, 3] = bias[1, 7] = -np.inf
    options = {"causal": causal, "bias": bias if biased else None, "scale": scale}
    stage(number, *FILES, *option_words(**options))
    expect(attention(q, k, v, **options))


@pytest.mark.parametrize("number", EVERY[1:])
def test_masked_rows_are_zero_and_hidden_nan_stays_hidden(number):
    q, k, v = save_qkv(q=(6, 8), k=(4, 8), dv=8)
    stage(number, *FILES, "--causal")
    expect(attention(q, k, v, causal=True))
    assert not load("o.npy")[:2].any() and np.isneginf(load("lse.npy")[:2]).all()
    q, k, v = save_qkv(q=(70, 8), k=(70, 8), dv=8)
    v[69, ::2], v[69, 1::2] = np.inf, np.nan
    save("v.npy", v)
    stage(number, *FILES, "--causal")
    expect(attention(q, k, v, causal=True))


@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", "CF")
def test_types_and_orders_are_converted_and_said(number, dtype, order):
    arrays = [x.astype("f2") for x in save_qkv()]           # numbers that every type holds
    for name, x in zip("qkv", arrays):
        save(f"{name}.npy", np.asarray(x.astype(dtype), order=order), None)
    said = stage(number, *FILES).out
    expect(attention(*arrays), 5e-3 if dtype.endswith("f2") else 1e-5)
    assert [word in said for word in ("f64", "big-endian", "Fortran")] == [
        dtype.endswith("f8"), dtype.startswith(">"), order == "F"], said


@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("dtype, bits, allowed", [("f16", 13, 4e-3), ("bf16", 16, 3e-2)])
def test_dtype_rounds_the_inputs(number, dtype, bits, allowed):
    def rounded(x):                                         # ties do not occur in these numbers
        half = np.uint32(1 << (bits - 1))
        return ((x.view("u4") + half) >> bits << bits).view("f4")
    q, k, v = save_qkv(q=(2, 5, 16), k=(1, 7, 16))
    assert "converted" in stage(number, *FILES, "--dtype", dtype).out
    expect(attention(rounded(q), rounded(k), rounded(v)), allowed)


@pytest.mark.parametrize("number", EVERY[1:])
def test_value_that_overflows_in_f16_stays_behind_its_mask(number):
    save_qkv(q=(2, 8), k=(2, 8), dv=8)
    save("v.npy", np.repeat([[1], [1e6]], 8, axis=1))
    stage(number, *FILES, "--causal", "--dtype", "f16")
    o = load("o.npy")
    assert (o[0] == 1).all() and np.isinf(o[1]).all(), o
    if number == 5:  # a variant that multiplies masked rows by 0 is not taken, even by its name
        refused(5, *FILES, "--causal", "--dtype", "f16", "--variant", "register_tiled",
                says="does not support NaN or inf in v")


@pytest.mark.parametrize("number", EVERY[:4])
def test_softmax_and_its_logarithm(number):
    for shape in [(3, 37), (6,), (2, 3, 4)]:
        x = normal(*shape, seed=7)
        x.flat[:5] *= 20
        x.flat[5] = -np.inf
        save("x.npy", x)
        stage(number, "run", "--x", "x.npy", "--y", "y.npy")
        compare(load("y.npy"), softmax(x), 1e-6)
        if "logsoftmax" in stage(number, "list").out:
            stage(number, "run", "--x", "x.npy", "--y", "y.npy", "--log")
            compare(load("y.npy"), softmax(x, log=True), 2e-5)


def test_other_operations_on_rows():
    x, w = normal(2, 5, 9), normal(2, 5, 9, seed=2)
    save("x.npy", x), save("w.npy", w)
    stage(3, "run", "--op", "mean", "--x", "x.npy", "--y", "y.npy")
    compare(load("y.npy"), x.mean(-1, dtype="f8"), 1e-6)
    stage(4, "run", "--op", "fused_reduction", "--x", "x.npy", "--w", "w.npy", "--y", "y.npy")
    p, log_p = softmax(x), softmax(x, log=True)
    want = [np.log(np.exp(x.astype("f8")).sum(-1)), (p * w).sum(-1), x.var(-1, dtype="f8"),
            ((x - x.mean(-1, keepdims=True)) * w).mean(-1, dtype="f8"), (log_p * w).sum(-1)]
    compare(load("y.npy"), np.stack(want, -1), 1e-5)
    refused(3, "run", "--op", "scan", "--x", "x.npy", "--y", "y.npy", says="--op")
    refused(4, "run", "--op", "fused_reduction", "--x", "x.npy", "--y", "y.npy", says="--w")


@pytest.mark.parametrize("number", EVERY)
def test_empty_arrays_give_empty_outputs(number):
    for shape in [(0, 4), (4, 0)] * (number < 5):
        save("x.npy", np.zeros(shape))
        stage(number, "run", "--x", "x.npy", "--y", "y.npy")
        assert load("y.npy").shape == shape
    for batch, heads, n_q, n_k in [(0, 2, 3, 5), (1, 0, 3, 5), (1, 2, 0, 5), (1, 2, 3, 0)]:
        q, k, v = save_qkv(q=(batch, heads, n_q, 4), k=(batch, heads, n_k, 4), dv=6)
        for dtype in [[], ["--dtype", "f16"]]:
            stage(number, *FILES, *dtype)
            expect((np.zeros((*q.shape[:-1], 6)), np.full(q.shape[:-1], -np.inf)))


# --- Windows, soft caps, sinks, packed sequences. ---

CU_Q, CU_K = [0, 3, 3, 12, 16], [0, 5, 9, 9, 20]


def save_packed():
    q, k, v = save_qkv(q=(4, 16, 16), k=(2, 20, 16), dv=6)
    save("cq.npy", CU_Q, "i4"), save("ck.npy", CU_K, "i8")
    return q, k, v, {"sinks": load(save("sinks.npy", normal(4, seed=5))),
                     "bias": load(save("bias.npy", normal(9, 11, seed=6)))}


@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("options", [
    {}, {"window": (2, 0)}, {"window": (-1, 1), "sinks": 1}, {"softcap": 1.5, "bias": 1},
    {"causal": True, "window": (4, -1), "softcap": 2, "sinks": 1, "bias": 1}])
def test_packed_sequences_with_every_option(number, options):
    q, k, v, files = save_packed()
    options = {name: files.get(name, value) for name, value in options.items()}
    stage(number, *FILES, *PACKED, *option_words(**options), *ON_CPU * (number == 5))
    expect(want := attention(q, k, v, cu_seqlens_q=CU_Q, cu_seqlens_k=CU_K, **options), 1e-4)
    for bits, allowed in (("e4m3", 0.2), ("int8", 0.02)):  # a scale for each sequence
        stage(number, *FILES, *PACKED, *option_words(**options), "--kv-dtype", bits, *ON_CPU * (number == 5))
        expect(want, allowed)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("words, says", [
    (["--window", "2,0"], "a window"), (["--softcap", "2"], "a soft cap"),
    (["--sinks", "sinks.npy"], "sinks"), (PACKED, "packed sequences")])
def test_what_later_stages_teach_is_refused_by_name(number, words, says):
    save_packed()
    refused(number, *FILES, *words, says=f"does not support {says}")
    assert "stages 4 and 5" in refused(number, *FILES, *words).err


@pytest.mark.parametrize("words, says", [
    *[(["--window", text], "--window") for text in
      ("3", "3,", ",3", "3,4,5", "-2,0", "0,99999999999999999999", " 1,2")],
    *[(["--softcap", text], "--softcap") for text in ("0", "-1", "nan", "inf")],
    *[(["--sinks", text], text) for text in
      ("single.npy", "q.npy", "missing.npy", "cq.npy")],
    (PACKED[:2], "--cu-seqlens-k is missing"), (PACKED[2:], "--cu-seqlens-q is missing"),
    *[(["--cu-seqlens-q", f"{name}.npy", *PACKED[2:]], says) for name, says in
      [("late", "late.npy: begins with 1"), ("falls", "falls from 9 to 5"),
       ("ends", "ends with 17"), ("few", "4 sequences"), ("none", "none.npy"),
       ("wide", "no int32"), ("q", "int32 is needed")]],
    (["--bias", "bad.npy"], "give [seqlen_q, seqlen_k] = [16, 20]"),
    ([*PACKED, "--variant", "fold"], "packed sequences"),
    (["--sinks", "sinks.npy", "--variant", "chunk"], "sinks")])
def test_hostile_values_are_refused(words, says, place):
    save_packed()
    for name, sums in [("late", [1, 16]), ("falls", [0, 9, 5, 12, 16]), ("few", [0, 16]),
                       ("ends", [0, 3, 3, 12, 17]), ("none", [])]:
        save(f"{name}.npy", sums, "i4")
    save("wide.npy", [0, 1 << 32], "i8"), save("single.npy", [1]), save("bad.npy", normal(16, 3))
    refused(4, *FILES, *words, says=says)
    assert not (place / "o.npy").exists()


# --- Where outputs go. ---

@pytest.mark.parametrize("number", EVERY)
def test_full_disk_exits_1_and_keeps_the_old_files(number, place):
    save_qkv(q=(100, 8), k=(3, 8), dv=64)
    old = {name: (place / name).write_bytes(b"old") for name in ("o.npy", "lse.npy")}
    before = sorted(place.iterdir())
    program = BUILD / STAGES[number - 1]
    full = run("sh", "-c", f"{program} {' '.join(FILES)} >/dev/full", want=1)
    assert full.err
    for name in old:
        (place / name).write_bytes(b"old")
    said = stage(number, *FILES[:-4], "--o", "/dev/full", "--lse", "lse.npy", want=1).err
    assert "/dev/full" in said and (place / "lse.npy").read_bytes() == b"old"
    said = run("sh", "-c", f"ulimit -f 8; exec {program} {' '.join(FILES)}", want=1).err
    assert "o.npy" in said
    assert all((place / name).read_bytes() == b"old" for name in old)
    assert sorted(place.iterdir()) == before, "a temporary is left"


def test_pipes_carry_arrays_out(place):
    save("x.npy", normal(3, 4))
    program = BUILD / STAGES[2]
    stage(3, "run", "--x", "x.npy", "--y", "y.npy")
    for line in (f"{program} run --x /dev/stdin --y z.npy <x.npy",
                 f"{program} run --x x.npy --y /dev/fd/3 3>&1 >said | cat >z.npy",
                 f"{program} run --x x.npy --y /dev/stdout 2>said | cat >z.npy",
                 f"{program} run --x x.npy --y /dev/stdout 2>said >z.npy"):
        run("sh", "-c", line)
        assert (place / "z.npy").read_bytes() == (place / "y.npy").read_bytes(), line
        (place / "z.npy").unlink()
        if "said" in line:                                  # the report is not mixed with the array
            assert "variant" in (place / "said").read_text()
    done = subprocess.run([program, "run", "--x", "x.npy", "--y", "/dev/null"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    assert not done.stderr
