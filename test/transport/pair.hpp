// SPDX-License-Identifier: Apache-2.0
// Two endpoints of one thread, which write to each other.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace ucclep::transport {

struct Pair {
  static constexpr uint64_t window_bytes = 1 << 20;

  explicit Pair(const std::string& name) : transport(make_transport(name)) {
    const Config config{nullptr, 2, 256, 4096, 20000, 0};
    Key keys[2];
    for (int i = 0; i < 2; ++i) {
      endpoint[i] = transport->open(config);
      window[i].resize(window_bytes);
      const Memory memory{UCCLEP_MEMORY_HOST, 0, window[i].data(), window_bytes, -1, 0};
      region[i] = endpoint[i]->register_region(memory, &keys[i]);
    }
    for (uint32_t i = 0; i < 2; ++i) endpoint[i]->connect(1 - i, i, endpoint[1 - i]->address());
    for (uint32_t i = 0; i < 2; ++i) remote[i] = endpoint[i]->import_region(1 - i, keys[1 - i]);
  }

  Operation write(uint32_t number, uint64_t bytes, int from = 0) const {
    return {.kind = UCCLEP_OPERATION_WRITE,
            .flags = UCCLEP_OPERATION_IMM,
            .local_region = region[from],
            .remote_region = remote[from],
            .local_offset = number * bytes,
            .remote_offset = number * bytes,
            .bytes = bytes,
            .cookie = number,
            .imm = number};
  }

  std::vector<Completion> poll(int of) const {
    std::array<Completion, 64> completions;
    const uint32_t count = endpoint[of]->poll(completions);
    return {completions.begin(), completions.begin() + count};
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Endpoint> endpoint[2];
  std::vector<char> window[2];
  uint32_t region[2], remote[2];
};

}  // namespace ucclep::transport
