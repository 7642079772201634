"""test_helpers.py: do the tests see?  A wrong array, a program that fails, a dead thread.  (The definitions
in helpers.py agree with the reference in C, which closed forms judge.)"""
import sys

import numpy as np
import pytest

from helpers import ROOT, compare, run


@pytest.mark.parametrize("got, want", [
    ([1.1], [1]), ([np.nan], [1]), ([1], [np.nan]), ([np.inf], [-np.inf]), ([1], [1, 2]),
    ([np.inf], [1]), ([1], [np.inf]),
])
def test_compare_rejects(got, want):
    with pytest.raises(AssertionError):
        compare(np.array(got, "f8"), np.array(want, "f8"), 1e-3)


def test_a_program_that_fails_or_hangs_is_a_failure():
    with pytest.raises(AssertionError, match="exit status 3\nsaid"):
        run("sh", "-c", "echo said; exit 3")
    with pytest.raises(Exception, match="timed out"):
        run("sh", "-c", "sleep 60 & wait", timeout=0.2)
    assert run("sh", "-c", "kill -9 $$", want=None).code == -9


FAULTS = '''
import threading
def test_thread():
    t = threading.Thread(target=lambda: 1 / 0)
    t.start()
    t.join()
def test_file():
    open("left_open", "w")
def test_fine():
    pass
'''


def test_dead_threads_and_open_files_are_failures(place):
    (place / "test_faults.py").write_text(FAULTS, encoding="utf-8")
    said = run(sys.executable, "-m", "pytest", "-c", ROOT / "tests/pytest.ini", "--rootdir",
               place, "test_faults.py", want=1)
    assert "2 failed, 1 passed" in said.out, said
