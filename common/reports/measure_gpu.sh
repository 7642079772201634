#!/bin/sh
# measure_gpu.sh [RESULTS [PART...]]: the GPU measurements behind the lessons and notes, each
# CSV anew (default build/results, all parts).  Needs what `make cuda
# build/roof/05_flash_cuda` builds, PyTorch, and ncu for the counters; a part whose tool is
# missing is left out and said so.  `attention` alone is meant to stay below six minutes of
# an H200; --parts of peers_gpu.py measures less.  A result that is wrong is not written, and
# the file stays as it was.
#
#   attention    every rung, roof and library, in turn  h200_attention.csv
#   last_rungs   the last three beside cuDNN, FA3, FA4    hopper/last_rungs.csv (if named)
#   profile      counters of every rung                 profile_05_flash_cuda.csv
#   rows         counters of stage 1                    profile_01_naive.csv
#   f32          rungs 1 and 2 on one head              h200_f32.csv
#   adversarial  difficult data                         hopper/adversarial.csv
#   softmax      softmax and its peers                  h200_softmax.csv
#   backward     the backward pass and its peers        backward/h200.csv
set -u
results=${1:-build/results}
[ $# -eq 0 ] || shift
mkdir -p "$results/hopper" "$results/backward"
failed=0

# anew FILE COMMAND...: FILE is made by COMMAND, which appends to it or replaces it.
anew() {
    file=$results/$1
    shift
    [ ! -e "$file" ] || mv "$file" "$file.old"
    "$@"
    status=$?
    if [ $status -eq 0 ]; then
        rm -f "$file.old"
        return
    fi
    [ ! -e "$file.old" ] || mv "$file.old" "$file"
    [ $status -eq 77 ] || failed=1
    echo "measure_gpu: $file stays as it was (status $status)" >&2
}

float() {
    for variant in tiled register_tiled; do
        for n in 256 512 1024 2048 4096; do
            build/05_flash_cuda bench --quick --dtype f32 --variant $variant --seqlen-q $n \
                --csv "$1" || return
        done
    done
}

roof=build/roof/05_flash_cuda
[ -x $roof ] || roof=
for part in ${*:-attention profile rows f32 adversarial softmax backward}; do
    case $part in
    attention) anew h200_attention.csv python3 common/reports/peers_gpu.py --variants all \
        --parts lengths,untuned,layouts,decode,float --csv "$results/h200_attention.csv" ;;
    last_rungs) anew hopper/last_rungs.csv python3 common/reports/peers_gpu.py \
        --variants heavy_first,first_block_max,tuned \
        --backends pytorch-cudnn,flash-attention-3,flash-attention-4 --parts lengths,untuned,layouts \
        --csv "$results/hopper/last_rungs.csv" ;;
    profile) anew profile_05_flash_cuda.csv sh common/reports/counters.sh 05_flash_cuda \
        build/05_flash_cuda "$results" $roof ;;
    rows) anew profile_01_naive.csv sh common/reports/counters.sh 01_naive build/01_naive \
        "$results" ;;
    f32) anew h200_f32.csv float "$results/h200_f32.csv" ;;
    adversarial) anew hopper/adversarial.csv python3 common/reports/adversarial.py \
        --csv "$results/hopper/adversarial.csv" ;;
    softmax) anew h200_softmax.csv python3 common/reports/peers_softmax.py \
        --csv "$results/h200_softmax.csv" ;;
    backward) anew backward/h200.csv python3 common/reports/peers_backward.py --variants \
        gradient_mma_sync,gradient_wgmma,gradient_in_order,gradient_overlap \
        --csv "$results/backward/h200.csv" ;;
    *) echo "measure_gpu: no part '$part'" >&2; failed=1 ;;
    esac
done
exit $failed
