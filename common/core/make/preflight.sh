#!/bin/sh
# preflight.sh NEEDS VERB: can make do what it was asked for?  Status 0; or a line
# that says what is wrong and what would be right, and status 2.  In the environment are make's
# variables, and DRY_RUN: not empty when nothing may be made or installed.
set -u
needs=$1 verb=$2

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

plain BUILD "$BUILD"
plain RESULTS "$RESULTS"
case $verb in
gallery)
    for bug in $BUG; do
        [ -f "tests/planted/$bug.patch" ] ||
            refuse "BUG: no planted bug '$bug'; they are the files of tests/planted"
    done ;;
clean)
    [ "$BUILD" = build ] || [ ! -e "$BUILD" ] || [ -f "$BUILD/config" ] ||
        refuse "BUILD: '$BUILD' is no folder that make built in" ;;
plot | profile)
    writable RESULTS "$RESULTS" ;;
esac

case $verb in
help | diff | clean) ;;
*) writable BUILD "$BUILD" ;;
esac
# shellcheck disable=SC2086  # a list of needs
[ -n "$DRY_RUN" ] || [ -z "$needs" ] || sh common/core/make/require.sh $needs || exit 2
