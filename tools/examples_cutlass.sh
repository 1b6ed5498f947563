#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/examples_cutlass.sh BUILD-TREE
# Fetches CUTLASS's headers from PyPI into BUILD-TREE/cutlass, once, and builds what needs them: layer_perf.
# CUTLASS_HEADERS=FOLDER takes a checkout of CUTLASS instead.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=${1:?usage: tools/examples_cutlass.sh BUILD-TREE}
wheel=nvidia_cutlass-4.2.0.0-py3-none-any.whl
digest=f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6

fail() {
  echo "examples_cutlass.sh: $1" >&2
  exit 1
}
command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null || fail "no nvcc: the examples with CUTLASS are for NVIDIA GPUs, and need CUDA 12.3 or newer"

fetch() {  # into the folder $1
  local folder=$1
  python3 -m pip download --quiet --no-deps --dest "$folder" --require-hashes -r <(echo "nvidia-cutlass==4.2.0.0 --hash=sha256:$digest") ||
    fail "cannot download nvidia-cutlass 4.2.0.0 from PyPI: install pip and allow the connection, or set CUTLASS_HEADERS to a checkout of CUTLASS 4.2"
  python3 -m zipfile -e "$folder/$wheel" "$folder"
}

if [ ! -f "$tree/cutlass/include/cutlass/cutlass.h" ]; then
  mkdir -p "$tree"
  folder=$(mktemp -d -p "$tree")
  trap 'rm -rf "$folder"' EXIT
  source=${CUTLASS_HEADERS:-$folder/cutlass_library/source}
  if [ -z "${CUTLASS_HEADERS:-}" ]; then fetch "$folder"; fi
  [ -f "$source/include/cutlass/cutlass.h" ] || fail "$source has no include/cutlass/cutlass.h: expected a checkout of CUTLASS"
  mkdir -p "$folder/cutlass/tools/util"
  cp -R "$source/include" "$folder/cutlass/"
  cp -R "$source/tools/util/include" "$folder/cutlass/tools/util/"
  rm -rf "$tree/cutlass"
  mv "$folder/cutlass" "$tree/cutlass"
  rm -rf "$folder"  # exec runs no trap
fi

tools/build.sh "$tree" build.ninja >/dev/null
ninja -C "$tree" -t query examples-cutlass >/dev/null 2>&1 ||
  fail "the tree $tree was configured without nvcc code for sm_90a: remove it, or configure it with -Dcuda=enabled"
exec tools/build.sh "$tree" examples-cutlass
