#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: bare_perftest.sh _ write|trip BYTES WINDOW MESSAGES CPU CPU
# The baseline of transport_perf --bare in the virtual machine: ib_send_bw or ib_write_lat from rxe0 to rxe1. Prints the seconds that
# MESSAGES took; of trips, which are there and back, twice what ib_write_lat says of each. Sends do what writes with an immediate do: they
# use up receives, and the receiver polls. That of UCCLEP_TEST_YARDSTICK=ib_write_bw sleeps, and leaves its CPU to the other side.
set -euo pipefail
test=$2 bytes=$3 window=$4 messages=$5 near=$6 far=$7
case $test in
  write) program=("${UCCLEP_TEST_YARDSTICK:-ib_send_bw}" --tx-depth "$window") seconds='bytes * messages / ($4 * 1048576)' ;;
  trip) program=(ib_write_lat) seconds='2 * messages * $6 * 1e-6' ;;
esac
program+=(--gid-index 1 --size "$bytes" --iters "$messages" --CPU-freq)

listens() { grep -q ':4853 [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6; }  # 18515, perftest's port
run_once() {  # the line of results
  timeout 30 taskset -c "$far" "${program[@]}" --ib-dev rxe1 >/dev/null 2>&1 &
  for _ in {1..200}; do listens && break; sleep 0.05; done
  timeout 30 taskset -c "$near" "${program[@]}" --ib-dev rxe0 127.0.0.1 2>/dev/null | grep -E "^ *$bytes +[0-9]" || true
  wait
}

# Where perftest cannot tell how fast the clock goes, it says 0.
for _ in {1..8}; do
  run_once | awk -v bytes="$bytes" -v messages="$messages" "\$4 > 0 { printf \"%.9f\\n\", $seconds; found = 1 } END { exit !found }" && exit
done
exit 1
