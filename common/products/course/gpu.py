"""gpu.py CUBIN CEILING IN OUT: the judge's own program on a GPU.  Of the student it has a cubin, code for the GPU; nothing
that the student wrote runs on the processor.

    IN   .npz: q (rounds, n_q, d), k, v, and numbers: causal, splits, shared (bytes), scale
    OUT  .npz: o, lse of each round; share: the best round's, in percent of the ceiling

Each round has fresh inputs, which reach the GPU just before.  The ceiling: multiply-adds that read one operand from
shared memory (peak.cu), as fast as this GPU does them, measured between the rounds.  The process holds no right
answers, and ends with the kernel: one that never ends is ended with it."""
import ctypes
import functools
import sys

import numpy as np

CAPABILITY_MAJOR, CAPABILITY_MINOR, MULTIPROCESSORS = 75, 76, 16
ROUNDS, WARPS, QUERIES_OF_MERGE = 4096, 4, 32


class Failed(Exception):
    """What the driver says."""


def driver(name, *arguments):
    """A call of the CUDA driver."""
    library = ctypes.CDLL("libcuda.so.1")
    if status := getattr(library, name)(*arguments):
        words = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(words))
        raise Failed(f"{(words.value or b'?').decode()} ({name})")


def made(name, *arguments, kind=ctypes.c_void_p):
    """What a call of the driver writes to its first argument."""
    value = kind()
    driver(name, ctypes.byref(value), *arguments)
    return value


def attribute(which):
    return made("cuDeviceGetAttribute", which, 0, kind=ctypes.c_int).value


@functools.cache
def architecture():
    """"sm_90" of the first GPU, or "" where there is none."""
    try:
        driver("cuInit", 0)
        return f"sm_{attribute(CAPABILITY_MAJOR)}{attribute(CAPABILITY_MINOR)}"
    except (Failed, OSError):
        return ""


class Array:
    """A numpy array's copy on the GPU; as an argument it is a global<float>: where, and how many."""

    def __init__(self, values):
        self.p = made("cuMemAlloc_v2", ctypes.c_size_t(max(4, values.nbytes)), kind=ctypes.c_uint64)
        self.shape, self.words = values.shape, (self.p.value, values.size)
        self.set(values)

    def set(self, values):
        values = np.ascontiguousarray(values, np.float32)
        driver("cuMemcpyHtoD_v2", self.p, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes))

    def get(self):
        values = np.empty(self.shape, np.float32)
        driver("cuMemcpyDtoH_v2", values.ctypes.data_as(ctypes.c_void_p), self.p, ctypes.c_size_t(values.nbytes))
        return values


def seconds(*launches):
    """Of all launches together; each: function, blocks, threads, bytes of shared memory, its argument (a structure)."""
    events = [made("cuEventCreate", 0) for _ in range(2)]
    driver("cuEventRecord", events[0], None)
    for function, blocks, threads, shared, argument in launches:
        driver("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None,
               (ctypes.c_void_p * 1)(ctypes.addressof(argument)), None)
    driver("cuEventRecord", events[1], None)
    driver("cuEventSynchronize", events[1])
    return made("cuEventElapsedTime", *events, kind=ctypes.c_float).value * 1e-3


class Arguments(ctypes.Structure):
    """struct arguments of a5_fused.cu."""
    _fields_ = [("arrays", ctypes.c_uint64 * 14), ("numbers", ctypes.c_int * 6), ("scale", ctypes.c_float)]


class CeilingArguments(ctypes.Structure):
    _fields_ = [("y", ctypes.c_uint64), ("rounds", ctypes.c_int)]


def multiply_adds(ceiling):
    """What this GPU does in a second, by peak.cu."""
    blocks = 16 * attribute(MULTIPROCESSORS)
    y = Array(np.zeros(blocks * 256))
    launch = ceiling, blocks, 256, 0, CeilingArguments(y.p.value, ROUNDS)
    seconds(launch)
    return blocks * 256 * ROUNDS * 16 / min(seconds(launch) for _ in range(3))


def main():
    cubin, yardstick, path, out = sys.argv[1:]
    its = np.load(path)
    driver("cuInit", 0)
    driver("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))
    attention, merge, ceiling = (made("cuModuleGetFunction", made("cuModuleLoad", file.encode()), name) for file, name in (
        (cubin, b"attention"), (cubin, b"merge"), (yardstick, b"ceiling")))
    rounds, n_q, d = its["q"].shape
    n_k, d_v, splits, shared = *its["v"].shape[1:], int(its["splits"]), int(its["shared"])
    q, k, v, parts, parts_o, o, lse = arrays = [Array(np.zeros(shape)) for shape in (
        (n_q, d), (n_k, d), (n_k, d_v), (n_q, splits, 2), (n_q, splits, d_v), (n_q, d_v), n_q)]
    argument = Arguments((ctypes.c_uint64 * 14)(*(word for x in arrays for word in x.words)), (ctypes.c_int * 6)(
        n_q, n_k, d, d_v, int(its["causal"]), splits), float(its["scale"]))
    found, shares = [], []
    for r in range(rounds):
        for name, array in zip("qkv", (q, k, v)): array.set(its[name][r])
        for array in (parts, parts_o, o, lse): array.set(np.full(array.shape, np.nan))
        time = seconds((attention, -(-n_q // WARPS) * splits, WARPS * 32, shared, argument),
                       (merge, -(-n_q // QUERIES_OF_MERGE), QUERIES_OF_MERGE, 0, argument))
        shares.append(100 * n_q * n_k * (d + d_v) / time / multiply_adds(ceiling))
        found.append((o.get(), lse.get()))
    np.savez(out, o=[x for x, _ in found], lse=[x for _, x in found], share=max(shares))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
