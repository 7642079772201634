#!/bin/sh
# measure_cpu.sh [CSV]: the measurements behind notes/cpu_speed.md, about four minutes on an
# idle machine.  Appends to CSV (default build/results/cpu.csv).
set -eu
csv=${1:-build/results/cpu.csv}
mkdir -p "$(dirname "$csv")"
bench() {
    program=$1 op=$2
    shift 2
    for variant; do "build/$program" bench --op "$op" --variant "$variant" --csv "$csv"; done
}
bench 01_naive softmax naive simd accumulators threads
bench 02_safe_softmax softmax recompute reload simd accumulators overlapped threads
bench 03_online_softmax softmax online simd blocked streaming two_pass threads
bench 03_online_softmax attention online threads
bench 04_monoid_tiled_cpu attention tiled microkernel all_cores
# PyTorch on the same shapes and threads, where it is installed
python3 common/peers_cpu.py --csv "$csv" || [ $? = 77 ]
