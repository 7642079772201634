#!/bin/sh
# diff.sh DIRECTORY FILE STAGES...: what a stage changes in the file of the stage before it.
stage=$1 file=$2
shift 2
before=
for s in "$@"; do
    [ "$s" = "$stage" ] && break
    before=$s
done
if [ -z "$before" ]; then
    echo "$stage is the first stage: read $stage/$file"
    exit 0
fi
# Stage 5 is CUDA: its stage.c is stage.cu.
new=$stage/$file
[ -f "$new" ] || new=$stage/${file}u
old=$before/$file
for f in "$old" "$new"; do
    [ -f "$f" ] || { echo "make diff: no file $f" >&2; exit 2; }
done
if [ -t 1 ] && diff --color=always /dev/null /dev/null >/dev/null 2>&1; then
    color=--color=always
fi
diff -u ${color:-} --label "$old" --label "$new" "$old" "$new"
[ $? -le 1 ]
