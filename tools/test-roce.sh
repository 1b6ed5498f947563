#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test-roce.sh
# Runs the tests of `verbs` over Soft-RoCE, in a virtual machine with Debian's kernel, since few kernels have it and only root may load
# it. Needs x86-64 and Debian, but neither KVM nor RDMA nor root beyond the installation of packages. The last line is
# "N passed, M failed"; of a machine that cannot do it "0 passed, 0 failed", behind a line that says why.
set -uo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS
skip() {
  echo "skipped: make test-roce: $1"
  echo "0 passed, 0 failed"
  exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "the virtual machine is one of x86-64"
command -v apt-get >/dev/null || skip "Debian's kernel is had by apt-get"
tools/deps.sh roce || skip "packages are missing and cannot be installed"
tools/build.sh build soft_roce || exit 1
kernel=build/soft-roce/kernel job=$PWD/build/soft-roce/job
code=0
test/soft-roce/kernel.sh "$kernel" || code=$?
[ $code -ne 77 ] || skip "Debian's kernel cannot be had"
[ $code -eq 0 ] || exit 1
rm -rf "$job"
mkdir -p "$job/meson-logs"
ready=$SECONDS
result=OK
test/soft-roce/vm.sh "$kernel" "$job" 720 test/soft-roce/programs.sh build "$job" || { code=$?; result=FAIL; }
printf '{"name": "the virtual machine", "result": "%s", "returncode": %d, "env": {}}\n' $result $code >>"$job/meson-logs/testlog.json"
echo "Time: preparing $((ready - begin)) s; in the virtual machine $((SECONDS - ready)) s"
tools/test_summary.py "$job"
