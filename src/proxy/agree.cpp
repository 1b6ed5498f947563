// SPDX-License-Identifier: Apache-2.0
#include "proxy/agree.hpp"

#include <string>

#include "proxy/serializer.hpp"

namespace ucclep::proxy {
namespace {

std::vector<std::byte> serialized(uint32_t rank, const Error* error, std::span<const std::byte> mine) {
  Serializer out;
  const std::string message = error == nullptr ? "" : fmt::format("rank {}: {}", rank, error->what());
  out.number(error == nullptr ? ucclEpSuccess : error->code());
  out.bytes(message.data(), message.size());
  out.bytes(mine.data(), mine.size());
  return out.data();
}

// Throws the error of the first rank that has one.
std::vector<std::vector<std::byte>> deserialize(const std::vector<std::vector<std::byte>>& messages) {
  std::vector<std::vector<std::byte>> received;
  for (const std::vector<std::byte>& message : messages) {
    if (message.empty()) {
      received.emplace_back();
      continue;
    }
    Deserializer in(message, static_cast<uint32_t>(received.size()));
    const auto code = result_of(in.number());
    const std::string text = in.text();
    if (code != ucclEpSuccess) throw Error(code, text);
    const auto theirs = in.bytes();
    received.emplace_back(theirs.begin(), theirs.end());
  }
  return received;
}

}  // namespace

std::vector<std::vector<std::byte>> agree(const Allgather& allgather, uint32_t rank, const Error* error,
                                          std::span<const std::byte> mine) {
  return deserialize(allgather(serialized(rank, error, mine)));
}

std::vector<std::vector<std::byte>> agree_with_each(const Exchange& exchange, uint32_t rank, uint32_t ranks,
                                                    const Error* error,
                                                    const std::vector<std::vector<std::byte>>& mine) {
  std::vector<std::vector<std::byte>> messages;
  messages.reserve(ranks);
  for (uint32_t other = 0; other < ranks; ++other) {
    messages.push_back(serialized(rank, error, other < mine.size() ? mine[other] : std::vector<std::byte>{}));
  }
  return deserialize(exchange(messages));
}

}  // namespace ucclep::proxy
