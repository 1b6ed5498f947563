// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/unique_id.hpp"

#include <cstring>

#include "base/error.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep {
namespace {

struct Content {
  uint64_t magic = wire::magic;
  uint32_t version = wire::version;
  uint32_t check = 0;  // over address and secret: finds ids that were cut or mangled on their way
  WireAddress address;
  Token secret;
  uint8_t zero[72] = {};
};
static_assert(sizeof(Content) == sizeof(ucclEpUniqueId));

// FNV-1a
uint32_t checksum(const Content& content) {
  uint32_t sum = 2166136261U;
  auto add = [&sum](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<const uint8_t*>(data)[i]) * 16777619U;
  };
  add(&content.address, sizeof(content.address));
  add(&content.secret, sizeof(content.secret));
  return sum;
}

}  // namespace

ucclEpUniqueId encode(const UniqueId& id) {
  Content content;
  content.address = to_wire(id.address);
  content.secret = id.secret;
  content.check = checksum(content);
  ucclEpUniqueId bytes;
  std::memcpy(bytes.internal, &content, sizeof(content));
  return bytes;
}

UniqueId decode(const ucclEpUniqueId& id) {
  Content content;
  std::memcpy(&content, id.internal, sizeof(content));
  if (content.magic != wire::magic) {
    fail(ucclEpInvalidArgument,
         "the unique id was not made by ucclEpGetUniqueId: it begins with {:#x} instead of {:#x}", content.magic,
         wire::magic);
  }
  if (content.version != wire::version) {
    fail(ucclEpInvalidArgument, "the unique id has version {}, this library has version {}", content.version,
         wire::version);
  }
  if (content.check != checksum(content)) {
    fail(ucclEpInvalidArgument, "the unique id is damaged: its checksum is wrong");
  }
  return {from_wire(content.address), content.secret};
}

}  // namespace ucclep
