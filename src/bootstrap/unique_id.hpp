// SPDX-License-Identifier: Apache-2.0
// What the 128 bytes of a ucclEpUniqueId mean: where the rendezvous is, and the secret that opens it.
#pragma once
#include "base/token.hpp"
#include "bootstrap/address.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

struct UniqueId {
  SocketAddress address;
  Token secret;
};

ucclEpUniqueId encode(const UniqueId& id);
// Throws Error(ucclEpInvalidArgument) when the bytes do not come from ucclEpGetUniqueId of this version.
UniqueId decode(const ucclEpUniqueId& id);

}  // namespace ucclep
