// SPDX-License-Identifier: Apache-2.0
#include "device/kernels/gpu_code.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>

namespace {

using namespace ucclep;

uint32_t word_at(std::span<const std::byte> code, size_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, code.data() + offset, sizeof word);
  return word;
}

TEST_CASE("what the summary names is embedded, and nothing else", "[gpu]") {
  const std::string summary = gpu_code_summary();
  INFO(summary);
  size_t embedded = 0;
  for (const GpuCode& entry : gpu_code()) {
    CAPTURE(entry.target, entry.code.size());
    CHECK((summary.find(entry.target) != std::string::npos) == !entry.code.empty());
    embedded += !entry.code.empty();
  }
  CHECK((summary.rfind("none: ", 0) == 0) == (embedded == 0));
  CHECK(gpu_code().size() == 9);
}

TEST_CASE("embedded GPU code is whole and for its target", "[gpu]") {
  for (const GpuCode& entry : gpu_code()) {
    if (entry.code.empty()) continue;
    CAPTURE(entry.target, entry.code.size());
    const std::string target = entry.target;
    REQUIRE(entry.code.size() > 64);
    CHECK(reinterpret_cast<uintptr_t>(entry.code.data()) % 64 == 0);
    if (target.rfind("gfx", 0) != 0) {
      CHECK(word_at(entry.code, 0) == 0xba55ed50u);  // a fatbin
      CHECK(word_at(entry.code, 8) + 16 == entry.code.size());
    } else {
      CHECK(std::memcmp(entry.code.data(), "\177ELF", 4) == 0);
      CHECK((word_at(entry.code, 16) >> 16) == 224u);  // e_machine: AMDGPU
      CHECK((word_at(entry.code, 48) & 0xff) == (target == "gfx90a" ? 0x3fu : 0x4cu));
    }
  }
}

}  // namespace
