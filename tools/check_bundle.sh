#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/check_bundle.sh [BUNDLE]        (as root)
# Runs every test executable, with the reduced cases, and every tool of the bundle on another distribution: Debian 13 in a chroot when debootstrap and its mirror
# can be had, else a root that holds nothing but this machine's glibc. The last line is "N passed, M failed".
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=$(realpath "${1:-build/bundle}")
release=${UCCLEP_CHECK_RELEASE:-trixie}
mirror=${UCCLEP_CHECK_MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" -eq 0 ] || { echo "check_bundle.sh: chroot needs root" >&2; exit 1; }
[ -f "$bundle/libucclep.so.0" ] || { echo "check_bundle.sh: no bundle in $bundle; run make bundle" >&2; exit 1; }

root=$(mktemp -d)
cleanup() {
  for mount in dev/shm proc; do mountpoint -q "$root/$mount" && umount "$root/$mount"; done
  # Never delete through a mount that would not go away.
  if ! grep -q " $root/" /proc/mounts; then rm -rf "$root"; fi
}
trap cleanup EXIT

log=$(mktemp)
if command -v debootstrap >/dev/null &&
  timeout 300 debootstrap --variant=minbase "$release" "$root" "$mirror" >"$log" 2>&1 </dev/null; then
  where="Debian $release, $(chroot "$root" ldd --version | sed -n 1p)"
else
  tail -n 3 "$log" >&2
  rm -rf "$root"
  mkdir -p "$root"/{proc,dev,tmp,lib64,lib/x86_64-linux-gnu}
  for library in $(find "$bundle" -type f ! -name '*.so' -exec ldd {} + 2>/dev/null | grep -oE '(/[^ ]+)+' | grep -vF "$bundle" | sort -u); do
    cp -L --parents "$library" "$root"
  done
  where="a root with only glibc"
fi
rm -f "$log"
mkdir -p "$root/bundle" "$root/dev/shm"
cp -r "$bundle/." "$root/bundle/"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for device in null zero urandom; do  # a root without debootstrap has none
  [ -e "$root/dev/$device" ] || cp -a "/dev/$device" "$root/dev/"
done

echo "Running $bundle in $where"
passed=0
failed=0
run() {  # the libraries' own rpath must do: no LD_LIBRARY_PATH
  if timeout 600 env -u LD_LIBRARY_PATH UCCLEP_TEST_REDUCED=1 chroot "$root" "$@" >"$root/output" 2>&1 </dev/null; then
    passed=$((passed + 1))
    echo "ok      $*"
  else
    failed=$((failed + 1))
    echo "FAILED  $*"
    tail -n 20 "$root/output"
  fi
}
for file in "$bundle"/*; do
  name=$(basename "$file")
  case $name in
    *.so.*) ;;
    conformance_test | user_kernels_test) run "/bundle/$name" -w NoTests '[reduced]~[long]~[gpu]~[.]' ;;
    *_test) run "/bundle/$name" -w NoTests '~[long]~[slow]~[build-tree]~[.]' ;;
    *_perf) run "/bundle/$name" --help ;;
    ucclep-topo) run "/bundle/$name" ;;  # opens hwloc
  esac
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
