#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: deb_test.sh FOLDER
# What the Debian packages in FOLDER (make deb) hold is whole: unpacked together, a program compiles by pkg-config and runs, the tools
# run, and Python finds the library.
set -euo pipefail
folder=${1:?usage: deb_test.sh FOLDER}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for package in libucclep0 libucclep-dev ucclep-tools python3-ucclep; do dpkg-deb -x "$folder/$package"_*.deb "$root"; done
libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
export LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$libraries/pkgconfig UCCLEP_DEVICE=host
cat >"$root/version.c" <<'END'
#include <ucclep/ucclep.h>
int main(void) {
  int version = 0;
  return ucclEpGetVersion(&version) != ucclEpSuccess || version != UCCLEP_VERSION;
}
END
# shellcheck disable=SC2046  # a list of options
gcc "$root/version.c" -o "$root/version" $(pkg-config --cflags --libs ucclep)
"$root/version"
"$root/usr/bin/ucclep-topo" --version >/dev/null
"$root/usr/bin/dispatch_perf" -g 2 -b 8 -n 1 --hidden 64 --experts 8 --topk 2 | grep -q ' 0 wrong$'
man -l "$root"/usr/share/man/man1/ucclep-topo.1.gz >/dev/null
PYTHONPATH=$root/usr/lib/python3/dist-packages python3 -B -c 'import ucclep; print(ucclep.__file__)' | grep -q "^$root"
echo "deb_test.sh: the packages are whole"
