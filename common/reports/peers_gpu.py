#!/usr/bin/env python3
"""peers_gpu.py: PyTorch's attention, FlashAttention-3 and -4 and our rungs, in turn, in one process.

    python3 common/reports/peers_gpu.py --variants all --csv build/results/peers.csv [--quick]

Each shape is measured cold and, where --parts says so, sustained (rounds.py); the ceiling, a
matrix product or a read, takes part in the rounds, and its best repeat counts.  Inputs are
normal random numbers.  The libraries' lines have the stage "peer", the last
rung without its softmax (build/roof05.so, where it was built) the stage "roof".  A result
whose error is above the allowed one, or NaN, is not written; then the exit status is 1.

    lengths    16k tokens, 128 to 16k keys, d = 64, 128, 256      decode   one query
    untuned    lengths, groups and d that nothing was tuned on    float    rungs 1 and 2
    layouts    arrays stored as [batch, length, heads, head_dim]

`flags` of a line says regime, layout and whether the method writes lse; versions, power limit
and clocks stand in STEM.machine.txt beside the CSV (measurements.py).  peak_bytes is what
bench means by it: inputs, outputs and all that one call took beside them, here from PyTorch's
allocator.  Exit status: 0; 1 a wrong result; 77 without PyTorch or GPU.
"""
import os
import sys
import warnings

from accept import compare, reference
from attention_library import Library
from ladder import IN_FLOAT, LAST, ROOF, RUNGS, SPLIT
from measurements import Writer, command_line, fields_of, torch_or_skip
from peers_methods import (FLASH, PEERS, WRITES_LSE, compilers, torch_method, versions,
                           with_memory)
from peers_shapes import (QUICK, bytes_of, flops_of, is_decode, planned,
                          shape_of)
from rounds import CudaClock, cold, sustained

CEILING = "ceiling"


def in_float(name):
    """Whether a rung is measured in float32 only."""
    return name in IN_FLOAT or name.endswith("_f32")


def rung_of(name):
    """The rung behind a name: the roof is the last one, built without softmax."""
    return LAST if name == ROOF else name


def ceiling_call(torch, kind, dtype, made={}):
    """(a call, its work): flops of the largest matrix product, or bytes of a read."""
    key = kind, dtype
    if key not in made:
        if kind == "gemm":
            a, b = (torch.randn(8192, 8192, device="cuda").to(dtype) for _ in range(2))
            made[key] = (lambda: a @ b), 2.0 * 8192**3
        else:
            x = torch.randn(1 << 29, device="cuda")
            made[key] = x.sum, 4.0 * 2**29
    return made[key]


def sustained_names(times, names):
    """The two fastest rungs, the libraries that keep up with them, and the ceiling."""
    rungs = sorted((n for n in times if n in names and n not in PEERS and n != ROOF),
                   key=lambda n: times[n].median)[:2]
    return rungs + [n for n in ("pytorch-cudnn", "pytorch-flash", *FLASH, CEILING)
                    if n in times]


def publish(writer, about, times, checked, ceiling_work):
    """Writes a line per method of one shape in one regime; times: {name: Times} with the
    ceiling among them; checked: {name: (error, allowed)}; about: {name: fields}.  Returns
    {name: median seconds} of what was written."""
    written = {}
    ceiling = ceiling_work / times[CEILING].least / 1e9
    for name, t in times.items():
        if name == CEILING:
            continue
        fields = dict(about[name])
        note = fields.pop("note")
        error, allowed = checked.get(name, ("", ""))
        work = fields["flops"] if fields["ceiling_kind"] == "gemm" else fields.pop("once")
        fields.pop("once", None)
        if writer.write(
                variant=name, median_s=t.median, min_s=t.least, reps=t.calls,
                ceiling=ceiling,
                pct_ceiling=100 * work / t.median / 1e9 / ceiling, max_err=error,
                allowed_err=allowed, **fields,
                flags="; ".join([t.regime, note] + ([] if t.stable else ["unstable"]))):
            written[name] = t.median
    return written


def about_of(name, shape, dtype, layout, kind, peak, libraries, compiler=None):
    """The fields of a line that do not depend on time."""
    library = libraries.get(name)
    once = bytes_of(shape, dtype)
    lse = "lse" if library or name in WRITES_LSE else "no lse"
    out = {"stage": "peer" if name in PEERS else "roof" if name == ROOF else "05_flash_cuda",
           **fields_of(shape, dtype), "flops": flops_of(shape), "ceiling_kind": kind, "once": once,
           "bytes_predicted": library.predicted(rung_of(name), dtype, shape)
           if library else once, "peak_bytes": peak, "note": f"{layout}; {lse}"}
    return out | ({"compiler": compiler} if compiler else {})


def measure_attention(torch, problem, names, libraries, writer, clock, seconds):
    """Measures one shape with every method that supports it, in each regime; returns
    {regime: {name: seconds}}.  libraries: {name of a rung: its library}."""
    shape, dtype, regimes, layout = problem
    b, hq, hk, nq, nk, d, _ = shape
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]

    def tensor(heads, length):
        if layout == "bhld":
            return torch.randn(b, heads, length, d, device="cuda").to(kind)
        return torch.randn(b, length, heads, d, device="cuda").to(kind).transpose(1, 2)
    q, k, v = tensor(hq, nq), tensor(hk, nk), tensor(hk, nk)
    ceiling_kind = "read" if is_decode(shape) else "gemm"
    methods, about = {}, {}
    for name in names:
        if in_float(name) and dtype != "f32":
            continue
        f, more = with_memory(torch, lambda name=name: torch_method(
            torch, name, shape, q, k, v) if name in PEERS else libraries[name].method(
                torch, rung_of(name), dtype, shape, q, k, v))
        if f:
            methods[name] = f
            about[name] = about_of(name, shape, dtype, layout, ceiling_kind,
                                   more + q.nbytes + k.nbytes + v.nbytes, libraries,
                                   libraries[name].compiler if name in libraries else
                                   compilers(torch)[name])
    known = reference(torch, shape, dtype, q, k, v)
    checked = {n: compare(shape, f(), known) for n, f in methods.items() if n != ROOF}
    # a library has a rule of its own: its error is published, unless it is NaN
    checked = {n: (error, "" if n in PEERS else allowed)
               for n, (error, allowed) in checked.items()}
    del known
    call, work = ceiling_call(torch, ceiling_kind,
                              torch.float32 if is_decode(shape) else kind)
    methods[CEILING] = call
    times = cold(clock, methods, seconds)
    out = {"cold": publish(writer, about, times, checked, work)}
    if "sustained" in regimes:
        few = {n: methods[n] for n in sustained_names(times, names)}
        out["sustained"] = publish(writer, about, sustained(clock, few, 3 * seconds), checked,
                                   work)
    return out


def print_shape(shape, dtype, layout, regime, times):
    """A line for the terminal: the shape, then each method's speed."""
    b, hq, hk, nq, nk, d, causal = shape
    work = bytes_of(shape, dtype) / 1e9 if is_decode(shape) else flops_of(shape) / 1e12
    text = "  ".join(f"{n.replace('pytorch-', '')} {work / t:.0f}"
                     for n, t in times.items())
    print(f"{dtype} {layout} b{b} h{hq}/{hk} {nq}x{nk} d{d}{' causal' if causal else ''} "
          f"{regime} {'GB/s' if is_decode(shape) else 'TFLOP/s'}:  {text}", flush=True)


def parse():
    """The command line."""
    p = command_line(__doc__)
    p.add_argument("--csv", help="append the measurements to this file")
    p.add_argument("--library", default="build/libfive_steps.so", help="our rungs (if it exists)")
    p.add_argument("--roof", default="build/roof05.so",
                   help="the last rung without softmax (if it exists); with --variants all")
    p.add_argument("--variants", default="", help="rungs to measure too: a,b,c or all")
    p.add_argument("--backends", default=",".join(PEERS))
    p.add_argument("--shape", type=shape_of, action="append", help=shape_of.__doc__)
    p.add_argument("--dtype", default="bf16", choices=["f32", "f16", "bf16"])
    p.add_argument("--layout", default="bhld", choices=["bhld", "blhd"])
    p.add_argument("--seconds", type=float, default=0.5,
                   help="for all methods of a shape together, cold; sustained three times that")
    p.add_argument("--quick", action="store_true", help="a few shapes")
    p.add_argument("--parts", default="lengths,untuned,layouts,decode,float",
                   help="which of these to measure")
    return p.parse_args()


def choose_methods(args):
    """(names, {name of a rung: its library})."""
    names, libraries = [n for n in args.backends.split(",") if n], {}
    if os.path.exists(args.library):
        rungs = [*RUNGS, SPLIT, f"{SPLIT}_f32"] if args.variants == "all" \
            else args.variants.split(",")
        libraries = dict.fromkeys([n for n in rungs if n], Library(args.library))
    if args.variants == "all" and os.path.exists(args.roof):
        libraries[ROOF] = Library(args.roof)
    elif args.variants == "all":
        print(f"peers: no {args.roof}, so no roof (make cuda CUDA_ARCH=90a builds it)")
    return names + list(libraries), libraries


def main():
    """Runs the measurements; returns the exit status."""
    args = parse()
    torch = torch_or_skip("peers")
    warnings.filterwarnings("ignore")  # PyTorch says at length why a backend refuses
    torch.manual_seed(1)
    memory = torch.cuda.get_device_properties(0).total_memory
    clock = CudaClock(torch, torch.zeros(min(256 << 20, memory // 64), device="cuda"))
    writer = Writer(args.csv, torch.cuda.get_device_name(),
                    compilers(torch)["pytorch-cudnn"], versions(torch))
    names, libraries = choose_methods(args)
    shapes = args.shape or (QUICK if args.quick else [])
    parts = [] if shapes else args.parts.split(",")
    both = ("cold",) if args.quick else ("cold", "sustained")
    for problem in [(s, args.dtype, both, args.layout) for s in shapes] \
            or planned(parts, args.dtype):
        done = measure_attention(torch, problem, names, libraries, writer, clock,
                                 args.seconds)
        for regime, times in done.items():
            print_shape(problem[0], problem[1], problem[3], regime, times)
    return writer.status("peers")


if __name__ == "__main__":
    sys.exit(main())
