"""test_cuda_on_cpu.py: programs that execute CUDA kernels on the CPU."""
import pytest

from helpers import stage


@pytest.mark.parametrize("threads", [8, 64, 128, 1024])
def test_kernels_run_on_machines_with_many_threads(threads):
    """Each worker needs mappings for its fibres and their shared memory, and a process may have
    65,530: too many, and a page that should be accessible is not."""
    said = stage(2, "check", "--quick", "--device", "cpu", "--variant", "gpu_three_pass",
                 env={"OMP_NUM_THREADS": threads})
    assert " 0 failed" in said.out, said


@pytest.mark.parametrize("threads", [96, 1024])
def test_large_blocks_run_on_machines_with_many_threads(threads):
    said = stage(5, "check", "--quick", "--device", "cpu", "--variant", "tuned",
                 env={"OMP_NUM_THREADS": threads})
    assert " 0 failed" in said.out, said


@pytest.mark.parametrize("variant", ["wgmma", "heavy_first", "first_block_max", "general"])
def test_hopper_rungs_are_right_on_a_cpu(variant):
    said = stage(5, "check", "--quick", "--device", "cpu", "--variant", variant)
    assert " 0 failed" in said.out, said


def test_tiles_of_the_last_wave_are_cut_and_merged():
    """17 tiles on the 16 multiprocessors of the CPU execution."""
    stage(5, "check", "--device", "cpu", "--variant", "tuned", "--dtype", "bf16",
          "--case", "attention-random-3x3400-d64-b1h17kv17")
