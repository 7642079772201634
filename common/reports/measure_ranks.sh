#!/bin/sh
# measure_ranks.sh BUILD DIR: stage 4 on several ranks of this machine.  Writes anew
#   DIR/memory.csv  peak_bytes, the most that a rank held, with 1, 2 and 4 ranks
#   DIR/ranks.csv   bench's own lines: a rank on each core and the threaded variant, in turn
set -u
build=$1 dir=$2
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMP_WAIT_POLICY=passive
for ranks in 1 2 4; do
    for strategy in ring tree; do
        OMP_NUM_THREADS=1 mpirun -n $ranks "$build/04_monoid_tiled_cpu_mpi" bench --seqlen-q 2048 --heads-q 32 \
            --head-dim 64 --strategy $strategy --csv "$place/bench.csv" || exit 1
    done
done
python3 - "$place/bench.csv" "$dir/memory.csv" <<'PYTHON'
import csv, sys
with open(sys.argv[1]) as file, open(sys.argv[2], "w") as out:
    print("strategy,ranks,seqlen,heads,head_dim,peak_bytes,date,commit,machine", file=out)
    for row in csv.DictReader(file):
        strategy, ranks = row["variant"].rsplit("-", 1)
        print(strategy, ranks, row["seqlen_q"], row["heads_q"], row["head_dim"],
              row["peak_bytes"], row["date"], row["commit"], row["machine"], sep=",", file=out)
PYTHON

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
