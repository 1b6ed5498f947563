// SPDX-License-Identifier: Apache-2.0
// What an endpoint shows to its peers: a sealed memfd with a header, the table of its regions, and a ring of arrivals
// for each peer. Peers in other processes open it through /proc, so no descriptor has to be passed; threads of the same
// process share the object, so that an address means the same to all of them, ThreadSanitizer included.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/node.hpp"
#include "base/sealed_memory.hpp"
#include "base/token.hpp"
#include "transport/transport.hpp"

namespace ucclep::transport::loopback {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "words between processes");

// An entry of the table of regions. `generation` is odd while the region is registered and is part of its key. A writer
// counts itself in `users` before it looks at `generation`; the owner changes `generation` before it looks at `users`.
// Both are sequentially consistent, so either the writer sees the change or the owner sees the writer.
struct RegionEntry {
  std::atomic<uint32_t> generation;
  std::atomic<uint32_t> users;
  int32_t fd;  // in the owner's process; -1: only threads of that process reach it
  uint32_t unused;
  uint64_t fd_offset, address, bytes;
};

struct RingEntry {
  uint32_t imm;
  uint32_t unused;
  uint64_t bytes;
};

// One producer, the peer; one consumer, the owner. The producer's release of `tail` after the payload and the entry is
// what the consumer's acquire of `tail` meets; `head` goes the same way back, for the entries. `turns` is odd while the
// owner is connected to the peer, and goes up when it connects and when it disconnects: while it is even nothing may be
// written.
struct RingWords {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  std::atomic<uint32_t> turns;
};

struct SegmentHeader {
  static constexpr uint64_t the_magic = 0x316b62706f6f6c75;  // "uloopbk1"
  uint64_t magic;
  Token token;
  uint32_t peers, entries;
  std::atomic<uint32_t> closed;
};

// What address() gives.
struct SegmentAddress {
  uint64_t magic = SegmentHeader::the_magic;
  Token process, token;
  int32_t pid = 0, fd = -1;
};

class Segment {
 public:
  static constexpr uint32_t max_regions = 4096;

  static std::shared_ptr<Segment> create(uint32_t peers, uint32_t entries);
  // Throws Error: no address, no such process, or not the memory that the address speaks of.
  static std::shared_ptr<Segment> open(std::span<const std::byte> address);

  Segment(SealedMemory memory, const SegmentAddress& address);

  const SegmentAddress& address() const { return address_; }
  bool in_this_process() const { return address_.process == this_process(); }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(memory_.data()); }
  RegionEntry& region(uint32_t number) const;
  uint32_t peers() const { return peers_; }
  uint32_t entries() const { return entries_; }  // of a ring; a power of two
  RingWords& ring(uint32_t peer) const;
  RingEntry* ring_entries(uint32_t peer) const;

 private:
  SealedMemory memory_;
  SegmentAddress address_;
  uint32_t peers_, entries_;
};

}  // namespace ucclep::transport::loopback
