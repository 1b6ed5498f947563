#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: test-gpu.sh [--shard I/N] [--seconds S] [--only PROGRAM,...] [--json FILE] [FOLDER]
# Runs all tests that need GPUs with the executables in FOLDER: a build tree, or a bundle, which holds this script and is then
# the default. Needs bash and coreutils. Every program has a time limit, and a case that fails, hangs or crashes ends its process
# only: the rest go on in a new one. The last line is "N passed, M failed".
#   --shard I/N   every N-th case, from the I-th on (1..N)
#   --seconds S   no work is begun after S seconds; what was not run is said, and the exit status is 1
#   --only NAMES  of the programs: gpu_device, litmus, conformance, conformance-processes, network, network-processes, nodes-of-2,
#                 nodes-of-1, nodes-of-2-net, nodes-of-1-net, network-faults, network-copies, network-rounds, graphs,
#                 graphs-processes, stress, stress-processes, user-kernels, user-kernels-processes, examples, perf, memcheck, racecheck
#   UCCLEP_TEST_ITERATIONS=N in the environment: of stress and litmus, 10000 by default; of stress among processes a 20th of it
#                 where four of them take turns on fewer GPUs
#   UCCLEP_TEST_CASE_SECONDS=N in the environment: what a case may take, 150 by default
#   --json FILE   date, GPUs, commit, counts, seconds and values of each program, and how many ranks a GPU ran at most
# Where there are fewer GPUs than ranks, and nvidia-cuda-mps-control is on the PATH, ranks that are processes run beside each other
# on a GPU: this script starts an MPS daemon of its own, with folders of its own, for the programs named *-processes, network-copies
# and network-rounds on fewer than 4 GPUs, and for the examples and the perf tools among 2, 4 and 8 ranks on fewer than 8; and it
# stops it afterwards. Cases that kill ranks are left out of those programs, as a rank that dies may take the others' contexts along;
# their twins among threads (conformance, network, user-kernels) run them without MPS. Without MPS processes take turns on a GPU.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail_usage() {
  echo "test-gpu.sh: $1" >&2
  exit 2
}
shard=1 shards=1 budget=0 only='' json='' folder=''
while [ $# -gt 0 ]; do
  case $1 in
    --shard)
      [[ ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]] || fail_usage "--shard takes I/N, I from 1 to N"
      shard=${BASH_REMATCH[1]} shards=${BASH_REMATCH[2]}
      shift ;;
    --seconds) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail_usage "--seconds takes a number"; budget=$2; shift ;;
    --only) only=${2:?--only takes names of programs}; shift ;;
    --json) json=${2:?--json takes a file}; shift ;;
    -*) fail_usage "no such option: $1" ;;
    *) folder=$1 ;;
  esac
  shift
done
case_seconds=${UCCLEP_TEST_CASE_SECONDS:-150}
[[ $case_seconds =~ ^[1-9][0-9]*$ ]] || fail_usage "UCCLEP_TEST_CASE_SECONDS takes a number"
if [ -z "$folder" ]; then
  folder=$here
  [ -e "$folder/libucclep.so.0" ] || folder=$here/../build
fi
# libfabric is the machine's own, or one that the bundle brings.
if [ -d "$folder/fallback" ] && [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) != *libfabric.so.1* ]]; then
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/fallback
fi
scratch=$(mktemp -d)

# ---- Several ranks on a GPU, beside each other: an MPS daemon of this script, which no program but those begun by with_mps uses.
# Each rank takes its part of a GPU's SMs by itself: no limit is set here, as the library would divide what it leaves once more.
mps_state=off mps_folder=$scratch/mps mps_reason=''
shares_by_mps() { [ "$vendor" = cuda ] && [ "$gpus" -lt "$1" ] && [ -n "$(command -v nvidia-cuda-mps-control)" ]; }  # ranks
with_mps() { CUDA_MPS_PIPE_DIRECTORY=$mps_folder/pipe CUDA_MPS_LOG_DIRECTORY=$mps_folder/log "$@"; }
mps_control() {  # a line for the daemon
  with_mps timeout -k 5 30 nvidia-cuda-mps-control <<<"$1" >"$scratch/mps-output" 2>&1
}
start_mps() {  # false: mps_reason says why
  case $mps_state in on) return 0 ;; failed) return 1 ;; esac
  local status=0
  mps_state=on
  rm -rf "$mps_folder"
  (umask 077 && mkdir -p "$mps_folder/pipe" "$mps_folder/log") &&
    with_mps timeout -k 5 30 nvidia-cuda-mps-control -d </dev/null >"$scratch/mps-output" 2>&1 || status=$?
  mps_reason="nvidia-cuda-mps-control -d ended with $status"
  if [ $status -eq 0 ]; then
    if mps_control get_server_list; then
      echo "MPS: a daemon was started, so that ranks that share a GPU run beside each other"
      return 0
    fi
    mps_reason="nvidia-cuda-mps-control was started, but does not answer"
  fi
  mps_reason+=": $(cat "$scratch/mps-output" "$mps_folder/log/control.log" 2>/dev/null | tail -n 3 | tr '\n' ' ')"
  echo "test-gpu.sh: no MPS: $mps_reason" >&2
  stop_mps
  mps_state=failed
  return 1
}
stop_mps() {
  [ "$mps_state" = on ] || return 0
  mps_state=off
  local pid='' tries
  pid=$(cat "$mps_folder/pipe/nvidia-cuda-mps-control.pid" 2>/dev/null)
  mps_control quit
  [[ $pid =~ ^[1-9][0-9]*$ ]] || return 0
  for ((tries = 0; tries < 100; tries++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "test-gpu.sh: the MPS daemon, process $pid, did not quit within 10 s, and is ended" >&2
  kill -TERM "$pid" 2>/dev/null
}

trap 'stop_mps; rm -rf "$scratch"' EXIT

executable() {  # name: its path in a bundle or in a build tree
  local path
  for path in "$folder/$1" "$folder"/test/*/"$1" "$folder/perf/$1" "$folder/examples/$1"; do
    if [ -x "$path" ] && [ ! -d "$path" ]; then echo "$path"; return 0; fi
  done
  return 1
}

# ---- The GPUs, as the library finds them.
names=() reason=''
lister=$(executable gpu_device_test) || fail_usage "no test programs in $folder"
listing=$(timeout -k 5 60 "$lister" 'gpu: names' 2>&1)
vendor=cuda
while IFS= read -r line; do
  case $line in
    'gpu cuda: '*) names+=("${line#gpu cuda: }") ;;
    'gpu hip: '*) names+=("${line#gpu hip: }"); vendor=hip ;;
    'no gpu: '*) reason+=${reason:+; }${line#no gpu: } ;;
  esac
done <<<"$listing"
if [ ${#names[@]} -eq 0 ]; then
  echo "test-gpu.sh: no GPU can be used here: ${reason:-$listing}"
  exit 1
fi
gpus=${#names[@]}
commit=$(cat "$folder/commit.txt" 2>/dev/null || git -C "$here" describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || echo unknown)
echo "$gpus GPUs (${names[0]}), commit $commit"

# ---- Counting.
begin=$SECONDS
total_passed=0 total_failed=0 total_skipped=0 not_run=0 next_case=0
failures=() programs=()
passed=0 failed=0 skipped=0 values=()  # of one program
under_mps=no used_mps=no max_ranks=0  # whether it runs beside others on a GPU, and has; the most ranks of one of its cases
all_ranks=0                            # the most that a GPU ran, of all programs
status=0 late=no                       # of one command
quoted() {  # as a JSON string
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  text=${text//$'\n'/ }
  printf '"%s"' "${text//[[:cntrl:]]/}"
}
add_failure() {  # case, reason
  failed=$((failed + 1))
  failures+=("{\"program\": $(quoted "$program"), \"case\": $(quoted "$1"), \"reason\": $(quoted "$2")}")
  echo "FAILED: $program: $1: $2"
}
out_of_time() { [ "$budget" -gt 0 ] && [ $((SECONDS - begin)) -ge "$budget" ]; }
limited() {  # seconds: these, or what is left of the budget
  local left=$((budget - (SECONDS - begin)))
  if [ "$budget" -gt 0 ] && [ $left -lt "$1" ]; then echo $((left > 0 ? left : 1)); else echo "$1"; fi
}
mine() { [ $((next_case++ % shards + 1)) -eq "$shard" ]; }
show_output() {
  local line count=0
  tail -n 30 "$scratch/output" | while IFS= read -r line; do echo "    $line"; done
}
bounded() {  # seconds, command...: leaves its output, status, and whether it was late
  local start=$SECONDS
  status=0 late=no
  local run=()
  if [ $under_mps = yes ]; then run=(with_mps) used_mps=yes; fi
  { "${run[@]}" timeout -k 10 "$@" >"$scratch/output" 2>&1 </dev/null; } 2>/dev/null || status=$?
  # `timeout` dies of the signal that its command died of: 137 alone does not say that the time was up.
  if [ $status -eq 124 ] || { [ $status -eq 137 ] && [ $((SECONDS - start)) -ge "$1" ]; }; then late=yes; fi
}
collect_values() {  # "value: NAME = NUMBER" in what a program prints goes to the JSON file
  local line
  while IFS= read -r line; do
    [[ $line =~ ^value:\ (.*)\ =\ ([0-9.]+)$ ]] || continue
    values+=("$(quoted "${BASH_REMATCH[1]}"): ${BASH_REMATCH[2]}")
    echo "$line"
  done <"$scratch/output"
}

# Runs the cases in the array `cases` in one process, up to the first failure, and leaves those that have not begun there.
run_batch() {  # seconds, command...
  local limit running='' ended=no event name reason before=$failed left=()
  local -A begun=()
  limit=$(limited "$1")
  shift
  printf '%s\n' "${cases[@]//,/\\,}" >"$scratch/names"  # a comma would begin the next filter
  rm -f "$scratch/report"
  UCCLEP_TEST_REPORT=$scratch/report bounded "$limit" "$@" --abort --input-file "$scratch/names"
  collect_values
  if [ -f "$scratch/report" ]; then
    while IFS=$'\t' read -r event name reason; do
      case $event in
        begin) running=$name; begun[$name]=yes; continue ;;
        passed) passed=$((passed + 1)); ran "${reason:-0}" ;;
        skipped) skipped=$((skipped + 1)); echo "skipped: $program: $name: $reason" ;;
        failed)
          if [ $late = yes ]; then running=$name; continue; fi  # the time was up: see below
          add_failure "$name" failed
          show_output ;;
        end) ended=yes; continue ;;
      esac
      running=''
    done <"$scratch/report"
  fi
  if [ $late = yes ]; then
    if out_of_time; then
      not_run=$((not_run + ${#cases[@]} - ${#begun[@]} + (${#running} > 0)))
      cases=()
      return
    fi
    if [ -n "$running" ] && [ ${#begun[@]} -gt 1 ]; then
      begun[$running]=''  # it shared the time with the cases before it: it has all of it in the next process
    else
      add_failure "${running:-the run}" "no end within $limit s"
      show_output
    fi
  elif [ $status -ne 0 ] && [ $failed -eq $before ]; then
    add_failure "${running:-the run}" "exit code $status"
    show_output
  elif [ $failed -eq $before ] && { [ $ended = no ] || [ ${#begun[@]} -eq 0 ]; }; then
    add_failure "the run" "no report of a case"
  fi
  # Without a case that has begun, nothing would begin the next time either.
  if [ ${#begun[@]} -gt 0 ]; then
    for name in "${cases[@]}"; do [ -n "${begun[$name]:-}" ] || left+=("$name"); done
  fi
  cases=("${left[@]}")
  # What failed may have left the daemon without a working server.
  if [ $under_mps = yes ] && [ $failed -gt $before ]; then stop_mps; fi
}

# ---- What is run: a program is a Catch2 executable with a filter and an environment.
begin_program() {
  [[ -z $only || ,$only, == *,$1,* ]] || return 1
  program=$1 program_begin=$SECONDS passed=0 failed=0 skipped=0 values=() used_mps=no max_ranks=0
}
ran() { [ "$1" -le $max_ranks ] || max_ranks=$1; }  # ranks
skip_all() {  # reason, case...
  local name
  for name in "${@:2}"; do
    skipped=$((skipped + 1))
    echo "skipped: $program: $name: $1"
  done
}
end_program() {
  local seconds=$((SECONDS - program_begin)) entry
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + skipped))
  printf -v entry '{"name": %s, "passed": %d, "failed": %d, "skipped": %d, "seconds": %d' "$(quoted "$program")" $passed $failed $skipped $seconds
  if [ $max_ranks -gt 0 ]; then
    local on_a_gpu=$(((max_ranks + gpus - 1) / gpus))
    if [ $on_a_gpu -gt $all_ranks ]; then all_ranks=$on_a_gpu; fi
    entry+=", \"ranks\": $max_ranks, \"ranks_per_gpu\": $on_a_gpu, \"mps\": $([ $used_mps = yes ] && echo true || echo false)"
  fi
  if [ ${#values[@]} -gt 0 ]; then printf -v entry '%s, "values": {%s}' "$entry" "$(join "${values[@]}")"; fi
  programs+=("$entry}")
  echo "$program: $passed passed, $failed failed, $skipped skipped, $seconds s"
}
join() {
  local IFS=,
  echo "$*"
}

batch=12
catch_program() {  # name, executable, filter, command prefix...
  begin_program "$1" || return 0
  local path filter=$3 all=() cases=() rest name
  if ! path=$(executable "$2"); then add_failure "$2" "not in $folder"; end_program; return 0; fi
  while IFS= read -r name; do
    if [ -n "$name" ] && mine; then all+=("$name"); fi
  done < <(timeout -k 5 60 "$path" --list-test-names-only "$filter" </dev/null)
  while [ ${#all[@]} -gt 0 ]; do
    if out_of_time; then not_run=$((not_run + ${#all[@]})); break; fi
    if [ $under_mps = yes ] && ! start_mps; then skip_all "$mps_reason" "${all[@]}"; break; fi
    cases=("${all[@]:0:batch}")
    rest=("${all[@]:batch}")
    run_batch $case_seconds "${@:4}" "$path"
    all=("${cases[@]}" "${rest[@]}")
  done
  end_program
}

# As catch_program, with ranks that are processes: beside each other on a GPU where there are fewer GPUs than the suite's ranks.
process_program() {
  local filter=$3
  if shares_by_mps 4; then
    under_mps=yes filter+='~[killed]'
  fi
  UCCLEP_TEST_PROCESSES=1 catch_program "$1" "$2" "$filter" "${@:4}"
  under_mps=no
}

tool_run() {  # name of the case, ranks, command...: passes by its exit status and what it verified
  mine || return 0
  if out_of_time; then not_run=$((not_run + 1)); return 0; fi
  local name=$1 line verified=no
  if [ $under_mps = yes ] && ! start_mps; then skip_all "$mps_reason" "$name"; return 0; fi
  bounded "$(limited 120)" "${@:3}"
  while IFS= read -r line; do
    [[ $line =~ ^verified\ [1-9][0-9]*\ rows,\ 0\ wrong$ ]] && verified=yes
  done <"$scratch/output"
  if [ $status -eq 0 ] && [ $verified = yes ]; then
    passed=$((passed + 1))
    ran "$2"
  elif [ $late = yes ] && out_of_time; then
    not_run=$((not_run + 1))
  else
    add_failure "$name" "exit code $status, verified: $verified"
    show_output
  fi
}

# The example says of every rank how many values are wrong.
example_run() {  # name of the case, ranks, command...
  mine || return 0
  if out_of_time; then not_run=$((not_run + 1)); return 0; fi
  if [ $under_mps = yes ] && ! start_mps; then skip_all "$mps_reason" "$1"; return 0; fi
  bounded "$(limited 60)" "${@:3}"
  if [ $status -eq 0 ] && [ "$(grep -c '^rank [0-9]*: 0 of [1-9][0-9]* values are wrong$' "$scratch/output")" -eq "$2" ]; then
    passed=$((passed + 1))
    ran "$2"
  else
    add_failure "$1" "exit code $status"
    show_output
  fi
}

examples_program() {
  begin_program examples || return 0
  local name path ranks
  for name in fused_quantise_dispatch fused_topk_dispatch gemm_epilogue_combine gradient_epilogue layers_in_one_kernel ring_all_gather tiles_in_one_kernel; do
    path=$(executable $name) || { add_failure $name "not in $folder"; continue; }
    example_run $name "$gpus" "$path" "$gpus"
    under_mps=yes
    for ranks in 2 4 8; do
      if shares_by_mps $ranks; then example_run "$name, $ranks ranks" $ranks "$path" $ranks --share-gpus; fi
    done
    under_mps=no
  done
  end_program
}

perf_program() {
  begin_program perf || return 0
  local tool path ranks shape=(-w 2 -n 20 --timeout-ms 30000 --device "$vendor")
  for tool in dispatch_perf combine_perf; do
    path=$(executable $tool) || { add_failure $tool "not in $folder"; continue; }
    tool_run "$tool LL" "$gpus" "$path" --mode ll -g "$gpus" -b 128 -e 128 "${shape[@]}"
    tool_run "$tool HT" "$gpus" "$path" --mode ht -g "$gpus" -b 4096 -e 4096 "${shape[@]}"
    tool_run "$tool LL, processes" "$gpus" "$path" --mode ll --procs "$gpus" -b 8 -e 8 "${shape[@]}"
    under_mps=yes
    for ranks in 2 4 8; do
      shares_by_mps $ranks || continue
      tool_run "$tool LL, $ranks ranks" $ranks "$path" --mode ll --procs $ranks --share-gpus -b 128 -e 128 "${shape[@]}"
      tool_run "$tool HT, $ranks ranks" $ranks "$path" --mode ht --procs $ranks --share-gpus -b 1024 -e 1024 "${shape[@]}"
    done
    under_mps=no
  done
  if [ "$vendor" = cuda ]; then rounds_of_kernels; fi
  end_program
}
# Rounds by the device API, beside the library's: kernels of users.
rounds_of_kernels() {
  local path ranks shape=(-w 1 -n 5 --timeout-ms 30000 --device "$vendor")
  path=$(executable device_perf) || { add_failure device_perf "not in $folder"; return 0; }
  tool_run "device_perf LL" 1 "$path" -g 1 -b 32 "${shape[@]}"
  tool_run "device_perf HT" 1 "$path" --mode ht -g 1 -b 1024 --rounds 50 "${shape[@]}"
  under_mps=yes
  for ranks in 2 4 8; do
    shares_by_mps $ranks || continue
    tool_run "device_perf LL, $ranks ranks" $ranks "$path" --procs $ranks --share-gpus -b 8 "${shape[@]}"
    tool_run "device_perf HT, $ranks ranks" $ranks "$path" --mode ht --procs $ranks --share-gpus -b 256 --rounds 50 "${shape[@]}"
  done
  under_mps=no
}

find_sanitizer() {
  local path
  for path in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer "${CUDA_HOME:-/}"/bin/compute-sanitizer; do
    if [ -n "$path" ] && [ -x "$path" ]; then echo "$path"; return 0; fi
  done
  return 1
}
sanitizer_programs() {
  local tool sanitizer batch=3  # cases take ten times as long
  sanitizer=$(find_sanitizer)
  for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
      # Ranks are processes: those may share a GPU. The one that starts them asks the driver for nothing.
      UCCLEP_TEST_PROCESSES=1 UCCLEP_TIMEOUT_MS=120000 UCCLEP_TEST_REDUCED=1 catch_program $tool conformance_test '[checked]' \
        "$sanitizer" --tool $tool --error-exitcode 9 --target-processes all --require-cuda-init no
    elif begin_program $tool; then
      skipped=1
      echo "skipped: $tool: compute-sanitizer was not found"
      end_program
    fi
  done
}

export UCCLEP_TEST_HOLDS_CONTEXTS=1  # of all GPUs, between cases of ranks that are threads: making them takes 0.7 s a case
export UCCLEP_TEST_GPUS=$gpus UCCLEP_TEST_DEVICE=$vendor UCCLEP_TEST_ITERATIONS=${UCCLEP_TEST_ITERATIONS:-10000}
cases_of_all='~[.]~[long]~[stress]~[host]'  # [host]: what GPUs do not do
catch_program gpu_device gpu_device_test "$cases_of_all"
catch_program litmus litmus_test '[gpu]'
catch_program conformance conformance_test "$cases_of_all~[network]"
# Between virtual nodes: groups that make nodes of their own, then cases of the suite in nodes of 2 ranks and of 1.
catch_program network conformance_test "[network]$cases_of_all"
for ranks in 2 1; do
  export UCCLEP_TEST_RANKS_PER_NODE=$ranks
  UCCLEP_TRANSPORT=loopback catch_program nodes-of-$ranks conformance_test '[nodes]'
  UCCLEP_TRANSPORT=ofi:net catch_program nodes-of-$ranks-net conformance_test '[reduced][nodes]'
  unset UCCLEP_TEST_RANKS_PER_NODE
done
catch_program network-faults network_test "[faults]$cases_of_all"
catch_program graphs graph_test "$cases_of_all"
catch_program stress conformance_test '[stress]'
if [ "$vendor" = cuda ]; then catch_program user-kernels user_kernels_test "$cases_of_all"; fi

process_program conformance-processes conformance_test "[process]$cases_of_all~[network]"
process_program network-processes conformance_test "[network][process]$cases_of_all"
process_program network-copies network_test "[copies][reduced]$cases_of_all"
process_program network-rounds network_test "[rounds][reduced]$cases_of_all"
process_program graphs-processes graph_test "[process]$cases_of_all"
# Its four ranks, where they take turns: a switch for each wait.
iterations=$UCCLEP_TEST_ITERATIONS
[ "$gpus" -ge 4 ] || shares_by_mps 4 || UCCLEP_TEST_ITERATIONS=$((iterations / 20 + 1))
process_program stress-processes conformance_test '[stress]'
UCCLEP_TEST_ITERATIONS=$iterations
if [ "$vendor" = cuda ]; then
  process_program user-kernels-processes user_kernels_test "[process]$cases_of_all"
  examples_program
fi
perf_program
stop_mps
if [ "$vendor" = cuda ]; then sanitizer_programs; fi

seconds=$((SECONDS - begin))
if [ -n "$json" ]; then
  gpu_names=()
  for name in "${names[@]}"; do gpu_names+=("$(quoted "$name")"); done
  {
    echo "{\"date\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\", \"commit\": $(quoted "$commit"), \"gpu_count\": $gpus, \"gpus\": [$(join "${gpu_names[@]}")],"
    echo " \"shard\": \"$shard/$shards\", \"passed\": $total_passed, \"failed\": $total_failed, \"skipped\": $total_skipped, \"not_run\": $not_run, \"seconds\": $seconds, \"ranks_per_gpu\": $all_ranks,"
    echo " \"programs\": [$(join "${programs[@]}")],"
    echo " \"failures\": [$(join "${failures[@]}")]}"
  } >"$json"
fi
echo "Time: $seconds s"
[ $total_skipped -eq 0 ] || echo "$total_skipped skipped"
[ $not_run -eq 0 ] || echo "$not_run cases not run within $budget s: use --shard"
echo "$total_passed passed, $total_failed failed"
[ $total_failed -eq 0 ] && [ $total_passed -gt 0 ] && [ $not_run -eq 0 ]
