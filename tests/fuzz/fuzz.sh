#!/bin/sh
# fuzz.sh BUILD SECONDS: combinations of files and options of `run`, then libFuzzer (clang)
# on the .npy parser, each for that many seconds.  A finding fails.
# Those of `run` print the seed that repeats them; those of libFuzzer are kept under
# BUILD/fuzz, and running the program on that file repeats them.
set -u
build=$1/fuzz seconds=$2 failed=0
seed=$(date +%s)
ASAN_OPTIONS=detect_stack_use_after_return=0:allocator_may_return_null=1 \
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
LSAN_OPTIONS=suppressions=tests/leaks.txt:print_suppressions=0 \
    "$1/sanitize/quick/fuzz_run" "$seed" "$seconds" s || failed=1
for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 ""; do
    command -v "${clang:-false}" > /dev/null && break
done
[ "$clang" ] || { echo "skipped: fuzz npy needs clang (apt install clang)"; exit $failed; }
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
fuzz npy 600 common/npy/npy_read.c common/problem/host_memory.c
exit $failed
