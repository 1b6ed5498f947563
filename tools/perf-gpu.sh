#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: perf-gpu.sh [--gpus N] [--seconds S] [FOLDER [RESULTS]]
# Measures the machine's GPUs, one rank each, with the tools in FOLDER: a build tree, or a bundle, which holds this script and is
# then the default. First ceiling_perf, then dispatch and combine as ratios to its bound: HT on 24 SMs, plain, with windows and as graphs,
# on more SMs, expert-major, with 512 tokens and with one hot rank; LL at 8 to 128 tokens, plain and as graphs; then the command ring
# of one GPU. The JSON files go to RESULTS (./perf-gpu). Needs bash and coreutils.
# Each run has a time limit, and none begins after S seconds (240). The last line is "verified N rows, M wrong", the sum over the
# runs; the exit status is 0 when all of them ended well.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

gpus=0 budget=240
while [[ ${1:-} == --* ]]; do
  case $1 in
    --gpus) gpus=${2:?--gpus takes a number} ;;
    --seconds) budget=${2:?--seconds takes a number} ;;
    *) echo "perf-gpu.sh: no such option: $1" >&2; exit 2 ;;
  esac
  shift 2
done
folder=${1:-$here}
if [ $# -eq 0 ] && [ ! -e "$folder/libucclep.so.0" ]; then folder=$here/../build; fi
if [ -d "$folder/perf" ]; then folder=$folder/perf; fi
results=${2:-perf-gpu}
mkdir -p "$results"

rows=0 wrong=0 status=0
run() {  # name, seconds, tool, arguments...
  if [ $SECONDS -ge "$budget" ]; then
    echo "perf-gpu.sh: $1 was not run within $budget s" >&2
    status=1
    return 0
  fi
  local log=$results/$1.txt code=0
  rm -f "$results/$1.json"
  echo "== $1: ${*:3}"
  timeout -k 5 "$2" "$folder/$3" "${@:4}" -J "$results/$1.json" >"$log" 2>&1 </dev/null || code=$?
  grep -E '^([^#]|#( +(tokens|producers)|  +[a-z+]*(update|dispatch|combine)| Floors| Target| .*first mistake))' "$log"  # tables and what went wrong
  if [ $code -ne 0 ]; then
    echo "perf-gpu.sh: $1 ended with $code" >&2
    status=1
  fi
  read -r _ n _ m _ < <(grep -E '^verified [0-9]+ rows, [0-9]+ wrong$' "$log" | tail -n 1) || return 0
  rows=$((rows + n))
  wrong=$((wrong + m))
}

run ceiling 120 ceiling_perf -g "$gpus" -n 30 --ll-tokens 8,32,128
if [ $status -ne 0 ]; then
  echo "perf-gpu.sh: there is no speed-of-light bound, so no times are given as a ratio to it" >&2
  exit 1
fi
if [ "$gpus" -eq 0 ]; then gpus=$(grep -c '^#  Rank' "$results/ceiling.txt"); fi
common=(-t "$gpus" -n 20 -w 2 -c 20 --timeout-ms 10000 --ceiling "$results/ceiling.json")
ht=(--mode ht "${common[@]}")
ll=(--mode ll -b 8 -e 128 -f 4 "${common[@]}")
run ll-dispatch 60 dispatch_perf "${ll[@]}"
run ll-dispatch-quant 60 dispatch_perf "${ll[@]}" --quant
run ll-combine 60 combine_perf "${ll[@]}"
run ht-dispatch 90 dispatch_perf "${ht[@]}" --sms 24 --dtype bf16,fp8
run ht-combine 90 combine_perf "${ht[@]}" --sms 24
run ll-combine-graph 60 combine_perf "${ll[@]}" --graph
run ht-dispatch-windows 90 dispatch_perf "${ht[@]}" --sms 24 --dtype bf16,fp8 --windows
run ht-combine-windows 90 combine_perf "${ht[@]}" --sms 24 --windows
run ht-combine-graph 90 combine_perf "${ht[@]}" --sms 24 --graph
run ht-dispatch-32-sms 60 dispatch_perf "${ht[@]}" --sms 32
run ht-combine-32-sms 60 combine_perf "${ht[@]}" --sms 32
run ht-combine-expert-major 90 combine_perf "${ht[@]}" --sms 40 --layout expert_major
run ht-dispatch-512 60 dispatch_perf "${ht[@]}" --sms 24 -b 512 --windows
run ceiling-skew 60 ceiling_perf -g "$gpus" -n 30 --ll-tokens 8 --skew 2
run ht-dispatch-skew 60 dispatch_perf "${ht[@]}" --sms 24 --skew 2 --windows --ceiling "$results/ceiling-skew.json"
run fifo 90 fifo_perf
echo "Time: $SECONDS s"
echo "verified $rows rows, $wrong wrong"
[ $status -eq 0 ] && [ $rows -gt 0 ] && [ $wrong -eq 0 ]
