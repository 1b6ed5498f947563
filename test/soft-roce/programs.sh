#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: programs.sh TREE JOB
# In the virtual machine: runs what has been built in TREE, over links of several kinds. What it writes to JOB is what `meson test` would
# leave there, so that tools/test_summary.py counts it.
set -uo pipefail
tree=$1
job=$2
here=$(dirname "$0")
mkdir -p "$job/test-reports"
export UCCLEP_TEST_TRANSPORT=verbs UCCLEP_TEST_NICS=rxe0,rxe1 UCCLEP_TEST_PROCESSES

record() {  # name, exit code, report or nothing
  local result=OK report=${3:+"\"UCCLEP_TEST_REPORT\": \"$3\""}
  [ "$2" -eq 0 ] || result=FAIL
  printf '{"name": "%s", "result": "%s", "returncode": %d, "env": {%s}}\n' "$1" $result "$2" "$report" >>"$job/meson-logs/testlog.json"
}
cases() {  # name, seconds, executable, filter: a Catch2 run
  local name=$1 begin=$SECONDS code=0 report=$job/test-reports/${1// /_}.tsv
  UCCLEP_TEST_REPORT=$report timeout -k 5 "$2" "$tree/$3" -w NoTests "$4" >"$job/output" 2>&1 || code=$?
  record "$name" $code "$report"
  printf '%-36s %3d passed, %d failed, %d s\n' "$name" "$(grep -c '^passed' "$report")" "$(grep -c '^failed' "$report")" $((SECONDS - begin))
  [ $code -eq 0 ] || tail -n 40 "$job/output"
}
suite() {  # name, tags: among threads and among processes. RoCE has strangers of its own, see link_cases.cpp
  UCCLEP_TEST_PROCESSES=0 cases "$1, threads" 120 test/transport/transport_test "$2~\"*strangers*\""
  UCCLEP_TEST_PROCESSES=1 cases "$1, processes" 120 test/transport/transport_test "$2~\"*strangers*\""
}

# ---- Links that are not as they should be, at both ends. Each has to show that it was so.
counter() { cat /sys/class/infiniband/rxe?/ports/1/hw_counters/"$1" | awk '{ sum += $1 } END { print sum }'; }
of_queues() { tc -s qdisc show | grep -oE "$1" | awk '{ sum += $NF } END { print sum + 0 }'; }
dropped() { of_queues 'dropped [0-9]+'; }
delayed() { of_queues 'Sent [0-9]+ bytes [0-9]+'; }
reordered() { counter out_of_seq_request; }
on_link() {  # name, function that counts what must happen, netem's words
  local name=$1 count=$2 before after i
  shift 2
  for i in 0 1; do tc qdisc replace dev veth$i root netem "$@" limit 20000; done
  before=$($count)
  UCCLEP_TEST_REDUCED=1 suite "$name" '[transport]~[bounds]'
  after=$($count)
  for i in 0 1; do tc qdisc del dev veth$i root; done
  record "$name happened" $((after > before ? 0 : 1))
  echo "$name: $((after - before)) packets $count"
}

suite 'clean link' '[transport]'
UCCLEP_TEST_PROCESSES=1 cases 'faults of the link' 120 test/soft-roce/soft_roce_test '[roce]'
on_link 'loss of 1 %' dropped loss 1%
on_link 'reordering' reordered delay 1ms reorder 90%
on_link 'delay of 2 ms' delayed delay 2ms

# ---- Beside perftest. How fast it is does not make it pass or fail, nor does a machine that is too slow to tell. Both are pinned in the
# same way: Linux does the work of rxe on the CPU of the side that sends, where it competes with that side.
code=0
perf=("$tree/perf/transport/transport_perf" verbs --timeout-ms 30000 --cpus 0,1 -b 7168,65536 -W 64)
timeout 70 "${perf[@]}" --nic rxe1 --listen 4444 >/dev/null &
timeout 70 "${perf[@]}" --nic rxe0 --connect 127.0.0.1:4444 -m 400 -n 3 --bare "$here/bare_perftest.sh" -J "$job/transport.json" || code=$?
if [ $code -eq 124 ]; then
  echo "transport_perf: not measured within 70 s"
else
  record 'transport_perf' $code
fi
