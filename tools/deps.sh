#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/deps.sh build|check|test|roce|model|lint|format|mutants|docs|bundle|plot|python
# Installs the Debian packages that the task needs and the machine lacks. Says nothing, and needs no network, when nothing is missing.
set -euo pipefail

build=(g++ meson ninja-build pkg-config libboost-context-dev libcli11-dev nlohmann-json3-dev libfmt-dev libfabric-dev libibverbs-dev libhwloc-dev libpugixml-dev catch2)
declare -A lists=(
  [build]="${build[*]}"
  [check]="${build[*]} strace"
  [test]="${build[*]} clang-19 lld-19 llvm-19 libclang-rt-19-dev cmake make libopenmpi-dev openmpi-bin iproute2 spin strace"
  [roce]="${build[*]} qemu-system-x86 busybox-static kmod iproute2 ibverbs-providers perftest"
  [model]="gcc libc6-dev spin"
  [lint]="${build[*]} clang-format-19 clang-tidy-19 git doxygen patch"
  [format]="clang-format-19 git"
  [mutants]="${build[*]} git patch"
  [docs]="doxygen"
  [bundle]="${build[*]} patchelf"
  [plot]="python3 python3-matplotlib"
  [python]="${build[*]} patchelf python3-venv python3-pip python3-numpy python3-torch python3-pytest"
)
task=${1:?usage: tools/deps.sh build|check|test|roce|model|lint|format|mutants|docs|bundle|plot|python}
wanted=${lists[$task]:?deps.sh: no such task: $task}

if ! command -v dpkg-query >/dev/null; then
  echo "deps.sh: not a Debian system; these Debian packages, or their like, are needed: $wanted" >&2
  exit 0
fi

missing=()
for package in $wanted; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  grep -qx installed <<<"$status" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "deps.sh: these packages are missing, and there is no sudo to install them: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing Debian packages: ${missing[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
# A broken third-party source must not stop us: what counts is whether the installation succeeds.
"${as_root[@]}" "${apt[@]}" update </dev/null || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${as_root[@]}" "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1; then
  cat "$log" >&2
  echo "deps.sh: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
