"""test_install.py: the library as it is installed: the files, the names that it exports, what it
may call, and the example, built in C and in C++ against the installed tree."""
import os
import pathlib
import re
import shlex
import shutil

import pytest

from helpers import BUILD, ROOT, SANITIZED, run

CC = shlex.split(os.environ.get("CC", "cc"))
CXX = shlex.split(os.environ.get("CXX", "c++"))
SHARED, ARCHIVE = BUILD / "libfive_steps.so", BUILD / "libfive_steps.a"
INSTALL = ["sh", ROOT / "common/products/library/install.sh"]
EXAMPLE = ROOT / "common/products/library/example/main.c"
FILES = ["include/five_steps.h", "lib/libfive_steps.a", "lib/libfive_steps.so",
         "lib/libfive_steps.so.1", "lib/cmake/five_steps/five_steps-config.cmake",
         "lib/cmake/five_steps/five_steps-config-version.cmake", "lib/pkgconfig/five_steps.pc"]


def install(prefix, *words, want=0, **env):
    return run(*INSTALL, *(words or (BUILD, "-lm -lgomp -lpthread")), want=want, cwd=ROOT,
               env={"PREFIX": prefix} | env)


def symbols(*options):
    lines = run("nm", *options).out.splitlines()
    return [line.split()[-2:] for line in lines if len(line.split()) > 1]


def without_cuda():
    return b"no CUDA" in SHARED.read_bytes()


def test_every_file_is_in_its_place_and_is_removed_again(place):
    install("/opt/five", DESTDIR=place)
    there = place / "opt/five"
    assert all((there / name).stat().st_size for name in FILES)
    assert os.readlink(there / "lib/libfive_steps.so") == "libfive_steps.so.1"
    assert "prefix=/opt/five\n" in (there / FILES[-1]).read_text(encoding="utf-8")
    install("/opt/five", "--remove", DESTDIR=place)
    assert not [path for path in place.rglob("*") if not path.is_dir()]
    assert "is not installed" in install("/opt/five", "--remove", DESTDIR=place).out


def test_a_better_processor_is_given_the_better_library(place):
    """The loader takes it; it was compiled for the machine that built it, and died on a lesser one."""
    (place / "x86-64-v3").mkdir()
    shutil.copy(SHARED, place / "x86-64-v3")
    install(place, BUILD, "-lm", place / "x86-64-v3")
    better = place / "lib/glibc-hwcaps/x86-64-v3/libfive_steps.so.1"
    assert better.stat().st_size and (place / "lib/glibc-hwcaps").stat().st_mode & 0o777 == 0o755
    run(*CC, EXAMPLE, f"-I{place}/include", f"-L{place}/lib", "-lfive_steps", "-lm", "-o", "main")
    said = run("ldd", "./main", env={"LD_LIBRARY_PATH": f"{place}/lib"}).out
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    glibc = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    assert ("x86-64-v3" in said) == ("avx2" in flags and "bmi2" in flags and glibc >= (2, 33)), said


def test_cmake_finds_it(place):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    install(place)
    (place / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.10)
project(example C)
find_package(five_steps 1.0 REQUIRED)
add_executable(main {EXAMPLE})
target_link_libraries(main five_steps::five_steps m)
""", encoding="utf-8")
    run("cmake", "-B", "made", f"-DCMAKE_PREFIX_PATH={place}", cwd=place)
    run("cmake", "--build", "made", cwd=place)
    run(place / "made/main")


def test_everybody_may_read_what_a_careful_root_installs(place):
    run("sh", "-c", 'umask 077 && exec "$@"', "sh", *INSTALL, BUILD, "-lm", cwd=ROOT,
        env={"PREFIX": "/opt/five", "DESTDIR": place})
    for path in (place / "opt").rglob("*"):
        assert path.stat().st_mode & (0o555 if path.is_dir() else 0o444) in (0o555, 0o444), path


def test_a_prefix_that_cannot_be_is_one_line_and_2(place):
    (place / "file").touch()
    for prefix, word in (("relative", "relative"), (place / "file/x", "cannot be written")):
        said = install(prefix, want=2)
        assert word in said.err and (said.out + said.err).count("\n") == 1, said


def test_only_five_steps_names_are_exported():
    """And those are the functions that the header declares."""
    exported = symbols("-D", "--defined-only", SHARED)
    assert all(name.startswith(("five_steps_", "FIVE_STEPS_")) for _, name in exported), exported
    header = (ROOT / "common/products/library/five_steps.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(five_steps_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
    assert {name for kind, name in exported if kind == "T"} == {f"{name}@@FIVE_STEPS_1" for name in declared}
    assert all(name.startswith("five_steps_")
               for kind, name in symbols("--defined-only", "--extern-only", ARCHIVE)
               if kind.isupper())


def test_nothing_that_ends_the_process_or_prints_is_called():
    if SANITIZED or not without_cuda():
        pytest.skip("a runtime that is part of the library prints (a sanitizer's, CUDA's)")
    called = {name.partition("@")[0] for _, name in symbols("-D", "--undefined-only", SHARED)}
    bad = re.compile(r"_?exit|_Exit|abort|quick_exit|__assert_fail|v?f?printf|f?puts|perror|stderr|"
                     r"stdout|__v?f?printf_chk")
    assert not [name for name in called if bad.fullmatch(name)]


@pytest.mark.skipif(SANITIZED, reason="a program without sanitizers cannot load a library with them")
def test_the_example_is_built_in_c_and_in_cpp_and_runs(place):
    install(place)
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", EXAMPLE, f"-I{place}/include"]
    shared = [f"-L{place}/lib", "-lfive_steps", "-lm", "-o", "main"]
    for compiler in (CC + ["-std=c99"], CXX + ["-x", "c++", "-std=c++11"]):
        run(*compiler, *strict, *shared)
        assert "five_steps 1." in run("./main", env={"LD_LIBRARY_PATH": f"{place}/lib"}).out
    if without_cuda():
        run(*CC, *strict, place / "lib/libfive_steps.a", "-lm", "-lgomp", "-lpthread", "-o", "main")
        run("./main")


@pytest.mark.skipif(SANITIZED, reason="a program without sanitizers cannot load a library with them")
@pytest.mark.parametrize("folder", ["plain", "a b", "this&that", "back\\slash|bar"])
def test_pkg_config_knows_it(place, folder):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    to = place / folder
    install(to)
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "five_steps",
                            env={"PKG_CONFIG_PATH": f"{to}/lib/pkgconfig"}).out)
    run(*CC, EXAMPLE, *flags, "-lm", "-o", "main")
    run("./main")


# --- The Python package. ---

PACKAGE = ROOT / "common/products/library/python"
ASK = """
import five_steps, numpy, sys
from five_steps.c_library import library
assert five_steps.__file__.startswith(sys.prefix), five_steps.__file__
assert library().version == five_steps.__version__
print(library().so._name, five_steps.softmax(numpy.zeros((1, 4), "f4")))
"""


@pytest.mark.long
def test_the_wheel_is_installed_in_a_fresh_environment_and_serves_any_processor(place):
    """Made by the backend from an sdist, as an index would have it."""
    run("python3", "-m", "venv", "venv")
    pip = ["venv/bin/pip", "--disable-pip-version-check", "-q"]
    if run(*pip, "install", "build", want=None).code:
        pytest.skip("no package index")
    run("venv/bin/python", "-m", "build", "-o", "dist", PACKAGE, env={"CUDA": ""})
    wheel, = (place / "dist").glob("*.whl")
    listed = run("unzip", "-l", wheel).out
    for name in ("py.typed", "five_steps.h", "LICENSE", "libfive_steps.so", "libfive_steps-v3.so",
                 "libfive_steps-v4.so"):
        assert name in listed, listed
    assert "Requires-Dist: numpy\n" in run("unzip", "-p", wheel, "*/METADATA").out
    run(*pip, "install", "auditwheel")
    tag = re.search(r"manylinux_2_\d+_\w+", wheel.name)[0]
    assert f'"{tag}"' in run("venv/bin/auditwheel", "show", wheel).out, "another tag than auditwheel's"
    run(*pip, "install", wheel)
    assert "[0.25 0.25 0.25 0.25]" in run("venv/bin/python", "-c", ASK).out
    if not shutil.which("qemu-x86_64"):
        pytest.skip("no qemu-x86_64: not tried on other processors")
    run("unzip", "-q", wheel)
    for level, processor in (("", "Nehalem"), ("-v3", "Haswell")):
        shutil.copy(f"five_steps/libfive_steps{level}.so", "libfive_steps.so.1")
        run(*CC, EXAMPLE, "-Ifive_steps", "libfive_steps.so.1", "-lm", "-o", "main")
        run("qemu-x86_64", "-cpu", processor, "-E", f"LD_LIBRARY_PATH={place}", "./main")
