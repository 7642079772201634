"""helpers.py: what the Python tests share.

    BUILD, SANITIZED        the build under test ($BUILD), and whether it has sanitizers
    run, stage, refused     run a program; its status, what it printed and what it complained of
    copy_sources, make      a copy of the sources and of what was made from them, and a target there
    wait_for                waits until something has happened; a test never sleeps instead
    FIXTURE                 the words of a command line that give q, k and v of tests/fixture
    save, load, lines_of    write and read a .npy file; the lines of a CSV file
    option_words            arrays and options of attention() as the command line has them
    softmax, attention      the definitions in float64 (NumPy), with every option of a problem
    compare                 an array against what was expected, element by element
"""
import csv
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / os.environ.get("BUILD", "build")
CONFIG = BUILD / "config"
SANITIZED = CONFIG.exists() and "-fsanitize" in CONFIG.read_text(encoding="utf-8")
STAGES = sorted(path.name for path in ROOT.glob("0[1-9]_*"))
OUTSIDE = dict.fromkeys(("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD"))  # not for a make inside
HANG = 1200  # seconds: what takes so long on a busy machine will never end


# --- Programs. ---

@dataclasses.dataclass
class Result:
    code: int       # exit status; -N: killed by signal N
    out: str
    err: str

    def __str__(self):
        return f"exit status {self.code}\n{self.out[-3000:]}{self.err[-3000:]}"


def run(*command, want=0, timeout=HANG, cwd=None, env=None, stdin=""):
    """Runs a program with its arguments (no shell) and returns a Result.

    want     the exit status, or a tuple of them, that the test expects; None: any
    timeout  seconds after which the program and all that it started are killed: a failure
    cwd, stdin, env    as for subprocess; env is added to the environment (None removes a name)
    """
    __tracebackhide__ = True
    command = [str(word) for word in command]
    whole = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"} | os.environ | (env or {})
    whole = {name: str(value) for name, value in whole.items() if value is not None}
    with subprocess.Popen(command, cwd=cwd, env=whole, text=True, errors="replace",
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    result = Result(process.returncode, out, err)
    wanted = want if isinstance(want, tuple) else (want,)
    assert want is None or result.code in wanted, f"{' '.join(command)}: {result}"
    return result


def copy_sources(*folders):
    """Copies these folders of the sources and their objects here, which keep their times."""
    shutil.copy2(ROOT / "Makefile", ".")
    for name in folders:
        shutil.copytree(ROOT / name, name)
        if (BUILD / "obj" / name).is_dir():
            shutil.copytree(BUILD / "obj" / name, f"build/obj/{name}")
    for path in BUILD.glob("config*"):
        shutil.copy2(path, "build")


def make(*words):
    """Makes a target of such a copy, whatever the flags of the make outside: only what has changed."""
    old = [word for path in BUILD.glob("config*") for word in ("-o", f"build/{path.name}")]
    run("make", "-s", "-j2", "BUILD=build", *old, *words, env=OUTSIDE)


def wait_for(condition, every=0.05):
    """What condition() returns once it is not false, however long that takes."""
    end = time.monotonic() + HANG
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(every)
    return found


def stage(number, *arguments, **how):
    """Runs the program of stage 1 to 5."""
    return run(BUILD / STAGES[number - 1], *arguments, **how)


def refused(number, *arguments, says="", code=2, **how):
    """The program ends with status 2 and one line on stderr, which holds `says`."""
    result = stage(number, *arguments, want=code, **how)
    assert result.err.count("\n") == 1 and not result.out, result
    assert says in result.err, f"no '{says}' in: {result.err}"
    return result


# --- Files. ---

FIXTURE = [word for name in "qkv" for word in (f"--{name}", ROOT / f"tests/fixture/{name}.npy")]


def save(path, array, dtype="f4"):
    """Writes a .npy file of that type ('f2', '>f8', ...; None: the array's own).  An array in
    Fortran's order is written so."""
    array = np.asarray(array)
    np.save(path, array if dtype is None else array.astype(dtype))
    return path


def option_words(**options):
    """Options of attention() for a command line; arrays go into files, q into q.npy."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, np.ndarray):
            value = save(f"{name}.npy", value, None if value.dtype.kind == "i" else "f4")
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        if value is not None and value is not False:
            words.append(option if value is True else f"{option}={value}")
    return words


load = np.load


def lines_of(path):
    """{column: text} of each line of a CSV file."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def normal(*shape, seed=1):
    """Normal float32 numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("f4")


# --- Definitions in float64. ---

def softmax(x, log=False):
    """Of the last dimension.  A row of -inf gives 0, and -inf in the logarithm."""
    x = np.asarray(x, "f8")
    m = x.max(-1, keepdims=True, initial=-np.inf)
    shifted = x - np.where(np.isneginf(m), 0, m)
    l = np.exp(shifted).sum(-1, keepdims=True)
    if log:
        return np.where(np.isneginf(x), x, shifted - np.log(np.where(l == 0, 1, l)))
    return np.exp(shifted) / np.where(l == 0, 1, l)


def visible(seqlen_q, seqlen_k, causal=False, window=None):
    """(seqlen_q, seqlen_k): does query i see key j?  Causal and windows end bottom right."""
    ahead = np.arange(seqlen_k) - (np.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q)
    left, right = window or (-1, -1)
    seen = np.ones((seqlen_q, seqlen_k), bool)
    if causal:
        seen &= ahead <= 0
    if left >= 0:
        seen &= ahead >= -left
    if right >= 0:
        seen &= ahead <= right
    return seen


def attention(q, k, v, *, causal=False, scale=None, window=None, softcap=None, sinks=None,
              bias=None, cu_seqlens_q=None, cu_seqlens_k=None):
    """o and lse.  q, k, v of 2, 3 or 4 dimensions; heads_kv divides heads_q; `sinks` (heads_q)
    and `bias` (seqlen_q, seqlen_k) may be None.  With prefix sums the sequences lie packed in
    (heads, total, dim), and a bias is that of the longest."""
    q, k, v = (np.asarray(x, "f8") for x in (q, k, v))
    options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap,
               "sinks": sinks}
    if cu_seqlens_q is not None:
        parts = []
        for q0, q1, k0, k1 in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k,
                                  cu_seqlens_k[1:]):
            part = None if bias is None else bias[:q1 - q0, :k1 - k0]
            parts.append(attention(q[..., q0:q1, :], k[..., k0:k1, :], v[..., k0:k1, :],
                                   bias=part, **options))
        return (np.concatenate([o for o, _ in parts], -2),
                np.concatenate([lse for _, lse in parts], -1))
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    seen = visible(q.shape[-2], k.shape[-2], causal, window)
    with np.errstate(invalid="ignore", over="ignore"):
        s = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap:
            s = softcap * np.tanh(s / softcap)
        if bias is not None:
            seen = seen & ~np.isneginf(bias)
            s = s + np.where(seen, bias, 0)
        s = np.where(seen, s, -np.inf)
        m = s.max(-1, keepdims=True, initial=-np.inf)
        if sinks is not None:
            sink = np.asarray(sinks, "f8").reshape(-1, 1, 1)
            m = np.maximum(m, sink)
        m = np.where(np.isneginf(m), 0, m)
        p = np.exp(s - m)
        l = p.sum(-1, keepdims=True)
        if sinks is not None:
            l = l + np.exp(sink - m)
        lse = np.where(l == 0, -np.inf, m + np.log(np.where(l == 0, 1, l)))[..., 0]
        p = p / np.where(l == 0, 1, l)
        return values_of(p, v, np.broadcast_to(seen, p.shape)), lse


def values_of(p, v, seen):
    """p v, in which NaN and inf of keys that a query does not see have no part."""
    if np.isfinite(v).all():
        return p @ v
    o = np.empty(p.shape[:-1] + v.shape[-1:])
    for row in np.ndindex(p.shape[:-1]):
        o[row] = p[row][seen[row]] @ v[row[:-1]][seen[row]]
    return o


def compare(got, want, allowed=1e-5, what="array"):
    """Every element: NaN where NaN is wanted, the same infinity, or |got - want| <= allowed (a
    number, or an array of them)."""
    __tracebackhide__ = True
    got, want = np.asarray(got, "f8"), np.asarray(want, "f8")
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    allowed = np.broadcast_to(allowed, want.shape)
    with np.errstate(invalid="ignore"):
        right = np.where(np.isfinite(want), np.abs(got - want) <= allowed,
                         (got == want) | (np.isnan(got) & np.isnan(want)))
    for index in np.argwhere(~right)[:1]:
        index = tuple(index.tolist())
        raise AssertionError(f"{what}{list(index)}: got {got[index]:.9g}, want "
                             f"{want[index]:.9g}, allowed {allowed[index]:.3g} "
                             f"({np.sum(~right)} of {right.size} elements are wrong)")
