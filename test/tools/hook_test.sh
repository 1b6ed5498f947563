#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: hook_test.sh SOURCE-TREE: the hook of tools/install-hooks.sh lets a good commit pass, and no other; 77 without git or clang-format-19.
set -euo pipefail
command -v git >/dev/null && command -v clang-format-19 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
cd "$work"
git init --quiet
mkdir tools docs src test
cp "$1"/tools/{pre-commit.sh,install-hooks.sh,lint.sh,format.sh,check_conformance.py} tools/
cp "$1/.clang-format" .
echo '`a.cpp`: "a case"' >docs/conformance.md
printf '// SPDX-License-Identifier: Apache-2.0\nTEST_CASE("a case") {}\n' >test/a.cpp

tools/install-hooks.sh
tools/install-hooks.sh  # again
printf '// SPDX-License-Identifier: Apache-2.0\nint x;\n' >src/good.cpp
git add .
git commit --quiet -m good

printf '// SPDX-License-Identifier: Apache-2.0\nint   y ;\n' >src/bad.cpp
git add src/bad.cpp
if git commit --quiet -m bad; then echo "the hook let a file pass that is not formatted"; exit 1; fi
tools/format.sh src/bad.cpp
if git commit --quiet -m bad; then echo "the hook looked at the file, not at what is staged"; exit 1; fi
git add src/bad.cpp
git commit --quiet -m formatted

echo 'int z;' >src/unlicensed.cpp
git add src/unlicensed.cpp
if git commit --quiet -m bad; then echo "the hook let a file pass without a licence"; exit 1; fi

echo '#!/bin/sh' >.git/hooks/pre-commit
if tools/install-hooks.sh; then echo "another hook was overwritten"; exit 1; fi
