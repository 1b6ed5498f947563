// SPDX-License-Identifier: Apache-2.0
// Rings in which rows of HT land: where the row of a place lies, what has room, their words, and which groups have
// them.
#include "ucclep/device/layout/nodes.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "host/context/ht_ring.hpp"
#include "proxy/immediate.hpp"

namespace ucclep {
namespace {

TEST_CASE("RingShape: chunks of 64 to 256 KiB, and no more of them than a word counts") {
  CHECK(RingShape::of(64, 14784, 8).rows_per_chunk == 5);
  CHECK(RingShape::of(512, 14784, 8).rows_per_chunk == 8);  // a 64th of them
  CHECK(RingShape::of(4096, 14784, 8).rows_per_chunk == 18);
  CHECK(RingShape::of(4096, 14784, 8).chunks == 8);
  CHECK(RingShape::of(65536, 14784, 8).rows_per_chunk == 65);  // more would be too many chunks
  CHECK(RingShape::of(1023, 1 << 20, 8).rows_per_chunk == 1);
  CHECK(RingShape::of(1024, 1 << 20, 8).rows_per_chunk == 2);
  for (const uint32_t rows : {1u, 5u, 1023u, 1024u, 4096u, 65536u, 1u << 24}) {
    for (const uint64_t bytes : {16u, 1000u, 14784u, 65536u, 70000u}) {
      const RingShape ring = RingShape::of(rows, bytes, 2);
      CHECK(ring.chunks_of(rows) <= RingShape::max_chunks);
      CHECK((ring.rows_per_chunk * bytes >= 65536 || ring.chunks_of(rows) == 1));
      CHECK(((ring.rows_per_chunk - 1) * bytes < 262144 || ring.chunks_of(rows) > RingShape::max_chunks / 2));
    }
  }
}

TEST_CASE("RingShape: a ring is no larger than an operation; none that is asked for is none") {
  CHECK(RingShape::of(10, 65536, 4).chunks == 4);
  CHECK(RingShape::of(10, 65536, 100).chunks == 10);
  CHECK(RingShape::of(10, 65536, 0).chunks == 0);
  CHECK(RingShape::of(3, 64, 2).chunks == 1);
}

TEST_CASE("RingShape: no two rows of chunks that may be there at once lie in one place") {
  for (const uint32_t chunks : {2u, 3u, 7u}) {
    for (const uint32_t of_chunk : {1u, 4u, 5u}) {
      RingShape ring;
      ring.chunks = chunks;
      ring.rows_per_chunk = of_chunk;
      const uint32_t rows = 6 * chunks * of_chunk + 3;
      for (uint32_t freed = 0; freed < ring.chunks_of(rows); ++freed) {
        std::map<uint32_t, uint32_t> place_at;
        for (uint32_t place = freed * of_chunk; place < rows && ring.has_room(ring.chunk_of(place), freed); ++place) {
          REQUIRE(ring.position_of(place) < ring.rows());
          REQUIRE(place_at.emplace(ring.position_of(place), place).second);
          // The rows of a chunk lie one behind the other: it is one message.
          if (place % of_chunk != 0) REQUIRE(ring.position_of(place) == ring.position_of(place - 1) + 1);
        }
        REQUIRE((place_at.size() == ring.rows() || ring.chunks_of(rows) - freed <= chunks));
      }
      CHECK_FALSE(ring.has_room(chunks, 0));
      CHECK(ring.has_room(chunks, 1));
    }
  }
}

// A sender that is out of room has credits for all but less than credit_batch of what was freed, which is less than the
// ring.
TEST_CASE("RingShape: a sender that is out of room has credits for some that is free") {
  for (uint32_t chunks = 2; chunks <= RingShape::max_chunks; ++chunks) {
    RingShape ring;
    ring.chunks = chunks;
    REQUIRE(ring.credit_batch() >= 1);
    REQUIRE(ring.credit_batch() <= chunks / 2);
    REQUIRE(ring.words_under_way() <= 7);
    REQUIRE(ring.words_under_way() * ring.credit_batch() <= chunks);
  }
}

// Of an operation's number as many bits count as there is room for.
TEST_CASE("RingTag: a word counts for its operation, and for no other") {
  for (const uint64_t seq : {uint64_t{1}, uint64_t{77}, uint64_t{1} << 35, uint64_t{1} << 39, uint64_t{1} << 54}) {
    const uint32_t max_place = (1u << 24) + ring_streams;
    CHECK(RingTag::chunks_in(RingTag::of_chunk(seq, 9), seq) == 9);
    CHECK(RingTag::places_in(RingTag::of_place(seq, max_place), seq) == max_place);
    for (const uint64_t other : {seq - 1, seq + 1}) {
      CHECK(RingTag::chunks_in(RingTag::of_chunk(other, RingShape::max_chunks), seq) == 0);
      CHECK(RingTag::places_in(RingTag::of_place(other, max_place), seq) == 0);
    }
    CHECK(RingTag::chunks_in(0, seq) == 0);
    CHECK(RingTag::places_in(0, seq) == 0);
  }
}

TEST_CASE("RingWords: no word lies in two places") {
  const NodeShape nodes{3, 2, 2};
  RingShape rows, sums;
  rows.chunks = 2;
  rows.rows_per_chunk = 3;
  sums.chunks = 3;
  const uint32_t in_flight = 4, ranks = 5;
  const RingWords words = RingWords::of(in_flight, ranks, nodes, rows, sums);
  std::set<uint64_t> taken;
  const auto take = [&](uint64_t offset, uint64_t bytes) {
    for (uint64_t at = offset; at < offset + bytes; at += 4) REQUIRE(taken.insert(at).second);
    REQUIRE(offset + bytes <= words.bytes);
  };
  for (uint32_t slot = 0; slot < in_flight; ++slot) {
    for (uint32_t block = 0; block < nodes.blocks(); ++block) {
      for (uint32_t member = 0; member < nodes.most; ++member) {
        for (uint32_t place = 0; place < ring_streams; ++place) {
          take(words.pulled_of(nodes, slot, block, member, place), 8);
        }
      }
      for (uint32_t place = 0; place < rows.rows(); ++place) take(words.relayed_of(nodes, rows, slot, block, place), 8);
      take(words.freed_of_block(nodes, slot, block), sizeof(FreedChunks));
    }
    for (uint32_t node = 0; node < nodes.nodes; ++node) {
      for (uint32_t place = 0; place < sums.rows(); ++place) take(words.summed_of(nodes, sums, slot, node, place), 8);
      take(words.freed_of_node(nodes, slot, node), sizeof(FreedChunks));
    }
  }
  take(words.next, 4ull * ranks * ring_streams);
}

TEST_CASE("freed chunks: a value says of which operation of a slot it is") {
  using proxy::Freed;
  for (const uint32_t in_flight : {2u, 4u, 8u}) {
    for (const uint64_t seq : {uint64_t{1}, uint64_t{30}, uint64_t{1} << 40}) {
      for (const uint32_t chunks : {0u, 1u, 1023u}) {
        const uint64_t value = Freed::value(seq, in_flight, chunks);
        const auto sent = static_cast<uint32_t>(value % proxy::imm_values);
        CHECK(Freed::chunks(sent, seq, in_flight) == chunks);
        for (const uint64_t turns : {1u, 2u, 3u}) {
          CHECK(Freed::chunks(sent, seq + turns * in_flight, in_flight) == 0);  // late
          CHECK(Freed::value(seq + turns * in_flight, in_flight, 0) > value);
        }
      }
    }
  }
  std::set<proxy::Word> words;
  for (const Kind kind : {Kind::dispatch, Kind::combine}) {
    for (uint32_t slot = 0; slot < proxy::max_in_flight; ++slot) {
      const Freed freed{kind, slot}, back = Freed::of_word(static_cast<uint32_t>(freed.word()));
      CHECK((back.kind == kind && back.slot == slot));
      CHECK(words.insert(freed.word()).second);
      CHECK(static_cast<uint32_t>(freed.word()) < proxy::num_words);
    }
  }
}

// Two nodes of eight ranks.
GroupShape two_nodes(uint32_t tokens) {
  GroupShape shape{};
  shape.ranks = 16;
  shape.experts = 256;
  shape.local = Divisor(16);
  shape.top_k = 8;
  shape.in_flight = 2;
  shape.ht_tokens = tokens;
  shape.ll_tokens = 1;
  shape.line_bytes = 128;
  shape.token_bytes = 14336;
  shape.networked = 1;
  shape.nodes = {2, 8, 1};
  return shape;
}

TEST_CASE("rings: as they are asked for, where they take less room") {
  const GroupShape shape = two_nodes(4096);
  CHECK(ring_chunks({AskedRing::off}, shape) == 0);
  CHECK(ring_chunks({2}, shape) == 2);
  CHECK(ring_chunks({100}, shape) == 100);
  CHECK(ring_chunks({1000}, shape) == 0);      // 228 chunks are all of them
  CHECK(ring_chunks({2}, two_nodes(3)) == 0);  // one chunk
  GroupShape other = shape;
  other.masked = 1;
  CHECK(ring_chunks({2}, other) == 0);
  other = shape;
  other.networked = 0;
  CHECK(ring_chunks({2}, other) == 0);
  // Rows of LL that go to nodes have room of their own there.
  other = shape;
  other.node_copies = 1;
  other.ll_tokens = 4096;
  other.ring = 2;
  CHECK(WindowLayout::of(other).relay_landing == WindowLayout::of(other).relay_rows);
}

TEST_CASE("rings of relays: where rows are staged, in groups without rings") {
  GroupShape shape = two_nodes(4096);
  CHECK(relay_ring_chunks({3}, shape) == 0);
  const uint64_t all = landing_bytes(shape);
  shape.relay_stages = 1;
  CHECK(relay_ring_chunks({}, shape) == 0);
  CHECK(relay_ring_chunks({3}, shape) == 3);
  CHECK(relay_ring_chunks({AskedRing::off}, shape) == 0);
  GroupShape other = shape;
  other.ring = 2;
  CHECK(relay_ring_chunks({3}, other) == 0);
  // What lands takes less room, what is staged as much as before, with a word for each sum.
  shape.relay_ring = 16;
  const WindowLayout layout = WindowLayout::of(shape);
  CHECK(layout.relay_landing < (5 << 20));
  CHECK(landing_bytes(shape) < all);
  CHECK(layout.relay_staged_rows == layout.relay_rows);
  CHECK(layout.sums_landing < (5 << 20));
  CHECK(layout.staged_sums_of_node == layout.sums_rows + 8 * 4096);
  CHECK(layout.staged_sums_from(shape, 1, 1, 0) - layout.staged_sums_from(shape, 0, 1, 0) ==
        layout.staged_sums_of_node);
  CHECK(layout.staged_sums_from(shape, 1, 0, 1) + layout.staged_sums_of_node <= layout.rings);
  // Rows of LL that go to nodes have room of their own there.
  shape.node_copies = 1;
  shape.ll_tokens = 4096;
  CHECK(WindowLayout::of(shape).relay_landing == WindowLayout::of(shape).relay_rows);
}

}  // namespace
}  // namespace ucclep
