#!/bin/sh
# Bytes that the kernels of a stage read from and write to the GPU's memory, counted by
# the hardware, into RESULTS/profile_STAGE.csv.   profile.sh STAGE PROGRAM RESULTS
# Some machines refuse the counters: then it says so and ends with 77.
stage=$1 program=$2 results=$3
case $stage in
5*) shape='--op attention --dtype bf16 --batch 4 --heads-q 16 --heads-kv 16 --seqlen-q 4096
           --seqlen-k 4096 --head-dim 128 --head-dim-v 128' word=attention ;;
*) shape='--op softmax --rows 4096 --cols 65536' word=softmax ;;
esac
raw=$(mktemp -d) || exit 1
trap 'rm -rf "$raw"' EXIT
metrics=dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum

command -v ncu > /dev/null || {
    echo "profile: ncu (Nsight Compute) is not on the PATH; bench gives time, not bytes" >&2
    exit 77
}
for variant in $("$program" list | awk -v word="$word" '$0 ~ word && / gpu / { print $1 }'); do
    # shellcheck disable=SC2086 # $shape is a list of options
    ncu --clock-control none --csv --metrics "$metrics" \
        "$program" bench --quick --variant "$variant" --csv "$raw/$variant.bench" $shape \
        > "$raw/$variant.ncu" 2> "$raw/error" || {
        echo "profile: $variant: $(grep -m 1 -e ERR -e error "$raw/error" "$raw/$variant.ncu")" >&2
        continue
    }
    echo "  profiled $variant"
done
python3 common/profile.py "$raw" "$results/profile_$(basename "$program").csv"
