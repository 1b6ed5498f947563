#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: two_namespaces.sh PROGRAM [ARGUMENT...]
# Runs a test program whose ranks are processes in two network namespaces, joined by a wire (a pair of veth) and by nothing else:
# ranks of odd nodes enter the second one (support/ranks.cpp), so that each namespace has machines of its own. Needs no root, but a
# kernel that lets users make namespaces; exit code 77 where there is none.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  unshare --map-root-user --net --mount mount -t sysfs none /sys 2>/dev/null || { echo "skipped: users may not make network namespaces here"; exit 77; }
  exec unshare --map-root-user --net --mount "$0" --inside "$@"
fi
shift
mount -t sysfs none /sys  # else it has the network interfaces of the namespace outside
# It lives as long as this process has the descriptor of its namespace open.
unshare --net sleep infinity &
second=$!
trap 'kill $second' EXIT
second_net=(nsenter --net=/proc/$second/ns/net)
wait_until() {  # command...
  for _ in $(seq 1000); do
    "$@" && return
    sleep 0.01
  done
  echo "two_namespaces.sh: in vain for 10 s: $*" >&2
  return 1
}
is_apart() { [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; }
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
export UCCLEP_TEST_SECOND_NAMESPACE=/proc/$second/ns/net UCCLEP_SOCKET_IFNAME=ep0 UCCLEP_TEST_PROCESSES=1
"$@"
