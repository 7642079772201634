#!/bin/sh
# What the kernels of a stage do on a GPU, counted by the hardware, into
# RESULTS/profile_STAGE.csv.            counters.sh STAGE PROGRAM RESULTS [ROOF_PROGRAM]
#
# Stages 1 to 4: bytes read from and written to the GPU's memory.  Stage 1: also sectors
# per load, the share that L1 has, how busy L1 was, and how many multiprocessors had work.
# Stage 5: how busy the units were, the clock, bank conflicts, registers; of every rung, and
# of the last one built without softmax (ROOF_PROGRAM).  One launch each under ncu (Nsight
# Compute).
# Ends with 77 where ncu is missing or may not read the counters.
stage=$1 program=$2 results=$3 roof=$4
raw=$(mktemp -d) || exit 1
trap 'rm -rf "$raw"' EXIT
bytes=dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum
loads=pipe_lsu_mem_global_op_ld
access=$bytes,l1tex__average_t_sectors_per_request_$loads.ratio
access=$access,l1tex__t_sector_${loads}_hit_rate.pct
access=$access,l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active
access=$access,sm__cycles_active.avg.pct_of_peak_sustained_elapsed
units=$bytes,smsp__cycles_elapsed.avg.per_second,launch__registers_per_thread
units=$units,sm__inst_issued.avg.pct_of_peak_sustained_elapsed
units=$units,breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed
wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared
units=$units,sm__warps_active.avg.pct_of_peak_sustained_active
units=$units,$wavefronts.sum,$wavefronts.avg.pct_of_peak_sustained_elapsed
units=$units,l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
units=$units,l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum
units=$units,l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum

command -v ncu > /dev/null || {
    echo "skipped: ncu (Nsight Compute) is not on the PATH; bench gives time, not" \
         "counters" >&2
    exit 77
}

# count LABEL PROGRAM VARIANT METRICS OPTIONS...: one variant on one shape.
count() {
    n=$((n + 1)) run=$2 variant=$3 metrics=$4
    label=$(printf %02d_%s $n "$1")
    shift 4
    # shellcheck disable=SC2086 # $only is a list of options
    if ncu --clock-control none --csv --metrics "$metrics" $only \
        "$run" bench --quick --variant "$variant" --csv "$raw/$label.bench" "$@" \
        > "$raw/$label.ncu" 2> "$raw/error" && grep -q '^"ID"' "$raw/$label.ncu"; then
        echo "  profiled $label"
        return
    fi
    why=$(cat "$raw/error" "$raw/$label.ncu" | grep -m 1 -e ERR -e rror -e ailed)
    rm -f "$raw/$label.ncu" "$raw/$label.bench"
    echo "profile: $label: ${why:-no counters}" >&2
    case $why in *ERR_NVGPUCTRPERM* | *initialize* | *LibraryNotLoaded*)
        echo "skipped: this machine refuses the counters. Time ratios stand in:" \
             "make bench" >&2
        exit 77 ;;
    esac
}

# variants OPERATION TYPE: those that run on a GPU.
variants() {
    "$program" list |
        awk -v op="$1" -v type="$2" '$0 ~ op && $0 ~ type && / gpu sm_/ { print $1 }'
}

# attention TYPE HEAD_DIM SEQLEN BATCH: every rung for the type, 2048 columns of heads.
attention() {
    heads=$((2048 / $2))
    shape="--op attention --dtype $1 --batch $4 --heads-q $heads --heads-kv $heads
           --seqlen-q $3 --seqlen-k $3 --head-dim $2 --head-dim-v $2"
    for name in $(variants attention "$1" | grep -v -e ^split_kv -e ^general_tiled); do
        only="-k regex:${name}_kernel --launch-skip 2 --launch-count 1"
        # shellcheck disable=SC2086 # $shape is a list of options
        count "$name-$1-$2" "$program" "$name" "$units" $shape
    done
    if [ -n "$roof" ] && [ "$1" = bf16 ]; then
        # shellcheck disable=SC2086
        count "roof-$1-$2" "$roof" "$last" "$units" $shape
    fi
}

# rows VARIANT TYPE ROWS COLS: a kernel of stage 1 on one shape.
rows() {
    only="-k regex:${1#gpu_}_kernel --launch-skip 2 --launch-count 1"
    count "$1-$2-$4" "$program" "$1" "$access" --op softmax --dtype "$2" --rows "$3" --cols "$4"
}

n=0 only=
last=$(sed -n 's/^RUNG(\([a-z_]*\),.*/\1/p' 05_flash_cuda/rungs.h | tail -n 1)
case $stage in
05_*)
    [ -n "$roof" ] || echo "profile: no roof: nvcc for sm_90a builds it"
    attention bf16 128 16384 1
    attention bf16 64 16384 1
    attention f32 128 16384 1
    attention f32 64 16384 1
    only='-k regex:split_kv|merge_parts --launch-skip 2 --launch-count 2'
    count split_kv "$program" split_kv "$units" --op attention --dtype bf16 --heads-q 16 \
        --heads-kv 16 --seqlen-q 1 --seqlen-k 65536 --head-dim 128 --head-dim-v 128
    ;;
01_*)
    # The same number of elements each time.  A block takes 256 rows of gpu_thread_per_row or
    # one of gpu_block_per_row, so the first and the last shape are 16 blocks.
    for type in f32 f16; do
        for name in $(variants softmax $type); do
            rows "$name" $type 4096 65536
            rows "$name" $type 262144 1024
            case $name in gpu_block_per_row) rows "$name" $type 16 16777216 ;; esac
        done
    done
    ;;
*)
    for name in $(variants softmax .); do
        count "$name" "$program" "$name" "$bytes" --op softmax --rows 4096 --cols 65536
    done
    ;;
esac
python3 common/reports/counters.py "$raw" "$results/profile_$(basename "$program").csv"
