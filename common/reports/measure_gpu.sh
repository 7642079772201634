#!/bin/sh
# measure_gpu.sh [RESULTS [PART...]]: the GPU measurements behind the lessons and notes, each
# CSV anew (default build/results, all parts).  Needs what `make cuda
# build/roof/05_flash_cuda` builds, PyTorch, and ncu for the counters; a part whose tool is
# missing is left out and said so.  `attention` alone is meant to stay below six minutes of
# an H200; --parts of peers_gpu.py measures less.  A result that is wrong is not written, and
# the file stays as it was.
#
#   attention    every rung, roof and library, in turn  h200_attention.csv
#   last_rungs   the last three beside cuDNN, FA3, FA4    hopper/last_rungs.csv (if named; three runs)
#   profile      counters of every rung                 profile_05_flash_cuda.csv
#   rows         counters of stage 1                    profile_01_naive.csv
#   f32          rungs 1 and 2 on one head              h200_f32.csv
#   hard         difficult data                         hopper/hard.csv
#   decode       lengths per sequence, beside FA3, FlashInfer  hopper/decode.csv
#   softmax      softmax and its peers                  h200_softmax.csv
#   backward     the backward pass and its peers        backward/h200.csv (three runs)
set -u
results=${1:-build/results}
[ $# -eq 0 ] || shift
mkdir -p "$results/hopper" "$results/backward"
failed=0

# anew FILE RUNS COMMAND...: FILE is made by so many runs of COMMAND, which appends or replaces.
anew() {
    file=$results/$1 runs=$2
    shift 2
    [ ! -e "$file" ] || mv "$file" "$file.old"
    status=0
    while [ "$runs" -gt 0 ] && [ $status -eq 0 ]; do
        "$@" || status=$?
        runs=$((runs - 1))
    done
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

peers() {
    script=$1
    shift
    python3 "common/reports/peers_$script.py" --csv "$file" "$@"
}

roof=build/roof/05_flash_cuda
last=$(sed -n 's/^RUNG(\([a-z_]*\),.*/\1/p' 05_flash_cuda/rungs.h | tail -n 3 | paste -sd, -),general
libraries=pytorch-cudnn,flash-attention-3,flash-attention-4
[ -x $roof ] || roof=
for part in ${*:-attention profile rows f32 hard decode softmax backward}; do
    case $part in
    attention) anew h200_attention.csv 1 peers gpu --variants all ;;
    last_rungs) anew hopper/last_rungs.csv 3 peers gpu --variants "$last" \
        --backends $libraries --parts lengths,untuned,layouts ;;
    profile) anew profile_05_flash_cuda.csv 1 sh common/reports/counters.sh 05_flash_cuda \
        build/05_flash_cuda "$results" $roof ;;
    rows) anew profile_01_naive.csv 1 sh common/reports/counters.sh 01_naive build/01_naive \
        "$results" ;;
    f32) anew h200_f32.csv 1 float "$results/h200_f32.csv" ;;
    hard) anew hopper/hard.csv 1 peers gpu --variants "$last" --backends $libraries --parts hard ;;
    decode) anew hopper/decode.csv 1 peers decode ;;
    softmax) anew h200_softmax.csv 1 peers softmax ;;
    backward) anew backward/h200.csv 3 peers backward ;;
    *) echo "measure_gpu: no part '$part'" >&2; failed=1 ;;
    esac
done
exit $failed
