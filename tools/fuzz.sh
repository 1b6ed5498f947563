#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: [FUZZ_SECONDS=60] tools/fuzz.sh [target...]      (test/fuzz/meson.build names them; default: all)
# Runs libFuzzer on each target for some seconds, as many at a time as there are cores. What a run finds new is kept in
# build-fuzz/corpus, a crash in build-fuzz/crashes, with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${FUZZ_SECONDS:-60}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
tools/deps.sh test
tools/build.sh build-fuzz fuzzers >/dev/null
mkdir -p build-fuzz/crashes

fuzz() {  # target
  local name=$1 program=build-fuzz/test/fuzz/fuzz_$1 log=build-fuzz/crashes/$1.log crash
  mkdir -p "build-fuzz/corpus/$name"
  rm -f "build-fuzz/crashes/$name-"*
  if timeout $((FUZZ_SECONDS + 120)) "$program" -max_total_time="$FUZZ_SECONDS" -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/crashes/$name-" "build-fuzz/corpus/$name" "test/fuzz/corpus/$name" >"$log" 2>&1; then
    echo "ok      $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
    return 0
  fi
  echo "FAILED  $name: $log; again:"
  for crash in "build-fuzz/crashes/$name-"*; do echo "        $program $crash"; done
  return 1
}
export -f fuzz

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for program in build-fuzz/test/fuzz/fuzz_*; do
    [ -f "$program" ] && targets+=("${program#build-fuzz/test/fuzz/fuzz_}")
  done
fi
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I {} bash -c 'fuzz {}'
