"""test_robust.py: the machine does not play along: full and read-only disks, too little memory,
closed streams, interruptions, missing tools, old drivers.  One clear line, the right exit status,
and nothing lost."""
import os
import pathlib
import signal
import subprocess

import pytest

from helpers import BUILD, FIXTURE, STAGES, run, stage, wait_for

EVERY = range(1, len(STAGES) + 1)


def one_line(text, says=""):
    assert text.count("\n") == 1 and says in text, text


def in_small(line, options="size=4k", want=0):
    """A line of shell, in which $B is the directory of the programs, beside a file system
    `small` that no one else sees."""
    os.makedirs("small", exist_ok=True)
    mount = f"mount -t tmpfs -o {options} none small"
    if run("unshare", "-m", "sh", "-c", mount, want=None).code:
        pytest.skip("no right to mount a small file system")
    return run("unshare", "-m", "sh", "-c", f"{mount} && {line}", want=want, env={"B": BUILD})


def whole_lines(path):
    """The lines of a CSV file, each as long as the header; the file ends with a line's end."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    lines = text.splitlines()
    assert text.endswith("\n") and all(x.count(",") >= lines[0].count(",") for x in lines), text
    return lines


def test_csv_lines_stay_whole_when_the_disk_is_full():
    result = in_small("cd small && for i in $(seq 16); do $B/01_naive bench --rows 4 --cols 8 "
                      "--variant naive --csv a.csv || { s=$?; break; }; done; cp a.csv ..; exit $s",
                      want=1)
    assert "No space left" in result.err
    assert len(whole_lines("a.csv")) >= 5, "lines already measured are gone"


def test_read_only_directories_are_named():
    for use in (f"run {' '.join(map(str, FIXTURE))} --o small/o.npy", "bench --csv small/a.csv"):
        one_line(in_small(f"$B/{STAGES[2]} {use}", "ro", want=2).err, "small/")


def test_interrupted_bench_keeps_whole_lines():
    with subprocess.Popen([BUILD / STAGES[2], "bench", "--quick", "--csv", "a.csv"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        wait_for(lambda: os.path.exists("a.csv") and pathlib.Path("a.csv").read_bytes().count(b"\n") >= 2
                 or bench.poll() is not None)
        bench.terminate()
    assert bench.returncode == -signal.SIGTERM
    assert len(whole_lines("a.csv")) >= 2, "the measured lines are gone"


@pytest.mark.parametrize("number", EVERY)
def test_closed_streams_end_with_1_and_spoil_no_file(number):
    program = BUILD / STAGES[number - 1]
    one_line(run("sh", "-c", f"{program} list >&-", want=1).err)
    files = " ".join(map(str, FIXTURE))  # without a stand-in o.npy would get what is printed
    run("sh", "-c", f"{program} run {files} --o o.npy >&- 2>&- <&-", want=1)
    stage(number, "run", *FIXTURE, "--o", "p.npy")
    assert pathlib.Path("o.npy").read_bytes() == pathlib.Path("p.npy").read_bytes()


@pytest.mark.parametrize("number", EVERY)
def test_a_reader_that_leaves_early_ends_the_program_quietly(number):
    result = run("sh", "-c", f"{BUILD / STAGES[number - 1]} check --quick --verbose | head -n 1")
    said = [line for line in result.err.splitlines() if not line.startswith("checking ")]
    assert not said and result.out.count("\n") == 1, result


def test_an_old_driver_is_named_and_the_cpu_computes():
    """A stand-in for a driver of CUDA 9.1, which no toolkit in use can work with."""
    programs = BUILD / "cuda" if (BUILD / "cuda" / STAGES[2]).exists() else BUILD
    said = run(programs / STAGES[2], "check", "--variant", "gpu_cluster", want=None)
    if "built without GPU code" in said.out + said.err:
        pytest.skip("no program with GPU code; make cuda BUILD=build/cuda makes one")
    pathlib.Path("f.c").write_text("int cuDriverGetVersion(int *v) { *v = 9010; return 0; }\n"
                                   "int cuInit(unsigned f) { return (int)(f & 0); }\n")
    run(*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "f.c", "-o", "libcuda.so.1")
    old = {"LD_LIBRARY_PATH": os.getcwd()}
    result = run(programs / STAGES[2], "check", "--variant", "gpu_cluster", want=77, env=old)
    assert "driver is for CUDA 9.1" in result.out
    result = run(programs / STAGES[4], "run", *FIXTURE, "--o", "o.npy", env=old)
    assert "executed on the CPU" in result.out


@pytest.mark.parametrize("threads", ["2,1", "2,3", "100000"])
def test_every_form_of_omp_num_threads_gives_right_results(threads):
    stage(4, "run", *FIXTURE, "--o", "o.npy", env={"OMP_NUM_THREADS": threads})
    if "," in threads:
        stage(4, "check", "--quick", "--variant", "all_cores", env={"OMP_NUM_THREADS": threads})


def test_blocks_that_wait_for_one_another_end_on_one_thread():
    stage(5, "check", "--variant", "gradient_in_order", "--case", "backward-random-1x200-d64",
          env={"OMP_NUM_THREADS": "1"})
