#!/bin/sh
# measure_ranks.sh BUILD CSV: memory of a rank of stage 4 with 1, 2 and 4 ranks; writes CSV anew.
# The columns come from bench's own CSV: peak_bytes is the most that a rank held.
set -u
build=$1 csv=$2
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
for ranks in 1 2 4; do
    for strategy in ring tree; do
        mpirun -n $ranks "$build/04_monoid_tiled_cpu_mpi" bench --seqlen-q 2048 --heads-q 32 \
            --head-dim 64 --strategy $strategy --csv "$place/bench.csv" || exit 1
    done
done
python3 - "$place/bench.csv" "$csv" <<'PYTHON'
import csv, sys
with open(sys.argv[1]) as file, open(sys.argv[2], "w") as out:
    print("strategy,ranks,seqlen,heads,head_dim,peak_bytes,date,commit,machine", file=out)
    for row in csv.DictReader(file):
        strategy, ranks = row["variant"].rsplit("-", 1)
        print(strategy, ranks, row["seqlen_q"], row["heads_q"], row["head_dim"],
              row["peak_bytes"], row["date"], row["commit"], row["machine"], sep=",", file=out)
PYTHON
