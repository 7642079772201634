"""test_helpers.py: do the tests see?  What the other tests lean on, against arithmetic by hand."""
import math
import sys

import numpy as np
import pytest

from helpers import ROOT, attention, compare, run, softmax, visible


def test_softmax_by_hand():
    compare(softmax([[0, math.log(3)], [-np.inf, -np.inf]]), [[0.25, 0.75], [0, 0]], 1e-15)
    compare(softmax([0, math.log(3)], log=True), [math.log(0.25), math.log(0.75)], 1e-15)
    compare(softmax([-np.inf, -np.inf], log=True), [-np.inf, -np.inf])


def test_masks_end_bottom_right():
    assert visible(2, 3, causal=True).astype(int).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert visible(3, 2, causal=True).astype(int).tolist() == [[0, 0], [1, 0], [1, 1]]
    assert visible(2, 4, window=(1, 0)).astype(int).tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert visible(1, 3, window=(-1, -1)).all()


@pytest.mark.parametrize("options, o, lse", [
    ({}, 5, math.log(2)),                                   # scores 0, 0; values 2, 8
    ({"bias": [[0, math.log(2)]]}, 6, math.log(3)),
    ({"bias": [[0, -np.inf]]}, 2, 0),
    ({"window": (0, 0)}, 8, 0),
    ({"bias": [[-np.inf, -np.inf]]}, 0, -np.inf),
])
def test_attention_by_hand(options, o, lse):
    got = attention([[0.0]], [[1.0], [-1.0]], [[2.0], [8.0]], **options)
    compare(got[0], [[o]], 1e-14)
    compare(got[1], [lse], 1e-14)


def test_attention_options_by_hand():
    q, k, v = np.ones((2, 1, 4)), np.array([[[3.0] * 4, [0] * 4]]), np.array([[[1.0], [0]]])
    o, lse = attention(q, k, v)                             # scores 12 / sqrt(4) and 0
    compare(o, np.full((2, 1, 1), 1 / (1 + math.exp(-6))), 1e-15)
    o, lse = attention(q, k, v, scale=0.5, softcap=2, sinks=[0, -np.inf])
    s = math.exp(2 * math.tanh(6 / 2))
    compare(o.ravel(), [s / (s + 2), s / (s + 1)], 1e-15)
    compare(lse.ravel(), [math.log(s + 2), math.log(s + 1)], 1e-14)


def test_hidden_nan_has_no_part():
    v = np.array([[1.0], [np.nan]])
    compare(attention(np.zeros((2, 1)), np.zeros((2, 1)), v, causal=True)[0], [[1], [np.nan]])


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
