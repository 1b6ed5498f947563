#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: output_test.sh TOOL ARGUMENT...
# What a tool cannot print is a failure: exit code 1 and a line that says so, also of --help; and soon, though ranks wait for each other.
# Other processes of the tool may say after it that the one is gone.
set -uo pipefail
tool=$1
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

expect() {  # WHAT STATUS
  [ "$2" -eq 1 ] && grep -q "standard output cannot be written: " "$errors" && return
  echo "$1: exit code $2, and on standard error: $(tail -n 1 "$errors")" >&2
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
