#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: races_test.sh BUILD-TREE SOURCE-TREE COMPILER...
# An example, as its reader debugs it, with the library that `make sanitized-library` installs: ThreadSanitizer has nothing to say of
# it, and reports the race where a barrier is taken out.
set -euo pipefail
tree=$1 source=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
"$source/tools/install.sh" "$prefix" "$tree"
compile() {  # compiler...
  "$@" -std=c++20 -O1 -g -fsanitize=thread -I"$prefix/include" -I"$source/examples" -x c++ "$work/kernel.cu" -o "$work/kernel" -L"$prefix/lib" -lucclep \
    -Wl,-rpath,"$prefix/lib"
}
run() { UCCLEP_DEVICE=host UCCLEP_HOST_WORKERS=2 timeout 120 "$work/kernel" 2 --threads >"$work/output" 2>&1; }

cp "$source/examples/fused_quantise_dispatch.cu" "$work/kernel.cu"
compile "$@"
run || { cat "$work/output"; exit 1; }
[ "$(grep -c ': 0 of [1-9][0-9]* values are wrong$' "$work/output")" -eq 2 ]

# Lanes send a row before the others of the warp have written their part of it.
sed -i '/ucclep::sync_warp();/d' "$work/kernel.cu"
! cmp -s "$source/examples/fused_quantise_dispatch.cu" "$work/kernel.cu" || { echo "the example has no barrier"; exit 1; }
compile "$@"
if run; then echo "a race was not reported"; exit 1; fi
grep -m 1 'WARNING: ThreadSanitizer: data race' "$work/output"
grep -m 1 'quantise_and_send' "$work/output"
