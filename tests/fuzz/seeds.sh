#!/bin/sh
# seeds.sh DIR: the inputs that fuzzing starts from: DIR/npy a valid file of each version,
# type and order, DIR/cli a command line of each verb and option.
set -eu
dir=$1
mkdir -p "$dir/npy" "$dir/cli"

# npy NAME VERSION DESCR FORTRAN SHAPE BYTES: a header of 118 bytes, then that many zeros.
npy() {
    length='\166\000'
    [ "$2" = 1 ] || length='\166\000\000\000'
    {
        printf "\223NUMPY\\00$2\\000$length"
        printf '%-117s\n' "{'descr': '$3', 'fortran_order': $4, 'shape': $5}"
        head -c "$6" /dev/zero
    } > "$dir/npy/$1"
}
npy f4 1 '<f4' False '(2, 3)' 24
npy f2 2 '<f2' False '(5,)' 10
npy f8_fortran 3 '<f8' True '(2, 2, 2)' 64
npy big_fortran 1 '>f4' True '(3, 2)' 24
npy big_f2 1 '>f2' False '(4,)' 8
npy big_f8 2 '>f8' False '(1, 2)' 16
npy scalar 1 '<f4' False '()' 4
npy empty 1 '=f4' False '(0, 4)' 0
npy wraps 1 '<f4' False '(4611686018427387904, 4)' 0
npy integers 1 '<i8' False '(9,)' 72

# cli WORDS...: a command line, a word a line.
n=0
cli() { n=$((n + 1)); printf '%s\n' "$@" | head -c -1 > "$dir/cli/$n"; }
cli list
cli help
cli list --device cpu
cli check --quick --variant online --dtype bf16 --seed 0x7f --threads 2
cli check --case ragged --verbose
cli bench --csv a.csv --op attention --causal
cli bench --rows 4 --cols=8
cli bench --batch 1 --heads-q 4 --heads-kv 2 --seqlen-q 8 --seqlen-k 9 --head-dim 64 \
    --head-dim-v 32
cli trace --row 3,2,5,1
cli run --x x.npy --y y.npy --log
cli run --q q --k k --v v --o o --scale 3e38
cli run --q q --k k --v v --o o --lse l --bias b --causal --scale -0.5e-3 --variant tiled
cli run --q q --k k --v v --o o --window 7,-1 --softcap 30 --sinks s --cu-seqlens-q c --cu-seqlens-k d
