#!/bin/sh
# machines.sh BUILD: the fast CPU variants on machines other than this one.
#   1. their machine code for every compiler and machine of machine_code.py;
#   2. `check --quick` of stages 1 to 4, built for each kind of machine that this one can run,
#      with gcc and with clang, and of stages 1 and 4 for 64-bit ARM under qemu.
#   PROGRAMS="04_monoid_tiled_cpu"   checks these alone
#   EMULATED="--variant all_cores"   under qemu this alone
#   HARNESS=build    gcc's programs for x86-64 take common/ from that build of this machine
#   CODE=0           leaves out part 1
# What cannot be done here is named.  Status 0 all is right, 1 something is wrong.
set -u
build=${1:-build/machines}
programs=${PROGRAMS:-01_naive 02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu}
export OMP_WAIT_POLICY=passive
status=0

# A missing compiler is installed where that is allowed, else its part is skipped.
BUILD=$build sh common/make/require.sh clang >/dev/null 2>&1
BUILD=$build sh common/make/require.sh aarch64 >/dev/null 2>&1

if [ "${CODE:-1}" != 0 ]; then
    echo "== machine code"
    python3 tests/machine_code.py --out "$build/code"
    case $? in
    0) ;;
    77) echo "skipped  machine code: no compiler and disassembler" ;;
    *) status=1 ;;
    esac
fi

# harness: the objects of common/ of another build, without what the machine's instructions
# decide.  make -o takes their configuration for unchanged, and compiles only what is missing.
harness() {
    rm -rf "$here" && mkdir -p "$here/obj"
    cp -a "$from/obj/common" "$here/obj" && cp -a "$from"/config* "$here" || return
    rm -f "$here/obj/common/measurement/ceiling.o" "$here/obj/common/program/built_for.o"
    for file in "$here"/config*; do old="$old -o $file"; done
}

# checked NAME RUNNER MAKE_VARIABLE...: builds the programs and checks them.
checked() {
    name=$1 runner=$2
    shift 2
    here=$build/$(echo "$name" | tr ' ' '_')
    old= targets=
    [ -z "$from" ] || harness
    for program in $programs; do targets="$targets $here/$program"; done
    # shellcheck disable=SC2086  # lists of words
    if ! make --no-print-directory -j2 $old BUILD="$here" CUDA=0 "$@" $targets \
        >"$here.log" 2>&1; then
        tail -n 5 "$here.log"
        echo "FAILED   $name: does not build, see $here.log"
        status=1
        return
    fi
    for program in $programs; do
        # shellcheck disable=SC2086
        if $runner "$here/$program" check --quick --device cpu $only >"$here.log" 2>&1; then
            echo "passed   $name: $program: $(grep 'checks passed' "$here.log")"
        else
            tail -n 5 "$here.log"
            echo "FAILED   $name: $program, see $here.log"
            status=1
        fi
    done
}

# has WORD: does this processor have it, by the kernel's list?
has() {
    grep -qw "$1" /proc/cpuinfo 2>/dev/null
}

mkdir -p "$build"
echo "== checks"
from=${HARNESS:-} only=
if [ "$(uname -m)" = x86_64 ]; then
    checked "gcc x86-64" "" CC=gcc CXX=g++ ARCH_FLAGS=-march=x86-64
    if has avx2 && has fma; then
        checked "gcc x86-64-v3" "" CC=gcc CXX=g++ ARCH_FLAGS=-march=x86-64-v3
    else
        echo "skipped  gcc x86-64-v3: this machine has no AVX2"
    fi
    if has avx512vl && has avx512bw && has avx512dq; then
        checked "gcc skylake-avx512" "" CC=gcc CXX=g++ ARCH_FLAGS=-march=skylake-avx512
    else
        echo "skipped  gcc skylake-avx512: this machine has no AVX-512"
    fi
else
    echo "skipped  x86-64: this machine is $(uname -m)"
fi
from=
clang=$(command -v clang || command -v clang-14)
if [ -n "$clang" ]; then
    checked "clang native" "" CC="$clang"
else
    echo "skipped  clang: it is not installed"
fi
[ -n "${PROGRAMS:-}" ] || programs="01_naive 04_monoid_tiled_cpu" # in emulation the others take minutes
if command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 && command -v qemu-aarch64 >/dev/null 2>&1; then
    only=${EMULATED:-}
    checked "gcc aarch64" "qemu-aarch64 -L /usr/aarch64-linux-gnu" CC=aarch64-linux-gnu-gcc \
        CXX=aarch64-linux-gnu-g++ ARCH_FLAGS=-march=armv8.2-a
else
    echo "skipped  aarch64: no cross compiler and qemu-user here"
fi
exit $status
