// SPDX-License-Identifier: Apache-2.0
// What a rank tells the one at the other end of a connection that it has lost (host/group/peer_loss.hpp), as text of
// the bootstrap.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "bootstrap/pieces.hpp"

namespace ucclep {

struct PeerLoss {
  struct Of {
    uint64_t group = 0;    // its number
    uint64_t renewal = 0;  // which of the group's connections, as ucclEpMaskClear makes new ones
  } of;
  std::string message;
};

inline std::string encode(const PeerLoss& lost) {
  std::string bytes;
  put_piece(bytes, {reinterpret_cast<const char*>(&lost.of), sizeof lost.of});
  put_piece(bytes, lost.message);
  return bytes;
}

inline std::optional<PeerLoss> decode_peer_loss(const std::string& text) {
  PieceReader reader(text);
  const auto of = reader.next();
  auto message = reader.next();
  if (!of || !message || !reader.at_end()) return std::nullopt;
  PeerLoss lost;
  if (of->size() != sizeof lost.of) return std::nullopt;
  std::memcpy(&lost.of, of->data(), sizeof lost.of);
  lost.message = std::move(*message);
  return lost;
}

}  // namespace ucclep
