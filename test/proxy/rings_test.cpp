// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "proxy/command_rings.hpp"
#include "proxy/ring_deal.hpp"

namespace ucclep {
namespace {

using proxy::CommandRings;
using proxy::RingsShape;

TEST_CASE("fifo: destinations of a rail spread over all bulk rings, and control has rings of its own", "[rings]") {
  Fifo fifo{};
  fifo.bulk_log2 = 3;
  fifo.control_log2 = 1;
  for (uint32_t stride : {1u, 4u, 8u, 16u, 72u}) {
    std::map<uint32_t, int> bulk, control;
    int total = 0;
    constexpr uint32_t nodes = 64;
    for (uint32_t node = 0; node < nodes && node * stride < max_ranks; ++node) {
      ++total;
      ++bulk[bulk_ring(fifo, node * stride + 3)];
      ++control[control_ring(fifo, node * stride + 3)];
    }
    INFO("every rank in " << stride);
    CHECK(bulk.size() == 8);
    CHECK(bulk.rbegin()->first == 7);
    CHECK(control.size() == 2);
    CHECK(control.begin()->first == 8);
    CHECK(control.rbegin()->first == 9);
    for (const auto& [ring, count] : bulk) CHECK(count <= total / 8 * 3);
  }
  fifo.bulk_log2 = fifo.control_log2 = 0;
  CHECK(bulk_ring(fifo, 4095) == 0);
  CHECK(control_ring(fifo, 4095) == 1);
}

TEST_CASE("fifo: both rings of a destination belong to its proxy thread", "[rings]") {
  Fifo fifo{};
  for (fifo.bulk_log2 = 0; fifo.bulk_log2 <= 4; ++fifo.bulk_log2) {
    for (fifo.control_log2 = 0; fifo.control_log2 <= 4; ++fifo.control_log2) {
      for (uint32_t threads : {1u, 2u, 3u, 4u}) {
        INFO("2^" << fifo.bulk_log2 << " bulk, 2^" << fifo.control_log2 << " control, " << threads << " threads");
        std::map<uint32_t, int> owners;
        int wrong = 0;
        for (uint32_t destination = 0; destination < 500; ++destination) {
          const uint32_t thread = proxy::thread_of_destination(fifo, destination, threads);
          ++owners[thread];
          wrong += proxy::thread_of_ring(fifo, bulk_ring(fifo, destination), threads) != thread;
          wrong += proxy::thread_of_ring(fifo, control_ring(fifo, destination), threads) != thread;
        }
        CHECK(wrong == 0);
        CHECK(owners.rbegin()->first < threads);
        CHECK(owners.size() == std::min(threads, 1u << proxy::deal_bits(fifo)));
      }
    }
  }
}

TEST_CASE("fifo: rings have room for what is pushed at once, twice", "[rings]") {
  const auto device = open_host_device(0, {});
  const auto capacity_log2 = [&](uint32_t max_concurrent) {
    const CommandRings rings(*device, {.max_concurrent = max_concurrent}, 1, nullptr);
    CHECK(rings.fifo().high_water + max_concurrent == 1u << rings.fifo().capacity_log2);
    return rings.fifo().capacity_log2;
  };
  CHECK(capacity_log2(1) == 12);
  CHECK(capacity_log2(2048) == 12);
  CHECK(capacity_log2(2049) == 13);
  CHECK(capacity_log2(67584) == 18);
}

TEST_CASE("fifo: rings do not share slots or words", "[rings]") {
  const auto device = open_host_device(0, {});
  const CommandRings rings(*device, {.bulk_log2 = 2, .control_log2 = 1, .max_concurrent = 8, .capacity_log2 = 4}, 1,
                           nullptr);
  REQUIRE(rings.count() == 6);
  for (uint32_t ring = 0; ring < rings.count(); ++ring) {
    const proxy::RingMemory memory = rings.memory(ring);
    CHECK(reinterpret_cast<uintptr_t>(memory.slots) % 64 == 0);
    CHECK(memory.slots == rings.fifo().slots + size_t{ring} * 16);
    CHECK(memory.position == rings.fifo().positions + size_t{ring} * fifo_stride);
    CHECK(*memory.position == 0);
  }
}

TEST_CASE("fifo: a shape that is none is refused with an error message", "[rings]") {
  const auto device = open_host_device(0, {});
  const auto message = [&](const RingsShape& shape) -> std::string {
    try {
      const CommandRings rings(*device, shape, 1, nullptr);
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpInvalidArgument);
      return error.what();
    }
    return "not refused";
  };
  CHECK_THAT(message({.bulk_log2 = 9, .max_concurrent = 1}), Catch::Contains("2^9 bulk"));
  CHECK_THAT(message({.max_concurrent = 0}), Catch::Contains("lanes may push 0 commands"));
  CHECK_THAT(message({.max_concurrent = 16, .capacity_log2 = 4}),
             Catch::Contains("lanes may push 16 commands at the same time to a ring of 2^4"));
  CHECK_THAT(message({.max_concurrent = 1u << 20}), Catch::Contains("expected 1 to"));
}

}  // namespace
}  // namespace ucclep
