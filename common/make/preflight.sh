#!/bin/sh
# preflight.sh NEEDS STAGES VERB GIVEN: can make do what it was asked for?  Status 0; or a
# line that says what is wrong and what would be right, and status 2.
#   BUILD RESULTS FILE RUNG EX SUBMISSIONS OUT    make's variables of these names
#   DRY_RUN                                       not empty: make nothing, install nothing
# CC, CXX and NO_INSTALL are for require.sh.
set -u
needs=$1 stages=$2 verb=$3 given=$4

refuse() {
    printf '%s\n' "$1" >&2
    exit 2
}

# writable NAME FOLDER: FOLDER, the value of the variable NAME, exists or can be made, and
# can be written into.
writable() {
    [ -n "$DRY_RUN" ] && return
    { mkdir -p -- "$2" && [ -w "$2" ] && [ -x "$2" ]; } 2>/dev/null ||
        refuse "$1: cannot write into '$2'; $1=dir names another folder"
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

case $BUILD in
'' | *[[:space:]\"\'\`\$\#:%\;\&\|\*\?\(\)\<\>\\]*)
    refuse "BUILD: '$BUILD' holds a character that make cannot have in a path" ;;
esac

case $verb in
diff)
    if [ -n "$RUNG" ]; then
        sh common/make/diff.sh -n rung "$RUNG" || exit 2
    else
        for n in $given; do
            for stage in $stages; do
                case $stage in "0${n}_"*)
                    # shellcheck disable=SC2086  # a list of stages
                    sh common/make/diff.sh -n "$stage" "$FILE" $stages || exit 2 ;;
                esac
            done
        done
    fi ;;
exercise) # in solutions/, or in skeletons/ where students work
    if [ -n "$EX" ] && ! ls 0*/exercises/s[ko]*s/"${EX%.c*}".c* >/dev/null 2>&1; then
        refuse "EX: no exercise '$EX'; make exercise lists them"
    fi ;;
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
[ -n "$DRY_RUN" ] && exit 0
# shellcheck disable=SC2086  # a list of needs
[ -z "$needs" ] || sh common/make/require.sh $needs || exit 2
