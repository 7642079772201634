#!/bin/sh
# preflight.sh NEEDS STAGES VERB GIVEN: can make do what it was asked for?  Status 0; or a line
# that says what is wrong and what would be right, and status 2.  In the environment are make's
# variables, and DRY_RUN: not empty when nothing may be made or installed.
set -u
needs=$1 stages=$2 verb=$3 given=$4

refuse() {
    printf '%s\n' "$1" >&2
    exit 2
}

# writable NAME FOLDER: FOLDER, the value of NAME, can be written into, and made if need be.
writable() {
    [ -n "$DRY_RUN" ] && return
    { mkdir -p -- "$2" && [ -w "$2" ] && [ -x "$2" ]; } 2>/dev/null ||
        refuse "$1: cannot write into '$2'; $1=dir names another folder"
}

# plain NAME PATH: make can have it among its targets.
plain() {
    case $2 in
    '' | *[[:space:]\"\'\`\$\#:%\;\&\|\*\?\(\)\<\>\\]*)
        refuse "$1: '$2' holds a character that make cannot have in a path" ;;
    esac
}

# real PATH: its absolute form without links; of what does not exist yet, too.
real() {
    at=$1 rest=
    while [ ! -d "$at" ]; do
        rest=/$(basename -- "$at")$rest
        at=$(dirname -- "$at")
    done
    echo "$(cd -- "$at" && pwd -P)$rest"
}

plain BUILD "$BUILD"
plain RESULTS "$RESULTS"
case $verb in
diff)
    [ -z "$RUNG" ] || sh common/make/diff.sh -n rung "$RUNG" || exit 2
    for stage in $(for n in $given; do echo $stages | tr ' ' '\n' | grep "^0$n"_; done); do
        # shellcheck disable=SC2086  # a list of stages
        [ -n "$RUNG" ] || sh common/make/diff.sh -n "$stage" "$FILE" $stages || exit 2
    done ;;
exercise) # in solutions/, or in skeletons/ where students work
    if [ -n "$EX" ] && ! ls 0*/exercises/s[ko]*s/"${EX%.c*}".c* >/dev/null 2>&1; then
        refuse "EX: no exercise '$EX'; make exercise lists them"
    fi ;;
gallery)
    for bug in $BUG; do
        [ -f "tests/planted/$bug.patch" ] ||
            refuse "BUG: no planted bug '$bug'; they are the files of tests/planted"
    done ;;
grade)
    { [ -d "$SUBMISSIONS" ] && [ -r "$SUBMISSIONS" ] && [ -x "$SUBMISSIONS" ]; } ||
        refuse "SUBMISSIONS: '$SUBMISSIONS' is no folder that can be read"
    case $(real "$OUT")/ in "$(real "$SUBMISSIONS")"/*)
        refuse "OUT: '$OUT' lies in the folder of submissions; it would be a student" ;;
    esac
    writable OUT "$OUT" ;;
plot | profile)
    writable RESULTS "$RESULTS" ;;
esac

case $verb in
help | diff | clean) ;;
*) writable BUILD "$BUILD" ;;
esac
# shellcheck disable=SC2086  # a list of needs
[ -n "$DRY_RUN" ] || [ -z "$needs" ] || sh common/make/require.sh $needs || exit 2
