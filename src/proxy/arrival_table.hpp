// SPDX-License-Identifier: Apache-2.0
// Which chunks have come (P8): a bitmap for each (kind, source, seq mod N). Chunks may come in any order, twice, or
// long after their time; what is published only grows. Nothing is allocated after construction. One thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proxy/immediate.hpp"
#include "ucclep/device/layout/arrivals.hpp"

namespace ucclep::proxy {

struct ArrivalShape {
  uint32_t ranks = 0;
  uint32_t in_flight = 2;
  uint32_t chunks = 0;  // most between two ranks in one operation
};

enum class Arrival : uint8_t {
  fresh,     // it was missing
  repeated,  // it was there
  stale,     // its operation is over, or none of those that can be under way
  foreign,   // no such rank, kind or chunk
};

class ArrivalTable {
 public:
  // Error(ucclEpNotSupported) for more ranks, chunks or operations in flight than an immediate can name.
  explicit ArrivalTable(const ArrivalShape& shape);

  // The immediate of a chunk, or of a header, which says how many chunks the operation brings; not a word's.
  Arrival arrive(const Immediate& imm);
  // All operations of the kind up to seq have been read: their slots are free for seq + N. It never goes back.
  void consume(Kind kind, uint64_t seq);

  // Of the operation that an immediate of this kind and epoch means today.
  uint64_t seq_of(Kind kind, uint32_t epoch) const;
  // What a kernel may know; grows only.
  Progress progress(Kind kind, uint32_t source, uint64_t seq) const;

  uint64_t early() const { return early_; }      // chunks that came before one below them
  uint64_t deepest() const { return deepest_; }  // how far above the lowest that is missing one came, at most
  uint64_t repeated() const { return repeated_; }
  uint64_t stale() const { return stale_; }
  uint64_t foreign() const { return foreign_; }

 private:
  static constexpr uint32_t unknown = 0xffffffff;
  struct Slot {
    uint64_t seq = 0;
    uint32_t below = 0;
    uint32_t expected = unknown;
  };

  Arrival set(const Immediate& chunk, uint64_t seq);
  Arrival expect(Kind kind, uint32_t source, uint64_t seq, uint32_t chunks);
  bool is_under_way(Kind kind, uint64_t seq) const;
  size_t index(Kind kind, uint32_t source, uint64_t seq) const;
  Slot& open(Kind kind, uint32_t source, uint64_t seq);
  uint64_t* bitmap(size_t index) { return bits_.data() + index * words_; }
  void advance(size_t index);
  void drop_beyond(size_t index);

  const ArrivalShape shape_;
  const size_t words_;  // of a bitmap
  uint64_t consumed_[num_kinds] = {};
  std::vector<Slot> slots_;
  std::vector<uint64_t> bits_;
  uint64_t early_ = 0, deepest_ = 0, repeated_ = 0, stale_ = 0, foreign_ = 0;
};

}  // namespace ucclep::proxy
