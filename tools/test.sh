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
# The trees that come later are built while the tests of earlier ones run, of which many only wait: at an idle priority, so that
# they take no core that a test could have.
build_ahead() {  # tree...
  chrt --idle --pid 0 $BASHPID 2>/dev/null || true
  local tree status
  for tree in "$@"; do
    status=0
    tools/build.sh "$tree" >"$ahead/$tree.log" 2>&1 || status=$?
    echo $status >"$ahead/$tree.part"
    mv "$ahead/$tree.part" "$ahead/$tree.status"
  done
}
await_build() {  # tree
  while [ ! -f "$ahead/$1.status" ] && kill -0 $builder 2>/dev/null; do sleep 0.2; done
  cat "$ahead/$1.log"
  return "$(cat "$ahead/$1.status" || echo 1)"
}
run_tests() {  # failures are counted by test_summary.py
  rm -rf "$1/test-reports" "$1/meson-logs/testlog.json"
  mkdir -p "$1/test-reports"
  meson test -C "$1" --no-rebuild --print-errorlogs "${suites[@]}" </dev/null
}

does_not_build() {
  echo "test.sh: $1 does not build" >&2
  exit 1
}

echo "== ${trees[0]}"
stage "building ${trees[0]}" tools/build.sh "${trees[0]}" || does_not_build "${trees[0]}"
ahead=$(mktemp -d)
set -m  # in a process group of its own, which ends with this script
build_ahead "${trees[@]:1}" &
builder=$!
set +m
trap 'kill -- -$builder 2>/dev/null; rm -rf "$ahead"' EXIT
stage "testing ${trees[0]}" run_tests "${trees[0]}"
for tree in "${trees[@]:1}"; do
  echo "== $tree"
  stage "waiting for $tree" await_build "$tree" || does_not_build "$tree"
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
