"""test_stages.py: every stage and variant on the whole case suite, through the program that a
reader runs.  Stage 5's teaching kernels are executed on the CPU where there is no GPU."""
import os
import re

import numpy as np
import pytest

from helpers import ROOT, STAGES, attention, compare, load, normal, option_words, stage


def check_passes(number, *words, **how):
    """The last line counts checks, none of them failed."""
    flags = os.environ.get("CHECK_FLAGS", "").split()
    out = stage(number, "check", *flags, *words, **how).out
    counts = re.match(r"(\d+) checks passed, (\d+) failed", out.splitlines()[-1])
    assert counts and int(counts[1]) > 0 and counts[2] == "0", out[-3000:]


@pytest.mark.parametrize("number", range(1, 6), ids=STAGES)
def test_stage_passes_its_cases(number):
    check_passes(number)


@pytest.mark.parametrize("number", range(1, 6), ids=STAGES)
def test_random_problems_pass(number):
    """The same ones every time; `make differential` draws more."""
    check_passes(number, "--random", 100, "--seed", 20261)


@pytest.mark.parametrize("case", [
    *(f"{kind}-9x70-d64-cap{cap}" for kind in ("random", "zero_q")
      for cap in ("9.99995e-41", "1e-06")), "large-21x70-d64-b1h5kv1-cap0.5",
    *(f"finite@{at}-18x70-d64-bias" for at in (4, 9, 15, 30, 38)), "random-9x70-d64-cap1e+06",
    *(f"sink_{size}-9x70-d64-b1h3kv1-sinks" for size in ("inf", "nan", "huge")),
    "nan_k@209-7x230-d64-b5h1kv1-packed", "nan_k@64-7x230-d128-b5h1kv1-packed",
    "nan_k@209-7x230-d256-b5h1kv1-packed"])
def test_general_passes_its_edges_without_a_hopper_gpu(case):
    """On the CPU `check` executes it only by name: masks, soft caps and sinks of every size."""
    check_passes(5, "--device", "cpu", "--variant", "general", "--case", f"attention-{case}")


@pytest.mark.parametrize("number, variant, threads", [
    (2, "gpu_three_pass", 1024), (5, "tuned", 1024), (5, "wgmma", 2), (5, "general", 2)])
def test_kernels_are_right_on_a_cpu_of_many_threads(number, variant, threads):
    """Each worker needs mappings for its fibres and their shared memory, and a process may have
    65,530: too many, and a page that should be accessible is not."""
    check_passes(number, "--quick", "--device", "cpu", "--variant", variant,
                 env={"OMP_NUM_THREADS": threads})


def test_tiles_of_the_last_wave_are_cut_and_merged():
    """17 tiles on the 16 multiprocessors of the CPU execution."""
    check_passes(5, "--device", "cpu", "--variant", "tuned", "--dtype", "bf16", "--case",
                 "attention-random-3x3400-d64-b1h17kv17")


@pytest.mark.parametrize("variant, kib, error", [
    ("larger_tiles", 99, 4e-3), ("lazy_rescaling", 99, 4e-3), ("general_mma", 99, 4e-3),
    ("split_kv", 99, 4e-3), ("split_kv_f32", 64, 1e-5), ("async_copies", 48, None)])
def test_tiles_of_gpus_with_less_shared_memory(variant, kib, error):
    """sm_86, 89 and 120 have 99 KiB, sm_75 has 64.  A kernel that asks for more than there seems to
    be is refused, as on such a GPU."""
    dim = 128 if variant == "split_kv_f32" else 256
    q, k, v = normal(2, 8 if "split" in variant else 60, dim), normal(2, 300, dim), normal(2, 300, dim)
    said = stage(5, "run", "--device", "cpu", "--variant", variant, "--o", "o.npy",
                 *option_words(q=q, k=k, v=v), env={"SHARED_KIB": kib}, want=0 if error else 1).err
    if error:
        compare(load("o.npy"), attention(q, k, v)[0], error)
    assert error or "shared memory beyond the limit" in said


@pytest.mark.parametrize("variant", ["split_kv", "split_kv_f32"])
@pytest.mark.parametrize("case", [
    "markers-8x2050-d64", "zero_q-8x2050-d64", "random-1x20011-d40",
    "random-4x3001-d64-b2h4kv1-causal", "random-2x1500-d64-window600,0",
    "mask_first@2112-2x2112-d64-bias", "mask_but_one@1000-2x2112-d64-bias"])
def test_split_kv_merges_its_parts(case, variant):
    """Of 2050 keys, 33 tiles in parts of 5, the last part is empty."""
    check_passes(5, "--device", "cpu", "--variant", variant, "--case", f"attention-{case}")


@pytest.mark.parametrize("variant", ["tiled", "register_tiled", "tensor_cores", "async_copies",
                                     "larger_tiles", "lazy_rescaling", "split_kv", "split_kv_f32"])
def test_a_rung_gives_the_same_bits_in_every_order_of_its_threads(variant):
    dtype = "f32" if variant in ("tiled", "register_tiled", "split_kv_f32") else "f16"
    q, k = normal(60 if dtype == "f16" else 30, 64), normal(700, 64)
    words, answers = option_words(q=q, k=k, v=k), set()
    for order in ("mixed", "forward", "backward", "random:1", "random:2", "random:3"):
        stage(5, "run", "--device", "cpu", "--variant", variant, *words, "--dtype", dtype, "--o", "o.npy",
              env={"CUDA_ON_CPU_ORDER": order})
        answers.add(load("o.npy").tobytes())
    assert len(answers) == 1


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("variant", ["general_tiled", "split_kv", "general", "general_mma"])
def test_nan_of_a_packed_sequence_stays_in_it(variant, dim):
    """Also in a variant that has no cases with NaN in v.  Sequences that end in a block of keys, or at
    16 of them; queries are a few of each."""
    k_ends, q_ends = np.array([0, 5, 21, 69, 133, 230]), np.array([0, 3, 9, 10, 30, 40])
    ends = {"cu_seqlens_q": q_ends, "cu_seqlens_k": k_ends}
    for poisoned in (1, 2, 4):
        q, k, v = (normal(2, n, dim, seed=s).astype("f2") for s, n in enumerate((40, 230, 230)))
        k[:, k_ends[poisoned]:k_ends[poisoned + 1]] = np.nan
        v[:, k_ends[poisoned]:k_ends[poisoned + 1]] = np.nan
        stage(5, "run", "--device", "cpu", "--variant", variant, "--dtype", "f16", "--o", "o.npy",
              *option_words(q=q, k=k, v=v, **ends))
        compare(load("o.npy"), attention(q, k, v, **ends)[0], 2e-3)


@pytest.mark.parametrize("variant", ["tiled", "microkernel", "all_cores"])
def test_nan_of_one_query_leaves_the_rows_beside_it(variant):
    """It sends its panel through the product of a tile twice.  The other rows' scores rise from tile
    to tile, and rows from 72 on see no key of the first."""
    q, k, v = np.zeros((128, 16)), np.zeros((128, 16)), normal(128, 16)
    q[:, 0], k[:, 0] = 1, np.arange(128) / 2
    q[70, 0] = np.nan
    options = {"window": (8, 20), "scale": 1}
    stage(4, "run", "--variant", variant, "--o", "o.npy", *option_words(q=q, k=k, v=v, **options))
    compare(load("o.npy"), attention(q, k, v, **options)[0], 1e-5)


@pytest.mark.parametrize("queries", [1, 70])
def test_invariant_gives_a_query_alone_the_bits_that_it_has_among_others(queries):
    """Few queries and many have kernels of their own.  The keys are a leaf and a part of the next."""
    leaf = int(re.search(r"LEAF = (\d+)", (ROOT / STAGES[4] / "leaves.h").read_text(encoding="utf-8"))[1])
    n = leaf + 70
    q, k, v = normal(2, 80, 24), 3 * normal(1, n, 24, seed=2), normal(1, n, 24, seed=3)
    for given, out in ((q, "whole"), (q[:, 80 - queries:], "alone")):
        stage(5, "run", *option_words(q=given, k=k, v=v), "--causal", "--dtype", "f16", "--device", "cpu",
              "--variant", "invariant", "--o", out + ".npy", "--lse", out + "_lse.npy")
    for name in ("{}.npy", "{}_lse.npy"):
        np.testing.assert_array_equal(load(name.format("whole"))[:, 80 - queries:], load(name.format("alone")))
