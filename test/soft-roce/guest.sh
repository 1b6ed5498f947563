# SPDX-License-Identifier: Apache-2.0
# In the virtual machine: rxe0 on veth0 (10.77.0.1) and rxe1 on veth1 (10.77.0.2), which are two ends of one link. Packets between the
# two do cross it, though both addresses are this machine's: rxe looks routes up by device. What tc and ip do to the link tells.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ulimit -l unlimited
# Each process opens the driver of every NIC there is, which takes a second here.
find /etc/libibverbs.d -name '*.driver' ! -name rxe.driver -delete
ip link set lo up
ip link add veth0 type veth peer name veth1
set_option() { echo "$2" >"/proc/sys/net/$1"; }
set_option ipv4/conf/all/rp_filter 0
for i in 0 1; do
  set_option ipv4/conf/veth$i/accept_local 1
  set_option ipv4/conf/veth$i/rp_filter 0
  set_option ipv6/conf/veth$i/accept_dad 0
  ip link set veth$i mtu 4200  # room for 4096 bytes and the headers of RoCE
  ip addr add 10.77.0.$((i + 1))/24 dev veth$i
  ip link set veth$i up
  rdma link add rxe$i type rxe netdev veth$i
done
bash "$job/command"
echo $? >"$job/exit_code"
