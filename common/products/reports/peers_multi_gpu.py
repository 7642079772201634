"""peers_multi_gpu.py: the part of peers.py with PyTorch's context_parallel on all GPUs of this machine, one
process each.

Causal attention of 16 heads, 64k queries and keys, head_dim 128, bfloat16, as `05_flash_cuda bench --gpus N
--causal` measures it, by each backend with each way of moving keys.  The time of a call is the longest of all
GPUs, by events.
"""
import itertools
import os
import statistics
import time

from measurements import Writer, torch_or_skip
from peers_shapes import Shape

SHAPE = Shape(1, 16, 16, 65536, 65536, 128, 1)


def seconds_of(torch, call, repeats=20):
    """Seconds of each call, each from a moment when all processes are ready, after
    a pause as long as the call before, as in common/core/ranks/ranks_bench.c; the first three are left out."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = []
    for _ in range(3 + repeats):
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
    return out[3:]


def worker(rank, csv, gpus):
    """One process: measures everything; process 0 writes."""
    import torch
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method
    from torch.nn.attention import SDPBackend, sdpa_kernel
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=gpus)
    mesh = torch.distributed.init_device_mesh("cuda", (gpus,))
    writer = Writer(csv if rank == 0 else None, torch.cuda.get_device_name(),
                    f"torch {torch.__version__}; NCCL {torch.cuda.nccl.version()}")
    for name, rotation in itertools.product(("cudnn", "flash"), ("allgather", "alltoall")):
        q, k, v = (torch.randn(1, SHAPE.heads_q, SHAPE.seqlen_q, SHAPE.head_dim, device="cuda", dtype=torch.bfloat16)
                   for _ in range(3))
        try:
            set_rotate_method(rotation)
            with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, f"{name.upper()}_ATTENTION")), \
                    context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
                # looked up in each call: context_parallel() puts its own function there
                seconds = seconds_of(torch, lambda: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=True))  # pylint: disable=cell-var-from-loop
        except (RuntimeError, ValueError, AttributeError) as error:
            print(f"context_parallel {name} {rotation}: {str(error).splitlines()[0]}")
            continue
        writer.write(stage="peer", variant=f"context-parallel-{name}-{gpus}", **SHAPE.fields("bf16"), threads=gpus,
                     median_s=statistics.median(seconds), min_s=min(seconds), reps=len(seconds),
                     flops=f"{SHAPE.flops():.15g}", flags=f"keys by {rotation}")
    torch.distributed.destroy_process_group()


def measure(run):
    """With all GPUs; ends the program with 77 where there is one."""
    gpus = torch_or_skip("peers", gpus=2).cuda.device_count()
    run.torch.multiprocessing.spawn(worker, args=(run.args.csv, gpus), nprocs=gpus)
