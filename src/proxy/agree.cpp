// SPDX-License-Identifier: Apache-2.0
#include "proxy/agree.hpp"

#include <string>

#include "proxy/serializer.hpp"

namespace ucclep::proxy {

std::vector<std::vector<std::byte>> agree(const Allgather& allgather, uint32_t rank, const Error* error,
                                          std::span<const std::byte> mine) {
  Serializer out;
  const std::string message = error == nullptr ? "" : fmt::format("rank {}: {}", rank, error->what());
  out.number(error == nullptr ? ucclEpSuccess : error->code());
  out.bytes(message.data(), message.size());
  out.bytes(mine.data(), mine.size());
  std::vector<std::vector<std::byte>> brought;
  for (const std::vector<std::byte>& data : allgather(out.data())) {
    if (data.empty()) {
      brought.emplace_back();
      continue;
    }
    Deserializer in(data, static_cast<uint32_t>(brought.size()));
    const auto code = result_of(in.number());
    const std::string text = in.text();
    if (code != ucclEpSuccess) throw Error(code, text);
    const auto theirs = in.bytes();
    brought.emplace_back(theirs.begin(), theirs.end());
  }
  return brought;
}

}  // namespace ucclep::proxy
