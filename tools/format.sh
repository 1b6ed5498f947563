#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/format.sh [--check] [file...]
# Formats the sources by .clang-format, with clang-format-19; by default all. --check only says what would change.
set -euo pipefail
cd "$(dirname "$0")/.."
how=(-i)
if [ "${1:-}" = --check ]; then
  how=(--dry-run -Werror)
  shift
fi
files() {  # in the index and new ones; in an unpacked archive those that lie there
  if [ $# -gt 0 ]; then printf '%s\n' "$@"; else
    git ls-files --cached --others --exclude-standard -- src include apps test perf examples 2>/dev/null || find src include apps test perf examples -type f
  fi
}
files "$@" | grep -E '\.(c|h|cpp|hpp|cu|cuh)$' | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done | xargs -r clang-format-19 "${how[@]}"
