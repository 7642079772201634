#!/usr/bin/env bash
# run_autograder of Gradescope: grades the one submission in /autograder/submission.
#   AUTOGRADER  another folder than /autograder      EX  stages or exercises; all unless given
set -eu
root=${AUTOGRADER:-/autograder}
class=$(mktemp -d)
trap 'rm -rf "$class"' EXIT
# who it is, so that each student has an alias of their own
student=$(python3 -c 'import json, re, sys
print(re.sub(r"[^\w@.-]", "_", json.load(open(sys.argv[1]))["users"][0]["email"]))' \
    "$root/submission_metadata.json" 2>/dev/null) || student=student
mkdir -p "$class/submissions/$student" "$root/results"
cp -r "$root/submission/." "$class/submissions/$student/"
if make -s -C "$root/source/instructor" grade SUBMISSIONS="$class/submissions" \
    OUT="$class/marks" EX="${EX:-}" ARCH_FLAGS="${ARCH_FLAGS-}" NO_INSTALL=1; then
    cp "$class/marks/gradescope/$student/results.json" "$root/results/results.json"
else
    # no score: Gradescope shows that the autograder failed, and nobody has a mark
    printf '{"output": "The grading machine failed, not your program. Tell your instructor."}\n' \
        >"$root/results/results.json"
    exit 1
fi
