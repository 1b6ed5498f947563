// SPDX-License-Identifier: Apache-2.0
// Whatever ucclEpGroupCreate takes can be launched, in both modes.
#include "host/group/plan.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "device/device.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "unit/refusal.hpp"

namespace ucclep {
namespace {

DeviceTraits device_with(size_t shared_bytes, unsigned wave) {
  DeviceTraits traits{};
  traits.kind = UCCLEP_DEVICE_CUDA;
  traits.name = "a GPU";
  traits.num_sms = 132;
  traits.wave = wave;
  traits.max_block = 512;
  traits.shared_bytes = shared_bytes;
  traits.line_bytes = wave == 32 ? 128 : 16;
  traits.line_payload = wave == 32 ? 120 : 8;
  traits.whole_bytes = traits.line_bytes;
  return traits;
}

GroupShape shape_of(uint32_t ranks, uint32_t experts, uint32_t ll_tokens, const DeviceTraits& traits) {
  GroupShape shape{};
  shape.ranks = ranks;
  shape.experts = experts;
  shape.local = Divisor(experts / ranks);
  shape.top_k = max_top_k;
  shape.in_flight = 2;
  shape.ht_tokens = 4096;
  shape.ll_tokens = ll_tokens;
  shape.line_bytes = traits.line_bytes;
  shape.token_bytes = 14336;
  return shape;
}

TEST_CASE("plan: what a group may have can be launched") {
  for (const DeviceTraits& traits : {device_with(227 * 1024, 32), device_with(64 * 1024, 64)}) {
    const uint32_t most = max_ranks_of(traits);
    REQUIRE(most >= 512);
    for (const uint32_t ranks : {1u, 8u, 64u, 512u, 1024u, 2048u, most, most + 1, max_ranks}) {
      const uint32_t experts_of_all = max_experts_of(traits, ranks, NodeShape{});
      for (const uint32_t experts : {ranks, 256 / ranks * ranks, 4096 / ranks * ranks, experts_of_all}) {
        if (experts == 0 || experts > experts_of_all) continue;
        for (const uint32_t ll_tokens : {1u, 128u, 4096u}) {
          const GroupShape shape = shape_of(ranks, experts, ll_tokens, traits);
          CAPTURE(traits.shared_bytes, ranks, experts, ll_tokens);
          try {
            check_launchable(traits, shape);
          } catch (const Error& error) {
            CHECK(error.code() == ucclEpNotSupported);
            CHECK_THAT(error.what(), Catch::Contains(fmt::format("at most {} ranks", most)));
            CHECK((ranks > most || experts > ranks || ll_tokens > 1));
            continue;
          }
          CHECK(ranks <= most);
          for (const uint64_t tables : {uint64_t{BlockTableLayout::of(shape).bytes}, exposed_table_bytes(ranks)}) {
            for (const Moves moves : {Moves::bulk, Moves::lines}) {
              CHECK(plan_rows(traits, 0, tables, moves).shape.shared_bytes <= traits.shared_bytes);
            }
          }
          CHECK(plan_routing(traits, shape, 0, 4096).shape.shared_bytes <= traits.shared_bytes);
        }
      }
    }
  }
}

TEST_CASE("plan: by default a 32nd of the SMs stays free") {
  DeviceTraits traits = device_with(227 * 1024, 32);
  const auto grid = [&](unsigned sms, int asked) {
    traits.num_sms = sms;
    return plan_counting(traits, asked).grid;
  };
  CHECK(grid(132, 0) == 128);
  CHECK(grid(15, 0) == 14);
  CHECK(grid(2, 0) == 1);
  CHECK(grid(1, 0) == 1);  // there is nothing to leave
  CHECK(grid(132, 132) == 132);
  CHECK(grid(132, 24) == 24);
  CHECK(grid(132, 133) == 132);
  CHECK(grid(4 * TurnWord::max_blocks, 0) <= TurnWord::max_blocks);  // turns are counted in 16 bits
  CHECK(grid(4 * TurnWord::max_blocks, 2 * TurnWord::max_blocks) == TurnWord::max_blocks);
}

}  // namespace
}  // namespace ucclep
