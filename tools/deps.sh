#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/deps.sh build|check|test|sanitized|device-library|roce|model|lint|format|mutants|docs|bundle|deb|plot|python
# Installs the Debian packages that the task needs and the machine lacks, and says how far it is (V=1: all that apt-get prints).
# Says nothing, and needs no network, when nothing is missing.
set -euo pipefail
source "$(dirname "$0")/progress.sh"

build=(g++ meson ninja-build pkg-config libboost-context-dev libcli11-dev nlohmann-json3-dev libfmt-dev libfabric-dev libibverbs-dev libhwloc-dev libpugixml-dev catch2)
declare -A lists=(
  [build]="${build[*]}"
  [check]="${build[*]} strace clang-format-19 git python3-numpy python3-pytest"
  [test]="${build[*]} clang-19 lld-19 llvm-19 libclang-rt-19-dev cmake make libopenmpi-dev openmpi-bin iproute2 spin strace clang-format-19 git patchelf"
  [sanitized]="${build[*]} clang-19 lld-19 llvm-19 libclang-rt-19-dev"
  [device-library]="${build[*]} clang-19"
  [roce]="${build[*]} qemu-system-x86 busybox-static kmod iproute2 ibverbs-providers perftest"
  [model]="gcc libc6-dev spin"
  [lint]="${build[*]} clang-format-19 clang-tidy-19 git doxygen patch"
  [format]="clang-format-19 git"
  [mutants]="${build[*]} clang-19 lld-19 llvm-19 git patch"
  [docs]="doxygen python3 python3-venv"
  [bundle]="${build[*]} patchelf"
  [deb]="${build[*]} debhelper dh-python dpkg-dev help2man lintian python3 man-db"
  [plot]="python3 python3-matplotlib"
  [python]="${build[*]} patchelf python3-venv python3-pip python3-numpy python3-torch python3-pytest"
)
task=${1:?usage: tools/deps.sh build|check|test|sanitized|device-library|roce|model|lint|format|mutants|docs|bundle|deb|plot|python}
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

progress_begin "Installing Debian packages, and what they need: ${missing[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# apt-get writes lines such as pmstatus:g++:45.2:Unpacking g++ to APT::Status-Fd and closes it in the packages' scripts, some of which
# fail without a standard output: so it is another descriptor, which the inner shell opens because sudo closes those that it inherits.
apt_get() {
  if [ "${V:-0}" != 0 ]; then "${as_root[@]}" "${apt[@]}" "$@" </dev/null; return; fi
  local line kind percent text
  "${as_root[@]}" sh -c 'exec "$@" 3>&1' sh "${apt[@]}" -o APT::Status-Fd=3 "$@" </dev/null 2>&1 | while IFS= read -r line; do
    if [[ $line =~ ^(dlstatus|pmstatus):([^:]*|[^:]*:[^:0-9][^:]*):([0-9]+)[0-9.]*:(.*)$ ]]; then
      kind=${BASH_REMATCH[1]} percent=${BASH_REMATCH[3]} text=${BASH_REMATCH[4]}
      if [ "$kind" = dlstatus ]; then kind=downloading; else kind=installing; fi
      progress "$kind, $percent %, $((SECONDS - progress_began)) s: $text"
    else
      echo "$line" >>"$log"
    fi
  done
}
# A broken third-party source must not stop us: what counts is whether the installation succeeds.
progress "reading the lists of packages"
apt_get update || true
: >"$log"
if ! apt_get install --yes --no-install-recommends "${missing[@]}"; then
  progress_end ''
  cat "$log" >&2
  echo "deps.sh: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
progress_end "installed"
