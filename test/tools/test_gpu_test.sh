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
expect "sentence" "test-gpu.sh: no GPU can be used here: libnone.so was not found" "$last"

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
run --only perf
expect "perf tools" "3 passed, 3 failed" "$last"

stub combine_perf 'sleep 100'
run --only perf --seconds 1
expect "within a second" "not run" "$(grep -o 'not run' "$bundle/log" | head -n 1)"
expect "status" 1 $status

rm "$bundle/conformance_test"
run --only conformance
expect "a program that is not there" "0 passed, 1 failed" "$last"
