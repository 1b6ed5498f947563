#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The hook that tools/install-hooks.sh installs: the formatting of what is staged, and those checks of `make lint` that take seconds.
set -uo pipefail
cd "$(git rev-parse --show-toplevel)" || exit 1
status=0
if command -v clang-format-19 >/dev/null; then
  while read -r file; do
    git show ":$file" | clang-format-19 --dry-run -Werror --assume-filename="$file" || status=1
  done < <(git diff --cached --name-only --diff-filter=ACMR -- src include apps test perf examples | grep -E '\.(c|h|cpp|hpp|cu)$')
  [ $status -eq 0 ] || echo "pre-commit: \`make format\` formats these files" >&2
else
  echo "pre-commit: no clang-format-19: the formatting is not checked" >&2
fi
tools/lint.sh licensed one_place_for_targets no_abort conformance || status=1
exit $status
