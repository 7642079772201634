#!/bin/sh
# diff.sh STAGE FILE STAGES...   what a stage changes in the file of the stage before it
# diff.sh rung NUMBER            what a rung of stage 5 changes in the rung before it;
#                                backward/NUMBER: the same for the ladder of the gradient
# diff.sh rung NAME              the same of a rung of stage 4: fold, chunk, correct_once, ...
#
# The headers that come with a rung, the lines, then their count.  The rungs are the files NN_name.cu in the rooms of stage 5, in the
# order of their numbers.  What is inside a rung and can be left out alone is a *step*, a patch to
# the rung from the rung without it.  The small changes of the last rung of attention are *asides*,
# patches of the rung before it.  NAME may be one of both, or one of the *mistakes* that are
# exercises.
# Status 2: the files are not there, and one line says so.
refuse() {
    printf '%s\n' "$1" >&2
    exit 2
}

# listed FILE...: the patches, each with its first line.
listed() {
    for f; do
        name=${f##*/}
        printf '  %-16s %s\n' "${name%.patch}" "$(sed -n '1s/^[AS][a-z]*: //p' "$f")"
    done
}

# headers FILE: those that it includes, and that these include; not what executes it on the CPU.
headers() {
    awk -v name="$1" 'BEGIN {
        for (file[n = 1] = name; i++ < n;) {
            split(file[i] "|05_flash_cuda/|04_monoid_tiled_cpu/|common/core/", room, "|")
            sub(/[^\/]*$/, "", room[1])
            while ((getline line < file[i]) > 0) {
                if (line !~ /^#include "/ || line ~ /_on_cpu/) continue
                split(line, part, "\"")
                for (r = 1; r <= 4; r++)
                    if ((getline < (path = room[r] part[2])) >= 0) break
                close(path)
                if (r <= 3 && !seen[path]++) print file[++n] = path
            }
        }
    }'
}

old= new= asides=05_flash_cuda/hopper/asides
if [ "$1" = rung ]; then
    for f in 05_flash_cuda/hopper/[am]*s/"$2.patch" 05_flash_cuda/*/steps/"$2.patch"; do
        [ ! -f "$f" ] || exec cat "$f"
    done
    before= rungs= number=${2#backward/} rooms='portable hopper'
    [ "$number" = "$2" ] || rooms=backward
    for f in $(for room in $rooms; do echo 05_flash_cuda/$room/[0-9][0-9]_*.cu; done); do
        name=${f##*/} name=${name%%_*} name=${name#0}
        [ "$name" != "${number#0}" ] || old=$before new=$f
        # Wide and narrow heads are two branches of what comes before them.
        [ "${f%_wide_heads.cu}" != "$f" ] || before=$f
        rungs="$rungs $name"
    done
    road= last=03_online_softmax/stage.c
    for f in 04_monoid_tiled_cpu/stage.c 04_monoid_tiled_cpu/rungs/[0-9]_*.c; do
        name=${f##*/[0-9]_} name=${name%.c}
        [ "$f" != 04_monoid_tiled_cpu/stage.c ] || name=fold
        [ "$name" != "$2" ] || old=$last new=$f
        last=$f road="$road $name"
    done
    [ -n "$new" ] || refuse "no rung '$2'; stage 5 has the rungs$rungs and the patches $(
        ls "$asides" 05_flash_cuda/*/steps | sed -n 's/\.patch//p' | paste -sd' ' -); stage 4 has the rungs$road"
else
    new=$1/$2 file=$2 stage=$1
    shift 2
    for s; do
        [ "$s" != "$stage" ] || break
        old=$s/$file
    done
    # The algorithm of stage 5 is its first rung, which descends from the tile of stage 4.
    [ "$new" != 05_flash_cuda/stage.c ] ||
        old=04_monoid_tiled_cpu/rungs/tile.h new=05_flash_cuda/portable/01_tiled.cu
fi
for f in $old $new; do
    [ -f "$f" ] || refuse "make diff: no file $f; FILE=name names one that both stages have"
done
[ -n "$old" ] || { echo "$new is the first: read it"; exit 0; }
if [ "${new%_tuned.cu}" != "$new" ]; then
    echo "$new is $old with these asides, each a diff: make diff RUNG=name"
    listed "$asides"/*
    echo "and with other widths and parts of the keys.  All together:"
fi
steps=$(grep -lx "+++ b/$new" 05_flash_cuda/*/steps/* 2>/dev/null)
if [ -n "$steps" ]; then
    echo "Steps inside $new, each a diff: make diff RUNG=name"
    listed $steps # no name has a space
fi

case $new in 05_flash_cuda/*/* | */rungs/*)
    came=$({ headers "$old"; headers "$old"; headers "$new"; } | sort | uniq -u | while read -r f; do
        printf ' %s (%d)' "${f##*/}" "$(wc -l <"$f")"
    done)
    [ -z "$came" ] || echo "  headers$came lines" ;;
esac

# Patience keeps functions whole where plain diff matches their braces.
if command -v git >/dev/null 2>&1; then
    lines() {
        git --no-pager diff --no-index --no-ext-diff --no-prefix --patience --color="$1" \
            -- "$old" "$new" | sed 1,2d
    }
else
    lines() { diff -u --label "$old" --label "$new" "$old" "$new"; }
fi
color=never
[ -t 1 ] && color=always
lines $color
lines never | awk 'NR > 2 && /^\+/ { a++ } NR > 2 && /^-/ { r++ }
    END { printf "%d lines added, %d removed\n", a, r }'
