// SPDX-License-Identifier: Apache-2.0
// Kernels as users write them over the channel: what each row of the table in channel.hpp promises, seen by a peer.
#pragma once
#include "ucclep/device.hpp"

namespace ucclep::test {

enum class ChannelScope : uint32_t { thread, lanes4, warp, block };
inline constexpr ChannelScope channel_scopes[] = {ChannelScope::thread, ChannelScope::lanes4, ChannelScope::warp,
                                                  ChannelScope::block};

struct ChannelArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceWindow out, in;  // sources; where peers put
  uint64_t bytes;              // of a message
  uint32_t rounds, seed;
  int peer, signal;  // of calls that are wrong
  int absent;        // a rank that does not take part, or no_peer
  ChannelScope scope;
  uint64_t* result;  // [0] wrong bytes and counts, [1] calls that gave up
};

// Byte i of the message of that round from one rank to another.
UCCLEP_HD constexpr unsigned char message_byte(uint32_t seed, uint32_t round, int from, int to, uint64_t i) {
  return static_cast<unsigned char>(seed * 31 + round * 17 + static_cast<uint32_t>(from) * 7 +
                                    static_cast<uint32_t>(to) * 3 + i);
}

}  // namespace ucclep::test
