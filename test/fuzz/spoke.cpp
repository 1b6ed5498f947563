// SPDX-License-Identifier: Apache-2.0
// What a rank reads of the hub, while it waits for the end of its first round.
#include <sys/socket.h>

#include <utility>

#include "bootstrap/spoke.hpp"
#include "host/network/peer_loss.hpp"
#include "target.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return 0;
  Fd own(pair[0]), hub(pair[1]);
  Spoke spoke(std::move(own), 1);
  spoke.on_loss([](int rank, const std::string&) { fuzz::require(rank != 1, "a loss is another rank's"); });
  spoke.on_notification([](int, const std::string& text) {
    const auto lost = decode_peer_loss(text);
    if (lost) fuzz::require(encode(*lost) == text, "what a rank has lost reads as it was written");
  });
  // All that the socket takes, then the end of the stream: the round ends by what came, or because the hub is gone.
  fuzz::require(send(hub.get(), data, size, MSG_NOSIGNAL) >= 0 || size == 0, "the hub's end takes bytes");
  shutdown(hub.get(), SHUT_WR);
  fuzz::accepts([&] { spoke.round(wire::RoundKind::gather, "part", Deadline::after_ms(5000)); });
  hub.reset();
  return 0;
}
