// SPDX-License-Identifier: Apache-2.0
// The 128 bytes that users pass around.
#include "bootstrap/unique_id.hpp"

#include "target.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::Input(data, size).object<ucclEpUniqueId>();
  UniqueId id;
  if (!fuzz::accepts([&] { id = decode(bytes); })) return 0;
  const UniqueId again = decode(encode(id));
  fuzz::require(again.address.text() == id.address.text() && again.secret == id.secret, "an id survives its encoding");
  return 0;
}
