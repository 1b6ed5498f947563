// SPDX-License-Identifier: Apache-2.0
#include "host/group/group_shape.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/nodes.hpp"

namespace ucclep {
namespace {

DeviceTraits traits_where(unsigned whole_bytes, unsigned line_bytes) {
  DeviceTraits traits{};
  traits.num_sms = 132;
  traits.wave = 32;
  traits.max_block = 512;
  traits.shared_bytes = 227 * 1024;
  traits.line_bytes = line_bytes;
  traits.line_payload = line_bytes - 8;
  traits.whole_bytes = whole_bytes;
  return traits;
}

GroupShape shape_where(unsigned whole_bytes, unsigned line_bytes) {
  const DeviceTraits traits = traits_where(whole_bytes, line_bytes);
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = 16;
  config.top_k = 4;
  config.max_tokens_per_rank = 1;
  config.max_token_bytes = 1024;
  return shape_of(checked_config(config, 4, traits, NodeShape{}), 4, traits, NodeShape{});
}

TEST_CASE("group: rows of LL travel as lines only where a store of a line arrives whole") {
  for (const unsigned line : {16u, 128u}) {
    for (const unsigned whole : {8u, 16u, 128u}) {
      INFO("lines of " << line << " bytes, of which " << whole << " arrive whole");
      const GroupShape shape = shape_where(whole, line);
      CHECK(shape.whole_bytes == whole);
      CHECK(shape.line_bytes == (whole < line ? sizeof(Packet) : line));
      CHECK(shape.lines_only() == (whole >= line));
      CHECK((shape.line_capacity != 0) == (whole >= line));
      CHECK(shape.ll_bulk_tokens == (whole < line ? shape.ll_tokens : 0));
    }
  }
}

TEST_CASE("group: metas of HT have room as the lines that they are sent in") {
  const GroupShape wide = shape_where(128, 128), narrow = shape_where(16, 128);
  const uint64_t body = MetaLayout::of(4).body_bytes();
  CHECK(meta_line_bytes(wide) == (body + 119) / 120 * 128);
  CHECK(meta_line_bytes(narrow) == 2 * body);
  for (const GroupShape& shape : {wide, narrow}) {
    const WindowLayout at = WindowLayout::of(shape);
    CHECK(at.ht_source >= at.ht_lines + meta_line_bytes(shape) * shape.ht_tokens);
  }
}

// A training group of 8 ranks, with the fewest tokens in LL.
GroupShape large_shape(int64_t window_bytes, int max_tokens = 8192, const NodeShape& nodes = {}) {
  const DeviceTraits traits = traits_where(128, 128);
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = 256;
  config.top_k = 8;
  config.max_tokens_per_rank = max_tokens;
  config.ll_max_tokens_per_rank = 1;
  config.max_token_bytes = 2 * 7168;
  config.window_bytes = window_bytes;
  return shape_of(checked_config(config, 8, traits, nodes), 8, traits, nodes);
}

TEST_CASE("group: a round of HT has as many tokens as window_bytes has room for, at most max_tokens_per_rank") {
  constexpr int64_t mib = 1 << 20;
  for (const int64_t bytes : {64 * mib, 512 * mib, 1024 * mib}) {
    const GroupShape shape = large_shape(bytes);
    CHECK(WindowLayout::of(shape).bytes <= static_cast<uint64_t>(bytes));
    CHECK(shape.ht_tokens < 8192);
    CHECK(shape.ht_tokens % 32 == 0);
    GroupShape more = shape;
    more.ht_tokens += 32;
    CHECK(WindowLayout::of(more).bytes > static_cast<uint64_t>(bytes));
  }
  CHECK(large_shape(8192 * mib).ht_tokens == 8192);
  CHECK(large_shape(1).ht_tokens == 32);  // the least; the call is refused
  CHECK(large_shape(1, 9).ht_tokens == 9);
}

TEST_CASE("group: by itself a group of 8 ranks with 8192 tokens takes less than 700 MiB for HT") {
  const GroupShape shape = large_shape(0);
  CHECK(shape.ht_tokens >= 1920);
  CHECK(WindowLayout::of(shape).bytes <= 700ull << 20);
}

TEST_CASE("group: between nodes window_bytes counts what NICs read and write, too") {
  constexpr uint64_t bytes = 512 << 20;
  const GroupShape shape = large_shape(bytes, 8192, {2, 4, 1});
  GroupShape more = shape;
  more.ht_tokens += 32;
  const auto all = [](const GroupShape& one) {
    return WindowLayout::of(one).bytes + WindowLayout::of(one).network_bytes;
  };
  CHECK(shape.ht_tokens % 32 == 0);
  CHECK(all(shape) <= bytes);
  CHECK(all(more) > bytes);
}

TEST_CASE("group: chunks of the network have 64 to 256 KiB, and are no more than may be") {
  CHECK(rows_of_chunk(64, 14784, 4095) == 5);
  CHECK(rows_of_chunk(512, 14784, 4095) == 8);  // a 64th of them
  CHECK(rows_of_chunk(4096, 14784, 4095) == 18);
  CHECK(rows_of_chunk(4095, 1 << 20, 4095) == 1);
  CHECK(rows_of_chunk(4096, 1 << 20, 4095) == 2);
}

TEST_CASE("group: each chunk between nodes has a count of its own") {
  const GroupShape shape = large_shape(512 << 20, 8192, {2, 4, 1});
  const uint64_t bytes = NetworkTables::bytes(shape) - NetworkTables::of(shape).stored;
  std::set<uint64_t> counts;
  uint64_t all = 0;
  for (const Kind kind : {Kind::dispatch, Kind::combine}) {
    const uint32_t chunks = RowsBetweenNodes::of(shape, kind).chunks();
    CHECK(chunks > 1);
    for (uint32_t i = 0; i < chunks * shape.ranks * shape.in_flight; ++i, ++all) {
      const uint32_t slot = i % shape.in_flight, rank = i / shape.in_flight % shape.ranks;
      counts.insert(NetworkTables::stored_at(shape, kind, slot, rank, i / (shape.in_flight * shape.ranks)));
    }
  }
  CHECK(counts.size() == all);
  CHECK(*counts.rbegin() + sizeof(uint32_t) <= bytes);
}

}  // namespace
}  // namespace ucclep
