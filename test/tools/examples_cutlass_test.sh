#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: examples_cutlass_test.sh TOOLS-FOLDER
# tools/examples_cutlass.sh with programs that stand for nvcc, pip, ninja and the build: what it fetches, where, and what it says
# when it cannot.
set -euo pipefail
tools=$(cd "${1:?usage: examples_cutlass_test.sh TOOLS-FOLDER}" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/project/tools" "$folder/bin" "$folder/cutlass/include/cutlass" "$folder/cutlass/tools/util/include"
cp "$tools/examples_cutlass.sh" "$folder/project/tools/"
touch "$folder/cutlass/include/cutlass/cutlass.h" "$folder/cutlass/tools/util/include/util.h"

program() {  # NAME TEXT
  printf '#!/bin/bash\n%s\n' "$2" >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}
program nvcc 'exit 0'
program ninja 'exit 0'
program python3 'echo "$*" >>"'"$folder"'/python"; exit 1'
printf '#!/bin/bash\necho "built: $*"\n' >"$folder/project/tools/build.sh"
chmod +x "$folder/project/tools/build.sh"

run() { (export PATH="$folder/bin:$PATH"; "$folder/project/tools/examples_cutlass.sh" "$@" 2>&1); }
fails() {  # WORDS ARGUMENT..
  local words=$1 output
  shift
  if output=$(run "$@"); then
    echo "examples_cutlass.sh $* ended well, expected: $words" >&2
    exit 1
  fi
  [[ $output == *"$words"* ]] || { echo "examples_cutlass.sh $* printed: $output, expected: $words" >&2; exit 1; }
}

fails 'usage: tools/examples_cutlass.sh BUILD-TREE'
fails 'cannot download nvidia-cutlass' tree
grep -q 'pip download .*--require-hashes' "$folder/python"
CUTLASS_HEADERS=$folder/bin fails "$folder/bin has no include/cutlass/cutlass.h" tree
[ ! -e "$folder/project/tree/cutlass" ] || { echo 'a failure left headers behind' >&2; exit 1; }

built=$(CUTLASS_HEADERS=$folder/cutlass run tree)
[[ $built == *'built: tree examples-cutlass'* ]] || { echo "printed: $built" >&2; exit 1; }
[ -f "$folder/project/tree/cutlass/include/cutlass/cutlass.h" ] && [ -f "$folder/project/tree/cutlass/tools/util/include/util.h" ]
[ -z "$(find "$folder/project/tree" -maxdepth 1 -name 'tmp.*')" ] || { echo 'a folder is left' >&2; exit 1; }

: >"$folder/python"
[[ $(run tree) == *'built: tree examples-cutlass'* ]]
[ ! -s "$folder/python" ] || { echo 'headers were fetched twice' >&2; exit 1; }

program ninja 'exit 1'
fails 'was configured without nvcc code for sm_90a' tree
echo 'all as expected'
