// SPDX-License-Identifier: Apache-2.0
// An exchange whose operations kernels send and receive: their arguments, and the launches.
#pragma once
#include "initiated_calls.hpp"

namespace ucclep::test {

// What kernels need besides the exchange.
struct Words {
  Tensor zone_rows, barrier;

  Words(const Exchange& exchange, ucclEpComm_t comm)
      : zone_rows(comm, "rows of zones", ucclEpInt32, {exchange.dispatch_out.tokens->sizes[0]}),
        barrier(comm, "barrier", ucclEpInt32, {sizeof(GridBarrier) / sizeof(int32_t)}) {
    barrier.set_integers({0, 0});
    barrier.upload();
  }
};

// Where kernels run: of a Session, or of ranks with masks.
struct Place {
  ucclEpComm_t comm;
  ucclEpHandle_t handle;
  Stream& stream;

  template <class Of>
  Place(Of& of) : comm(of.comm), handle(of.handle), stream(of.stream) {}
};

// seed: of the order in which rows are sent and asked for, and of how many at a time.
ReceiveDispatchArgs received_dispatch(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed, const Words& words);
ReceiveCombineArgs received_combine(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed);

// A dispatch that a kernel sends and receives.
void receive_dispatch(Exchange& exchange, const Place& at, const std::string& scope, uint32_t seed);

// Which operations of a round kernels receive; the others are the host's calls. one_kernel: both in the same. late: the
// others wait when this rank begins. known: in LL, the routing is there when the dispatch begins; then, in one kernel,
// the combine is begun beside it.
struct Received {
  bool dispatch = true, combine = true, one_kernel = false, late = false, known = false;
};

// Dispatch and combine, checked.
void receive_round(const Rank& rank, const Place& at, Exchange& exchange, const std::string& scope, uint32_t seed,
                   const Received& received);

// One routing; in HT forward and backward.
void receive_routing(const Rank& rank, const Place& at, const Scenario& scenario, const std::string& scope,
                     uint32_t seed, const Received& received);

// The same from every scope, one kernel for all or for a part of it.
void receive_rounds(const Rank& rank, const Place& at, const Scenario& scenario);

}  // namespace ucclep::test
