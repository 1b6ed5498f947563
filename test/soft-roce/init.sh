#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of the virtual machine: loads the modules, makes the host's / its own with a layer for changes above, and hands over
# to guest.sh. Its own words go to the serial console, what guest.sh prints to the virtual one. $job is from the kernel's command line.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host /changes /root
$b mount -t proc none /proc
$b mount -t devtmpfs none /dev
exec >/dev/ttyS0 2>&1
for module in $($b cat /modules/load_order); do
  $b insmod "/modules/$module" || echo "cannot load $module"
done
options=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o "ro,cache=loose,$options" root /host || $b poweroff -f
$b mount -t tmpfs none /changes
$b mkdir /changes/upper /changes/work
$b mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work none /root || $b poweroff -f
for system in proc sysfs:sys devtmpfs:dev; do
  $b mount -t "${system%:*}" none "/root/${system#*:}"
done
$b mkdir -p /root/dev/pts /root/dev/shm
$b mount -t devpts none /root/dev/pts
$b mount -t tmpfs none /root/dev/shm
$b mount -t 9p -o "rw,cache=none,$options" job "/root$job" || $b poweroff -f
$b chroot /root /bin/bash "$job/guest.sh" </dev/null >/dev/hvc0 2>&1
$b sync
$b poweroff -f
