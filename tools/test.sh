#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test.sh [check|more|sanitizers|threads|addresses|long|nodes|soak]
# Builds and runs the tests of a tier (see test/meson.build), by default those of `make test`: the tier "test" of the release tree
# and the tests of Python without the mark `more`. The last line is "N passed, M failed".
#   check       a selection that touches every component, in a tree with GPU code for one target
#   more        the tier "more" of the release tree, the examples' GPU code, and the rest of the tests of Python
#   sanitizers  what runs under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer
#   threads, addresses  one of the two
#   long        all of these but check, the cases marked [long], and more seeds
#   nodes, soak what is between virtual nodes, and what goes on for long: nothing else
set -uo pipefail
cd "$(dirname "$0")/.."
trees=(build)
targets=()
packages=test
suites=(--no-suite check-only --no-suite long --no-suite nodes --no-suite soak)
wheels=
case ${1:-} in
  "")
    suites+=(--no-suite more)
    wheels=yes ;;
  check)
    trees=(build-check)
    packages=check
    targets=(check)
    suites=(--suite check) ;;
  more)
    export AMD_TARGETS=${AMD_TARGETS:-all}
    targets=(all gpu-examples)
    suites=(--suite more)
    wheels=yes ;;
  sanitizers)
    trees=(build-tsan build-asan) ;;
  threads)
    trees=(build-tsan) ;;
  addresses)
    trees=(build-asan) ;;
  long)
    trees=(build build-tsan build-asan)
    targets=(all gpu-examples)
    suites=(--no-suite check-only --no-suite nodes --no-suite soak)
    wheels=yes
    export UCCLEP_TEST_SEEDS=${UCCLEP_TEST_SEEDS:-20} ;;
  nodes | soak)
    suites=(--suite "$1") ;;
  *)
    echo "test.sh: no such tier: $1" >&2
    exit 1 ;;
esac
tools/deps.sh "$packages" || exit 1

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
# Many cases wait, for peers that do not come: one more than there are cores keeps the cores busy.
run_tests() {  # failures are counted by test_summary.py
  rm -rf "$1/test-reports" "$1/meson-logs/testlog.json"
  mkdir -p "$1/test-reports"
  meson test -C "$1" --no-rebuild --num-processes $(($(nproc) + 1)) --print-errorlogs "${suites[@]}" </dev/null
}

does_not_build() {
  echo "test.sh: $1 does not build" >&2
  exit 1
}

echo "== ${trees[0]}"
stage "building ${trees[0]}" tools/build.sh "${trees[0]}" "${targets[@]}" || does_not_build "${trees[0]}"
if [ -n "$wheels" ]; then stage "making wheels" tools/wheel.sh build/wheels || does_not_build "the Python package"; fi
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
printf 'Time: '
printf '%s; ' "${times[@]}"
echo "all $SECONDS s"
tools/test_summary.py "${trees[@]}"
