#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test.sh [long|nodes|soak]
# Builds and runs the tests of the release tree, the reduced ones of the two sanitizer trees, and those of Python; with `nodes` or
# `soak`, of the release tree, the long ones between virtual nodes, or those that go on for long, and no others. The last line is "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."
trees=(build build-tsan build-asan)
reports=(build/python-report.txt)
suites=(--no-suite long --no-suite nodes --no-suite soak)
case ${1:-} in
  long)
    suites=(--no-suite nodes --no-suite soak)
    export UCCLEP_TEST_SEEDS=${UCCLEP_TEST_SEEDS:-20} ;;
  nodes | soak)
    suites=(--suite "$1")
    trees=(build)
    reports=() ;;
esac
tools/deps.sh test || exit 1

times=()
stage() {  # name, command...
  local name=$1 begin=$SECONDS status=0
  shift
  "$@" || status=$?
  times+=("$name $((SECONDS - begin)) s")
  return $status
}
run_tests() {  # failures are counted by test_summary.py
  rm -rf "$1/test-reports" "$1/meson-logs/testlog.json"
  mkdir -p "$1/test-reports"
  meson test -C "$1" --no-rebuild --print-errorlogs "${suites[@]}" </dev/null
}

for tree in "${trees[@]}"; do
  echo "== $tree"
  stage "building $tree" tools/build.sh "$tree" || { echo "test.sh: $tree does not build" >&2; exit 1; }
  stage "testing $tree" run_tests "$tree"
done
if [ ${#reports[@]} -gt 0 ]; then
  echo "== Python"
  stage "testing Python" tools/test-python.sh || true  # what failed is in its report
fi
printf 'Time: '
printf '%s; ' "${times[@]}"
echo "all $SECONDS s"
tools/test_summary.py "${trees[@]}" "${reports[@]}"
