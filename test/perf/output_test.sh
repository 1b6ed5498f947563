#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: output_test.sh TOOL ARGUMENT...
# What a tool cannot print is a failure: exit code 1 and one line, also of --help; and soon, though ranks wait for each other.
set -uo pipefail
tool=$1
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

expect() {  # WHAT STATUS
  local last
  last=$(tail -n 1 "$errors")
  [ "$2" -eq 1 ] && [[ $last == *"standard output cannot be written: "* ]] && return
  echo "$1: exit code $2, and on standard error: $last" >&2
  exit 1
}
for arguments in "" "--help"; do
  command=("$@")
  [ -z "$arguments" ] || command=("$tool" "$arguments")
  timeout 60 "${command[@]}" >/dev/full 2>"$errors"
  expect "${command[*]} on a full disk" $?
  timeout 60 "${command[@]}" >&- 2>"$errors"
  expect "${command[*]} with standard output closed" $?
done
