// SPDX-License-Identifier: Apache-2.0
// A message of the channel from one domain to another (channel.hpp): a put, or a signal, which moves one of the
// receiver's words on. The messages of a rank to a peer are numbered, from 1. One is placed when it and all before it
// have come; so a signal is delivered only when the puts before it lie where they should. At most channel_window of
// them are not known to be placed: that many slots hold what they say.
//
// clang-format off
// | who releases                          | who acquires                  | scope  | what is ordered                       |
// |---------------------------------------|-------------------------------|--------|---------------------------------------|
// | the lane that sends: fence, then the  | RingReader::poll, then the    | system | the message, sources of puts, and all |
// |   command                             |   NIC's read                  |        |   that the lane has seen              |
// | the proxy at the other end: store of  | wait_signal, barrier:         | system | puts before the signal before their   |
// |   the word that a signal names, when  |   load_acquire                |        |   readers                             |
// |   copies of staged puts have ended    |                               |        |                                       |
// | the sender's proxy: store of `placed` | is_placed: load_acquire; then | system,| puts before what follows; the NIC's   |
// |                                       |   store_release for others    |   gpu  |   reads of slots and sources before   |
// |                                       |                               |        |   they are written again              |
// clang-format on
#pragma once
#include <cstdint>

namespace ucclep {

constexpr uint32_t channel_window = 32;
constexpr uint64_t channel_piece = 256 * 1024;  // bytes of one message; a longer put is several

// Where NICs do not reach the user's windows (GroupShape::stages_puts) the bytes of a put are copied into host memory
// beside the sender, and out of that beside the receiver, by the proxies. So pieces are smaller, and fewer of them are
// under way: a put takes the slot of the one staged_window numbers before.
constexpr uint32_t staged_window = 8;
constexpr uint64_t staged_piece = 64 * 1024;

// It travels as it is.
struct SignalMessage {
  uint64_t row, value;  // of words, one for each sender: a signal or, behind these, a team; what it has reached
};

// As it lies with the sender, for its proxy.
struct Message {
  SignalMessage signal;                    // of a signal message
  uint64_t to_offset, from_offset, bytes;  // of a put
  uint32_t to_window, from_window;         // ids
};

// It travels before the bytes of a put that is staged.
struct StagedPut {
  uint64_t to_offset, bytes;
  uint32_t to_window, unused;
  uint64_t padding[5];
};
static_assert(sizeof(StagedPut) == 64 && channel_window % staged_window == 0);
constexpr uint64_t staged_slot = sizeof(StagedPut) + staged_piece;

// What proxies report to kernels about the channel, in host memory. A word has one writer, and only grows.
struct ChannelWords {
  uint64_t* placed = nullptr;  // [rank]: the last of this rank's messages to it that is placed
  uint64_t* moved = nullptr;   // [row][rank]: by signals of the rank
};

}  // namespace ucclep
