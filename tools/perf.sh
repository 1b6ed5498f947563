#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs dispatch_perf and combine_perf in both modes among 8 ranks, or as many as there are NVIDIA GPUs, if those are fewer. The last line is "verified N rows, M wrong", the sum over the runs.
set -uo pipefail
cd "$(dirname "$0")/.."

ranks=8
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if [ "$gpus" -gt 0 ] && [ "$gpus" -lt "$ranks" ]; then ranks=$gpus; fi  # a rank for each GPU
ll_tokens=128
ht_full=4096
ht_tokens=$ht_full
cores=$(nproc)
if [ "$cores" -lt 32 ]; then  # on the host device time goes with tokens over cores
  ht_tokens=512
fi
shape=(-t "$ranks" --hidden 7168 --experts 256 --topk 8 --dtype bf16 -c 1)

rows=0
wrong=0
status=0
run() {  # tool, mode, other arguments...
  local log line
  local command=("build/perf/$1" --mode "$2" "${@:3}" -J "build/perf/$1_$2.json")
  rm -f "build/perf/$1_$2.json"
  log=$(mktemp)
  echo "$ ${command[*]}"
  "${command[@]}" 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
  line=$(grep -E '^verified [0-9]+ rows, [0-9]+ wrong$' "$log" | tail -n 1)
  rm -f "$log"
  if [ -z "$line" ]; then
    echo "perf.sh: $1 did not say how many rows it verified" >&2
    status=1
    return 0
  fi
  read -r _ n _ m _ <<<"$line"
  rows=$((rows + n))
  wrong=$((wrong + m))
}

if [ "$ht_tokens" -ne "$ht_full" ]; then
  echo "High-throughput runs use $ht_tokens tokens per rank instead of $ht_full, to fit $cores cores."
fi
for tool in dispatch_perf combine_perf; do
  run $tool ll -b $ll_tokens -e $ll_tokens -w 1 -n 5 "${shape[@]}"
  run $tool ht -b $ht_tokens -e $ht_tokens -w 1 -n 3 "${shape[@]}"
done
echo "verified $rows rows, $wrong wrong"
[ $status -eq 0 ] && [ "$rows" -gt 0 ] && [ "$wrong" -eq 0 ]
