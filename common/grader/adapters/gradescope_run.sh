#!/usr/bin/env bash
# run_autograder of Gradescope: grades the one submission in /autograder/submission.
#   AUTOGRADER  another folder than /autograder      EX  stages or exercises; all unless given
set -eu
root=${AUTOGRADER:-/autograder}
class=$(mktemp -d)
trap 'rm -rf "$class"' EXIT
mkdir -p "$class/submissions/student" "$root/results"
cp -r "$root/submission/." "$class/submissions/student/"
if make -s -C "$root/source/instructor" grade SUBMISSIONS="$class/submissions" \
    OUT="$class/marks" EX="${EX:-}" NO_INSTALL=1; then
    cp "$class/marks/gradescope/student/results.json" "$root/results/results.json"
else
    # no score: Gradescope shows that the autograder failed, and nobody has a mark
    printf '{"output": "The grading machine failed, not your program. Tell your instructor."}\n' \
        >"$root/results/results.json"
    exit 1
fi
