#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: perf-nodes-gpu.sh [--gpus N] [--nodes M] [--transports NAME,...] [--seconds S] [FOLDER [RESULTS]]
# Measures the machine's GPUs, or N of them, as M (2) virtual nodes, of one GPU each or more, with the tools in FOLDER: a build tree,
# or a bundle, which holds this script and is then the default. For each transport (loopback,ofi:net): what it moves between pinned
# windows; dispatch and combine across the nodes, of LL and of HT; and right after each what transport_perf needs for the same bytes
# in as many writes, with a line that says whether the operation kept to what that allows: in LL 1.5 times that and 25 us, in HT a
# fifth less bandwidth. The JSON files go to RESULTS (./perf-nodes-gpu). Needs bash and coreutils.
# Each run has a time limit, and none begins after S seconds (240). The last line is "verified N rows, M wrong", the sum over the
# operations; the exit status is 0 when all runs ended well.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

ranks=() nodes=2 transports=loopback,ofi:net budget=240
while [[ ${1:-} == --* ]]; do
  case $1 in
    --gpus) ranks=(-t "${2:?--gpus takes a number}") ;;
    --nodes) nodes=${2:?--nodes takes a number} ;;
    --transports) transports=${2:?--transports takes names} ;;
    --seconds) budget=${2:?--seconds takes a number} ;;
    *) echo "perf-nodes-gpu.sh: no such option: $1" >&2; exit 2 ;;
  esac
  shift 2
done
folder=${1:-$here}
if [ $# -eq 0 ] && [ ! -e "$folder/libucclep.so.0" ]; then folder=$here/../build; fi
results=${2:-perf-nodes-gpu}
mkdir -p "$results"
# libfabric is the machine's own, or one that the bundle brings.
if [ -d "$folder/fallback" ] && [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) != *libfabric.so.1* ]]; then
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/fallback
fi

tool() {  # name: its path in a bundle or in a build tree
  local path
  for path in "$folder/$1" "$folder/perf/$1" "$folder"/perf/*/"$1"; do
    if [ -f "$path" ]; then echo "$path"; return 0; fi
  done
  echo "perf-nodes-gpu.sh: $1 is not in $folder" >&2
  return 1
}

rows=0 wrong=0 status=0
run() {  # name, seconds, tool, arguments...
  if [ $SECONDS -ge "$budget" ]; then
    echo "perf-nodes-gpu.sh: $1 was not run within $budget s" >&2
    status=1
    return 1
  fi
  local log=$results/$1.txt code=0 path
  path=$(tool "$3") || { status=1; return 1; }
  rm -f "$results/$1.json"
  echo "== $1: ${*:3}"
  timeout -k 5 "$2" "$path" "${@:4}" -J "$results/$1.json" >"$log" 2>&1 </dev/null || code=$?
  grep -E '^([^#]|#( +(tokens|bytes)|  +[a-z+]*(update|dispatch|combine|wire)| .*first mistake))' "$log"  # tables and what went wrong
  if [ $code -ne 0 ]; then
    echo "perf-nodes-gpu.sh: $1 ended with $code" >&2
    status=1
  fi
  read -r _ n what m _ < <(grep -E '^verified [0-9]+ (rows|messages), [0-9]+ wrong$' "$log" | tail -n 1) || return 1
  if [ "$what" = rows, ]; then
    rows=$((rows + n))
    wrong=$((wrong + m))
  fi
  return $code
}
operation() {  # name, tool, arguments...: it, and then its messages alone
  run "$1" 60 "$2" "${@:3}" "${ranks[@]}" -w 2 --timeout-ms 10000 --nodes "$nodes" --transport "$transport" || return 0
  run "$1-wire" 30 transport_perf "$transport" --memory pinned -n 20 --as "$results/$1.json"
}

for transport in ${transports//,/ }; do
  name=${transport//[^a-z0-9]/-}
  run "$name-bare" 30 transport_perf "$transport" --memory pinned -b 65536,262144 -t 0.1 -n 3
  operation "$name-ll-dispatch" dispatch_perf --mode ll -b 8 -e 128 -f 4 -n 20 -c 20
  operation "$name-ll-combine" combine_perf --mode ll -b 8 -e 128 -f 4 -n 20 -c 20
  operation "$name-ht-dispatch" dispatch_perf --mode ht -b 512 -e 4096 -f 8 -n 10 -c 10
  operation "$name-ht-combine" combine_perf --mode ht -b 512 -e 4096 -f 8 -n 10 -c 10
done
echo "Time: $SECONDS s"
echo "verified $rows rows, $wrong wrong"
[ $status -eq 0 ] && [ $rows -gt 0 ] && [ $wrong -eq 0 ]
