#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: example_test.sh EXAMPLE.c INCLUDE-FOLDER LIBRARY-FOLDER
# Builds the example as its reader would, with every warning an error, and runs it: four ranks, and none has a wrong value.
set -euo pipefail
example=$1 include=$2 library=$3
read -ra compiler <<<"${CC:-cc}"  # it may be two words, as in "ccache cc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$library"/libucclep.so.0 "$work/libucclep.so"
"${compiler[@]}" -std=c99 -Wall -Wextra -pedantic -Werror -I"$include" "$example" -o "$work/example" -L"$work" -lucclep -Wl,-rpath,"$library"
timeout 60 "$work/example" | tee "$work/output"
[ "$(grep -c '^rank [0-3]: 0 of 1024 values are wrong$' "$work/output")" -eq 4 ]
