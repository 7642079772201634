#!/bin/sh
# diff.sh STAGE FILE STAGES...   what a stage changes in the file of the stage before it
# diff.sh rung NUMBER            what a rung of stage 5 changes in the rung before it;
#                                backward/NUMBER: the same for the ladder of the gradient
# diff.sh rung NAME              the same of a rung of stage 4: fold, chunk, correct_once, ...
#
# First the functions that stayed, changed, came and went, and the headers that come with a rung of
# stage 5, then the lines, then their count.  The rungs are the files NN_name.cu in the rooms of stage
# 5, in the order of their numbers.  What is inside a rung and can be left out alone is a *step*, a
# patch to the rung from the rung without it.  The small changes of the last rung of attention are
# *asides*, patches of the rung before it.  NUMBER may name one of both, or
# one of the *mistakes* that are exercises.
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
    first="$new is the first rung: read it"
else
    stage=$1 file=$2
    shift 2
    before=
    for s in "$@"; do
        [ "$s" = "$stage" ] && break
        before=$s
    done
    new=$stage/$file
    [ "$new" != 05_flash_cuda/stage.c ] || new=05_flash_cuda/portable/01_tiled.cu
    [ -z "$before" ] || old=$before/$file
    # The algorithm of stage 5 is its first rung, which descends from the tile of stage 4.
    [ "$stage/$file" != 05_flash_cuda/stage.c ] || old=04_monoid_tiled_cpu/rungs/tile.h
    first="$stage is the first stage: read $new"
fi
for f in $old $new; do
    [ -f "$f" ] || refuse "make diff: no file $f; FILE=name names one that both stages have"
done
[ -n "$old" ] || { echo "$first"; exit 0; }
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

# A function begins with its name at the left edge and ends with a brace there.
awk -v old="$old" -v new="$new" '
function put(what, names,    word, count, i, line) {
    count = split(names, word, " ")
    for (i = 1; i <= count; i++) {
        if (length(line " " word[i]) > 80) { printf "  %-8s%s\n", what, line; what = line = "" }
        line = line " " word[i]
    }
    if (line) printf "  %-8s%s\n", what, line
}
/__launch_bounds__/ { # the name may stand on the next line
    sub(/__launch_bounds__\([^)]*\) *(\/\*.*\*\/)?/, "")
    if (!/\(/ && (getline rest) > 0) $0 = $0 rest
}
/^[a-z_].*\(/ && !/;$/ {
    name = $0
    sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
    if (FILENAME == new) order[++n] = name; else was[++k] = name
}
name { body[FILENAME, name] = body[FILENAME, name] "\n" $0 }
/^}/ || /^[a-z_].*}$/ { name = "" }
END {
    for (i = 1; i <= n; i++) {
        f = order[i]
        if (!((old, f) in body)) came = came " " f
        else if (body[old, f] == body[new, f]) same = same " " f
        else changed = changed " " f
    }
    for (i = 1; i <= k; i++) if (!((new, was[i]) in body)) gone = gone " " was[i]
    put("same", same); put("changed", changed); put("new", came); put("gone", gone)
}' "$old" "$new"

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
