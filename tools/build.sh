#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/build.sh build|build-check|build-tsan|build-asan|build-fuzz [ninja target...]
# Configures the build tree when it is new, builds it, and ends with the line that says which GPU code is embedded.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=${1:?usage: tools/build.sh build|build-check|build-tsan|build-asan|build-fuzz [ninja target...]}
shift

# Files are compiled a dozen at a time, for build time; in build-fuzz by themselves, as its programs take single objects.
# Line numbers are all the debug information that a backtrace needs. The sanitizer trees hold no GPU code, which nothing there could
# run, and are little optimised, for build time.
options=(-Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1)
joined=(-Dunity=on -Dunity_size=12)
sanitizer_options=(-Dcuda=disabled -Dhip=disabled -Doptimization=1 -Db_lundef=false)
case $tree in
  build) options+=("${joined[@]}") ;;
  # For `make check`: GPU code for one target, of NVIDIA.
  build-check) options+=(-Dhip=disabled "${joined[@]}") ;;
  # gcc's ThreadSanitizer takes minutes where clang's takes seconds.
  build-tsan) options+=(-Db_sanitize=thread "${joined[@]}" "${sanitizer_options[@]}") ;;
  build-asan) options+=(-Db_sanitize=address,undefined "${joined[@]}" "${sanitizer_options[@]}") ;;
  build-fuzz) options+=(-Dfuzz=true -Db_sanitize=address,undefined "${sanitizer_options[@]}") ;;
  *) echo "build.sh: no such build tree: $tree" >&2; exit 1 ;;
esac
if [ "$tree" != build ] && [ "$tree" != build-check ]; then
  export CC=clang-19 CXX=clang++-19
fi

quietly() {  # shows the output only of a command that fails
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  [ $status -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return $status
}

# A tree is configured again when an optional tool has come or gone since, such as a GPU compiler.
optional_tools=$(command -v nvcc /usr/local/cuda/bin/nvcc clang++-19 cmake mpicc | sort -u || true)
if [ ! -f "$tree/build.ninja" ]; then
  rm -rf "$tree"
  quietly meson setup "$tree" -Dwerror="${WERROR:-false}" "${options[@]}"
else
  if [ -n "${WERROR:-}" ]; then quietly meson configure "$tree" -Dwerror="$WERROR"; fi
  if [ "$optional_tools" != "$(cat "$tree/optional_tools.txt" 2>/dev/null)" ]; then quietly meson setup --reconfigure "$tree"; fi
fi
echo "$optional_tools" >"$tree/optional_tools.txt"
quietly ninja -C "$tree" "$@"
cat "$tree/gpu_code.txt"
