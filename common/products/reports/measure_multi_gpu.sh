#!/bin/sh
# measure_multi_gpu.sh BUILD FOLDER: several GPUs beside one, in one run; writes FOLDER/times.csv
# and FOLDER/timeline.csv anew.  Needs two Hopper GPUs, NCCL and `make cuda CUDA_ARCH=90a`.
#
#   64k x 64k, 16 heads, d = 128, causal and full; PyTorch's context_parallel, causal
#   decoding: one query over 1M keys, and over more keys than one GPU holds
#   shorter prompts, for the model of time over ranks
set -u
build=$1 folder=$2 gpus=${GPUS:-2}
csv=$folder/times.csv
long=$((10 * gpus * 1048576))
rm -f "$csv" "$folder/timeline.csv"
several() { "$build/05_flash_cuda" bench --gpus "$gpus" --csv "$csv" "$@" || exit 1; }

several --causal --timeline "$folder/timeline.csv"
python3 common/products/reports/peers_multi_gpu.py --csv "$csv"
several --timeline "$folder/timeline.csv"
several --seqlen-q 1 --seqlen-k 1048576
several --seqlen-q 1 --seqlen-k $long
for n in 16384 32768; do several --seqlen-q $n --strategy ring; done
several --seqlen-q 1024 --seqlen-k 1048576
