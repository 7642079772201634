#!/usr/bin/env python3
"""peers_multi_gpu.py: PyTorch's context_parallel on all GPUs of this machine, one process each.

    python3 common/products/reports/peers_multi_gpu.py --csv build/results/multi_gpu.csv [--seqlen 65536]

Causal attention of 16 heads, head_dim 128, bfloat16, as `05_flash_cuda bench --gpus N --causal`
measures it.  Each backend and each way of moving keys (all-gather, all-to-all) is tried, and
the fastest of a backend counts.  The time of a call is the longest of all GPUs, by events.
Exit status: 0; 77 without PyTorch or with one GPU.
"""
import os
import statistics
import sys
import time

from measurements import Writer, command_line, torch_or_skip
from peers_shapes import Shape

HEADS, DIM = 16, 128


def seconds_of_calls(torch, call, repeats):
    """Seconds of each of `repeats` calls, each from a moment when all processes are ready, after
    a pause as long as the call before, as in common/core/ranks/ranks_bench.c."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        time.sleep(min(max(out[-1] if out else 0.0, 0.005), 0.1))
        torch.distributed.barrier()
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        longest = torch.tensor([begin.elapsed_time(end)], device="cuda")
        torch.distributed.all_reduce(longest, op=torch.distributed.ReduceOp.MAX)
        out.append(1e-3 * longest.item())
    return out


def measure(torch, mesh, backend, rotation, seqlen):
    """Seconds of the calls of one backend with one way of moving keys."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method
    from torch.nn.attention import sdpa_kernel
    set_rotate_method(rotation)
    torch.manual_seed(7)
    q, k, v = (torch.randn(1, HEADS, seqlen, DIM, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    with torch.no_grad(), sdpa_kernel(backend), \
            context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
        def call():
            # looked up now: context_parallel() puts its own function there
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        seconds_of_calls(torch, call, 3)
        return seconds_of_calls(torch, call, 20)


def worker(rank, options, gpus):
    """One process: measures everything; process 0 writes."""
    import torch
    from torch.nn.attention import SDPBackend
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=gpus)
    mesh = torch.distributed.init_device_mesh("cuda", (gpus,))
    writer = Writer(options.csv if rank == 0 else None, torch.cuda.get_device_name(),
                    f"torch {torch.__version__}; NCCL {torch.cuda.nccl.version()}")
    shape = Shape(1, HEADS, HEADS, options.seqlen, options.seqlen, DIM, 1)
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION),
                          ("flash", SDPBackend.FLASH_ATTENTION)):
        tried = []
        for rotation in ("allgather", "alltoall"):
            try:
                tried.append((measure(torch, mesh, backend, rotation, options.seqlen), rotation))
            except (RuntimeError, ValueError, AttributeError) as error:
                print(f"context_parallel {name} {rotation}: {str(error).splitlines()[0]}")
        if not tried or rank:
            continue
        seconds, rotation = min(tried, key=lambda one: statistics.median(one[0]))
        median = statistics.median(seconds)
        print(f"context-parallel-{name}  {gpus} GPUs  {1e3 * median:.3f} ms  "
              f"{1e-12 * shape.flops() / median:.1f} TFLOP/s  {rotation}", flush=True)
        writer.write(stage="peer", variant=f"context-parallel-{name}-{gpus}",
                     **shape.fields("bf16"), threads=gpus, median_s=median,
                     min_s=min(seconds), reps=len(seconds), flops=f"{shape.flops():.15g}",
                     flags=f"keys by {rotation}")
    torch.distributed.destroy_process_group()


def main():
    parser = command_line(__doc__)
    parser.add_argument("--csv")
    parser.add_argument("--seqlen", type=int, default=65536)
    options = parser.parse_args()
    torch = torch_or_skip("peers_multi_gpu", gpus=2)
    gpus = torch.cuda.device_count()
    torch.multiprocessing.spawn(worker, args=(options, gpus), nprocs=gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
