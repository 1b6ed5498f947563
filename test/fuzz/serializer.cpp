// SPDX-License-Identifier: Apache-2.0
// What ranks say of their connections, and the agreements that the steps of a group end with.
#include "proxy/serializer.hpp"

#include "proxy/agree.hpp"
#include "target.hpp"
#include "transport/transport.hpp"

using namespace ucclep;
using proxy::Deserializer;

namespace {

// As a group is connected: a window, then connections, each with its endpoint, a number, an address and keys.
void read_offer(std::span<const std::byte> offer) {
  Deserializer in(offer, 1);
  in.number();
  for (uint32_t lines = in.count(); lines > 0; --lines) {
    in.number();
    in.number();
    in.bytes();
    for (uint32_t keys = in.count(); keys > 0; --keys) in.object<transport::Key>();
  }
  in.text();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::accepts([&] { read_offer(bytes); });
  const proxy::Allgather others_send = [&](std::span<const std::byte> mine) {
    return std::vector<std::vector<std::byte>>{{mine.begin(), mine.end()}, {bytes.begin(), bytes.end()}};
  };
  std::vector<std::vector<std::byte>> brought;
  if (!fuzz::accepts([&] { brought = proxy::agree(others_send, 0, nullptr, bytes); })) return 0;
  fuzz::require(brought.size() == 2 && std::ranges::equal(brought[0], bytes), "a rank hears what it said");
  for (const std::vector<std::byte>& offer : brought) fuzz::accepts([&] { read_offer(offer); });
  return 0;
}
