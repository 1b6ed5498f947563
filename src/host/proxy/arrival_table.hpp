// SPDX-License-Identifier: Apache-2.0
// Which chunks have come (P8): a bitmap for each (kind, source, seq mod N). Chunks may come in any order, twice, or
// long after their time; what is published only grows. Nothing is allocated after construction. One thread at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "host/proxy/immediate.hpp"

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

  // A chunk's immediate; not a word's.
  Arrival arrive(const Immediate& chunk);
  // How many chunks the operation brings: from the source's header, once that is here.
  Arrival expect(Kind kind, uint32_t source, uint64_t seq, uint32_t chunks);
  // All operations of the kind up to seq have been read: their slots are free for seq + N. It never goes back.
  void consume(Kind kind, uint64_t seq);

  // What a kernel may know: seq, whether all chunks are here, and below which chunk none is missing. Grows only.
  struct Progress {
    uint64_t seq = 0;
    bool complete = false;
    uint32_t below = 0;

    uint64_t word() const { return seq << 14 | uint64_t{complete} << 13 | below; }
    friend constexpr bool operator==(const Progress&, const Progress&) = default;
  };
  Progress progress(Kind kind, uint32_t source, uint64_t seq) const;

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
  uint64_t repeated_ = 0, stale_ = 0, foreign_ = 0;
};

}  // namespace ucclep::proxy
