/* none.c: stands in for several GPUs in a program without CUDA or NCCL. */
#include "ranks/world.h"

#include <stdio.h>

int on_ranks(const struct stage *stage, unsigned verb, const struct options *opt)
{
    (void)verb, (void)opt;
    fprintf(stderr, "%s: --gpus: skipped: this program was built without NCCL; install it "
                    "(header and library) and make cuda\n", stage->name);
    return 77;
}
