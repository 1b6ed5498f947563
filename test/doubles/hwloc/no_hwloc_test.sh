#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: no_hwloc_test.sh PROGRAM FOLDER
# A program of four ranks runs where there is no hwloc that can be used, here a library of its name without a function, and each
# process says so in one line.
set -euo pipefail
program=$1 folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 60 env LD_LIBRARY_PATH="$folder" UCCLEP_DEVICE=host UCCLEP_DEBUG=INFO UCCLEP_DEBUG_FILE="$work/rank.%r" "$program"
for rank in 0 1 2 3; do
  grep -F 'the topology of this machine has only CPUs and names of NICs: libhwloc.so.15 has no function hwloc_get_api_version' "$work/rank.$rank" >"$work/why"
  [ "$(wc -l <"$work/why")" -eq 1 ] || { echo "rank $rank says it $(wc -l <"$work/why") times"; exit 1; }
  grep -E ' topology\] node 0 of 1, domain 0 of 1 \(ranks 0-3, memory\), no GPU, .*, proxies on [0-9]' "$work/rank.$rank"
done
