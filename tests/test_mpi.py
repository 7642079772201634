"""test_mpi.py: one problem on several ranks: processes (stage 4) and, where there are, GPUs
(stage 5): the case suite, real files, faults, planted bugs.

    RANKS="2 3"   the suite with so many processes
    FULL=1        all cases instead of the quick ones
"""
import filecmp
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from helpers import (BUILD, FIXTURE, HANG, ROOT, STAGES, compare, copy_sources, load, make,
                     normal, run, save, stage, wait_for)

MPI, GPUS_MPI = BUILD / "04_monoid_tiled_cpu_mpi", BUILD / "05_flash_cuda_mpi"
ENV = {"OMP_NUM_THREADS": 1, "OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
       "OMPI_MCA_rmaps_base_oversubscribe": 1, "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_mpi_yield_when_idle": 1, "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
RANKS = [int(n) for n in os.environ.get("RANKS", "1 3").split()]
QUICK = [] if os.environ.get("FULL") else ["--quick"]

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not MPI.exists(),
                                reason="mpirun or mpicc was not found: make mpi installs OpenMPI")


def ranks(n, *words, program=MPI, **how):
    return run("mpirun", "-n", n, program, *words, env=ENV, **how)


def fails(code, says, result, program=MPI):
    """It ended with that status and one line of ours that says so; no output appeared."""
    ours = [line for line in result.err.splitlines() if line.startswith(f"{program.name}: ")]
    assert result.code == code and len(ours) == 1 and says in ours[0], result
    assert not os.path.exists("o.npy")


@pytest.mark.parametrize("n", RANKS)
def test_suite(n):
    out = ranks(n, "check", *QUICK).out
    print(out)
    last = out.splitlines()[-1]
    assert last.startswith(f"{MPI.name} on {n} rank") and last.endswith(" 0 failed")


def test_files_give_the_answer_of_one_process():
    """Each strategy is a variant of `check`; without a name the ring takes so many queries."""
    save("bias.npy", normal(70, 70))
    for more in (["--causal"], ["--bias", "bias.npy", "--strategy", "tree"]):
        stage(4, "run", *FIXTURE, *more[:2], "--o", "one.npy", "--lse", "one_l.npy")
        out = ranks(3, "run", *FIXTURE, *more, "--o", "o.npy", "--lse", "l.npy").out
        assert f"variant {more[-1] if 'tree' in more else 'ring'} (3 ranks, f32)" in out
        compare(load("o.npy"), load("one.npy"), 1e-5)
        compare(load("l.npy"), load("one_l.npy"), 1e-5)


def test_files_in_a_fixed_order_give_the_same_bits():
    for name in ("a.npy", "b.npy"):
        ranks(3, "run", *FIXTURE, "--o", name, "--strategy", "tree-fixed")
    assert filecmp.cmp("a.npy", "b.npy", shallow=False)


def test_faults_are_told_in_one_line():
    fixture = ROOT / "tests/fixture"
    pathlib.Path("short.npy").write_bytes((fixture / "k.npy").read_bytes()[:2000])

    def with_file(option, path):
        words = list(map(str, FIXTURE))
        words[words.index(option) + 1] = path
        return ["run", *words, "--o", "o.npy"]

    for n, code, says, words in [
            (2, 2, "no strategy 'star'", ["check", "--strategy", "star"]),
            (2, 2, "mpirun -n says", ["check", "--gpus", 2]),
            (2, 2, "unknown verb", ["trace"]),
            (3, 2, "cannot be opened", with_file("--q", "nowhere.npy")),
            (3, 2, "short.npy", with_file("--k", "short.npy")),
            (2, 2, "give them alike", with_file("--q", fixture / "lse.npy")),
            (2, 2, "a window", [*with_file("--q", fixture / "q.npy"), "--window", "3,0"]),
            (2, 2, "no/such", ["run", *FIXTURE, "--o", "no/such/o.npy"])]:
        fails(code, says, ranks(n, *words, want=None))


def test_faults_of_one_rank_are_told_with_its_number():
    """Rank 1 has another working directory: a file is missing there, or has another shape."""
    for place in ("here", "there"):
        os.mkdir(place)
        for name in "qkv":
            shutil.copy(ROOT / f"tests/fixture/{name}.npy", place)
    words = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "../o.npy"]
    both = ["mpirun", "-n", 1, "-wdir", "there", MPI, *words, ":", "-n", 1, "-wdir", "here", MPI,
            *words]
    os.remove("here/v.npy")
    fails(2, "rank 1: --v: v.npy", run(*both, want=None, env=ENV))
    for name in "qkv":
        save(f"here/{name}.npy", normal(2, 5, 8))
    fails(2, "rank 1: its files have other shapes", run(*both, want=None, env=ENV))


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="there is no /dev/full")
def test_faults_of_a_full_disk():
    fails(1, "/dev/full", ranks(2, "run", *FIXTURE, "--o", "/dev/full", want=None))


def begin(program, *words):
    """A bench of two processes that would last for minutes, once both have answered each other: a
    process that dies in MPI_Init may leave mpirun waiting.  Returns it and its processes."""
    words = "mpirun", "-n", 2, program, "bench", *words, "--csv", "begun.csv"
    bench = subprocess.Popen([str(word) for word in words], text=True, stderr=subprocess.PIPE,
                             env=os.environ | {k: str(v) for k, v in ENV.items()}, stdout=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists("begun.csv") or bench.poll() is not None)
    found = run("pgrep", "-P", bench.pid, "-f", program.name, want=None).out.split()
    return bench, [int(number) for number in found]


def test_faults_a_rank_that_dies_takes_the_others_with_it():
    bench, processes = begin(MPI, "--seqlen-q", 65536, "--heads-q", 16)
    os.kill(processes[-1], signal.SIGKILL)
    bench.communicate(timeout=HANG)
    assert bench.returncode != 0


def test_planted_bugs_make_the_suite_fail(place):
    """On 3 ranks, by a case of the quick suite.  Only the files with the bug are compiled."""
    if not shutil.which("patch"):
        pytest.skip("there is no patch")
    copy_sources("common", STAGES[3])
    for bug in sorted((ROOT / "tests/mpi/planted").glob("*.patch")):
        run("patch", "-s", "-p1", "-i", bug)
        make(f"build/{MPI.name}")
        out = ranks(3, "check", "--case", "attention-random-113x203-d64-causal",
                    program=place / "build" / MPI.name, want=None).out
        run("patch", "-s", "-R", "-p1", "-i", bug)
        caught = [line for line in out.splitlines() if line.startswith("FAILED")]
        assert caught, f"{bug.stem}: {out}"
        print(f"{bug.stem}: caught by {caught[0][9:]}")


# --- GPUs. ---

def gpus():
    if not shutil.which("nvidia-smi") or not GPUS_MPI.exists():
        return 0
    return run("nvidia-smi", "-L", want=None).out.count("GPU ")


needs_gpus = pytest.mark.skipif(gpus() == 0, reason="there is no GPU, or no NCCL")
ON_GPUS = ["tree", "ring", "ring-unbalanced"]


@needs_gpus
def test_gpus_suite():
    for n in {1, gpus()}:
        assert stage(5, "check", "--gpus", n, *QUICK).out.endswith(" 0 failed\n")
    assert ranks(gpus(), "check", "--quick", program=GPUS_MPI).out.endswith(" 0 failed\n")


@needs_gpus
def test_gpus_files():
    run_ = ["run", *FIXTURE, "--causal", "--dtype", "bf16"]
    stage(5, *run_, "--variant", "tuned", "--o", "one.npy", "--lse", "one_l.npy")
    for strategy in ON_GPUS:
        stage(5, *run_, "--gpus", gpus(), "--strategy", strategy, "--o", "o.npy", "--lse", "l.npy")
        compare(load("o.npy"), load("one.npy"), 0.01, strategy)
        compare(load("l.npy"), load("one_l.npy"), 0.01, strategy)
    ranks(gpus(), *run_, "--strategy", strategy, "--o", "p.npy", program=GPUS_MPI)
    assert filecmp.cmp("o.npy", "p.npy", shallow=False)


@needs_gpus
def test_gpus_faults():
    program = BUILD / STAGES[4]
    for code, says, words in [
            (77, "this machine, which has", ["check", "--gpus", gpus() + 1]),
            (2, "does not support f32", ["run", "--gpus", gpus(), *FIXTURE, "--o", "o.npy"]),
            (2, "no strategy 'star'", ["check", "--gpus", 1, "--strategy", "star"])]:
        fails(code, says, stage(5, *words, want=None), program)
    fails(77, "this machine, which has",
          ranks(gpus() + 1, "check", program=GPUS_MPI, want=None), GPUS_MPI)


@needs_gpus
@pytest.mark.skipif(gpus() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_gpus_a_process_that_stops_ends_all(number):
    bench, processes = begin(GPUS_MPI, "--seqlen-q", 524288, "--strategy", "ring")
    os.kill(processes[-1], number)
    bench.communicate(timeout=HANG)
    assert bench.returncode != 0
