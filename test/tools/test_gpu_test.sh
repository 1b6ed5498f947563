#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: test_gpu_test.sh REPORT-SAMPLE TOOLS-FOLDER: how tools/test-gpu.sh runs and counts, with programs that need no GPU.
set -euo pipefail
sample=$(realpath "$1") script=$2/test-gpu.sh
bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT

stub() {  # name, script
  printf '#!/bin/bash\n%s\n' "$2" >"$bundle/$1"
  chmod +x "$bundle/$1"
}
expect() {  # what, wanted, got
  [ "$2" = "$3" ] || { printf '%s: expected "%s", got "%s"\n' "$1" "$2" "$3"; cat "$bundle/log"; exit 1; }
}
run() {  # arguments: leaves output, status and the last line
  status=0
  "$script" "$@" --json "$bundle/json" "$bundle" >"$bundle/log" 2>&1 || status=$?
  last=$(tail -n 1 "$bundle/log")
}

stub gpu_device_test 'echo "no gpu: libnone.so was not found"'
run
expect "status without a GPU" 1 $status
expect "message" "test-gpu.sh: no GPU can be used here: libnone.so was not found" "$last"

stub gpu_device_test 'echo "gpu cuda: CUDA 0 (\"stub\")"; echo "gpu cuda: CUDA 1 (stub)"'
echo 0123abc >"$bundle/commit.txt"
ln -s "$sample" "$bundle/conformance_test"
run --only conformance
expect "cases that pass, fail, throw and are killed" "3 passed, 3 failed" "$last"
expect "status" 1 $status
grep -q '^FAILED: conformance: is killed: exit code 137$' "$bundle/log" || { cat "$bundle/log"; exit 1; }
python3 - "$bundle/json" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
assert summary["gpus"] == ['CUDA 0 ("stub")', "CUDA 1 (stub)"] and summary["gpu_count"] == 2, summary
assert summary["commit"] == "0123abc", summary
assert (summary["passed"], summary["failed"], summary["skipped"], summary["not_run"]) == (3, 3, 1, 0), summary
assert [(program["name"], program["passed"]) for program in summary["programs"]] == [("conformance", 3)], summary
assert {failure["case"] for failure in summary["failures"]} == {"fails", "throws after a skip", "is killed"}, summary
PYTHON

sum=0
for shard in 1/3 2/3 3/3; do
  run --only conformance --shard $shard
  read -r passed _ failed _ <<<"$last"
  sum=$((sum + passed + failed))
done
expect "cases in all shards" 6 $sum

# The time of a process of several cases is what one of them may take.
UCCLEP_TEST_CASE_SECONDS=4 run --only network
expect "cases that take their time, and one that does not end" "3 passed, 1 failed" "$last"
grep -q '^FAILED: network: does not end: no end within 4 s$' "$bundle/log" || { cat "$bundle/log"; exit 1; }
UCCLEP_TEST_CASE_SECONDS=soon run --only network
expect "a limit that is no number" "2 test-gpu.sh: UCCLEP_TEST_CASE_SECONDS takes a number" "$status $last"
run --only network --seconds 3
read -r passed _ failed _ <<<"$last"
expect "failures when the time is up" 0 "$failed"
expect "cases that passed, or are said not to have run" 4 $((passed + $(sed -n 's/ cases not run within 3 s.*//p' "$bundle/log")))

stub dispatch_perf 'echo "verified 5 rows, 0 wrong"'
stub combine_perf 'echo "verified 5 rows, 1 wrong"; exit 1'
cp "$bundle/dispatch_perf" "$bundle/device_perf"
run --only perf
expect "perf tools" "5 passed, 3 failed" "$last"

stub combine_perf 'sleep 100'
run --only perf --seconds 1
expect "within a second" "not run" "$(grep -o 'not run' "$bundle/log" | head -n 1)"
expect "status" 1 $status

# Several ranks on a GPU: a daemon that notes what it is asked for, and programs that note how they reach it.
mkdir "$bundle/path"
stub path/nvidia-cuda-mps-control '
notes=$(dirname "$0")/../notes pipe=$CUDA_MPS_PIPE_DIRECTORY
[ -z "${MPS_FAILS:-}" ] || { echo "no GPU for it"; exit 1; }
if [ "${1:-}" = -d ]; then
  echo "start, folder $(stat -c %a "$pipe"), logs in $(basename "$CUDA_MPS_LOG_DIRECTORY")" >>"$notes"
  sleep 300 >/dev/null 2>&1 &
  echo $! >"$pipe/nvidia-cuda-mps-control.pid"
  exit 0
fi
read -r line
echo "$line" >>"$notes"
if [ "$line" = quit ] && [ -z "${MPS_STAYS:-}" ]; then kill "$(cat "$pipe/nvidia-cuda-mps-control.pid")"; fi'
stub graph_test '
notes=$(dirname "$0")/notes
if [ "$1" = --list-test-names-only ]; then
  echo "is right"; echo "is wrong"
  [[ $2 == *"~[killed]"* ]] || echo "kills a rank"
  exit 0
fi
where=none
[ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || where=$(basename "$CUDA_MPS_PIPE_DIRECTORY")
while IFS= read -r name; do
  echo "$name, pipe $where, processes ${UCCLEP_TEST_PROCESSES:-0}" >>"$notes"
  printf "begin\t%s\n" "$name"
  if [ "$name" = "is wrong" ] && [ -n "${IS_WRONG:-}" ]; then printf "failed\t%s\twhy\n" "$name"; exit 1; fi
  printf "passed\t%s\t4\n" "$name"
done <"${@: -1}" >"$UCCLEP_TEST_REPORT"
echo end >>"$UCCLEP_TEST_REPORT"'
notes() { paste -sd ";" "$bundle/notes"; rm -f "$bundle/notes"; }
plain_path=$PATH
run --only graphs-processes
expect "without MPS, cases that kill ranks included" "3 passed, 0 failed" "$last"
expect "notes" "is right, pipe none, processes 1;is wrong, pipe none, processes 1;kills a rank, pipe none, processes 1" "$(notes)"

PATH=$bundle/path:$PATH
run --only graphs,graphs-processes
expect "with MPS" "5 passed, 0 failed" "$last"
started="start, folder 700, logs in log;get_server_list"
expect "notes" "is right, pipe none, processes 0;is wrong, pipe none, processes 0;kills a rank, pipe none, processes 0;$started;is right, pipe pipe, processes 1;is wrong, pipe pipe, processes 1;quit" "$(notes)"
python3 - "$bundle/json" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
assert summary["ranks_per_gpu"] == 2, summary
assert [(program["name"], program["ranks"], program["ranks_per_gpu"], program["mps"]) for program in summary["programs"]] == [
    ("graphs", 4, 2, False), ("graphs-processes", 4, 2, True)], summary
PYTHON
for shard in 1/2 2/2; do
  run --only graphs-processes --shard $shard
  expect "a shard with MPS" "1 passed, 0 failed" "$last"
done
notes >/dev/null

IS_WRONG=1 run --only graphs-processes
expect "a case that fails" "1 passed, 1 failed" "$last"
expect "the daemon goes after a failure" "$started;is right, pipe pipe, processes 1;is wrong, pipe pipe, processes 1;quit" "$(notes)"
MPS_FAILS=1 run --only graphs-processes
expect "a daemon that does not start" "0 passed, 0 failed" "$last"
grep -q '^skipped: graphs-processes: is right: nvidia-cuda-mps-control -d ended with 1: no GPU for it' "$bundle/log" || { cat "$bundle/log"; exit 1; }
MPS_STAYS=1 run --only graphs-processes
expect "a daemon that does not quit" "2 passed, 0 failed" "$last"
grep -q 'did not quit within 10 s, and is ended$' "$bundle/log" || { cat "$bundle/log"; exit 1; }

stub gpu_device_test 'for gpu in 0 1 2 3; do echo "gpu cuda: CUDA $gpu (stub)"; done'
rm -f "$bundle/notes"
run --only graphs-processes
expect "as many GPUs as ranks: no MPS" "is right, pipe none, processes 1;is wrong, pipe none, processes 1;kills a rank, pipe none, processes 1" "$(notes)"
stub gpu_device_test 'echo "gpu cuda: CUDA 0 (stub)"'
stub dispatch_perf 'echo "$*, pipe ${CUDA_MPS_PIPE_DIRECTORY:-none}" | sed "s|pipe /.*|pipe yes|" >>"$(dirname "$0")/notes"; echo "verified 5 rows, 0 wrong"'
cp "$bundle/dispatch_perf" "$bundle/combine_perf"
cp "$bundle/dispatch_perf" "$bundle/device_perf"
run --only perf
expect "perf tools among 1 rank, and among 2, 4 and 8 of each mode" "26 passed, 0 failed" "$last"
expect "those that share a GPU" 18 "$(grep -c -- '--procs [248] --share-gpus .*, pipe yes$' "$bundle/notes")"
expect "a start and an end" "$started;quit" "$(grep -E '^(start|get_server|quit)' "$bundle/notes" | paste -sd ";")"
PATH=$plain_path

rm "$bundle/conformance_test"
run --only conformance
expect "a program that is not there" "0 passed, 1 failed" "$last"
