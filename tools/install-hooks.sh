#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/install-hooks.sh
# Installs the pre-commit hook of this repository: before each commit git runs tools/pre-commit.sh. A hook of another kind stays.
set -euo pipefail
cd "$(dirname "$0")/.."
hook=$(git rev-parse --git-path hooks)/pre-commit
text='#!/bin/sh
# Installed by tools/install-hooks.sh
exec "$(git rev-parse --show-toplevel)/tools/pre-commit.sh"'
if [ -e "$hook" ] && ! grep -q 'tools/install-hooks.sh' "$hook"; then
  echo "install-hooks.sh: there is another hook: $hook" >&2
  exit 1
fi
mkdir -p "$(dirname "$hook")"
printf '%s\n' "$text" >"$hook"
chmod +x "$hook"
echo "Installed $hook"
