#!/bin/sh
# fuzz.sh BUILD SECONDS: libFuzzer (clang) on the .npy parser and on the command line,
# each for that many seconds.  A finding fails and is kept under BUILD/fuzz; running its
# program on that file repeats it.
set -u
build=$1/fuzz seconds=$2 failed=0
for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 ""; do
    command -v "${clang:-false}" > /dev/null && break
done
[ "$clang" ] || { echo "skipped: make fuzz needs clang (apt install clang)"; exit 77; }
flags="-std=c11 -D_GNU_SOURCE -g -O1 -Icommon -fno-omit-frame-pointer
       -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
mkdir -p "$build"
sh tests/fuzz/seeds.sh "$build/seeds" || exit 1

# fuzz NAME LONGEST SOURCES...: compiles the target and lets it run.
fuzz() {
    name=$1 longest=$2
    shift 2
    $clang $flags tests/fuzz/fuzz_"$name".c "$@" -lm -o "$build/fuzz_$name" || exit 1
    mkdir -p "$build/$name" "$build/findings"
    "$build/fuzz_$name" -max_total_time="$seconds" -max_len="$longest" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -dict=tests/fuzz/"$name".dict \
        -artifact_prefix="$build/findings/$name-" "$build/$name" "$build/seeds/$name" \
        > "$build/$name.log" 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log")
    if [ $status -ne 0 ]; then
        tail -n 40 "$build/$name.log"
        echo "fuzz $name: FAILED; repeat with $build/fuzz_$name $build/findings/$name-*"
        failed=1
    else
        echo "fuzz $name: ${runs:-?} inputs in $seconds s, no finding"
    fi
}
fuzz npy 600 common/npy/npy.c
fuzz cli 400 common/program/cli.c common/problem/variant.c common/gpu/gpu_none.c -fopenmp
exit $failed
