// SPDX-License-Identifier: Apache-2.0
// A libibverbs.so.1 for machines without NICs: UCCLEP_DOUBLE_NIC names the family that it plays ("none": there is no
// device). Three devices FAMILY_0 to FAMILY_2, of which the first has no active port, reach each other within a
// process. UCCLEP_DOUBLE_REACH: so many bytes of a GPU's memory at most are registered at once. It refuses what goes
// beyond the family's limits. They are written here a second time: what the library's table says is not taken from it.
#pragma once
#include <infiniband/verbs.h>

namespace ucclep::test {

struct NicLimits {
  const char* name;
  uint32_t vendor;
  bool ethernet;
  int max_qp_wr, max_cqe, max_srq, max_srq_wr;
  uint32_t max_inline, max_message;
  uint32_t max_in_flight;            // messages of one context; more and the NIC gives up. 0: any
  bool retries_for_ever;             // what a retry_cnt of 7 means
  bool dma_bufs, addresses_of_gpus;  // registers them
};

// What was asked for last.
struct Seen {
  ibv_qp_attr ready_to_receive, ready_to_send;
  ibv_qp_cap pair;
  int completions;
  uint32_t chain;  // requests of one doorbell
  unsigned access;
};

constexpr const char* seen_symbol = "ucclep_double_seen";
using SeenFunction = const Seen* (*)();

}  // namespace ucclep::test
