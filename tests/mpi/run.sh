#!/bin/sh
# run.sh BUILD: the MPI program with 1, 2, 3, 4 and 7 ranks on this machine: the case suite,
# real files, faults, planted bugs, two hosts of a network.  Ends with "mpi: N passed, N failed"; 77 where there is no MPI.
#   RANKS="2 3"   the suite with so many ranks only
#   FULL=1        all cases instead of the quick ones
#   ONLY="suite"  of the parts suite, usage, files, faults, planted, network these alone
set -u
build=$1
program=$build/04_monoid_tiled_cpu_mpi
root=$(pwd)
command -v mpirun >/dev/null 2>&1 || { echo "skipped: there is no mpirun; make mpi installs OpenMPI"; exit 77; }
[ -x "$program" ] || { echo "skipped: $program was not built: mpicc was not found"; exit 77; }
case $program in /*) ;; *) program=$root/$program ;; esac
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
f=tests/fixture
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; tail -n 5 "$place/out" "$place/err" | cut -c 1-300; }

# ranks N ARGUMENTS...: the program on N ranks, its output in $place; at most five minutes.
ranks() {
    n=$1
    shift
    timeout 300 mpirun -n "$n" "$program" "$@" >"$place/out" 2>"$place/err"
}

# fails STATUS TEXT NAME N ARGUMENTS...: ends soon with that status and one line that has TEXT.
fails() {
    status=$1 text=$2 name=$3
    shift 3
    rm -f "$place/o.npy"
    ranks "$@"
    got=$?
    lines=$(grep -c '^04_monoid_tiled_cpu_mpi: ' "$place/err")
    if [ $got -eq "$status" ] && grep -q "$text" "$place/err" && [ "$lines" -eq 1 ] &&
        [ ! -e "$place/o.npy" ]; then ok; else bad "$name: exit $got, $lines lines"; fi
}

# The case suite.
suite() {
    quick=--quick
    [ "${FULL:-}" = 1 ] && quick=
    for n in ${RANKS:-1 2 3 4 7}; do
        ranks "$n" check $quick
        if [ $? -eq 0 ] && grep -q ' 0 failed$' "$place/out"; then
            ok
            tail -n 1 "$place/out"
        else
            bad "check on $n ranks"
        fi
    done
}

# Help and version, before and after a verb.
usage() {
    for words in --help -h "check --help" "bench -h" "run --q x.npy --help"; do
        # shellcheck disable=SC2086  # words, not one word
        ranks 2 $words
        if [ $? -eq 0 ] && [ "$(grep -c '^mpirun -n R' "$place/out")" -eq 1 ]; then ok; else bad "$words"; fi
    done
    for words in --version "bench --version"; do
        # shellcheck disable=SC2086
        ranks 2 $words
        if [ $? -eq 0 ] && grep -Eq '_mpi [0-9.]+$' "$place/out" && [ "$(wc -l <"$place/out")" -eq 1 ]
        then ok; else bad "$words"; fi
    done
}

# Real files: the answer is that of one process.
files() {
    "$build/04_monoid_tiled_cpu" run --q $f/q.npy --k $f/k.npy --v $f/v.npy --o "$place/one.npy" \
        --lse "$place/one_lse.npy" --causal >"$place/out" 2>"$place/err" || bad "one process"
    for s in tree tree-fixed ring ring-unbalanced; do
        for n in 2 3; do
            ranks $n run --q $f/q.npy --k $f/k.npy --v $f/v.npy --o "$place/o.npy" \
                --lse "$place/lse.npy" --causal --strategy $s &&
                sh tests/mpi/near.sh "$place/o.npy" "$place/one.npy" >/dev/null &&
                sh tests/mpi/near.sh "$place/lse.npy" "$place/one_lse.npy" >/dev/null && ok ||
                bad "fixture, $s on $n ranks"
        done
    done

    # The fixed order gives the same bits in every run.
    for i in 1 2; do
        ranks 3 run --q $f/q.npy --k $f/k.npy --v $f/v.npy --o "$place/o$i.npy" --strategy tree-fixed
    done
    if cmp -s "$place/o1.npy" "$place/o2.npy"; then ok; else bad "tree-fixed: other bits"; fi
}

# Faults: every rank ends, one line says which rank and why.
faults() {
    head -c 2000 $f/k.npy >"$place/short.npy"
    fails 2 "no strategy 'star'" "unknown strategy" 2 check --strategy star
    fails 2 'cannot be opened' "a missing file" 3 run --q nowhere.npy --k $f/k.npy --v $f/v.npy \
        --o "$place/o.npy"
    fails 2 'short.npy' "a file cut off" 3 run --q $f/q.npy --k "$place/short.npy" --v $f/v.npy \
        --o "$place/o.npy"
    fails 2 'give them alike' "shapes that do not fit" 2 run --q $f/lse.npy --k $f/k.npy \
        --v $f/v.npy --o "$place/o.npy"
    fails 2 'no/such' "an output that cannot be written" 2 run --q $f/q.npy --k $f/k.npy \
        --v $f/v.npy --o "$place/no/such/o.npy"

    # A file that one rank cannot read: rank 1 has another working directory.
    mkdir "$place/there" "$place/here"
    cp $f/q.npy $f/k.npy $f/v.npy "$place/there"
    cp $f/q.npy $f/k.npy "$place/here"
    timeout 120 mpirun -n 1 -wdir "$place/there" "$program" run --q q.npy --k k.npy --v v.npy \
        --o "$place/o.npy" : -n 1 -wdir "$place/here" "$program" run --q q.npy --k k.npy \
        --v v.npy --o "$place/o.npy" >"$place/out" 2>"$place/err"
    if [ $? -eq 2 ] && grep -q 'rank 1: v.npy' "$place/err" && [ ! -e "$place/o.npy" ]; then ok
    else bad "a file that rank 1 cannot read"; fi

    # Shapes that differ between ranks.
    cp $f/o.npy "$place/here/q.npy"
    cp $f/v.npy "$place/here"
    "$build/04_monoid_tiled_cpu" run --x $f/lse.npy --y "$place/here/q.npy" >/dev/null 2>&1
    cp "$place/here/q.npy" "$place/here/k.npy"; cp "$place/here/q.npy" "$place/here/v.npy"
    timeout 120 mpirun -n 1 -wdir "$place/there" "$program" run --q q.npy --k k.npy --v v.npy \
        --o "$place/o.npy" : -n 1 -wdir "$place/here" "$program" run --q q.npy --k k.npy \
        --v v.npy --o "$place/o.npy" >"$place/out" 2>"$place/err"
    if [ $? -eq 2 ] && grep -q 'rank 1: ' "$place/err" && [ ! -e "$place/o.npy" ]; then ok
    else bad "shapes that differ between ranks"; fi

    # A rank that dies takes the others with it.
    timeout 120 mpirun -n 2 "$program" bench --seqlen-q 65536 --heads-q 16 >"$place/out" 2>"$place/err" &
    sleep 3
    pkill -9 -n -f "$program bench --seqlen-q 65536"
    wait $!
    status=$?
    if [ $status -ne 0 ] && [ $status -ne 124 ]; then ok; else bad "a rank that dies: exit $status"; fi

    # A disk that is full on rank 0.
    if [ -w /dev/full ]; then
        ranks 2 run --q $f/q.npy --k $f/k.npy --v $f/v.npy --o /dev/full
        if [ $? -eq 1 ] && [ "$(grep -c '^04_monoid' "$place/err")" -eq 1 ]; then ok
        else bad "a full disk"; fi
    fi
}

# Planted bugs: each makes the suite fail on 3 ranks.  Only the file with the bug is compiled.
planted() {
    command -v patch >/dev/null 2>&1 || return
    for bug in tests/mpi/planted/*.patch; do
        name=$(basename "$bug" .patch)
        mkdir -p "$place/$name/build"
        cp -rp Makefile common tests [0-9]* "$place/$name/"
        cp -rp "$build/obj" "$build"/config* "$place/$name/build/"
        if (cd "$place/$name" && patch -s -p1 <"$root/$bug" &&
            make -s BUILD=build build/04_monoid_tiled_cpu_mpi) >"$place/out" 2>"$place/err" &&
            ! timeout 300 mpirun -n 3 "$place/$name/build/04_monoid_tiled_cpu_mpi" check --quick \
                >"$place/out" 2>"$place/err" && grep -q '^FAILED' "$place/out"
        then
            ok
            echo "planted bug $name: caught by $(grep -m 1 '^FAILED' "$place/out" | cut -c 10-80)"
        else
            bad "planted bug $name is not caught"
        fi
        rm -rf "${place:?}/$name"
    done
}

# Two hosts of a network, which this machine may not permit.
network() {
    sh tests/mpi/network.sh "$build" >"$place/out" 2>"$place/err"
    status=$?
    cat "$place/out"
    case $status in 0) ok ;; 77) ;; *) bad "two hosts of a network" ;; esac
}

for part in ${ONLY:-suite usage files faults planted network}; do $part; done
echo "mpi: $passed passed, $failed failed"
[ $failed -eq 0 ]
