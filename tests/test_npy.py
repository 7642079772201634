"""test_npy.py: every valid .npy file is read, every other one refused with one line that names
it, and an output appears complete or not at all.  Stage 2's `run --x --y` stands for all."""
import os
import pathlib
import signal
import struct
import subprocess

import numpy as np
import pytest

from helpers import BUILD, FIXTURE, SANITIZED, STAGES, compare, load, refused, save, softmax, stage

RUN = ["run", "--x", "x.npy", "--y", "y.npy"]
SIX = np.arange(6, dtype="f4").reshape(2, 3)
F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


def write(header, data=SIX.tobytes(), major=1, name="x.npy", minor=0):
    header = header.encode("latin1")
    length = struct.pack("<H" if major == 1 else "<I", len(header))
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY" + bytes([major, minor]) + length + header + data)


def header(descr="'<f4'", order="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


@pytest.mark.parametrize("major", [1, 2, 3])
@pytest.mark.parametrize("text", [
    F4 + " " * 16 + "\n", F4, header() + "\n", header().replace("'", '"'),
    "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}", header(shape="(2, 3,)"),
    "  {\t'descr' : '<f4' , 'fortran_order' :\nFalse , 'shape' : ( 2 , 3 ) , }  \n\n",
    header(descr="'=f4'")])
def test_spellings_that_numpy_accepts_are_read(text, major):
    write(text, major=major)
    stage(2, *RUN)
    compare(load("y.npy"), softmax(SIX), 1e-6)


def test_every_rank_and_no_elements():
    for rank in range(1, 33):
        write(header(shape="(" + "1," * rank + ")"), SIX[0, :1].tobytes())
        stage(2, *RUN)
        assert load("y.npy").shape == (1,) * rank
    write(header(shape="(" + "1," * 33 + ")"), SIX[0, :1].tobytes())
    refused(2, *RUN, says="32 dimensions")
    write(header(shape="()"), SIX[0, :1].tobytes())
    refused(2, *RUN, says="a single number")
    write(header(order="True", shape="(0, 4)"), b"")
    stage(2, *RUN)
    assert load("y.npy").shape == (0, 4)


def test_numbers_beyond_float_are_counted():
    save("x.npy", [[1e39, -1e300, np.inf, 3e38, np.nan]], "f8")
    assert "2 finite f64 values became infinite" in stage(2, *RUN).out


WRONG = ["", "not a dictionary", "{", "{}", "{'descr", header().replace("'descr'", "descr"), header(descr="4"),
         "{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3)}", "{'descr': '<f4', 'shape': (2, 3)}",
         header(descr="[('a', '<f4')]"), *[header(order=word) for word in ("0", "false", "None", "Falsehood")],
         *[header(shape=text) for text in (
             "[2, 3]", "6", "(2, -3)", "(2, +3)", "(2.0, 3)", "(2, 0x3)", "(2,, 3)", "(, 2)", "(,)", "(2L, 3)",
             "('2', 3)", "(18446744073709551617, 3)", "(1e3,)", "(2 3)", "(2, 3")]]


@pytest.mark.parametrize("text, n, says", [
    *[(text, 24, "header is wrong; numpy.save writes ") for text in WRONG],
    (F4, 23, "23"), (F4, 0, "24 bytes"), (F4, 25, "more than one array"),
    *[(header(shape=text), 24, "more elements") for text in
      ("(2147483648, 2147483648)", "(4294967296, 4294967296)", "(2305843009213693952,)",
       "(0, 4294967296, 4294967296)")],
    (header(shape="(1000000000000,)"), 24, "4000000000000 bytes"),
    *[(header(descr=f"'{text}'"), 24, f"elements are '{text}'; float16, ") for text in
      ("|b1", "<i4", "|u1", "<c8", "|V2", "|O", "<U4", "<f3", "<f16", "<f44", "float32", "f4",
       "|f4", "")]])
def test_malformed_headers_are_refused_with_their_reason(text, n, says, place):
    write(text, (SIX.tobytes() * 2)[:n])
    assert says in refused(2, *RUN, says="--x: x.npy: ").err
    assert not (place / "y.npy").exists()


def test_other_formats_versions_and_lengths_are_named(place):
    for data, says in [(b"PK\3\4abcdefghijk", "zip"), (b"1.0 2.0 3.0 4.0", "not a .npy file"),
                       (b"", "0 bytes")]:
        (place / "x.npy").write_bytes(data)
        refused(2, *RUN, says=says)
    for major, minor in [(0, 0), (4, 0), (255, 0), (1, 1)]:
        write(F4, major=major or 1, minor=minor)
        whole = bytearray((place / "x.npy").read_bytes())
        whole[6] = major
        (place / "x.npy").write_bytes(whole)
        refused(2, *RUN, says=f"version {major}.{minor}")
    for major, length, says in [(1, b"\xff\xff", "inside its header"),
                                (2, b"\xff\xff\xff\xff", "at most 65536")]:
        write(F4, major=major)
        whole = (place / "x.npy").read_bytes()
        (place / "x.npy").write_bytes(whole[:8] + length + whole[8 + len(length):])
        refused(2, *RUN, says=says)


def test_what_is_no_file_and_what_is_too_large_are_refused(place):
    for name in ("missing.npy", ".", "/dev/null", "missing/a.npy", "line\nbreak.npy"):
        refused(2, "run", "--x", name, "--y", "y.npy", says="--x: ")
    write(header(shape="(4398046511104,)"), b"")
    with open("x.npy", "r+b") as file:
        try:
            file.truncate((place / "x.npy").stat().st_size + (1 << 44))
        except OSError:
            pytest.skip("the file system has no sparse file of 16 TiB")
    refused(2, *RUN, says="memory")


def test_output_is_what_numpy_writes_and_keeps_permissions_and_links(place):
    save("x.npy", SIX)
    (place / "real.npy").write_bytes(b"old")
    (place / "real.npy").chmod(0o640)
    os.symlink("real.npy", "y.npy")
    stage(2, *RUN)
    assert (place / "y.npy").is_symlink() and (place / "real.npy").stat().st_mode & 0o777 == 0o640
    save("numpy.npy", load("y.npy"))
    assert (place / "real.npy").read_bytes() == (place / "numpy.npy").read_bytes()


def test_outputs_whose_long_names_begin_alike_stay_apart():
    names = [f"{'n' * 210}_{word}.npy" for word in ("o", "lse")]
    stage(3, "run", *FIXTURE, "--o", names[0], "--lse", names[1])
    stage(3, "run", *FIXTURE, "--o", "o.npy", "--lse", "lse.npy")
    for name, short in zip(names, ("o.npy", "lse.npy")):
        assert pathlib.Path(name).read_bytes() == pathlib.Path(short).read_bytes()


def test_outputs_that_cannot_be_written_are_refused_before_the_work(place):
    save("x.npy", SIX)
    (place / "directory").mkdir()
    (place / "old").write_bytes(b"old")
    os.symlink("nowhere/y.npy", "lost.npy")
    before = sorted(place.iterdir())
    for name in ("missing/y.npy", "directory", "directory/", "old/y.npy", "new/", "lost.npy",
                 "a" * 399):
        refused(2, *RUN[:-1], name, says="--y: ")
    if os.geteuid():
        (place / "old").chmod(0o444)
        refused(2, *RUN[:-1], "old", says="cannot be replaced")
    assert sorted(place.iterdir()) == before


def interruptible():
    """Ctrl-C ends the process, also where the tests run in the background of a script."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(SANITIZED, reason="a signal's status is the sanitizer's")
def test_interrupt_while_writing_leaves_the_old_files(place):
    """o.npy is complete beside its name when lse.npy's pipe is full."""
    for name, rows in [("q", 1 << 16), ("k", 1), ("v", 1)]:
        save(f"{name}.npy", np.zeros((rows, 4)))
    (place / "o.npy").write_bytes(b"old")
    os.mkfifo("stuck")
    reader = os.open("stuck", os.O_RDWR)
    with subprocess.Popen([BUILD / STAGES[1], "run", "--q", "q.npy", "--k", "k.npy", "--v",
                           "v.npy", "--o", "o.npy", "--lse", "stuck"],
                          stdout=subprocess.DEVNULL, preexec_fn=interruptible) as process:
        assert os.read(reader, 1)
        assert process.poll() is None and len(list(place.glob(".o.npy.*"))) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    os.close(reader)
    assert (place / "o.npy").read_bytes() == b"old" and not list(place.glob(".o.npy.*"))
