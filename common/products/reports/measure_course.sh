#!/bin/sh
# measure_course.sh CSV: how long the commands of a course take on this machine, each a line of CSV in
# the place of its earlier ones; some minutes.  They build into build/course, which is empty at first,
# so that every time is that of a first call.
set -eu
csv=$1
rm -rf build/course
cores=$(nproc)
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
commit=$(git rev-parse --short=10 HEAD)$(git diff --quiet HEAD || echo +)
mkdir -p "$(dirname "$csv")"
machine=$(echo "$model; $cores cores; ${gpu:-no GPU}" | tr , ';')
touch "$csv"
{ echo "machine,command,seconds,date,commit"; sed 1d "$csv" | grep -vF "$machine," || :; } > "$csv.new"
mv "$csv.new" "$csv"
for command in "make build" "make stage 1" "make stage 2" "make stage 3" "make stage 4" "make stage 5" \
    "make exercise 1" "make exercise 2" "make exercise 3" "make exercise 4" "make exercise 5"; do
    begin=$(date +%s%N)
    sh -c "make -j$cores BUILD=build/course ${command#make}" > build/course.log 2>&1 || case $command in
        "make exercise"*) ;; # still a skeleton: that takes its time all the same
        *) echo "$command failed: build/course.log" >&2; exit 1 ;;
    esac
    end=$(date +%s%N)
    echo "$machine,$command,$(((end - begin + 500000000) / 1000000000)),$(date -u +%F),$commit" >> "$csv"
    tail -n 1 "$csv"
done
