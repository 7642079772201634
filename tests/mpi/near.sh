#!/bin/sh
# near.sh A.npy B.npy [DISTANCE]: are two float32 files of the same shape equal within DISTANCE,
# 1e-5 unless given?  Compares the headers' bytes and the numbers that od prints.
size=$(head -c 10 "$1" | od -An -tu2 -j8 -N2 | tr -d ' ')
size=$((size + 10))
head -c $size "$1" | cmp -s - "$2" -n $size || { echo "near: other shapes"; exit 1; }
for file in "$1" "$2"; do
    od -An -v -tf4 -w4 -j $size "$file" >"$file.txt"
done
paste "$1.txt" "$2.txt" | awk -v most="${3:-1e-5}" '
    { d = $1 - $2; if (d < 0) d = -d; if (!(d <= most) && $1 != $2) { bad++; print NR, $1, $2 } n++ }
    END { if (bad || !n) { print "near: " bad + 0 " of " n + 0 " numbers differ"; exit 1 }
          print "near: " n " numbers are equal" }'
