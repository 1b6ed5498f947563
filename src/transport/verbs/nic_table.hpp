// SPDX-License-Identifier: Apache-2.0
// What is known of the families of NICs beyond what they say of themselves: one row for each. No other file tells them
// apart. A family is recognised by the vendor that its driver reports, since devices are renamed at will.
#pragma once
#include <cstdint>

namespace ucclep::transport::verbs {

struct NicFamily {
  const char* name;
  uint32_t vendor;
  uint64_t max_bytes;     // in flight, 0: any
  uint32_t max_messages;  // in flight over all connections of an endpoint, 0: any
  uint32_t chain_bytes;   // a doorbell is rung when as many wait for it, 0: any
  uint8_t timeout;        // a packet that was not answered is sent again after 4.096 us << timeout, see retries
  uint8_t service_level;  // on Ethernet; InfiniBand has 0. Adaptive routing, too, goes by it
  uint8_t traffic_class;  // on Ethernet; InfiniBand has 0
  uint32_t inline_bytes;
  bool relaxed_ordering;  // PCIe may reorder what is written into memory; then writes have no order either
  bool dma_buf, peer_memory;
};

// The most that there is. On rxe it means for ever, until the endpoint's own timeout stops the queue pair.
constexpr uint8_t retries = 7;
// What NCCL waits: with all retries half a minute, in which a link may flap and a peer may be late to connect.
constexpr uint8_t patient = 20;
// What UCCL-EP runs with on all RoCE NICs: 3 and 104 (DSCP 26).
constexpr uint8_t roce_level = 3, roce_class = 104;
// Broadcom Thor-2 and AMD Pollara give up under congestion (completion status 12, retries exceeded) unless this is kept
// to: UCCL issues 360, 617 and 799, cured by UCCL_IB_MAX_INFLIGHT_BYTES=1572864 and 2097152 per process. It ran with at
// most 32 messages in each of the 8 rings of a proxy thread.
constexpr uint64_t thor_bytes = 1572864, pollara_bytes = 2097152;
constexpr uint32_t proxy_messages = 32 * 8;

constexpr NicFamily nic_table[] = {
    {"mlx5", 0x02c9, 0, 0, 0, patient, roce_level, roce_class, 64, true, true, true},
    {"bnxt_re", 0x14e4, thor_bytes, proxy_messages, 0, patient, roce_level, roce_class, 64, false, true, true},
    {"ionic", 0x1dd8, pollara_bytes, proxy_messages, 0, patient, roce_level, roce_class, 32, false, true, true},
    // Its GPU memory goes by dma-buf alone.
    {"irdma", 0x8086, 0, 0, 0, patient, roce_level, roce_class, 48, false, true, false},
    {"erdma", 0x1ded, 0, 0, 0, patient, 0, 0, 64, false, false, false},
    // Sends all again from a lost packet on: a longer timeout costs more than it saves. Its doorbell is a system call
    // that sends, up to 64 packets; the rest is left to ksoftirqd, which shares its CPU with the thread that polls.
    {"rxe", 0xffffff, 0, 0, 65536, 14, 0, 0, 64, false, false, false},
};
constexpr NicFamily unknown_nic{"unknown", 0, 0, 0, 0, patient, roce_level, roce_class, 0, false, true, true};

constexpr const NicFamily& family_of(uint32_t vendor) {
  for (const NicFamily& family : nic_table) {
    if (family.vendor == vendor) return family;
  }
  return unknown_nic;
}

// All retries together end within timeout_ms: the words of the NIC say more than those of a timeout.
constexpr uint8_t timeout_within(const NicFamily& family, uint32_t timeout_ms) {
  uint8_t timeout = family.timeout;
  while (timeout > 1 && (4096ull << timeout) * (retries + 1u) > uint64_t{timeout_ms} * 1000000) --timeout;
  return timeout;
}

}  // namespace ucclep::transport::verbs
