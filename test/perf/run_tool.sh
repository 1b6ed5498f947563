#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: run_tool.sh clean|corrupt TOOL ARGUMENT...
#        run_tool.sh usage WORD TOOL ARGUMENT...
# Runs a perf tool and checks its last line, its exit code and, when it has to fail, that it fails for the right reason. What is
# wrong with a command line is said in one line, which has the word.
set -uo pipefail
expected=$1
shift
word=
if [ "$expected" = usage ]; then
  word=$1
  shift
fi

output=$("$@" 2>&1)
status=$?
echo "$output"
last=$(tail -n 1 <<<"$output")
bad() {
  echo "run_tool.sh: $1 (exit code $status)" >&2
  exit 1
}
case $expected in
  clean)
    [ $status -eq 0 ] || bad "a clean run failed"
    [[ $last =~ ^verified\ [1-9][0-9]*\ (rows|commands|messages|results),\ 0\ wrong$ ]] || bad "the last line is: $last"
    ;;
  corrupt)
    [ $status -eq 1 ] || bad "a corrupted run did not end with 1"
    [[ $last =~ ^verified\ [1-9][0-9]*\ (rows|commands|messages|results),\ [1-9][0-9]*\ wrong$ ]] || bad "the last line is: $last"
    # Sizes, then the columns of the table; the last of them is #wrong.
    grep -Eq '^ +[0-9]+ +([0-9]+ +[0-9]+ +)?[a-z0-9]+ .* [1-9][0-9]*$' <<<"$output" || bad "no #wrong in the table"
    grep -q '^# Out of bounds values : [1-9][0-9]* FAILED$' <<<"$output" || bad "the closing lines do not say FAILED"
    ;;
  usage)
    [ $status -eq 2 ] || bad "a bad command line did not end with 2"
    [[ $last == *"$word"* ]] || bad "the last line does not have $word: $last"
    ;;
  *) bad "no such expectation: $expected" ;;
esac
