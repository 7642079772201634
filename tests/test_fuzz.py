"""test_fuzz.py: hostile files and options, for programs that sanitizers watch (make tests-built).

    make fuzz SECONDS=60    as many combinations as fit into so many seconds

A combination of files and options of `run` is drawn from a seed, which the failure names.  Most
files fit together but for one dimension, type or value: such a difference is what a user's mistake
looks like, and what an attacker tries.  Whatever the combination: exit status 0, nothing on stderr,
and outputs of the right shape; or 2 (77 where this machine lacks a variant), one line on stderr that
names the program, and no output touched.  No other file is left."""
import math
import os
import pathlib
import random
import re
import time

import numpy as np
import pytest

from helpers import BUILD, ROOT, SANITIZED, STAGES, load, run

WATCHED = BUILD if SANITIZED else BUILD / "sanitize/quick"
SECONDS = float(os.environ.get("FUZZ_SECONDS", 0))
WATCHING = {"ASAN_OPTIONS": "detect_stack_use_after_return=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "LSAN_OPTIONS": f"suppressions={ROOT}/tests/leaks.txt:print_suppressions=0"}
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40]
HUGE = [*(2 ** e for e in (31, 32, 45, 56, 57, 59, 60, 61, 62)), 2 ** 40 + 1, 2 ** 63 - 1, 2 ** 63,
        2 ** 64 - 1, 1085102592571150096, 576460752303423488, 6148914691236517206]
OUTPUTS = {"y.npy": "x.npy", "o.npy": "q.npy", "lse.npy": "q.npy",  # of whose shape
           "dq.npy": "q.npy", "dk.npy": "k.npy", "dv.npy": "v.npy"}
TYPES = ["f32", "f16", "bf16"] * 2 + ["e4m3", "int8"]
EDGES = [0, 1, -1, 1e-30, 65504, 1e5, -1e4, 3e38]


def write_npy(path, descr, shape, data=b"", fortran=False, version=1):
    """A header of 128 bytes, whatever its shape is worth, and the data."""
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}}}"
    size = len(header := header.ljust(117) + "\n").to_bytes(2 if version == 1 else 4, "little")
    pathlib.Path(path).write_bytes(b"\x93NUMPY%c\0" % version + size + header.encode() + data)


class Combination(random.Random):
    """The words of a command line, and the files that it names."""

    def __init__(self, seed):
        super().__init__(seed)
        self.words, self.numbers = ["run"], np.random.default_rng(seed)

    def rarely(self, n):
        return self.randrange(n) == 0

    def perturbed(self, shape):
        """One dimension is 0, one more, one less, another, or enormous."""
        shape = list(shape)
        if shape:
            at = self.randrange(len(shape))
            n = shape[at]
            shape[at] = self.choice([0, n + 1, max(n, 1) - 1, self.choice(SIZES), self.choice(HUGE)])
        return self.perturbed(shape) if shape and self.rarely(3) else shape

    def form(self, like=None):
        size = like[1:] if like and not self.rarely(10) else self.choice("24448")[-1]
        return ("i" if self.rarely(200) else "f") + size[-1]

    def give(self, option, shape, form, most=100000):
        """The option with its file, rarely without; of more than `most` numbers only a beginning."""
        if self.rarely(300):
            return
        path = option.strip("-") + ".npy"
        self.words += [option, path]
        n = math.prod(shape)
        n = self.randrange(50) if n > most else n + self.rarely(100)
        x = self.numbers.standard_normal(n)
        for i in self.numbers.integers(0, max(n, 1), n // 20):
            x[i] = self.choice(EDGES)
        special = self.choice([0, 0, 0, 0, np.nan, np.inf, -np.inf])
        if special:
            x[self.numbers.integers(0, 6, n) == 0] = special
        descr = self.choice("><<<<<") + form
        with np.errstate(all="ignore"):
            data = x.astype(descr).tobytes()
        if not self.rarely(300):
            write_npy(path, descr, shape, data, self.rarely(6), self.choice([1, 1, 2, 3]))
        if self.rarely(10):
            self.damage(pathlib.Path(path))

    def damage(self, path):
        """Cuts the file, or changes a few bytes of its header."""
        whole = bytearray(path.read_bytes() if path.exists() else b"")
        for _ in range(self.randrange(4)):
            if whole:
                whole[self.randrange(min(len(whole), 70))] = self.choice(b"\0\xff(){}',:019fiTF<> \\")
        path.write_bytes(whole[:self.randrange(len(whole) + 1)] if self.rarely(3) else whole)

    def softmax(self):
        shape = [self.choice(SIZES) for _ in range(self.randrange(6) if self.rarely(10) else 2)]
        # A row is a block of fibres where the CPU executes a GPU's kernel.
        self.give("--x", self.perturbed(shape) if self.rarely(3) else shape, self.form(), 4000)
        self.words += ["--y", "y.npy", *["--log"] * self.rarely(3), *["--causal"] * self.rarely(100)]

    def empty(self, heads_q, heads_kv, nq, nk, d, dv):
        """Without keys or heads the arrays have no data, and the other sizes may be anything: also
        so large that a product of sizes wraps to a small number."""
        if self.rarely(2):
            wraps = 2 ** 62 // (heads_q * nq) + 1 + self.randrange(3)
            return heads_q, heads_kv, nq, 0, d, self.choice([self.choice(HUGE), wraps])
        sizes = [nq, nk, d, dv]
        for _ in range(2):
            sizes[self.randrange(4)] = self.choice(HUGE)
        return 0, 0, *sizes

    def sums(self, option, total):
        """Prefix sums of a few sequences, now and then with a mistake."""
        inner = sorted(self.randrange(total + 1) for _ in range(self.randrange(5))) \
            if total < 2 ** 31 else []
        sums = [s + (self.randrange(-1, 2) if self.rarely(60) else 0) for s in (0, *inner, total)]
        if self.rarely(30):
            sums[self.randrange(len(sums))] = self.choice(HUGE)
        kind = "<i8" if self.rarely(4) else "<i4"
        data = np.array(sums, object) & (2 ** (8 * int(kind[2])) - 1)
        self.words += [option, option.strip("-") + ".npy"]
        write_npy(self.words[-1], kind, [len(sums)], data.astype("u" + kind[2]).tobytes())

    def call(self, heads_q, nq, nk, may_pack):
        """What calls of real models ask for."""
        if self.rarely(4):
            bad = ["1099511627776,1099511627776", "-2,0", "3", "1,2,3"]
            good = ["0,0", "3,0", "-1,2", "7,-1", "-1,-1", "1000,1000"]
            self.words += ["--window", self.choice(bad if self.rarely(10) else good)]
        if self.rarely(4):
            self.words += ["--softcap", self.choice(["0", "-5"] if self.rarely(10) else
                                                    ["30", "0.01", "1e30"])]
        if self.rarely(4):
            self.give("--sinks", self.perturbed([heads_q]) if self.rarely(10) else [heads_q],
                      self.form())
        if self.rarely(4 if may_pack else 100):
            self.sums("--cu-seqlens-q", nq)
            self.sums("--cu-seqlens-k", nk)

    def attention(self):
        heads_kv, batch = self.randint(1, 3), self.randint(1, 2)
        heads_q = heads_kv * self.randint(1, 3)
        nq, nk, d, dv = (self.choice(SIZES) for _ in range(4))
        nk, dv = (nq if self.rarely(3) else nk), (dv if self.rarely(3) else d)
        leave = self.randrange(3)  # dimensions that the files lack
        if leave:
            batch = 1
        if leave > 1:
            heads_q = heads_kv = 1
        if empty := self.rarely(5):
            heads_q, heads_kv, nq, nk, d, dv = self.empty(heads_q, heads_kv, nq, nk, d, dv)
        like, has_bias = self.form(), self.rarely(3)
        for option, shape in (("--q", [batch, heads_q, nq, d]), ("--k", [batch, heads_kv, nk, d]),
                              ("--v", [batch, heads_kv, nk, dv]), ("--bias", [nq, nk])):
            if option == "--bias" and not has_bias:
                continue
            shape = shape[leave:] if len(shape) == 4 else shape
            if self.rarely(20 if empty else 6):
                shape = self.perturbed(shape)
            self.give(option, shape, like if option == "--q" else self.form(like))
        if self.rarely(4):
            shape = [batch, heads_q, nq, dv][leave:]
            self.give("--do", self.perturbed(shape) if self.rarely(20) else shape, self.form(like))
            self.words += [word for name in ("dq", "dk", "dv") for word in (f"--{name}", f"{name}.npy")]
        else:
            self.words += ["--o", "o.npy", *["--lse", "lse.npy"] * self.rarely(2)]
        self.words += [*["--causal"] * self.rarely(3), *["--log"] * self.rarely(100)]
        if self.rarely(4):
            self.words += ["--scale", "nan" if self.rarely(10) else self.choice(["0.5", "-3e38"])]
        if self.rarely(2):
            self.call(heads_q, nq, nk, leave > 0 and not has_bias)

    def options(self, variants):
        for n, words in ((2, ["--variant", self.choice(variants)]),
                         (3, ["--dtype", self.choice(TYPES)]), (9, ["--kv-dtype", self.choice(TYPES)]),
                         (5, ["--threads", self.choice("1237")]), (8, ["--device", "cpu"]),
                         (8, ["--verbose"])):
            self.words += words * self.rarely(n)


def variants_of(stage):
    return re.findall(r"^([a-z]\w*)", run(WATCHED / stage, "list", env=WATCHING).out, re.M)


def accepted(seed, variants):
    """One combination in an empty folder: is it computed?"""
    line = Combination(seed)
    stage = line.choice(STAGES)
    if line.rarely(3):
        line.softmax()
    else:
        line.attention()
    line.options(variants[stage])
    outputs = [name for name in OUTPUTS if name in line.words]
    inputs, old = set(os.listdir()), line.rarely(2)
    for name in outputs * old:
        pathlib.Path(name).write_text("old")
    done = run(WATCHED / stage, *line.words, want=None, env=WATCHING)
    what = f"seed {seed}: {stage} {' '.join(line.words)}: {done}"
    assert done.code in (0, 2, 77), what
    there = set(os.listdir()) - inputs
    assert there == (set(outputs) if done.code == 0 or old else set()), what
    if done.code:
        assert done.err.count("\n") == 1 and done.err.startswith(f"{stage}: "), what
        assert all(pathlib.Path(name).read_text() == "old" for name in there), what
        return False
    for name in outputs:
        shape, got = load(OUTPUTS[name]).shape, load(name)
        if name in ("o.npy", "lse.npy"):
            shape = (*shape[:-1], *load("v.npy").shape[-1:] * (name == "o.npy"))
        assert not done.err and got.dtype == "f4" and got.shape == shape, what
    return True


@pytest.mark.parametrize("part", range(2))
def test_any_combination_of_files_and_options_is_computed_or_refused(part):
    if not (WATCHED / STAGES[-1]).exists():
        pytest.skip("no programs with sanitizers here; make test builds them")
    variants = {stage: variants_of(stage) for stage in STAGES}
    first = 100 * part + (int(time.time()) * 1000 if SECONDS else 1)
    end, seed, computed = time.monotonic() + SECONDS / 2, first, 0
    while time.monotonic() < end if SECONDS else seed < first + 100:
        computed += accepted(seed, variants)
        for name in os.listdir():
            os.remove(name)
        seed += 1
    print(f"{seed - first} combinations from seed {first}, {computed} computed")
    # Everything refused, or nothing, would mean that nothing was tried.
    assert 10 * computed > seed - first > computed
