#!/bin/sh
# run.sh BUILD: run the Criterion program, count the skips, end with its closing line.
set -u
build=$1
tap=$build/tests.tap
out=$build/tests.log
# Tests run side by side, one more than the cores of a small machine, because some wait for a
# browser or a process.  A thread that waits must not burn the core another one needs.
export OMP_WAIT_POLICY=passive
"$build/tests" -j3 --tap="$tap" >"$out" 2>&1
status=$?
grep -v '^\[====\] Synthesis' "$out"
skips=$(grep -c '# SKIP' "$tap" 2>/dev/null)
if [ "${skips:-0}" -gt 0 ]; then
    echo "skipped, not counted as passed:"
    grep '# SKIP' "$tap" | sed 's/^[a-z ]*[0-9]* - /  /'
fi
# A run that dies before its summary has failed, whatever it exited with.
closing=$(grep '^\[====\] Synthesis' "$out" | tail -n 1)
[ -n "$closing" ] || { echo "the test program ended without its summary" >&2; exit 1; }
echo "$closing"
exit $status
