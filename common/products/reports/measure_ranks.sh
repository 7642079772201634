#!/bin/sh
# measure_ranks.sh BUILD DIR: stage 4 on a rank for each core and its threaded variant, in turn:
# bench's own lines in DIR/ranks.csv, written anew.
set -u
build=$1 dir=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMP_WAIT_POLICY=passive
cores=$(nproc)
rm -f "$dir/ranks.csv"
for round in 1 2 3 4 5; do
    for mask in "" --causal; do
        "$build/04_monoid_tiled_cpu" bench --op attention --variant all_cores --seqlen-q 4096 \
            --heads-q 8 --head-dim 64 $mask --csv "$dir/ranks.csv" || exit 1
        for strategy in tree ring ring-unbalanced; do
            OMP_NUM_THREADS=1 mpirun -n "$cores" "$build/04_monoid_tiled_cpu_mpi" bench \
                --seqlen-q 4096 --heads-q 8 --head-dim 64 $mask --strategy $strategy \
                --csv "$dir/ranks.csv" || exit 1
        done
    done
done
