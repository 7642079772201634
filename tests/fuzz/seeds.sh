#!/bin/sh
# seeds.sh DIR: the inputs that fuzzing starts from: DIR/npy a valid file of each version,
# type and order.
set -eu
dir=$1
mkdir -p "$dir/npy"

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
