#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: vm.sh KERNEL JOB SECONDS COMMAND...
# Runs COMMAND as root in a virtual machine with two Soft-RoCE devices (see guest.sh), for SECONDS at most, and exits with its code; with
# 125 if the machine ends without one. KERNEL is a folder of kernel.sh. The machine's / is this machine's, and changes to it are lost
# with the machine; what is written to the folder JOB stays.
set -euo pipefail
kernel=${1:?usage: vm.sh KERNEL JOB SECONDS COMMAND...}
job=$(realpath "$2")
seconds=$3
shift 3
here=$(dirname "$(realpath "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

mkdir -p "$scratch/root/bin" "$scratch/root/modules"
cp "$(command -v busybox)" "$scratch/root/bin/busybox"
cp "$here/init.sh" "$scratch/root/init"
cp "$kernel"/load_order "$kernel"/*.ko "$scratch/root/modules/"
(cd "$scratch/root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$scratch/initramfs"
printf '%q ' cd "$PWD" >"$job/command"
printf '\n' >>"$job/command"
printf '%q ' "$@" >>"$job/command"
cp "$here/guest.sh" "$job/guest.sh"
rm -f "$job/exit_code"

# /dev/kvm alone does not say that an unmodified kernel runs on it.
accelerators=(-accel "tcg,thread=multi")
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerators=(-accel kvm "${accelerators[@]}"); fi
share() {  # tag, path, options
  printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none$3" -device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
mapfile -t shares < <(share root / ,readonly=on,multidevs=remap; share job "$job" '')
timeout -k 5 "$seconds" qemu-system-x86_64 -M q35 "${accelerators[@]}" -cpu max -smp 2 -m 1536 -nodefaults -display none -no-reboot \
  -kernel "$kernel/vmlinuz" -initrd "$scratch/initramfs" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check random.trust_cpu=on job=\"$job\"" -serial "file:$scratch/console" \
  -device virtio-serial -chardev stdio,id=output,signal=off -device virtconsole,chardev=output \
  "${shares[@]}" </dev/null | sed -u 's/\r$//' || true
if [ ! -s "$job/exit_code" ]; then
  echo "vm.sh: the machine ended without an exit code within $seconds s; its console:" >&2
  tail -n 40 "$scratch/console" >&2
  exit 125
fi
exit "$(cat "$job/exit_code")"
