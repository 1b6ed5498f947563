// SPDX-License-Identifier: Apache-2.0
#include "find_gpu.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"

namespace ucclep::perf {

const gpu::Driver* find_gpu_driver(const std::string& wanted, std::string* why) {
  for (const auto& [name, facts] : {std::pair{"cuda", &gpu::cuda_facts}, {"hip", &gpu::hip_facts}}) {
    if (wanted != "auto" && wanted != name) continue;
    try {
      return &gpu::Driver::get(*facts);
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
      *why += why->empty() ? error.what() : fmt::format("; {}", error.what());
    }
  }
  return nullptr;
}

}  // namespace ucclep::perf
