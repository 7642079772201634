#!/bin/sh
# diff.sh DIRECTORY FILE STAGES...: what a stage changes in the file of the stage before it:
# the functions that stayed, changed, came and went, then the lines.
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
/^[a-z_].*\(/ && !/;$/ {
    name = $0
    sub(/__launch_bounds__\([^)]*\) */, "", name); sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
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

# Patience keeps functions whole where plain diff matches their braces.
color=never
[ -t 1 ] && color=always
if command -v git >/dev/null 2>&1; then
    git --no-pager diff --no-index --no-ext-diff --no-prefix --patience --color=$color \
        -- "$old" "$new" | sed 1,2d
else
    diff -u --label "$old" --label "$new" "$old" "$new"
    [ $? -le 1 ]
fi
