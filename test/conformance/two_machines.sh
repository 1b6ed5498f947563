#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: two_machines.sh PROGRAM [ARGUMENT...]
# Runs a test program whose ranks are processes on two machines, as far as the library can see: two network namespaces, joined by a
# wire (a pair of veth) and by nothing else, of which the second one has a boot id of its own. Ranks of odd nodes enter it
# (support/ranks.cpp). Needs no root, but a kernel that lets users make namespaces; exit code 77 where there is none.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  unshare --map-root-user --net --mount sh -c 'mount -t sysfs none /sys && mount --bind /dev/null /proc/sys/kernel/random/boot_id' 2>/dev/null ||
    { echo "skipped: users may not make namespaces, or mounts in them, here"; exit 77; }
  exec unshare --map-root-user --net --mount "$0" --inside "$@"
fi
shift
mount -t sysfs none /sys  # else it has the network interfaces of the namespace outside
boot_id=$(mktemp)
tr 0-9a-f 1-9a-f0 </proc/sys/kernel/random/boot_id >"$boot_id"
unshare --net --mount bash -c 'mount --bind "$1" /proc/sys/kernel/random/boot_id && exec sleep infinity' bash "$boot_id" &
second=$!
trap 'kill $second; rm -f "$boot_id"' EXIT
second_net=(nsenter --net=/proc/$second/ns/net)
wait_until() {  # command...
  for _ in $(seq 1000); do
    "$@" && return
    sleep 0.01
  done
  echo "two_machines.sh: in vain for 10 s: $*" >&2
  return 1
}
is_apart() { [ "$(nsenter --mount=/proc/$second/ns/mnt cat /proc/sys/kernel/random/boot_id)" = "$(cat "$boot_id")" ]; }
is_up() { "$@" ip link show ep0 up | grep -q 'state UP'; }
join_wire() {  # address, command that runs another one in the namespace...
  local address=$1
  shift
  "$@" ip link set lo up
  "$@" ip address add "$address" dev ep0
  "$@" ip link set ep0 up
}
wait_until is_apart
ip link add ep0 type veth peer name ep0 netns $second
join_wire 10.77.0.1/24
join_wire 10.77.0.2/24 "${second_net[@]}"
wait_until is_up
wait_until is_up "${second_net[@]}"
export UCCLEP_TEST_SECOND_MACHINE=$second UCCLEP_SOCKET_IFNAME=ep0 UCCLEP_TEST_PROCESSES=1
"$@"
