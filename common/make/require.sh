#!/bin/sh
# require.sh compiler|matplotlib|criterion: make sure it is there, or say how to get it.
#   BUILD         where the private virtual environment and the file `python` go
#   NO_INSTALL=1  never install anything
set -u
build=${BUILD:-build}

have_compiler() {
    command -v "${CC:-cc}" >/dev/null 2>&1 && command -v "${CXX:-c++}" >/dev/null 2>&1 &&
        command -v git >/dev/null 2>&1
}

have_criterion() {
    printf '#include <criterion/criterion.h>\n' | "${CC:-cc}" -E -x c - >/dev/null 2>&1
}

# The first interpreter that can import matplotlib; its path is kept in build/python.
have_matplotlib() {
    for python in "$build/venv/bin/python" python3 /usr/bin/python3 python; do
        command -v "$python" >/dev/null 2>&1 || continue
        if "$python" -c 'import matplotlib' >/dev/null 2>&1; then
            mkdir -p "$build"
            command -v "$python" >"$build/python"
            return 0
        fi
    done
    return 1
}

need=$1
case $need in
compiler)   apt="gcc g++ git"            dnf="gcc gcc-c++ git"   brew="gcc git" ;;
matplotlib) apt=python3-matplotlib       dnf=python3-matplotlib  brew=python-matplotlib ;;
criterion)  apt=libcriterion-dev         dnf=criterion-devel     brew=criterion ;;
*) echo "require.sh: nothing known about '$need'" >&2; exit 2 ;;
esac
"have_$need" && exit 0

if [ "${NO_INSTALL:-}" != 1 ]; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$sudo" ] || sudo -n true 2>/dev/null; }
    then
        echo "installing $apt"
        log=$build/install.log
        mkdir -p "$build"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086  # the lists are words on purpose
        $sudo apt-get install -y --no-install-recommends $apt >"$log" 2>&1 ||
            { $sudo apt-get update >>"$log" 2>&1 &&
              $sudo apt-get install -y --no-install-recommends $apt >>"$log" 2>&1; } ||
            { tail -n 5 "$log" >&2; }
    fi
    "have_$need" && exit 0
    if [ "$need" = matplotlib ] && command -v python3 >/dev/null 2>&1; then
        echo "installing matplotlib into $build/venv"
        python3 -m venv "$build/venv" >/dev/null 2>&1 &&
            "$build/venv/bin/python" -m pip install -q matplotlib >"$build/install.log" 2>&1
        "have_$need" && exit 0
    fi
fi
{
    echo "$need is missing; install it with one of"
    echo "    sudo apt-get install $apt"
    echo "    sudo dnf install $dnf"
    echo "    brew install $brew"
} >&2
exit 1
