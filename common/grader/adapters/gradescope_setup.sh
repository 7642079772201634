#!/usr/bin/env bash
# setup.sh of a Gradescope autograder: what grading needs, and the harness compiled once.
set -eu
root=${AUTOGRADER:-/autograder}
apt-get update
apt-get install -y --no-install-recommends gcc g++ make git python3
make -C "$root/source/instructor" -j4 exercises-built
