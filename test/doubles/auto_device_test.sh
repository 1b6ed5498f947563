#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: auto_device_test.sh PROGRAM FOLDER-OF-DOUBLES
# A program of four ranks, linked with the library as it is installed, without UCCLEP_DEVICE: it starts and runs without a GPU
# driver, and with drivers for whose devices the library holds no code. Each rank says once why it uses the host device.
set -euo pipefail
program=$1 doubles=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

falls_back() {  # name, words of the reason, environment...
  local name=$1 words=$2 rank reason
  rm -f "$work"/rank.*
  timeout 60 env -u UCCLEP_DEVICE UCCLEP_DEBUG=INFO UCCLEP_DEBUG_FILE="$work/rank.%r" "${@:3}" "$program"
  for rank in 0 1 2 3; do
    reason=$(grep -F 'using the host device: ' "$work/rank.$rank" || true)
    if [ -z "$reason" ] && [ "$name" = "no driver" ]; then
      echo "this machine has a GPU"
      exit 77
    fi
    if [ "$(wc -l <<<"$reason")" -ne 1 ] || ! grep -qE "$words" <<<"$reason"; then
      echo "$name: rank $rank says: $reason"
      exit 1
    fi
  done
  echo "$name: $reason"
}
falls_back "no driver" 'CUDA driver.*; .*HIP driver' "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
falls_back "no code for the device" 'no code in this library runs on CUDA 0 \(double\).*; no code in this library runs on HIP 0' \
  "LD_LIBRARY_PATH=$doubles"
