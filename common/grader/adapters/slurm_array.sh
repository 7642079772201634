#!/bin/sh
# A Slurm array job: one task for each student's folder, in the instructor's folder, after
# `make exercises-built`.
#     sbatch --array=1-$(ls CLASS | wc -l) adapters/slurm_array.sh CLASS MARKS [LATE]
#     make board MARKS=MARKS OUT=board.html       # when all tasks have ended
#SBATCH --ntasks=1 --cpus-per-task=2 --mem=6G --time=00:20:00
set -eu
class=$1 marks=$2 table=${3:-}
student=$(ls "$class" | sed -n "${SLURM_ARRAY_TASK_ID}p")
[ -n "$student" ] || { echo "no student has number $SLURM_ARRAY_TASK_ID" >&2; exit 2; }
alone=$(mktemp -d)
trap 'rm -rf "$alone"' EXIT
mkdir "$alone/class"
cp -r "$class/$student" "$alone/class/"
if [ -n "$table" ]; then # this student's line of it
    while IFS= read -r line || [ -n "$line" ]; do
        if [ "${line%,*}" = "$student" ]; then printf '%s\n' "$line"; fi
    done <"$table" >"$alone/late.csv"
    table=$alone/late.csv
fi
make -s grade SUBMISSIONS="$alone/class" OUT="$marks/$student" EX="${EX:-}" LATE="$table" NO_INSTALL=1
