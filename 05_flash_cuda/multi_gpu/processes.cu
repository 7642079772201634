/* processes.cu: the program 05_flash_cuda_mpi: a process for each GPU. */
#include "gpu/cuda_check.h"
#include "ranks/world.h"
#include "strategies.h"

extern "C" const struct kind_of_rank gpus_as_ranks;

static const struct stage stage = {
    .number = 5,
    .name = "05_flash_cuda_mpi",
    .idea = "the last rung on several GPUs, a process for each",
    .strategies = gpu_strategies,
    .kind_of_rank = &gpus_as_ranks,
    .on_ranks = on_ranks,
};

int main(int argc, char **argv) { return main_on_mpi(argc, argv, &stage); }
