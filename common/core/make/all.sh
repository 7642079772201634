#!/bin/sh
# all.sh BUILD "STAGES": check and measure every stage, one log each; go on after a failure.
set -u
build=$1 failed=0
mkdir -p "$build/log" "$build/results"
for stage in $2; do
    program=$build/$stage
    log=$build/log/$stage.check
    [ -x "$program" ] || continue
    echo "== $stage: check"
    OMP_WAIT_POLICY=passive "$program" check >"$log" 2>&1
    status=$?
    echo "$status" >"$build/log/$stage.status"
    tail -n 1 "$log"
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        failed=1
        sed -n '/FAIL/,$p' "$log" | head -n 20
        echo "$stage failed: the whole report is in $log"
    fi
    echo "== $stage: bench"
    csv=$build/results/$stage.csv
    rm -f "$csv"
    "$program" bench --quick --csv "$csv" >"$build/log/$stage.bench" 2>&1 || failed=1
    tail -n +2 "$build/log/$stage.bench"
done
echo $failed >"$build/log/failed"
