#!/usr/bin/env bash
# run_autograder of Gradescope: grades the one submission in /autograder/submission.
#   AUTOGRADER  another folder than /autograder      EX  stages or exercises; all unless given
# Hours after the due date count as late days.  Choose a container of 2 cores and 3 GB.
set -eu
root=${AUTOGRADER:-/autograder}
class=$(mktemp -d)
trap 'rm -rf "$class"' EXIT
# Who it is, so that each student has their own cases, and how late.
student=$(python3 - "$root/submission_metadata.json" "$class/late.csv" <<'END' 2>/dev/null || :
import datetime, json, re, sys
about = json.load(open(sys.argv[1]))
user = about["users"][0]
student = re.sub(r"[^\w@.-]", "_", user["email"])
print(student)
due, sent = (datetime.datetime.fromisoformat(x) for x in (
    (user.get("assignment") or about["assignment"])["due_date"], about["created_at"]))
print(student, max(0.0, (sent - due).total_seconds() / 3600), sep=",", file=open(sys.argv[2], "w"))
END
)
student=${student:-student}
mkdir -p "$class/submissions/$student" "$root/results"
cp -r "$root/submission/." "$class/submissions/$student/"
touch "$class/late.csv"
grade() {
    make -s -C "$root/source/instructor" "$1" SUBMISSIONS="$class/submissions" OUT="$class/marks" EX="$2" \
        LATE="$class/late.csv" ARCH_FLAGS="${ARCH_FLAGS-}" NO_INSTALL=1
}
if grade grade "${EX:-}"; then
    cp "$class/marks/gradescope/$student/results.json" "$root/results/results.json"
else
    # no score: Gradescope shows that the autograder failed, and nobody has a mark
    printf '{"output": "The grading machine failed, not your program. Tell your instructor."}\n' \
        >"$root/results/results.json"
    exit 1
fi
