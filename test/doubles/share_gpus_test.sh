#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: share_gpus_test.sh DISPATCH_PERF VENDOR: more ranks than GPUs, over a double of the driver that has two of them.
set -euo pipefail
tool=$1
shape=(--device "$2" -b 16 --experts 16 --topk 4 --hidden 256 -n 1 --timeout-ms 60000)
export UCCLEP_DOUBLE_DEVICES=2
run() {  # status, words, options...
  local status=0 output
  output=$(timeout 120 "$tool" "${shape[@]}" "${@:3}" 2>&1) || status=$?
  if [ $status -ne "$1" ] || ! grep -qE -- "$2" <<<"$output"; then
    printf 'share_gpus_test.sh: %s: status %s, expected %s and "%s":\n%s\n' "${*:3}" $status "$1" "$2" "$output"
    exit 1
  fi
}
run 2 '4 ranks and 2 GPUs: each rank needs one; use --share-gpus to let processes share them, as in --procs 4 --share-gpus$' --procs 4
run 2 'use --procs 4 without -t and -g$' -t 4 --share-gpus
run 0 '^# 4 ranks share 2 GPUs: ' --procs 4 --share-gpus
run 0 '^#  Rank  3 .* device  1 ' --procs 4 --share-gpus
run 0 '^verified [1-9][0-9]* rows, 0 wrong$' --procs 2 -t 2 --share-gpus
run 0 '^verified [1-9][0-9]* rows, 0 wrong$' -t 2 --share-gpus
echo "ranks share GPUs when they are told to"
