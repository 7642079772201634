#!/bin/sh
# run.sh BUILD: the tests of several ranks (tests/test_mpi.py).  Ends with "mpi: N passed, N failed";
# 77 where there is no MPI.
#   RANKS="2 3"   the suite with so many ranks
#   FULL=1        all cases instead of the quick ones
#   ONLY="suite"  of the parts suite, usage, files, faults, planted, network, gpus these alone
set -u
command -v mpirun >/dev/null 2>&1 || { echo "skipped: there is no mpirun; make mpi installs OpenMPI"; exit 77; }
[ -x "$1/04_monoid_tiled_cpu_mpi" ] || { echo "skipped: mpicc was not found"; exit 77; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
parts=$(printf 'test_%s or ' ${ONLY:-suite usage files faults planted network gpus})
BUILD=$1 RANKS=${RANKS:-1 2 3 4 7} PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" -m pytest -rP \
    tests/test_mpi.py -k "${parts% or }" >"$log" 2>&1
status=$?
grep -E 'checks passed|caught by|^(FAILED|ERROR|E  )' "$log"
count() { tail -n 1 "$log" | grep -o "[0-9]* $1" | cut -d ' ' -f 1; }
passed=$(count passed) failed=$(count failed)
[ -n "$passed$failed" ] || cat "$log"
echo "mpi: ${passed:-0} passed, ${failed:-0} failed"
exit $status
