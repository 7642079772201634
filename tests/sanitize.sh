#!/bin/sh
# sanitize.sh BUILD: the tests under sanitizers; any finding fails.
#
#   address    AddressSanitizer with leak detection, UndefinedBehaviorSanitizer with the two
#              checks that -fsanitize=undefined leaves out (float division by 0 is left to
#              stage 1, whose 0/0 is its lesson)
#   thread     ThreadSanitizer; clang and its OpenMP runtime, because gcc's is not known to it
#   valgrind   memcheck of an AVX2 build (valgrind 3.19 does not know AVX-512), quick suite
#   quick      the flags of address, two stages, check --quick: a minute (only when asked for)
#   gpu        compute-sanitizer: memcheck, racecheck, initcheck, synccheck, where a GPU is
#
# Criterion ignores what a passing test's process reports at its end, so every tool writes
# logs, and a log that is not empty is a failure.
set -u
build=$1 failed=0 skipped=0
only=${ONLY:-"address thread valgrind gpu"}

wants() { case " $only " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

skip() { echo "skipped: $1"; skipped=$((skipped + 1)); }

# verdict NAME STATUS LOGS...: prints the findings, remembers a failure.
verdict() {
    name=$1 status=$2
    shift 2
    findings=0
    for log in "$@"; do
        [ -s "$log" ] || continue
        findings=$((findings + 1))
        echo "-- $log"
        head -n 30 "$log"
    done
    if [ "$status" -ne 0 ] || [ $findings -ne 0 ]; then
        echo "$name: FAILED (exit status $status, $findings logs with findings)"
        failed=1
    else
        echo "$name: clean"
    fi
}

address() {
    dir=$build/address
    rm -rf "$dir/logs" && mkdir -p "$dir/logs"
    flags="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow"
    make -s -j2 BUILD="$dir" CFLAGS="$flags" CXXFLAGS="$flags" CUDA=0 tests-built || return 1
    here=$(pwd) # the programs that tests/test_cli*.c run work in other directories
    logs=$(cd "$dir/logs" && pwd)
    ASAN_OPTIONS="log_path=$logs/asan:detect_leaks=1:detect_stack_use_after_return=0" \
    UBSAN_OPTIONS="log_path=$logs/ubsan:print_stacktrace=1" \
    LSAN_OPTIONS="suppressions=$here/tests/leaks.txt:print_suppressions=0" \
    BUILD=$dir CHECK_FLAGS=--quick "$dir/tests" -j2 --timeout 600 >"$dir/out" 2>&1
    status=$?
    tail -n 1 "$dir/out"
    [ $status -eq 0 ] || grep -B3 -A6 'FAIL\]\|Assertion' "$dir/out" | head -n 40
    verdict address $status "$dir"/logs/*
}

quick() {
    dir=$build/quick
    rm -rf "$dir/logs" && mkdir -p "$dir/logs"
    flags="-O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow"
    make -s -j2 BUILD="$dir" CFLAGS="$flags" CXXFLAGS="$flags" CUDA=0 \
        "$dir/03_online_softmax" "$dir/04_monoid_tiled_cpu" >"$dir/make.log" 2>&1 ||
        { tail -n 20 "$dir/make.log"; verdict quick 1; return 1; }
    for stage in 03_online_softmax 04_monoid_tiled_cpu; do # both at the same time
        ASAN_OPTIONS="log_path=$dir/logs/asan:detect_leaks=1:detect_stack_use_after_return=0" \
        UBSAN_OPTIONS="log_path=$dir/logs/ubsan:print_stacktrace=1" \
        LSAN_OPTIONS="suppressions=tests/leaks.txt:print_suppressions=0" \
            "$dir/$stage" check --quick >"$dir/$stage.out" 2>&1 &
        [ $stage = 03_online_softmax ] && first=$!
    done
    status=0
    wait $! || status=1
    wait "$first" || status=1
    tail -q -n $((1 + 4 * status)) "$dir"/0*.out
    verdict quick $status "$dir"/logs/*
}

thread() {
    command -v clang >/dev/null 2>&1 || { skip "thread: no clang"; return 0; }
    dir=$build/thread
    rm -rf "$dir/logs" && mkdir -p "$dir/logs"
    flags="-O1 -g -fsanitize=thread"
    make -s -j2 BUILD="$dir" CC=clang CXX=clang++ CFLAGS="$flags" CXXFLAGS="$flags" CUDA=0 \
        build >"$dir/make.log" 2>&1 || { tail -n 20 "$dir/make.log"; verdict thread 1; return 1; }
    status=0
    for stage in 01_naive 02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu \
                 05_flash_cuda; do
        TSAN_OPTIONS="ignore_noninstrumented_modules=1:log_path=$dir/logs/$stage" \
            "$dir/$stage" check --quick >"$dir/out" 2>&1 || { status=1; tail -n 5 "$dir/out"; }
        tail -n 1 "$dir/out"
    done
    verdict thread $status "$dir"/logs/*
}

valgrind_() {
    command -v valgrind >/dev/null 2>&1 || { skip "valgrind: not installed"; return 0; }
    dir=$build/valgrind
    rm -rf "$dir/logs" && mkdir -p "$dir/logs"
    make -s -j2 BUILD="$dir" ARCH_FLAGS=-march=x86-64-v3 CFLAGS=-g CXXFLAGS=-g CUDA=0 build ||
        return 1
    status=0
    for stage in 01_naive 02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu; do
        OMP_NUM_THREADS=2 valgrind -q --error-exitcode=9 --log-file="$dir/logs/$stage.%p" \
            "$dir/$stage" run --q tests/fixture/q.npy --k tests/fixture/k.npy \
            --v tests/fixture/v.npy --o "$dir/o.npy" --causal >"$dir/out" 2>&1 || status=1
        OMP_NUM_THREADS=2 valgrind -q --error-exitcode=9 --log-file="$dir/logs/$stage.x.%p" \
            "$dir/$stage" run --x tests/fixture/q.npy --y "$dir/y.npy" >"$dir/out" 2>&1 ||
            status=1
    done
    verdict valgrind $status "$dir"/logs/*
}

gpu() {
    command -v compute-sanitizer >/dev/null 2>&1 || { skip "gpu: no compute-sanitizer"; return 0; }
    nvidia-smi >/dev/null 2>&1 || { skip "gpu: no GPU"; return 0; }
    dir=$build/gpu
    mkdir -p "$dir"
    make -s -j2 cuda || return 1
    for tool in memcheck racecheck initcheck synccheck; do
        for stage in 01_naive 02_safe_softmax 03_online_softmax 05_flash_cuda; do
            compute-sanitizer --tool $tool --error-exitcode 9 "$build/../build/$stage" check \
                --quick --case attention-random-113x203-d64 >"$dir/$tool.$stage" 2>&1
            status=$?
            [ $status -eq 77 ] && status=0
            [ $status -eq 0 ] && rm -f "$dir/$tool.$stage"
            verdict "$tool $stage" $status "$dir/$tool.$stage"
        done
    done
}

wants quick && { quick || failed=1; }
wants address && { address || failed=1; }
wants thread && { thread || failed=1; }
wants valgrind && { valgrind_ || failed=1; }
wants gpu && { gpu || failed=1; }
[ $skipped -eq 0 ] || echo "$skipped of the tools were skipped, not passed"
exit $failed
