#!/bin/sh
# gpus.sh BUILD: stage 5 on the GPUs of this machine: the case suite in one process and in one
# process for each GPU, a real file, and faults.  Ends with "gpus: N passed, N failed"; 77 where
# there is no GPU or no NCCL.
#   QUICK=1   the quick cases alone
set -u
build=$1
program=$build/05_flash_cuda several=$build/05_flash_cuda_mpi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "skipped: there is no GPU"; exit 77; }
[ -x "$several" ] || { echo "skipped: $several was not built: NCCL or mpicc was not found"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
passed=0 failed=0
quick=
[ "${QUICK:-}" = 1 ] && quick=--quick

# expect STATUS TEXT NAME COMMAND...: ends with that status and prints a line that has TEXT.
expect() {
    status=$1 text=$2 name=$3
    shift 3
    timeout 300 "$@" >"$place/out" 2>"$place/err"
    got=$?
    if [ $got -eq "$status" ] && cat "$place/out" "$place/err" | grep -q -e "$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: exit $got"
        tail -n 5 "$place/out" "$place/err" | cut -c 1-300
    fi
}

# --- the suite ---
n=1
while [ $n -le "$gpus" ]; do
    expect 0 ' 0 failed$' "check on $n GPUs" "$program" check --gpus $n $quick
    tail -n 1 "$place/out"
    n=$((n * 2))
done
expect 0 ' 0 failed$' "check, a process for each GPU" mpirun -n "$gpus" "$several" check --quick
tail -n 1 "$place/out"

# --- a real file: the answer is that of one GPU ---
f=tests/fixture
common="--q $f/q.npy --k $f/k.npy --v $f/v.npy --causal --dtype bf16"
"$program" run $common --variant tuned --o "$place/one.npy" --lse "$place/one_l.npy" >/dev/null
for s in tree tree-reduce ring ring-unbalanced; do
    expect 0 "$s on $gpus GPU" "fixture, $s" "$program" run $common --gpus "$gpus" \
        --strategy $s --o "$place/o.npy" --lse "$place/l.npy"
    expect 0 'equal' "fixture, $s: o" sh tests/mpi/near.sh "$place/o.npy" "$place/one.npy" 0.01
    expect 0 'equal' "fixture, $s: lse" sh tests/mpi/near.sh "$place/l.npy" "$place/one_l.npy"
done
cp "$place/o.npy" "$place/o1.npy"
expect 0 'ring' "fixture by processes" mpirun -n "$gpus" "$several" run $common \
    --strategy ring-unbalanced --o "$place/o.npy" --lse "$place/l.npy"
expect 0 'equal' "the same answer from processes" sh tests/mpi/near.sh "$place/o.npy" \
    "$place/o1.npy" 0

# --- faults: one line, and every rank ends ---
rm -f "$place/o.npy"
expect 77 'this machine, which has' "too few GPUs" "$program" check --gpus $((gpus + 1))
expect 77 'this machine, which has' "too many processes" mpirun -n $((gpus + 1)) "$several" check
expect 2 'does not\|do not support f32' "f32" "$program" run --gpus "$gpus" --q $f/q.npy \
    --k $f/k.npy --v $f/v.npy --o "$place/o.npy"
expect 2 'give them alike' "shapes that do not fit" "$program" run --gpus "$gpus" --q $f/lse.npy \
    --k $f/k.npy --v $f/v.npy --o "$place/o.npy"
expect 2 "no strategy 'star'" "unknown strategy" "$program" check --gpus 1 --strategy star
[ -e "$place/o.npy" ] && { failed=$((failed + 1)); echo "FAILED: a fault left an output"; }

# A process that dies, and one that stops, in a bench that would last for minutes.
for signal in KILL STOP; do
    [ "$gpus" -gt 1 ] || continue
    setsid timeout 100 mpirun -n 2 "$several" bench --seqlen-q 524288 --strategy ring \
        >"$place/out" 2>"$place/err" &
    sleep 8
    pkill -$signal -n -f "$several bench --seqlen-q 524288"
    began=$(date +%s)
    wait $!
    status=$? took=$(($(date +%s) - began))
    lines=$(grep -c '^05_flash_cuda_mpi: ' "$place/err")
    if [ $status -ne 0 ] && [ $status -ne 124 ] && [ $took -lt 90 ]; then
        passed=$((passed + 1))
        echo "a process that gets SIG$signal: all end after $took s; $lines line of ours:" \
            "$(grep -m 1 '^05_flash_cuda_mpi: ' "$place/err")"
    else
        failed=$((failed + 1))
        echo "FAILED: SIG$signal: exit $status after $took s"
        tail -n 5 "$place/err"
    fi
done
echo "gpus: $passed passed, $failed failed"
[ $failed -eq 0 ]
