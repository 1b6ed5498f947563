#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: from_nccl_test.sh PAGE.md INCLUDE-FOLDER LIBRARY-FOLDER
# Compiles the two C blocks of the page, with every warning an error, and runs them on four ranks: the results are equal.
set -euo pipefail
page=$1 include=$2 library=$3 here=$(dirname "$0")
read -ra compiler <<<"${CC:-cc}"  # it may be two words, as in "ccache cc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
block() { awk -v wanted="$1" '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside && n == wanted' "$page"; }
block 1 >"$work/before.h"
block 2 >"$work/after.h"
ln -s "$library"/libucclep.so.0 "$work/libucclep.so"
"${compiler[@]}" -std=gnu11 -Wall -Wextra -pedantic -Werror -I"$work" -I"$here/from_nccl" -I"$include" "$here/from_nccl/main.c" -o "$work/layers" \
  -pthread -L"$work" -lucclep -Wl,-rpath,"$library"
timeout 60 "$work/layers" | tee "$work/output"
[ "$(grep -c '^rank [0-3]: 0 of 1024 values are wrong$' "$work/output")" -eq 4 ]
