#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: programs_bundle_test.sh BUNDLE.PY BUILD-TREE: a bundle of one program alone. Exits with 77 where there is no patchelf.
set -euo pipefail
script=$1 tree=$2
if ! command -v patchelf >/dev/null; then echo "there is no patchelf"; exit 77; fi
if grep -q gfx90a "$tree/gpu_code.txt"; then echo "the tree has code for all AMD GPUs, which is more than such a bundle holds"; exit 77; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "programs_bundle_test.sh: $1" >&2
  exit 1
}
[ "$("$script" --targets "$tree" dispatch_perf | tr ' ' '\n' | sort | sed 's/\.so\..*/.so/' | paste -sd ' ')" = "perf/dispatch_perf src/libucclep.so" ] ||
  fail "Ninja would be asked for $("$script" --targets "$tree" dispatch_perf)"
"$script" "$tree" "$work/bundle" dispatch_perf
[ -s "$work/bundle/commit.txt" ] || fail "the bundle does not say its commit"
others=$(find "$work/bundle" -mindepth 1 -printf '%f\n' | grep -vxE 'dispatch_perf|commit\.txt|lib.*\.so\.[0-9]+' || true)
[ -z "$others" ] || fail "the bundle of dispatch_perf has $others"
"$work/bundle/dispatch_perf" --device host -t 2 --experts 8 --topk 2 --hidden 64 -b 4 -n 1 | grep -x 'verified [1-9][0-9]* rows, 0 wrong'
if "$script" "$tree" "$work/other" no_such_program >"$work/output" 2>&1; then fail "a program that is not there is bundled"; fi
grep -q 'no program no_such_program; there are: .*dispatch_perf' "$work/output" || fail "it says: $(cat "$work/output")"
