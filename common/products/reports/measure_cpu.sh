#!/bin/sh
# measure_cpu.sh [CSV [PART...]]: the CPU measurements behind the lessons and
# notes/cpu_speed.md.  Leave the machine alone meanwhile.  Appends to CSV (default
# build/results/cpu.csv).  PART:
#   softmax, attention, forms, peers   what the tables of the lessons show, about eight minutes;
#                                      these without a PART
#   lessons    softmax of 64M floats and attention of 8k keys alone, every row of the lessons' tables
#              in one go, five minutes
#   machine    what a machine is compared with PyTorch on, about three minutes: 16 heads of 2048
#              queries and keys, one thread and all, causal too, f32 and bf16; rows from 64 up.
#              Ends with a ratio for each line.
#   backward   the gradient of 2 heads, on one thread and on all, beside PyTorch's, three minutes; to a
#              CSV of its own
#   ranks      stage 4 on a rank for each core and its threaded variant, in turn; to a CSV of its own
#   matrix     bf16 attention beside the ceilings of the matrix unit and of the exponential, for
#              head_dim 32 to 256, half a minute; a part of `machine`
set -eu
csv=${1:-build/results/cpu.csv}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- softmax attention forms peers
# a thread a core: two that wait for each other on one core lose whole turns of the scheduler
export OMP_PROC_BIND=${OMP_PROC_BIND:-true}
mkdir -p "$(dirname "$csv")"
# bench PROGRAM OPERATION VARIANT...: at $shape, or at the sizes that bench takes by itself
shape=
bench() {
    program=$1 op=$2
    shift 2
    # shellcheck disable=SC2086  # a shape is several options
    for variant; do build/$program bench --op "$op" --variant "$variant" $shape --csv "$csv"; done
}
# What is compared is measured in one go: on a shared machine memory slows down and recovers.
softmax() {
    bench 01_naive softmax naive simd
    bench 02_safe_softmax softmax recompute reload simd overlapped
    bench 03_online_softmax softmax online simd streaming one_look
    bench 04_monoid_tiled_cpu softmax fold
    for program in 01_naive 02_safe_softmax 03_online_softmax; do
        bench $program softmax threads
    done
    bench 04_monoid_tiled_cpu softmax all_cores
}
attention() {
    bench 01_naive attention naive threads
    bench 02_safe_softmax attention recompute threads
    bench 03_online_softmax attention online two_loops threads
    bench 04_monoid_tiled_cpu attention fold chunk correct_once tile threads simd tiled microkernel all_cores
}
lessons() {
    shape="--rows 1 --cols 67108864"
    softmax
    for n in 8192 4096; do
        shape="--seqlen-q $n --head-dim 64"
        attention
    done
    shape=
    peers
}
# the other forms of the fold, and the kernels executed on the CPU, on the quick shapes
forms() {
    for variant in padded masked_reads split lse_form normalised_tiles \
                   memory_efficient; do
        build/04_monoid_tiled_cpu bench --quick --op attention --variant $variant --csv "$csv"
    done
    build/05_flash_cuda bench --quick --device cpu --csv "$csv"
}
# one shape on one thread and on all of them
both() {
    program=$1
    shift
    "build/$program" bench --csv "$csv" --threads 1 "$@"
    "build/$program" bench --csv "$csv" "$@"
}
# PROGRAM:VARIANT on one head of 4096 queries and keys
one_head() {
    "build/${1%:*}" bench --csv "$csv" --op attention --variant "${1#*:}" --seqlen-q 4096 \
        --head-dim 64
}
matrix() {
    for d in 32 64 128 256; do
        both 04_monoid_tiled_cpu --op attention --variant amx --dtype bf16 --heads-q 16 \
            --seqlen-q 2048 --head-dim $d || [ $? = 77 ]
    done
}
machine() {
    matrix
    one_head 04_monoid_tiled_cpu:all_cores
    for d in 64 128; do
        for mask in "" --causal; do
            # shellcheck disable=SC2086  # an empty mask is no argument
            for variant in all_cores "dot_bf16 --dtype bf16" ${mask:+"amx --dtype bf16"}; do
                both 04_monoid_tiled_cpu --op attention --variant $variant $mask --heads-q 16 \
                    --seqlen-q 2048 --head-dim $d || [ $? = 77 ]
            done
        done
    done
    for shape in "1024 64" "64 1024" "16 4096" "524288 64" "32768 1024" "32 1048576"; do
        rows=${shape% *} cols=${shape#* }
        both 02_safe_softmax --op softmax --rows "$rows" --cols "$cols" --variant threads
        both 04_monoid_tiled_cpu --op softmax --rows "$rows" --cols "$cols" --variant all_cores
    done
    peers
    # after PyTorch, which needs no comparison with the plain ones
    for plain in 01_naive:naive 02_safe_softmax:recompute 03_online_softmax:online \
                 04_monoid_tiled_cpu:fold; do
        one_head $plain
    done
}
backward() {
    build/04_monoid_tiled_cpu bench --csv "$csv" --op backward --seqlen-q 512 --heads-q 2 \
        --threads 1
    for d in 64 128; do
        for n in 512 1024 2048 4096; do
            for mask in "" --causal; do
                # shellcheck disable=SC2086  # an empty mask is no argument
                both 04_monoid_tiled_cpu --op backward --variant gradient_all_cores $mask \
                    --heads-q 2 --seqlen-q $n --head-dim $d
            done
        done
    done
    peers
}
ranks() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    shape="--seqlen-q 4096 --heads-q 8 --head-dim 64 --csv $csv"
    for mask in "" "" "" "" "" --causal --causal --causal --causal --causal; do
        # shellcheck disable=SC2086  # several options
        build/04_monoid_tiled_cpu bench --op attention --variant all_cores $shape $mask
        for strategy in tree ring ring-unbalanced; do
            # shellcheck disable=SC2086
            OMP_NUM_THREADS=1 mpirun -n "$(nproc)" build/04_monoid_tiled_cpu_mpi bench $shape $mask \
                --strategy $strategy
        done
    done
}
# PyTorch on the same shapes and threads, where it is installed
peers() {
    ${PYTHON:-python3} common/products/reports/peers_cpu.py --csv "$csv" || [ $? = 77 ]
}
for part; do "$part"; done
