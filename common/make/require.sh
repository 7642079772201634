#!/bin/sh
# require.sh NEED...: make sure that the tools are there, or say how to get them.
#   BUILD         where the private virtual environment and the file `python` go
#   CC, CXX       the compilers of the need `compiler`; several words are fine
#   NO_INSTALL=1  never install anything
# Status 0: all are there.  1: the last lines on stderr say what is missing.
set -u
build=${BUILD:-build}

# The table.  A new need is a line: the packages on Debian, Fedora and Homebrew, and the
# programs that prove that they are there (or a function have_NEED below).
table() {
    case $1 in
    compiler)   compiler_packages ;;
    git)        apt=git dnf=git brew=git proof=git ;;
    patch)      apt=patch dnf=patch brew=gpatch proof=patch ;;
    python3)    apt=python3 dnf=python3 brew=python proof=python3 ;;
    matplotlib) apt=python3-matplotlib dnf=python3-matplotlib brew=python-matplotlib ;;
    pandas)     apt="python3-matplotlib python3-pandas" dnf="python3-matplotlib python3-pandas"
                brew="python-matplotlib" ;;
    pytest)     apt="python3-matplotlib python3-pandas python3-pytest python3-pytest-xdist"
                apt="$apt python3-hypothesis" brew=python dnf=$apt ;;
    criterion)  apt=libcriterion-dev dnf=criterion-devel brew=criterion ;;
    mpi)        apt="openmpi-bin libopenmpi-dev" dnf="openmpi openmpi-devel" brew=open-mpi
                proof="mpicc mpirun" ;;
    clang)      apt="clang libomp-dev" dnf="clang libomp-devel" brew=llvm proof=clang ;;
    aarch64)    apt="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"
                dnf="gcc-aarch64-linux-gnu gcc-c++-aarch64-linux-gnu qemu-user" brew=
                proof="aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64" ;;
    wasm)       apt="clang lld" dnf="clang lld" brew="llvm lld" ;;
    venv)       apt=python3-venv dnf=python3 brew=python ;;
    browser)    apt="chromium chromium-driver" dnf="chromium chromedriver"
                brew="--cask chromium chromedriver" proof="chromium chromedriver" ;;
    *) echo "require.sh: nothing known about '$1'" >&2; exit 2 ;;
    esac
}

# The words of CC and CXX that are programs, and are not there.
missing_compilers() {
    for word in ${CC:-cc} ${CXX:-c++}; do
        case $word in
        -* | *=*) ;;
        *) command -v "$word" >/dev/null 2>&1 || echo "$word" ;;
        esac
    done
}

# A compiler that was named is a package of its own name; any other is gcc's.
compiler_packages() {
    apt= dnf= brew=
    for word in $(missing_compilers); do
        case $word in
        ccache)       apt="$apt ccache" dnf="$dnf ccache" brew="$brew ccache" ;;
        clang++*)     apt="$apt clang${word#clang++}" dnf="$dnf clang" brew="$brew llvm" ;;
        clang*)       apt="$apt $word" dnf="$dnf clang" brew="$brew llvm" ;;
        gcc-* | g++-*) apt="$apt $word" dnf="$dnf gcc gcc-c++" brew="$brew gcc" ;;
        *)            apt="$apt gcc g++" dnf="$dnf gcc gcc-c++" brew="$brew gcc" ;;
        esac
    done
}

have_compiler() { [ -z "$(missing_compilers)" ]; }

have_criterion() {
    printf '#include <criterion/criterion.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1
}

# clang that knows WebAssembly, and its linker, with or without a version in their names.
have_wasm() {
    for version in "" -19 -18 -17 -16 -15 -14; do
        command -v "clang$version" >/dev/null 2>&1 &&
            command -v "wasm-ld$version" >/dev/null 2>&1 && return 0
    done
    return 1
}

have_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The Python packages of a need.
modules() {
    case $1 in
    matplotlib) echo matplotlib ;;
    pandas)     echo matplotlib, pandas ;;
    pytest)     echo matplotlib, pandas, pytest, hypothesis ;;
    esac
}

# The first interpreter that can import the packages; its path is kept in build/python.
have_packages() {
    for python in "$(cat "$build/python" 2>/dev/null)" "$build/venv/bin/python" python3 \
                  /usr/bin/python3 python; do
        command -v "$python" >/dev/null 2>&1 || continue
        if "$python" -c "import $(modules "$1")" >/dev/null 2>&1; then
            mkdir -p "$build"
            command -v "$python" >"$build/python"
            return 0
        fi
    done
    return 1
}

# have NEED
have() {
    case $1 in
    compiler | criterion | wasm | venv) "have_$1"; return ;;
    matplotlib | pandas | pytest) have_packages "$1"; return ;;
    esac
    table "$1"
    for program in $proof; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

# Each word once.  (The shell alone: a bare machine may lack awk and sed.)
words() {
    line=
    for word in "$@"; do
        case " $line " in *" $word "*) ;; *) line="$line${line:+ }$word" ;; esac
    done
    echo "$line"
}

# look NEED...: which are missing, by the names that a reader knows, and in which packages.
look() {
    missing= names= apts= dnfs= brews=
    for need in "$@"; do
        case " $missing " in *" $need "*) continue ;; esac
        table "$need"
        have "$need" && continue
        missing="$missing $need" apts="$apts $apt" dnfs="$dnfs $dnf" brews="$brews $brew"
        name=$need
        # shellcheck disable=SC2046  # one word for each compiler
        [ "$need" = compiler ] && name=$(words $(missing_compilers))
        names=$names${names:+, }$name
    done
    [ -z "$missing" ]
}

look "$@" && exit 0
if [ "${NO_INSTALL:-}" != 1 ]; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$sudo" ] || sudo -n true 2>/dev/null; }
    then
        # shellcheck disable=SC2086  # the lists are words on purpose
        apts=$(words $apts)
        echo "installing $apts"
        log=$build/install.log
        mkdir -p "$build"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086
        $sudo apt-get install -y --no-install-recommends $apts >"$log" 2>&1 ||
            { $sudo apt-get update >>"$log" 2>&1 &&
              $sudo apt-get install -y --no-install-recommends $apts >>"$log" 2>&1; } ||
            { tail -n 5 "$log" >&2; }
        look "$@" && exit 0
    fi
    case $missing in *matplotlib* | *pandas* | *pytest*)
        if command -v python3 >/dev/null 2>&1; then
            wanted=$(for need in $missing; do modules "$need"; done | tr -d ,)
            case $wanted in *pytest*) wanted="$wanted pytest-xdist" ;; esac
            echo "installing" $wanted "into $build/venv"
            mkdir -p "$build"
            python3 -m venv "$build/venv" >/dev/null 2>&1 &&
                "$build/venv/bin/python" -m pip install -q $wanted >"$build/install.log" 2>&1
            look "$@" && exit 0
        fi ;;
    esac
fi
{
    echo "missing: $names; install with one of"
    # shellcheck disable=SC2086
    echo "    sudo apt-get install $(words $apts)"
    # shellcheck disable=SC2086
    [ -z "${dnfs# }" ] || echo "    sudo dnf install $(words $dnfs)"
    # shellcheck disable=SC2086
    [ -z "${brews# }" ] || echo "    brew install $(words $brews)"
} >&2
exit 1
