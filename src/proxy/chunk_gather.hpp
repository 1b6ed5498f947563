// SPDX-License-Identifier: Apache-2.0
// Rows become messages: what has been put for one destination, in any order, until chunks are whole. It merges what
// lanes put by the row into one write for each chunk, and finds commands that cannot be right.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "proxy/immediate.hpp"
#include "proxy/places.hpp"
#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

class ChunkGather {
 public:
  // places outlive it. first: of each kind the number before that of its first operation.
  ChunkGather(const Places& places, uint32_t in_flight, const KindNumbers& first = {});

  // A put or a header. Null, or why it cannot be right. `whole`: the put of the one chunk that has become whole by it,
  // else CommandOp::none.
  const char* accept(const Command& command, Command* whole);
  // Of an epoch that a command of this kind names, near those that came before.
  uint64_t seq_of(Kind kind, uint32_t epoch) const;
  // Rows that wait: their chunks are not whole.
  uint64_t rows_waiting() const { return waiting_; }

 private:
  static constexpr uint32_t unknown = 0xffffffff;
  struct Slot {
    uint64_t seq = 0;
    const KindPlaces* places = nullptr;  // of its sort of rows
    uint32_t total = unknown;            // rows, from the header
    uint32_t end = 0;                    // one past the last row that has been put
    uint32_t row_bytes = 0;              // 0: none has been put
    uint32_t gone = 0;                   // chunks
    uint16_t destination = 0;
    uint8_t flags = 0;
  };

  uint32_t index(Kind kind, uint64_t seq) const;
  uint16_t& count(Kind kind, uint64_t seq, uint32_t chunk);
  const char* open(Kind kind, uint64_t seq, const Command& command);
  const char* put(Kind kind, uint64_t seq, const Command& command, Command* whole);
  const char* header(Kind kind, uint64_t seq, const Command& command, Command* whole);
  void close_if_whole(Kind kind, uint64_t seq, uint32_t chunk, Command* whole);
  uint32_t rows_of(const Slot& slot, uint32_t chunk) const;
  bool is_whole(Kind kind, uint64_t seq, uint32_t chunk);
  Command leave(Kind kind, uint64_t seq, uint32_t chunk);

  const Places& places_;
  const uint32_t in_flight_;
  const KindNumbers first_;
  KindNumbers newest_;
  std::vector<Slot> slots_;
  std::vector<uint16_t> counts_;  // rows put, by chunk
  uint64_t first_count_[num_kinds] = {};
  uint64_t waiting_ = 0;
};

}  // namespace ucclep::proxy
