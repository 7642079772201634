#!/bin/sh
# require.sh NEED...: make sure that the tools are there, or say how to get them.
#   BUILD         where the private virtual environment and the file `python` go
#   CC, CXX       the compilers of the need `compiler`; several words are fine
#   NO_INSTALL=1  never install anything
# Status 0: all are there.  1: the last lines on stderr say what is missing.
# A bare machine may lack awk and sed: this is the shell alone.
set -u
build=${BUILD:-build} cc=${CC:-cc} cxx=${CXX:-c++}

# compiler NAME: its line of the table.  One that was named is a package of its own name.
compiler() {
    case $1 in
    cc | c++ | gcc | g++) echo "$1 | gcc g++ | gcc gcc-c++ | gcc | $1" ;;
    *++*) echo "$1 | ${1%%++*}${1#*++} | ${1%%++*} | llvm | $1" ;;
    *) echo "$1 | $1 | $1 | $1 | $1" ;;
    esac
}

# need | Debian, Ubuntu | Fedora | Homebrew | what proves that it is there: programs, or `import` and
# Python packages, or `run` and a command
table="
$(compiler "${cc%% *}")
$(compiler "${cxx%% *}")
"'
git | git | git | git | git
patch | patch | patch | gpatch | patch
criterion | libcriterion-dev | criterion-devel | criterion | run includes criterion/criterion.h
python3 | python3 | python3 | python | python3
venv | python3-venv | python3 | python | run python3 -c "import ensurepip, venv"
numpy | python3-numpy | python3-numpy | python | import numpy
pandas | python3-matplotlib python3-pandas | python3-matplotlib python3-pandas | python \
    | import matplotlib, pandas
pytest | python3-pytest python3-pytest-xdist python3-hypothesis python3-numpy \
    | python3-pytest python3-pytest-xdist python3-hypothesis python3-numpy | python \
    | import matplotlib, pandas, numpy, pytest, hypothesis
mpi | openmpi-bin libopenmpi-dev | openmpi openmpi-devel | open-mpi | mpicc mpirun
clang | clang libomp-dev | clang libomp-devel | llvm | clang
wasm | clang lld | clang lld | llvm lld | clang wasm-ld
browser | chromium chromium-driver | chromium chromedriver | --cask chromium chromedriver \
    | chromium chromedriver
aarch64 | gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user \
    | gcc-aarch64-linux-gnu gcc-c++-aarch64-linux-gnu qemu-user \
    | | aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64
'

includes() { echo "#include <$1>" | $cc -E -x c - >/dev/null 2>&1; }

# The first Python that imports the packages; its path is kept in build/python.
imports() {
    kept=
    [ ! -f "$build/python" ] || read -r kept <"$build/python"
    for python in "$kept" "$build/venv/bin/python" python3 /usr/bin/python3 python; do
        "$python" -c "import $*" >/dev/null 2>&1 || continue
        mkdir -p "$build"
        command -v "$python" >"$build/python"
        return 0
    done
    modules="${modules:+$modules, }$*"
    return 1
}

# proved PROOF...
proved() {
    case $1 in
    import) shift; imports "$@" ;;
    run) shift; eval "$*" 2>/dev/null ;;
    *) for program in "$@"; do command -v "$program" >/dev/null 2>&1 || return 1; done ;;
    esac
}

# words LIST: each word once.
words() {
    line=
    for word in $1; do
        case " $line " in *" $word "*) ;; *) line="$line${line:+ }$word" ;; esac
    done
    echo "$line"
}

# missing NEED...: are some?  `compiler` stands for two.  Collects their names, their packages and their Python modules.
missing() {
    lack= apts= dnfs= brews= modules= known= needs=
    for need; do
        [ "$need" != compiler ] || need="${cc%% *} ${cxx%% *}"
        needs="$needs $need"
    done
    # shellcheck disable=SC2162,SC2086  # read joins the lines that end with a backslash; words
    while IFS='|' read name apt dnf brew proof; do
        name=${name%% *} known="$known $name"
        case " $needs " in *" $name "*) ;; *) continue ;; esac
        [ -z "$name" ] || proved $proof && continue
        lack="$lack${lack:+, }$name" apts="$apts $apt" dnfs="$dnfs $dnf" brews="$brews $brew"
    done <<END
$table
END
    for need in $needs; do
        case "$known " in *" $need "*) ;; *) echo "require.sh: no need '$need'" >&2; exit 2 ;; esac
    done
    [ -n "$lack" ]
}

# as_root COMMAND...: by sudo where that asks no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
    command -v apt-get >/dev/null 2>&1 && as_root true 2>/dev/null || return
    apts=$(words "$apts")
    echo "installing as root, by apt-get (NO_INSTALL=1 forbids it): $apts"
    # shellcheck disable=SC2086  # a list of packages
    set -- env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $apts
    { as_root "$@" || { as_root apt-get update && as_root "$@"; }; } >"$build/install.log" 2>&1 ||
        tail -n 5 "$build/install.log" >&2
}

# Where no package helps: an environment of our own.
install_modules() {
    [ -n "$modules" ] && command -v python3 >/dev/null 2>&1 || return
    echo "installing $(words "$(echo "$modules" | tr -d ,)") and more into $build/venv (python.lock)"
    python3 -m venv "$build/venv" >/dev/null 2>&1 &&
        "$build/venv/bin/python" -m pip install -q --no-deps --require-hashes \
            -r "${0%/*}/python.lock" >"$build/install.log" 2>&1
}

missing "$@" || exit 0
if [ "${NO_INSTALL:-}" != 1 ]; then
    mkdir -p "$build"
    for way in packages modules; do
        install_$way
        missing "$@" || exit 0
    done
fi
{
    echo "missing: $lack; install with one of"
    echo "    sudo apt-get install $(words "$apts")"
    dnfs=$(words "$dnfs") brews=$(words "$brews")
    [ -z "$dnfs" ] || echo "    sudo dnf install $dnfs"
    [ -z "$brews" ] || echo "    brew install $brews"
} >&2
exit 1
