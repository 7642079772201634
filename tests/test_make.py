"""test_make.py: make itself: what it refuses and in which words, what it needs and names, what it
skips, when it compiles, and what it must not touch.  Everything is built in the test's own folder,
or not at all."""
import os
import pathlib
import re
import shlex
import shutil
import sys

import pytest

from helpers import ROOT, run

INHERITED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "BUILD", "CC", "CXX", "WERROR",
             "CUDA", "NO_INSTALL", "JOBS")
TOOLS = ("make sh id mkdir cat rm grep tail head sed tr find cmp date ls sort uniq awk diff touch mktemp "
         "dirname basename env true uname wc")


def make(*words, tree=ROOT, env=None, **how):
    """make in the sources, with everything that it builds in this folder's b; later words win."""
    return run("make", f"BUILD={os.getcwd()}/b", "CUDA=0", *words, cwd=tree,
               env=dict.fromkeys(INHERITED) | (env or {}), **how)


def write(path, text="", mode=0o644):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text, encoding="utf-8")
    os.chmod(path, mode)


@pytest.fixture
def bare(place):
    """The environment of a machine with the shell's tools and make; no compiler, python, apt."""
    (place / "bin").mkdir()
    for tool in TOOLS.split():
        (place / "bin" / tool).symlink_to(shutil.which(tool))
    return {"PATH": f"{place}/bin"}


# --- What cannot be meant. ---

STAGES = "; valid stages: 1 2 3 4 5\n"


@pytest.mark.parametrize("request_, line", [
    ("stage 9", f"no stage '9'{STAGES}"),
    ("-s -j2 stage 9 3", f"no stage '9'{STAGES}"),
    ("stage test", f"no stage 'test'{STAGES}"),
    ("stage '1;ls'", f"no stage '1;ls'{STAGES}"),
    ("stage %", f"no stage '%'{STAGES}"),
    ("3", "a stage number follows a verb: make stage 3\n"),
    ("test 2", "a stage number follows a verb: make stage 2\n"),
    ("diff", "make diff needs a stage number: make diff 3\n"),
    ("build BUILD='a b'", "BUILD: 'a b' holds a space"),
    ("plot RESULTS='a b'", "RESULTS: 'a b' holds a space"),
    ("cuda NVCC=", "make cuda needs nvcc; "),
])
def test_what_cannot_be_meant_is_refused_with_one_line(place, request_, line):
    done = make("NO_INSTALL=1", *shlex.split(request_), want=2)
    assert done.err.startswith(line), done
    assert done.err.count("\n") == 1 and not done.out, done
    assert not os.path.exists("b/obj")


def test_what_a_user_gives_reaches_the_program_as_one_word(place):
    program, python = place / "b/03_online_softmax", place / "b/python"
    write(program, '#!/bin/sh\nprintf "[%s]" "$@"\n', 0o755)
    for verb, name in (("trace 3", "ROW"), ("differential", "PROBLEMS"), ("differential", "SEED")):
        done = make("-o", program, "-o", "build", *verb.split(), f"{name}=1;$HOME 'x", want=None)
        assert "[1;$HOME 'x]" in done.out, done
    write(python, str(program))
    done = make("NO_INSTALL=1", "-o", program, "map", "HEAD=$(id)", "PYTHON=" + str(program))
    assert "[$(id)]" in done.out, done


# --- What is missing. ---

@pytest.mark.parametrize("request_, missing, command", [
    ("exercise", "missing: python3;", "apt-get install python3\n"),
    ("NO_INSTALL=1 exercise", "missing: python3;", "brew install python\n"),
    ("stage 1", "missing: cc, g++;", "dnf install gcc gcc-c++\n"),
    ("stage 1 CXX=sh CC=gcc-77", "missing: gcc-77;", "apt-get install gcc-77\n"),
    ("stage 1 CXX=sh CC='ccache sh -m64'", "missing: ccache;", "apt-get install ccache\n"),
    ("b/01_naive CC=clang-77", "missing: clang-77, clang++-77;", "install clang-77\n"),
    ("gallery CC=sh CXX=sh", "missing: git, patch, criterion", "install git patch "),
    ("grade SUBMISSIONS=HERE/bin CC=gcc-77 CXX=sh", "missing: gcc-77;", "install gcc-77\n"),
])
def test_missing_tools_are_named_with_the_command_that_installs_them(
        place, bare, request_, missing, command):
    words = shlex.split(request_.replace("HERE", str(place)))
    done = make(*(w.replace("b/", f"{place}/b/") for w in words), env=bare, want=2)
    assert missing in done.err and command in done.err, done
    assert not os.path.exists("b/obj"), done


@pytest.mark.parametrize("needs, packages", [
    ("patch", "gpatch"), ("aarch64", "gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"),
    ("git patch git mpi", "git patch openmpi-bin libopenmpi-dev"),
])
def test_every_need_names_its_packages(bare, needs, packages):
    done = run("sh", ROOT / "common/core/make/require.sh", *needs.split(), env=bare, want=1)
    assert "missing: " in done.err and f" {packages}\n" in done.err, done


def test_what_needs_no_tool_runs_without_it(bare):
    for request in ("help", "stage", "diff 2", "diff RUNG=2", "diff 1"):
        done = make(*request.split(), env=bare)
        assert done.out and not done.err, done


def test_a_target_that_cannot_run_here_is_skipped(place, bare):
    (place / "bin/git").symlink_to(shutil.which("git"))
    (place / "bin/python3").symlink_to(sys.executable)
    for name in ("01_naive", "03_online_softmax", "05_flash_cuda"):
        write(f"b/{name}", "#!/bin/sh\n[ $1 = list ] && echo stage,TEXT && exit\n"
              "echo skipped: nothing here; exit 77\n", 0o755)
    for old, request in ((place / "b/01_naive", "profile 1"),
                         (place / "b/05_flash_cuda", "profile 5"),
                         (place / "b/03_online_softmax", "stage 3"),
                         (place / "b/03_online_softmax", "bench 3")):
        done = make("CC=sh", "CXX=sh", "-o", old, *request.split(), env=bare)
        assert re.search(r"^skipped: ", done.out + done.err, re.M), done
        assert "***" not in done.err, done
    write("b/03_online_softmax", "#!/bin/sh\nexit 1\n", 0o755)
    make("CC=sh", "CXX=sh", "-o", place / "b/03_online_softmax", "stage", "3", env=bare, want=2)


def test_a_dry_run_makes_and_installs_nothing(place):
    (place / "class").mkdir()
    for request in ("", "test", "stage 3", "bench", "exercise 2",
                    f"grade SUBMISSIONS={place}/class OUT={place}/marks"):
        assert make("CC=gcc-77", "-n", *request.split()).out
        assert os.listdir(place) == ["class"], request


# --- What it shows. ---

@pytest.mark.parametrize("request_, line", [
    ("RUNG=99", "no rung '99'; stage 5 has the rungs 1 2 3 "),
    ("""RUNG="x'y" """, "no rung 'x'y'; stage 5 has the rungs 1 "),
    ("3 FILE=nowhere.c", "make diff: no file 02_safe_softmax/nowhere.c; FILE="),
])
def test_a_difference_of_what_is_not_there_is_refused(request_, line):
    done = make("diff", *shlex.split(request_), want=2)
    assert done.err.startswith(line) and not done.out, done


@pytest.mark.parametrize("prefix, rooms", [("", ["portable", "hopper"]), ("backward/", ["backward"])])
def test_every_rung_is_compared_with_the_one_before_it(prefix, rooms):
    """Of the backward ladder wide and narrow heads are two branches of rung 5."""
    rungs = [path for room in rooms for path in sorted(ROOT.glob(f"05_flash_cuda/{room}/[0-9][0-9]_*.cu"))]
    assert len(rungs) > 7
    for before, rung in zip([None, *rungs], rungs):
        if before and before.stem == "06_wide_heads":
            before = rungs[rungs.index(before) - 1]
        said = make("diff", f"RUNG={prefix}{int(rung.name[:2])}").out
        assert f"/{rung.name}" in said
        assert before is None or f"/{before.name}" in said
        count = re.search(r"\n([1-9]\d*) lines added, ([1-9]\d*) removed\n$", said)
        if before is None:
            assert "is the first" in said
            continue
        own = rung.stem[3:]
        assert count and re.search(rf"[ _]{own}_kernel| dq_kernel|MMA_RUNG\({own},", said), said[:400]
        if before.parent.name == "hopper" and rung is not rungs[-1]:
            assert max(map(int, count.groups())) <= 80, said[-200:]
        for patch in (rung.parent / "steps").glob("*.patch"):
            inside = f"+++ b/05_flash_cuda/{rung.parent.name}/{rung.name}\n" in patch.read_text()
            assert (f"\n  {patch.stem:16} " in said) == inside
            assert not inside or make("diff", f"RUNG={patch.stem}").out == patch.read_text()
    assert ("with these asides" in said) == (not prefix)


def test_makefiles_are_short_and_help_fits_a_terminal():
    assert all(len(line) <= 90 for line in make("help").out.splitlines())
    assert len((ROOT / "Makefile").read_text(encoding="utf-8").splitlines()) <= 140
    for path in (ROOT / "common/core/make").glob("*.mk"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name}:") and text.count("\n") <= 120, path


def test_clean_removes_the_build_that_it_is_told_and_nothing_else(place):
    copied("common")
    for path in ("build/config", "x/config", "y/mine"):
        write(path)
    make("clean", "BUILD=x", tree=place)
    assert not os.path.exists("x") and os.path.exists("build/config")
    for other in ("y", ".", "common"):
        assert "no folder that make built in" in make("clean", f"BUILD={other}", tree=place, want=2).err
    make("clean", "BUILD=build", tree=place)
    assert not os.path.exists("build") and os.path.exists("y/mine")


# --- When it compiles. ---

def copied(*parts):
    for part in ("Makefile", *parts):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, part)
        else:
            shutil.copy(ROOT / part, part)


def test_a_new_file_in_a_room_needs_no_line_in_a_makefile(place):
    copied("common", "02_safe_softmax")
    new = {"02_safe_softmax/fast/new.c": "o", "common/core/npy/new.c": "o",
           "02_safe_softmax/newroom/inner/new.cu": "cpu.o"}
    for path in new:
        write(path)
    said = make("-n", "BUILD=b", "b/02_safe_softmax", tree=place).out
    for path, suffix in new.items():
        assert f" b/obj/{path.rpartition('.')[0]}.{suffix}" in said
    assert "exercises/" not in said


def test_an_object_depends_on_the_headers_that_it_includes(place):
    copied("common")
    there = ("BUILD=b", "b/obj/common/core/problem/dtype.o")
    make(*there, tree=place)
    make("-q", *there, tree=place)
    os.utime("common/core/problem/dtype.h", (4e9, 4e9))
    make("-q", *there, tree=place, want=1)
    os.utime("common/core/problem/dtype.h", (1e9, 1e9))
    make("-q", *there, "CFLAGS=-O1", tree=place, want=1)
