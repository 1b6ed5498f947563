// SPDX-License-Identifier: Apache-2.0
// What cases repeat that make many operations: all of a routing in a row, and numbers as of long ago.
#pragma once
#include <cstring>
#include <deque>

#include "conformance/exchange.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {

// A routing with its handle, of which all operations go into the stream at once.
struct Turn {
  Turn(const Rank& rank, ucclEpComm_t comm, ucclEpGroup_t group, const Scenario& scenario)
      : handle(make_handle(group, handle_config(scenario))), exchange(rank, comm, scenario) {}
  void enqueue(uint64_t seed, ucclEpStream_t stream) {
    exchange.reroute(seed);
    if (!exchange.scenario().carried) exchange.update(handle, stream);
    exchange.dispatch(handle, stream);
    exchange.combine(handle, stream);
  }
  void check() {
    exchange.check_counters();
    exchange.check_dispatch();
    exchange.check_combine();
  }
  Handle handle;
  Exchange exchange;
};

// All turns in a row, and then every byte of what they brought.
inline void take(std::deque<Turn>& turns, uint64_t seed, Stream& stream) {
  for (Turn& turn : turns) turn.enqueue(seed, stream);
  stream.synchronize();
  for (Turn& turn : turns) turn.check();
}

// As if so many operations of each kind had been made already. All ranks are between two operations; host device only.
inline void set_sequences(ucclEpGroup_t group, uint64_t seq) {
  ucclEpDeviceGroup device;
  ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    device.state->ended[kind] = EndedWord::of(seq);
    for (uint32_t peer = 0; peer < device.shape.ranks; ++peer) {
      char* word =
          device.windows[device.rank] + device.layout.consumed_word(device.shape, static_cast<Kind>(kind), peer);
      std::memcpy(word, &seq, sizeof seq);
    }
  }
}

}  // namespace ucclep::test
