// SPDX-License-Identifier: Apache-2.0
// The kernel that tries every verb.
#include <catch2/catch.hpp>

#include "ranks.hpp"
#include "simt_check.hpp"
#include "support/test_env.hpp"

namespace ucclep {
namespace {

// source_error is added to one byte of the source, so that it is not what the kernel expects.
void try_all_verbs(const HostDeviceConfig& config, unsigned threads, unsigned char source_error = 0) {
  constexpr unsigned grid = 3;
  constexpr unsigned row_bytes = 2048;
  const unsigned warps = threads / config.wave;
  const auto device = open_host_device(0, config);
  const size_t rows = size_t{grid} * warps * row_bytes;
  auto* wrong = static_cast<uint32_t*>(device->alloc(4096));
  auto* words = static_cast<uint64_t*>(device->alloc((4 + grid) * sizeof(uint64_t)));
  void* packets = device->alloc(size_t{grid} * 16);
  auto* source = static_cast<unsigned char*>(device->alloc(rows));
  auto* copies = static_cast<unsigned char*>(device->alloc(2 * rows));
  for (size_t i = 0; i < rows; ++i) {
    source[i] = static_cast<unsigned char>((7 * (i / row_bytes) + i % row_bytes) % 251);
  }
  source[5] = static_cast<unsigned char>(source[5] + source_error);
  SimtCheckArgs args{};
  args.wrong = wrong;
  args.done = wrong + 100;
  args.words = words;
  args.packets = packets;
  args.source = source;
  args.copies = copies;
  args.grid_barrier = wrong + 200;
  args.row_bytes = row_bytes;
  args.epoch = 1;
  args.limit_ns = 30'000'000'000;
  args.abort_word = wrong + 300;
  device->launch({"simt_check"}, {grid, threads, simt_check_shared_bytes(warps, row_bytes)}, &args, sizeof args,
                 nullptr);
  REQUIRE(device->stream_synchronize(nullptr, test::timeout_ms) == ucclEpSuccess);
  for (unsigned i = 0; i < static_cast<unsigned>(SimtCheck::count); ++i) {
    INFO("check " << i);
    CHECK((wrong[i] != 0) == (source_error != 0 && i == static_cast<unsigned>(SimtCheck::bulk)));
  }
  CHECK(*args.done == grid * threads);
  for (void* data : {static_cast<void*>(wrong), static_cast<void*>(words), packets, static_cast<void*>(source),
                     static_cast<void*>(copies)}) {
    device->free(data);
  }
}

TEST_CASE("simt_check: every verb, wave 32", "[simt]") {
  try_all_verbs({.wave = 32}, 128);
  try_all_verbs({.wave = 32}, 512);
}

TEST_CASE("simt_check: every verb, wave 64", "[simt]") {
  try_all_verbs({.wave = 64}, 128);
  try_all_verbs({.wave = 64}, 512);
}

TEST_CASE("simt_check: every verb, in seeded orders and with late bulk copies", "[simt]") {
  for (uint64_t seed = 1; seed <= test::seeds(); ++seed) {
    try_all_verbs({.wave = 32, .seed = seed, .deferred = true}, 128);
    try_all_verbs({.wave = 64, .seed = seed, .deferred = true}, 128);
  }
}

TEST_CASE("simt_check: a wrong byte is counted", "[simt]") {
  try_all_verbs({.wave = 32}, 128, 1);
  try_all_verbs({.wave = 64}, 128, 1);
}

}  // namespace
}  // namespace ucclep
