#!/usr/bin/env python3
"""measure.py: the measurements behind the lessons and notes, part by part.

    python3 common/products/reports/measure.py [--results DIR] PART...      --list: the parts

A part makes its file below DIR (build/results) anew.  Where one of its commands fails, or the tool that it
needs is missing, the file stays as it was, and a line says so.  Leave the machine alone meanwhile.  The
programs are those of `make` or, on a GPU, `make cuda build/roof/05_flash_cuda`.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import typing

import asides
from ladder import ROOT, RUNGS, GRADIENTS

STAGES = ("01_naive", "02_safe_softmax", "03_online_softmax", "04_monoid_tiled_cpu")
PEERS = "python3 common/products/reports/peers.py --csv {csv}"
CALLS = "python3 common/products/reports/calls.py {part} --csv {csv}"
COUNTERS = "python3 common/products/reports/counters.py "
PEERS_CPU = "python3 common/products/reports/peers_cpu.py --csv {csv} || [ $? = 77 ]"  # where PyTorch is
LAST = (f"--variants {','.join(RUNGS[-3:])},general "
        "--backends pytorch-cudnn,flash-attention-3,flash-attention-4")
MPI = ("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 "
       f"OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 mpirun -n {os.cpu_count()} ")


class Part(typing.NamedTuple):
    """What it measures, its file, its commands and how often they run."""
    what: str
    file: str
    commands: list
    runs: int = 1


def bench(program, op, variants, more="", threads=("",)):
    """Commands for each variant, at the sizes that bench takes by itself or those in `more`."""
    return [f"build/{program} bench --op {op} --variant {variant} {more} {of} --csv {{csv}}"
            for variant in variants.split() for of in threads]


def both(*asked):
    """On one thread and on all."""
    return bench(*asked, threads=("--threads 1", ""))


def machine():
    """What a machine is compared with PyTorch on; the plain variants after PyTorch, which need none."""
    here, head = "04_monoid_tiled_cpu", "--seqlen-q 4096 --head-dim 64"
    heads = [f"--heads-q 16 --seqlen-q 2048 --head-dim {d} {mask}" for d in (32, 64, 128, 256) for mask in ("", "--causal")]
    return [*bench(here, "attention", "all_cores", head),
            *(line for which in heads[2:6] for line in both(here, "attention", "all_cores", which)),
            *(f"{line} || [ $? = 77 ]" for which in heads for line in both(
                here, "attention", "amx dot_bf16", f"--dtype bf16 {which}")),
            *(line for rows, cols in ((1024, 64), (64, 1024), (16, 4096), (524288, 64), (32768, 1024), (32, 1048576))
              for program, variant in (("02_safe_softmax", "threads"), (here, "all_cores"))
              for line in both(program, "softmax", variant, f"--rows {rows} --cols {cols}")), PEERS_CPU,
            *(line for program, variant in zip(STAGES, ("naive", "recompute", "online", "fold"))
              for line in bench(program, "attention", variant, head))]


def shapes(n, dims):
    """Options for 16k tokens and 2048 columns of heads, without and with mask."""
    return " ".join(f"--shape={16384 // n},{2048 // d},{2048 // d},{n},{n},{d},{causal}"
                    for d in dims for causal in (0, 1))


def gpu_softmax():
    """2^28 elements in rows of many lengths; at two of them all variants, of stages 1 and 2 too."""
    variants = {"01_naive": "gpu_thread_per_row gpu_block_per_row",
                "02_safe_softmax": "gpu_four_kernels gpu_cub gpu_cub_fused_exp gpu_three_pass",
                "03_online_softmax": "gpu_online gpu_cub_monoid gpu_registers gpu_shared gpu_cluster "
                                     "gpu_two_pass"}  # those that refuse a shape end with 2
    lengths = [1 << k for k in range(8, 21)] + [77, 100, 1000, 3000, 5000, 50000, 50257, 100000, 151936]
    asked = [("03_online_softmax", "gpu_one_pass", n) for n in lengths] + [
        (program, names, n) for program, names in variants.items() for n in (1024, 65536)]
    return [f"{line} || [ $? = 2 ]" for program, names, n in asked for dtype in ("f32", "f16", "bf16")
            for line in bench(program, "softmax", names, f"--dtype {dtype} --rows {(1 << 28) // n} --cols {n}")]


def several(gpus):
    """Several GPUs beside one; shorter prompts are for the model of time over ranks."""
    line = f"build/05_flash_cuda bench --gpus {gpus} --csv {{csv}} ".__add__
    return [line("--causal"), f"{PEERS} --parts multi_gpu", line(""),
            *(line(f"--seqlen-q 1 --seqlen-k {n}") for n in (1 << 20, 10 * gpus << 20)),
            *(line(f"--seqlen-q {n} --strategy ring") for n in (16384, 32768)),
            line("--seqlen-q 1024 --seqlen-k 1048576")]


def planted(op, names, shapes):
    """Kernels of asides.py beside their rungs, in three rounds; shapes: (head_dim, batch, seqlen, causal)."""
    shapes = [f"--shape={batch},{2048 // d},{2048 // d},{n},{n},{d},{causal}" for d, batch, n, causal in shapes]
    return ["python3 common/products/reports/asides.py", f"{PEERS} --library {asides.LIBRARY} --op {op} --variants "
            f"{','.join(names)} --backends '' --regimes cold --seconds 0.3 {' '.join(shapes * 3)}"]


# where an aside pays or costs
ASIDE_SHAPES = [(64, 1, 16384, 0), (64, 4, 4096, 0), (64, 128, 128, 0), (128, 1, 16384, 0), (128, 16, 1024, 1),
                (128, 32, 512, 1), (128, 128, 128, 0)]
STEP_SHAPES = [(d, 16384 // n, n, causal) for d in (64, 128) for n in (4096, 512) for causal in (0, 1)]
STEPS = {room: asides.kernels([name for name in asides.STEPS if asides.room_of(name) == room]) for room in ("hopper", "backward")}

PARTS = {
    # what is compared is measured in one go: on a shared machine memory slows down and recovers
    "cpu": Part("stages 1 to 4 on a CPU, kernels of stage 5 executed there, and PyTorch", "cpu.csv", [
        *(f"build/{stage} bench --csv {{csv}}" for stage in STAGES),
        "build/05_flash_cuda bench --quick --device cpu --csv {csv}", PEERS_CPU]),
    "lessons": Part("what the lessons compare, in one go", "cpu_lessons.csv", [
        *(f"build/{stage} bench --op {what} --csv {{csv}}" for what in (
            "softmax --rows 1 --cols 67108864", "attention --seqlen-q 8192 --head-dim 64",
            "attention --seqlen-q 4096 --head-dim 64") for stage in STAGES), PEERS_CPU]),
    "machine": Part("a further CPU beside PyTorch", "cpu_machine.csv", machine()),
    "gradient": Part("the gradient on a CPU, beside PyTorch's", "backward/cpu.csv", [
        "build/04_monoid_tiled_cpu bench --csv {csv} --op backward --seqlen-q 512 --heads-q 2 --threads 1",
        *(line for d in (64, 128) for n in (512, 1024, 2048, 4096) for mask in ("", "--causal") for line in both(
            "04_monoid_tiled_cpu", "backward", "gradient_all_cores", f"{mask} --heads-q 2 --seqlen-q {n} --head-dim {d}")),
        PEERS_CPU]),
    "package": Part("the package on a CPU, beside PyTorch", "library/cpu.csv", ["python3 common/products/reports/peers_cpu.py --package --csv {csv}"]),
    "package_intel": Part("the same on Intel's machines", "library/cpu_intel.csv", ["python3 common/products/reports/peers_cpu.py --package --csv {csv}"]),
    "promises": Part("the price of the same bits on a CPU", "library/same_bits.csv",
                     ["python3 common/products/reports/calls.py same_bits --device cpu --csv {csv}"]),
    "ranks": Part("stage 4 on a rank for each core, and its threads", "multi_gpu/ranks.csv", [
        line for mask in ("", "--causal") for line in [
            f"build/04_monoid_tiled_cpu bench --op attention --variant all_cores --csv {{csv}} {mask} "
            "--seqlen-q 4096 --heads-q 8 --head-dim 64",
            *(f"{MPI} build/04_monoid_tiled_cpu_mpi bench --csv {{csv}} {mask} --seqlen-q 4096 --heads-q 8 "
              f"--head-dim 64 --strategy {way}" for way in ("tree", "ring", "ring-unbalanced"))]], 5),
    "attention": Part("every rung and the libraries, by length; six minutes of an H200",
                      "h200_attention.csv", [f"{PEERS} --variants all --seconds 0.5"]),
    "ladder": Part("every rung at 4k keys", "hopper/ladder.csv", [
        f"{PEERS} --variants all --backends '' --regimes cold --dtype {dtype} {shapes(4096, (64, 128))}"
        for dtype in ("bf16", "f32")], 3),
    "last_rungs": Part("the last rungs beside cuDNN, FlashAttention-3 and -4", "hopper/last_rungs.csv",
                       [f"{PEERS} {LAST} --parts lengths,untuned,layouts --seconds 0.5"], 3),
    "asides": Part("rung 13 with each of rung 14's ideas", "hopper/asides.csv", planted(
        "attention", [*asides.kernels(asides.ASIDES), RUNGS[-1]], ASIDE_SHAPES)),
    "steps": Part("each rung without each of its steps", "hopper/steps.csv", planted("attention", STEPS["hopper"], STEP_SHAPES)),
    "hard": Part("difficult data", "hopper/hard.csv", [f"{PEERS} {LAST} --parts hard --seconds 0.5"], 3),
    "caches": Part("decoding, beside libraries", "hopper/decode.csv", [f"{PEERS} --parts caches --seconds 0.2"], 3),
    "eight_bits": Part("attention in 8 bits, beside FlashAttention-3", "hopper/eight_bits.csv",
                       [f"{PEERS} --parts eight_bits"]),
    "serving": Part("windows, packed sequences, sinks, a soft cap", "hopper/serving.csv",
                    [f"{PEERS} --parts serving --seconds 0.6"]),
    "softmax": Part("softmax of stages 1 to 3 on a GPU, and PyTorch's", "h200_softmax.csv",
                    [*gpu_softmax(), f"{PEERS} --parts softmax"]),
    "backward": Part("the backward pass beside libraries", "backward/h200.csv",
                     [f"{PEERS} --parts backward --seconds 0.3"], 3),
    "gradients": Part("every rung of the backward pass at 16k keys", "backward/ladder.csv", [
        f"{PEERS} --op backward --variants {','.join(rung['variant'] for rung in GRADIENTS)} --regimes cold "
        f"--seconds 0.3 {shapes(16384, (64, 128, 256))}"], 3),
    "gradient_steps": Part("each rung of the backward pass without each of its steps", "backward/steps.csv", planted(
        "backward", STEPS["backward"], STEP_SHAPES)),
    "f32": Part("rungs 1 and 2 on one head", "h200_f32.csv", [
        line for n in (256, 512, 1024, 2048, 4096) for line in bench(
            "05_flash_cuda", "attention", "tiled register_tiled", f"--quick --dtype f32 --seqlen-q {n}")]),
    "profile": Part("counters of every rung", "profile_05_flash_cuda.csv",
                    [COUNTERS + "05_flash_cuda build/05_flash_cuda {results} $(ls build/roof/05_flash_cuda)"]),
    "stalls": Part("what the warps of every rung wait for", "hopper/stalls.csv",
                   [COUNTERS + "stalls build/05_flash_cuda {results}"]),
    "rows": Part("counters of stage 1's kernels", "profile_01_naive.csv", [COUNTERS + "01_naive build/01_naive {results}"]),
    "training": Part("calls and training steps beside PyTorch's", "hopper/training.csv", [CALLS]),
    "same_bits": Part("the price of the same bits", "hopper/same_bits.csv", [CALLS]),
    "cache": Part("a cache in 8 bits", "hopper/cache.csv", [CALLS]),
    "gpus": Part("several GPUs beside one", "multi_gpu/times.csv", several(int(os.environ.get("GPUS", 2))))}


def run(name, results):
    """Makes the file of a part; the exit status."""
    part, path = PARTS[name], results / PARTS[name].file
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.with_name(path.name + ".old")
    if path.exists():
        path.rename(old)
    env, status = {"OMP_PROC_BIND": "true", **os.environ}, 0  # a thread a core: two on one lose whole turns
    for command in part.commands * part.runs:
        command = command.format(csv=path, results=results, part=name)
        status = subprocess.run(command, shell=True, cwd=ROOT, env=env, check=False).returncode
        if status:
            print(f"measure: {path} stays as it was (status {status}): {command}", file=sys.stderr)
            path.unlink(missing_ok=True)
            if old.exists():
                old.rename(path)
            break
    old.unlink(missing_ok=True)
    return 0 if status == 77 else status


def main():
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build/results")
    parser.add_argument("--list", action="store_true", help="print the parts and stop")
    parser.add_argument("parts", nargs="*", metavar="PART")
    args = parser.parse_args()
    if args.list or not args.parts:
        for name, part in PARTS.items():
            print(f"{name:14} {part.file:26} {part.what}" + f"; {part.runs} runs" * (part.runs > 1))
        return 0
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return max(run(name, args.results.resolve()) for name in args.parts)


if __name__ == "__main__":
    sys.exit(main())
