"""sanitize.py: programs and tests under sanitizers; any finding fails.

    python3 -m pytest tests/sanitize.py -k quick        make sanitize: all but quick, or ONLY=thread

quick      AddressSanitizer and UndefinedBehaviorSanitizer, stage 4, check --quick: a minute
address    the same (without float division by 0: stage 1's 0/0 is its lesson), all tests, leaks
thread     ThreadSanitizer; clang and its OpenMP runtime, because gcc's is not known to it
valgrind   memcheck of an AVX2 build (valgrind 3.19 does not know AVX-512)
gpu        compute-sanitizer: memcheck, racecheck, initcheck, synccheck, where a GPU is

Criterion ignores what a passing test's process reports at its end, so every tool writes logs, and
a log that is not empty is a failure."""
import os
import shutil
import sys

import pytest

from helpers import BUILD, FIXTURE, OUTSIDE, ROOT, STAGES, run

ASAN = "-O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow"


class Build:
    """A build of its own below build/sanitize, whose tools write into `logs`."""

    def __init__(self, name, *words, flags):
        self.path = os.path.relpath(BUILD / "sanitize" / name, ROOT)
        self.logs = ROOT / self.path / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        targets = [word.replace("BUILD/", f"{self.path}/") for word in words]
        run("make", "-s", "-j2", f"BUILD={self.path}", "CUDA=0", f"CFLAGS={flags}",
            f"CXXFLAGS={flags}", *targets, cwd=ROOT, env=OUTSIDE, timeout=3600)

    def tool(self, name, options):
        return f"log_path={self.logs}/{name}:{options}"

    def address(self):
        return {"ASAN_OPTIONS": self.tool("asan", "detect_leaks=1:"
                                          "detect_stack_use_after_return=0"),
                "UBSAN_OPTIONS": self.tool("ubsan", "print_stacktrace=1"),
                "LSAN_OPTIONS": f"suppressions={ROOT}/tests/leaks.txt:print_suppressions=0"}

    def run(self, *words, env=None):
        run(*(str(word).replace("BUILD/", f"{self.path}/") for word in words), cwd=ROOT,
            env=OUTSIDE | (env or {}), timeout=3600)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        findings = [path.read_text(errors="replace")[:3000] for path in sorted(self.logs.iterdir())
                    if path.stat().st_size]
        assert not findings, f"{len(findings)} logs with findings, the first:\n{findings[0]}"


def test_quick():
    with Build("quick", f"BUILD/{STAGES[3]}", flags=ASAN) as build:
        build.run(f"BUILD/{STAGES[3]}", "check", "--quick", env=build.address())


def test_address():
    with Build("address", "tests-built", flags=ASAN + " -g") as build:
        build.run(sys.executable, "-m", "pytest", "tests", "-n", os.cpu_count(),
                  env=build.address() | {"BUILD": build.path, "CHECK_FLAGS": "--quick"})


def test_thread():
    if not shutil.which("clang"):
        pytest.skip("no clang")
    with Build("thread", "build", "CC=clang", "CXX=clang++", flags="-O1 -g -fsanitize=thread"
               ) as build:
        for stage in STAGES:
            build.run(f"BUILD/{stage}", "check", "--quick", env={
                "TSAN_OPTIONS": build.tool(stage, "ignore_noninstrumented_modules=1")})


def test_valgrind(place):
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    with Build("valgrind", "build", "ARCH_FLAGS=-march=x86-64-v3", flags="-g") as build:
        for stage in STAGES[:4]:
            for words in ([*FIXTURE, "--o", place / "o.npy", "--causal"],
                          ["--x", FIXTURE[1], "--y", place / "y.npy"]):
                build.run("valgrind", "-q", "--error-exitcode=9",
                          f"--log-file={build.logs}/{stage}.%p", f"BUILD/{stage}", "run", *words)


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_gpu(tool):
    if not shutil.which("compute-sanitizer") or run("nvidia-smi", want=None).code:
        pytest.skip("no compute-sanitizer or no GPU")
    run("make", "-s", "-j2", "cuda", cwd=ROOT, env=OUTSIDE, timeout=3600)
    for stage in (*STAGES[:3], STAGES[4]):
        run("compute-sanitizer", "--tool", tool, "--error-exitcode", 9, BUILD / stage, "check",
            "--quick", want=(0, 77), timeout=3600)
