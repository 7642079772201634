"""peers_multi_gpu.py: the part of peers.py with PyTorch's context_parallel on all GPUs of this machine, one
process each.

Causal attention of 16 heads, 64k queries and keys, head_dim 128, bfloat16, as `05_flash_cuda bench --gpus N
--causal` measures it.  Each backend and each way of moving keys (all-gather, all-to-all) is tried, and
the fastest of a backend counts.  The time of a call is the longest of all GPUs, by events.
"""
import os
import statistics
import time

from measurements import Writer, torch_or_skip
from peers_shapes import Shape

HEADS, DIM, SEQLEN = 16, 128, 65536


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


def seconds_of(torch, mesh, backend, rotation):
    """Seconds of the calls of one backend with one way of moving keys."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method
    from torch.nn.attention import sdpa_kernel
    set_rotate_method(rotation)
    torch.manual_seed(7)
    q, k, v = (torch.randn(1, HEADS, SEQLEN, DIM, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    with torch.no_grad(), sdpa_kernel(backend), \
            context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
        def call():
            # looked up now: context_parallel() puts its own function there
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        seconds_of_calls(torch, call, 3)
        return seconds_of_calls(torch, call, 20)


def worker(rank, csv, gpus):
    """One process: measures everything; process 0 writes."""
    import torch
    from torch.nn.attention import SDPBackend
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=gpus)
    mesh = torch.distributed.init_device_mesh("cuda", (gpus,))
    writer = Writer(csv if rank == 0 else None, torch.cuda.get_device_name(),
                    f"torch {torch.__version__}; NCCL {torch.cuda.nccl.version()}")
    shape = Shape(1, HEADS, HEADS, SEQLEN, SEQLEN, DIM, 1)
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION),
                          ("flash", SDPBackend.FLASH_ATTENTION)):
        tried = []
        for rotation in ("allgather", "alltoall"):
            try:
                tried.append((seconds_of(torch, mesh, backend, rotation), rotation))
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


def measure(run):
    """With all GPUs; ends the program with 77 where there is one."""
    gpus = torch_or_skip("peers", gpus=2).cuda.device_count()
    run.torch.multiprocessing.spawn(worker, args=(run.args.csv, gpus), nprocs=gpus)
