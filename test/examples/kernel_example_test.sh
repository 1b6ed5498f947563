#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: kernel_example_test.sh PROGRAM RANKS
# Runs an example: each rank says how many of its values are wrong, and none has any.
set -euo pipefail
program=$1 ranks=$2
output=$(mktemp)
trap 'rm -f "$output"' EXIT
timeout 120 "$program" "$ranks" | tee "$output"
[ "$(grep -c '^rank [0-9]*: 0 of [1-9][0-9]* values are wrong$' "$output")" -eq "$ranks" ]
