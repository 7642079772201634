#!/bin/sh
# measure_gpu.sh [RESULTS [PART...]]: the GPU measurements behind the lessons and notes, each
# CSV anew (default build/results, all parts).  Needs what `make cuda
# build/roof/05_flash_cuda` builds, PyTorch, and ncu for the counters; a part whose tool is
# missing is left out and said so.  `attention` alone is meant to stay below six minutes of
# an H200; --parts of peers_gpu.py measures less.  A result that is wrong is not written, and
# the file stays as it was.
#
#   attention    every rung, roof and library, in turn  h200_attention.csv
#   ladder       every rung at 4k keys                  hopper/ladder.csv (three runs)
#   last_rungs   the last three beside cuDNN, FA3, FA4  hopper/last_rungs.csv (three runs)
#   profile      counters of every rung                 profile_05_flash_cuda.csv
#   stalls       what the warps of every rung wait for  hopper/stalls.csv
#   rows         counters of stage 1                    profile_01_naive.csv
#   f32          rungs 1 and 2 on one head              h200_f32.csv
#   hard         difficult data                         hopper/hard.csv (three runs)
#   decode       lengths per sequence, beside FA3, FlashInfer  hopper/decode.csv (three runs)
#   softmax      softmax and its peers                  h200_softmax.csv
#   backward     the backward pass and its peers        backward/h200.csv (three runs)
#   gradients    every rung of it at 16k keys           backward/ladder.csv (three runs)
set -u
results=${1:-build/results}
[ $# -eq 0 ] || shift
mkdir -p "$results/hopper" "$results/backward"
failed=0

# anew FILE RUNS COMMAND...: FILE is made by so many runs of COMMAND, which appends or replaces.
anew() {
    file=$results/$1 runs=$2 status=0
    shift 2
    [ ! -e "$file" ] || mv "$file" "$file.old"
    while [ "$runs" -gt 0 ] && [ $status -eq 0 ]; do
        "$@" || status=$?
        runs=$((runs - 1))
    done
    if [ $status -ne 0 ]; then
        echo "measure_gpu: $file stays as it was (status $status)" >&2
        [ $status -eq 77 ] || failed=1
        [ ! -e "$file.old" ] || mv "$file.old" "$file"
    fi
    rm -f "$file.old"
}

peers() {
    script=$1
    shift
    python3 "common/products/reports/peers_$script.py" --csv "$file" "$@"
}

float() {
    for variant in tiled register_tiled; do
        for n in 256 512 1024 2048 4096; do
            build/05_flash_cuda bench --quick --dtype f32 --variant $variant --seqlen-q $n \
                --csv "$file" || return
        done
    done
}

# shapes LENGTH HEAD_DIM...: options for 16k tokens and 2048 columns of heads, without and with mask
shapes() {
    n=$1
    shift
    for d; do
        for causal in 0 1; do
            echo "--shape=$((16384 / n)),$((2048 / d)),$((2048 / d)),$n,$n,$d,$causal"
        done
    done
}

ladder() {
    for type in bf16 f32; do
        # shellcheck disable=SC2046  # several options
        peers gpu --variants all --backends "" --regimes cold --dtype $type \
            $(shapes 4096 64 128) || return
    done
}

rungs() {
    sed -n "s/^$1(\([a-z_0-9]*\)[,)].*/\1/p" 05_flash_cuda/rungs.h | tail -n "$2" | paste -sd, -
}

roof=build/roof/05_flash_cuda
last="--variants $(rungs RUNG 3),general --backends pytorch-cudnn,flash-attention-3,flash-attention-4"
[ -x $roof ] || roof=
# shellcheck disable=SC2046,SC2086  # several options
for part in ${*:-attention ladder last_rungs profile stalls rows f32 hard decode softmax backward gradients}; do
    case $part in
    attention) anew h200_attention.csv 1 peers gpu --variants all ;;
    ladder) anew hopper/ladder.csv 3 ladder ;;
    last_rungs) anew hopper/last_rungs.csv 3 peers gpu $last --parts lengths,untuned,layouts ;;
    profile) anew profile_05_flash_cuda.csv 1 python3 common/products/reports/counters.py 05_flash_cuda \
        build/05_flash_cuda "$results" $roof ;;
    stalls) anew hopper/stalls.csv 1 python3 common/products/reports/counters.py stalls \
        build/05_flash_cuda "$results" ;;
    rows) anew profile_01_naive.csv 1 python3 common/products/reports/counters.py 01_naive build/01_naive \
        "$results" ;;
    f32) anew h200_f32.csv 1 float ;;
    hard) anew hopper/hard.csv 3 peers gpu $last --parts hard ;;
    decode) anew hopper/decode.csv 3 peers decode ;;
    softmax) anew h200_softmax.csv 1 peers softmax ;;
    backward) anew backward/h200.csv 3 peers backward ;;
    gradients) anew backward/ladder.csv 3 peers backward --variants "$(rungs GRADIENT 9)" \
        --regimes cold $(shapes 16384 64 128 256) ;;
    *) echo "measure_gpu: no part '$part'" >&2; failed=1 ;;
    esac
done
exit $failed
