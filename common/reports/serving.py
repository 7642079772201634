#!/usr/bin/env python3
"""serving.py: what the features of a serving system cost, through the Python package on a GPU.

    python3 common/reports/serving.py --csv notes/results/hopper/serving.csv

Each line has a baseline in the same rounds (rounds.py, sustained):

    layout   [B, L, H, D] and slices of a packed QKV tensor    the same in [B, H, L, D]
    packed   sequences of equal and of drawn lengths           a batch of equal lengths
    window   the last keys of 16k                              all keys, times the share of pairs
    paged    decode with pages of 16, 64 and 256 keys          the same keys in a row
    call     time of the host for one call of the package      the same call of the C library

`flags` names feature and baseline; `baseline_s` and `ideal_s` in it are seconds: what the
baseline took, and what the feature would take without any cost.  `bound`, of a window, is the most
that ideal over measured time can be where whole blocks of keys are computed.  A result is compared with
the definition in float64 on its last queries; a wrong one is not written.  Exit status: 0; 1 a
wrong result; 77 without PyTorch or GPU.
"""
import os
import random
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "library", "python"))

from accept import compare, reference  # noqa: E402
from measurements import fields_of  # noqa: E402
from peers_run import Run  # noqa: E402
from rounds import sustained  # noqa: E402

DTYPE = "bf16"


def pairs(lengths, left=None, causal=False):
    """Query-key pairs that are visible; causal squares count as exactly half."""
    if left is not None:
        return sum(sum(min(i, left) + 1 for i in range(n)) for n in lengths)
    return sum(n * n / (2 if causal else 1) for n in lengths)


def whole_blocks(n, left, keys, queries=64):
    """Pairs that are computed where each group of queries takes whole blocks of keys, from the
    first to the last that one of them sees."""
    computed = 0
    for first in range(0, n, queries):
        end = min(first + queries, n)
        blocks = -(-end // keys) - max(0, first - left) // keys
        computed += (end - first) * blocks * keys
    return computed


def keys_of_block(problem):
    """Keys in a block of the kernel that the library takes for the problem; None where it does not
    say so."""
    from five_steps import c_library
    found = re.search(r"queries, (\d+) keys", c_library.library().kernel(problem)[2])
    return int(found[1]) if found else None


def window_bound(n, h, d, left):
    """Visible over computed pairs of the kernel for a window, or None."""
    from five_steps import c_library
    keys = keys_of_block(c_library.AttentionProblem(
        device=c_library.GPU, type=c_library.BF16, batch=1, heads_q=h, heads_kv=h, seqlen_q=n,
        seqlen_k=n, head_dim=d, head_dim_v=d, window=1, window_left=left, window_right=0))
    return pairs([n], left=left) / whole_blocks(n, left, keys) if keys else None


def drawn(total, mean):
    """Lengths between a half and one and a half of the mean whose sum is total."""
    draw, lengths = random.Random(1), []
    while sum(lengths) < total:
        lengths.append(min(draw.randint(mean // 2, 3 * mean // 2), total - sum(lengths)))
    return lengths


def errors(torch, o, q, k, v, left=None, causal=False):
    """(error, allowed) of o [heads, n, d]; left: the keys before a query's own that it sees."""
    shape = (1, len(q), len(k), q.shape[1], k.shape[1], q.shape[2], causal or left is not None)
    known = reference(torch, shape, DTYPE, q[None], k[None], v[None], left)
    return compare(shape, o[None], known)


class Measured(Run):
    """A feature and its baseline, timed in turn and written."""

    def tensor(self, *shape):
        """Normal numbers."""
        return self.torch.randn(*shape, device="cuda").to(self.torch.bfloat16)

    def compare(self, feature, baseline, calls, share, shape, flops, moved, checked, bounds=None):
        """calls: {name: function}, the baseline under the name "baseline"; share: {name: ideal
        time over the baseline's}; flops, moved, checked: {name: ...}; bounds: {name: the most that
        ideal over measured time can be, or None}."""
        times = sustained(self.clock, calls, self.args.seconds)
        base = times["baseline"].median
        d, causal = shape[5:]
        for name, t in times.items():
            if name == "baseline":
                continue
            ideal = base * share[name]
            error, allowed = checked[name]
            bound = (bounds or {}).get(name)
            of_bound = f"; bound {bound:.4g}" if bound else ""
            self.writer.write(
                stage="05_flash_cuda", variant=f"{feature}: {name}", **fields_of(shape, DTYPE),
                median_s=t.median, min_s=t.least, reps=t.calls, flops=flops[name],
                bytes_predicted=moved[name], max_err=error, allowed_err=allowed,
                flags=f"sustained; {baseline}; baseline_s {base:.6g}; "
                f"ideal_s {ideal:.6g}{of_bound}")
            print(f"{feature:7s} {name:34s} d{d} {'causal' if causal else 'full':6s} "
                  f"{1e3 * t.median:8.3f} ms, ideal {1e3 * ideal:8.3f} ms: "
                  f"{ideal / t.median:.3f}{of_bound}  {flops[name] / t.median / 1e12:.0f} TFLOP/s  "
                  f"{moved[name] / t.median / 1e9:.0f} GB/s", flush=True)


def layouts(m, five_steps):
    """Views against contiguous arrays."""
    for n, d, causal in ((1024, 64, 0), (1024, 128, 1), (8192, 64, 1), (8192, 128, 0)):
        b, h = 16384 // n, 2048 // d
        qkv = m.tensor(b, n, 3, h, d)
        rows_first = [x.contiguous() for x in qkv.unbind(2)]
        plain = [x.transpose(1, 2).contiguous() for x in rows_first]
        calls = {"baseline": lambda: five_steps.attention(*plain, causal=bool(causal)),
                 "[B, L, H, D]": lambda: five_steps.attention(
                     *rows_first, causal=bool(causal), layout="blhd"),
                 "slices of QKV": lambda: five_steps.attention(
                     *qkv.unbind(2), causal=bool(causal), layout="blhd")}
        names = [name for name in calls if name != "baseline"]
        work = 4.0 * d * b * h * pairs([n], causal=causal)
        checked = {name: errors(m.torch, calls[name]()[0].transpose(0, 1),
                                *(x[0] for x in plain), causal=causal) for name in names}
        m.compare("layout", "[B, H, L, D]", calls, dict.fromkeys(names, 1.0),
                  (b, h, h, n, n, d, causal), dict.fromkeys(names, work),
                  dict.fromkeys(names, 8.0 * d * b * h * n), checked)


def packed(m, five_steps):
    """Equal lengths packed, and drawn ones, against a batch, for the same work."""
    torch = m.torch
    for mean, d, causal in ((1024, 64, 1), (1024, 128, 0), (1024, 128, 1), (4096, 128, 0),
                            (4096, 128, 1), (4096, 64, 1)):
        total, h = 32768, 2048 // d
        batch = [m.tensor(total // mean, h, mean, d) for _ in range(3)]
        rows = [m.tensor(total, h, d) for _ in range(3)]
        lengths = {"equal lengths": [mean] * (total // mean), "drawn lengths": drawn(total, mean)}
        calls = {"baseline": lambda: five_steps.attention(*batch, causal=bool(causal))}
        share, flops, checked = {}, {}, {}
        base = pairs(lengths["equal lengths"], causal=causal)
        for name, all_of in lengths.items():
            sums = torch.tensor([0, *all_of]).cumsum(0).int().cuda()
            longest = max(all_of)
            calls[name] = (lambda s=sums, n=longest: five_steps.attention(
                *rows, cu_seqlens_q=s, cu_seqlens_k=s, max_seqlen_q=n, max_seqlen_k=n,
                causal=bool(causal)))
            work = pairs(all_of, causal=causal)
            share[name], flops[name] = work / base, 4.0 * d * h * work
            checked[name] = errors(torch, calls[name]()[-all_of[-1]:].transpose(0, 1),
                                   *(x[-all_of[-1]:].transpose(0, 1) for x in rows),
                                   causal=causal)
        m.compare("packed", "batch of equal lengths", calls, share,
                  (total // mean, h, h, mean, mean, d, causal), flops,
                  dict.fromkeys(lengths, 8.0 * d * h * total), checked)


def windows(m, five_steps):
    """The last keys against all keys."""
    n = 16384
    for d in (64, 128):
        h = 2048 // d
        q, k, v = (m.tensor(1, h, n, d) for _ in range(3))
        calls = {"baseline": lambda: five_steps.attention(q, k, v)}
        share, flops, checked, bounds = {}, {}, {}, {}
        for left in (8191, 4095, 1023, 255):
            name = f"{left + 1} keys"
            calls[name] = lambda w=left: five_steps.attention(q, k, v, window=(w, 0))
            work, bounds[name] = pairs([n], left=left), window_bound(n, h, d, left)
            share[name], flops[name] = work / pairs([n]), 4.0 * d * h * work
            checked[name] = errors(m.torch, calls[name]()[0], q[0], k[0], v[0], left=left)
        m.compare("window", "all keys", calls, share, (1, h, h, n, n, d, 0), flops,
                  dict.fromkeys(share, 8.0 * d * h * n), checked, bounds)


def paged(m, five_steps):
    """Decode from pages against the same keys in a row."""
    torch = m.torch
    for b, hq, hk, n, d in ((16, 32, 8, 8192, 128), (64, 32, 8, 2048, 128), (1, 32, 8, 65536, 128),
                            (16, 16, 16, 8192, 64)):
        q = m.tensor(b, hq, d)
        k, v = (m.tensor(b, hk, n, d) for _ in range(2))
        calls = {"baseline": lambda: five_steps.attention(q[:, :, None], k, v)}
        checked = {}
        for page in (16, 64, 256):
            pages = n // page
            table = torch.randperm(b * pages, device="cuda").int().reshape(b, pages)
            pools = []
            for x in (k, v):
                pool = torch.empty(b * pages, hk, page, d, device="cuda", dtype=x.dtype)
                pool[table.flatten().long()] = x.unflatten(2, (pages, page)).transpose(
                    1, 2).flatten(0, 1)
                pools.append(pool)
            calls[f"pages of {page}"] = (lambda p=pools, t=table: five_steps.decode(q, *p, t, n))
            checked[f"pages of {page}"] = errors(
                torch, calls[f"pages of {page}"]()[0, :, None], q[0, :, None], k[0], v[0])
        names = list(checked)
        m.compare("paged", "keys in a row", calls, dict.fromkeys(names, 1.0),
                  (b, hq, hk, 1, n, d, 0), dict.fromkeys(names, 4.0 * d * b * hq * n),
                  dict.fromkeys(names, 2.0 * d * b * (2 * hq + 2 * hk * n)), checked)


def host_seconds(torch, call, calls=400, blocks=15):
    """Of the host, for one call; the GPU's queue never fills."""
    times = []
    for _ in range(blocks):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times), min(times)


def call_of_c(torch, five_steps, arrays, **fields):
    """The C library's call on the same arrays as ctypes makes it, nothing else."""
    from five_steps import c_library
    q, k, v = arrays
    b, hq, nq, d = q.shape
    o = torch.empty_like(q)
    lse = torch.empty(b, hq, nq, device="cuda")
    problem = c_library.AttentionProblem(
        device=c_library.GPU, type=c_library.BF16, batch=b, heads_q=hq, heads_kv=k.shape[1],
        seqlen_q=nq, seqlen_k=k.shape[2], head_dim=d, head_dim_v=d, q=q.data_ptr(),
        k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(),
        stream=torch.cuda.current_stream().cuda_stream, **fields)
    library = c_library.library()
    size = library.workspace("attention", problem)
    work = torch.empty(max(size, 1), device="cuda", dtype=torch.uint8)
    function, address, error = library.so.five_steps_attention, work.data_ptr(), c_library.Error()
    keep = arrays, o, lse, work

    def call():
        assert keep
        function(problem, address, size, error)
    return call, library.so.five_steps_version


def overhead(m, five_steps):
    """The package's time of the host beside the C library's: ctypes' own share, that of a
    function which does nothing, counts as the package's."""
    torch = m.torch
    for b, h, nq, nk, d in ((1, 4, 64, 64, 64), (1, 16, 1, 1024, 128)):
        arrays = [m.tensor(b, h, n, d) for n in (nq, nk, nk)]
        c, nothing = call_of_c(torch, five_steps, arrays)
        ours = lambda: five_steps.attention(*arrays)  # noqa: E731
        for call in (ours, c, nothing):
            call()
        python, c_with, empty = (host_seconds(torch, f) for f in (ours, c, nothing))
        c_alone = c_with[0] - empty[0]
        error, allowed = errors(torch, ours()[0], *(x[0] for x in arrays))
        m.writer.write(
            stage="05_flash_cuda", variant="call: attention",
            **fields_of((b, h, h, nq, nk, d, 0), DTYPE), median_s=python[0], min_s=python[1],
            reps=400 * 15, max_err=error, allowed_err=allowed,
            flags=f"host; C library; baseline_s {c_alone:.6g}; ideal_s {c_alone:.6g}")
        print(f"call    {b}x{h} {nq}x{nk} d{d}: Python {1e6 * python[0]:.1f} us, C "
              f"{1e6 * c_alone:.1f} us: {1e6 * (python[0] - c_alone):.1f} us more", flush=True)


def main():
    """The exit status."""
    m = Measured(__doc__, 0.6, {"--parts": {"default": "layouts,packed,windows,paged,overhead"}})
    import five_steps
    m.compilers["pytorch-cudnn"] = five_steps.c_library.library().built_with.replace(",", " ")
    with m.torch.no_grad():
        for part in m.args.parts.split(","):
            {"layouts": layouts, "packed": packed, "windows": windows, "paged": paged,
             "overhead": overhead}[part](m, five_steps)
    return m.status()


if __name__ == "__main__":
    sys.exit(main())
