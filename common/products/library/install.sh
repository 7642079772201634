#!/bin/sh
# install.sh BUILD PRIVATE [BETTER ...]: installs the library that lies in BUILD under $DESTDIR$PREFIX.
# install.sh --remove: takes away what the first form installed.
#   PRIVATE  what a program that links the archive needs besides (Libs.private)
#   BETTER   folders named after a level of x86-64, with the library for such processors
set -u
umask 022
library=$(dirname "$0")
version=$(sed -n 's/.*FIVE_STEPS_VERSION "\(.*\)".*/\1/p' "$library/five_steps.h")
major=${version%%.*}
prefix=${PREFIX:-/usr/local} destination=${DESTDIR:-}

refuse() { echo "make install: $1" >&2; exit 2; }

case $prefix in
/*) ;;
*) refuse "PREFIX=$prefix: is no path from the root; give PREFIX=$(pwd)/$prefix" ;;
esac
to=$destination$prefix
if [ "$1" = --remove ]; then
    [ -e "$to/include/five_steps.h" ] || [ -e "$to/lib/libfive_steps.a" ] ||
        { echo "five_steps is not installed in $to"; exit 0; }
    rm -f "$to/include/five_steps.h" "$to/lib/libfive_steps.a" "$to/lib/libfive_steps.so" \
        "$to/lib/libfive_steps.so.$major" "$to/lib/libfive_steps.so.$version" \
        "$to/lib/glibc-hwcaps"/x86-64-v?/libfive_steps.so.* "$to/lib/pkgconfig/five_steps.pc" \
        "$to/lib/cmake/five_steps"/*.cmake || refuse "$to: cannot be written to"
    echo "removed five_steps from $to"
    exit 0
fi
# For sed, which gives & \ and | a meaning.
quoted() { printf '%s' "$1" | sed 's/[&\|]/\\&/g'; }

mkdir -p "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/five_steps" 2>/dev/null && [ -w "$to/lib" ] ||
    refuse "$to: cannot be written to; give PREFIX=a directory of yours"
install -m 644 "$library/five_steps.h" "$to/include" &&
    install -m 644 "$1/libfive_steps.a" "$to/lib" &&
    install -m 755 "$1/libfive_steps.so" "$to/lib/libfive_steps.so.$version" &&
    ln -sf "libfive_steps.so.$version" "$to/lib/libfive_steps.so.$major" &&
    ln -sf "libfive_steps.so.$major" "$to/lib/libfive_steps.so" &&
    sed "s|@VERSION@|$version|" "$library/five_steps-config-version.cmake.in" \
        > "$to/lib/cmake/five_steps/five_steps-config-version.cmake" &&
    cp "$library/five_steps-config.cmake" "$to/lib/cmake/five_steps" &&
    sed -e "s|@PREFIX@|$(quoted "$prefix")|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE@|$2|" \
        "$library/five_steps.pc.in" > "$to/lib/pkgconfig/five_steps.pc" || exit 1
shift 2
for better in "$@"; do
    folder=$to/lib/glibc-hwcaps/${better##*/}
    mkdir -p "$folder" && install -m 755 "$better/libfive_steps.so" "$folder/libfive_steps.so.$version" &&
        ln -sf "libfive_steps.so.$version" "$folder/libfive_steps.so.$major" || exit 1
done
echo "installed five_steps $version in $to"
echo "to compile a program with it:
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  cc main.c \$(pkg-config --cflags --libs five_steps) -lm -o main"
