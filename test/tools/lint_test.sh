#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: lint_test.sh SOURCE-TREE: what make lint must refuse, it refuses.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{tools,src,include/ucclep/device/{arch,ll}}
cp "$1/tools/lint.sh" "$work/tools/"
export GIT_DIR=$work/none  # the folder is no repository, wherever it lies

refused() {  # check, file, text
  echo "$3" >"$work/$2"
  if "$work/tools/lint.sh" "$1"; then echo "$1 let pass in $2: $3"; exit 1; fi
  rm "$work/$2"
}
accepted() {
  echo "$3" >"$work/$2"
  "$work/tools/lint.sh" "$1"
  rm "$work/$2"
}
for target in __CUDACC__ __CUDA_ARCH__ __HIP__ __AMDGCN__ __HIP_DEVICE_COMPILE__; do
  refused one_place_for_targets include/ucclep/device/ll/dispatch.hpp "#ifdef $target"
  refused one_place_for_targets src/kernel.cpp "#  if defined(UCCLEP_X) || defined($target)"
  accepted one_place_for_targets include/ucclep/device/arch/arch.hpp "#ifdef $target"
done
for call in 'abort();' '  std::abort();' 'if (x) ::exit(1);' 'assert(x);' '_exit(1);' '__trap();'; do
  refused no_abort src/bad.cpp "$call"
done
for fine in 'static_assert(x);' 'comm->abort();' 'void Comm::abort() {' 'ucclEpCommAbort(comm);' '// abort() is not called' ' * exit() in prose'; do
  accepted no_abort src/good.cpp "$fine"
done
prose() { printf '%s\n' "$2" >"$work/page.md" && "$1/tools/check_prose.py" "$work/page.md"; }
for habit in 'Who sends waits.' 'Beyond a limit: ucclEpInvalidArgument.' 'A stream of the user'"'"'s, too.' 'It takes so many ranks.' 'Rows arrive as ever.' \
  'It sends what it has.' 'It tells the peer.'; do
  if prose "$1" "$habit"; then echo "check_prose.py let pass: $habit"; exit 1; fi
done
prose "$1" 'The table shows what a rank sends. A rank that sends waits; `tells` is code.'
refused licensed src/bad.cpp 'int x;'
