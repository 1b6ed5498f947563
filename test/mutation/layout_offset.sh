#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: layout_offset.sh SOURCE-TREE CONFORMANCE-TEST
# A negative control of the conformance suite: builds the library with one wrong offset in layout.hpp, and asserts that cases
# which pass with the real library fail with this one, at both wave sizes and with processes.
set -euo pipefail
source=$1 suite=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The library alone: without the folders of the tests and tools the build has no more.
cp -R "$source"/{meson.build,meson_options.txt,src,include,tools} "$work"
layout=$work/include/ucclep/device/layout/window.hpp
# The experts of a row lie on its positions.
sed -i 's/m\.experts = m\.positions + 4 \* top_k;/m.experts = m.positions;/' "$layout"
if cmp -s "$layout" "$source/include/ucclep/device/layout/window.hpp"; then
  echo "layout.hpp no longer has the line that this test changes"
  exit 1
fi
meson setup "$work/build" "$work" -Dcuda=disabled -Dhip=disabled -Doptimization=1 -Ddebug=false >"$work/log" || { cat "$work/log"; exit 1; }
ninja -C "$work/build" >"$work/log" || { cat "$work/log"; exit 1; }
mutant=$(find "$work/build/src" -maxdepth 1 -type f -name 'libucclep.so.*.*.*')

cases='C32*,C42*'
control() {  # name, environment...
  local name=$1 failed=0
  shift
  if ! env UCCLEP_DEVICE=host "$@" "$suite" "$cases" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "$name: the cases fail with the real library"
    exit 1
  fi
  env UCCLEP_DEVICE=host "$@" LD_PRELOAD="$mutant" "$suite" "$cases" >"$work/log" 2>&1 || failed=1
  # A failed check, and not merely a test that could not run.
  if [ $failed -eq 0 ] || ! grep -q '^  rank [0-9]*:' "$work/log"; then
    cat "$work/log"
    echo "$name: nobody noticed the wrong offset"
    exit 1
  fi
  echo "$name: $(grep -c '^  rank [0-9]*:' "$work/log") ranks saw the wrong offset"
}
control "wave 32" UCCLEP_HOST_WAVE=32
control "wave 64" UCCLEP_HOST_WAVE=64
control "processes" UCCLEP_TEST_PROCESSES=1
