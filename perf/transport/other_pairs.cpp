// SPDX-License-Identifier: Apache-2.0
#include "transport/other_pairs.hpp"

#include <algorithm>
#include <utility>

namespace ucclep::perf {
namespace {

constexpr auto idle = [] {};

}  // namespace

OtherPairs::OtherPairs(std::vector<Fd> sockets, int timeout_ms) {
  for (Fd& socket : sockets) channels_.emplace_back(std::move(socket), timeout_ms);
}

void OtherPairs::begin(const TransportRun& run) {
  for (Channel& channel : channels_) channel.send(run);
  running_ = run.test != TransportTest::end;
}

void OtherPairs::start() {
  for (Channel& channel : channels_) channel.receive<char>(idle);
  for (Channel& channel : channels_) channel.send('s');
}

TransportResult OtherPairs::slowest(TransportResult own) {
  if (!running_) return own;
  for (Channel& channel : channels_) {
    const auto other = channel.receive<TransportResult>(idle);
    own.seconds = std::max(own.seconds, other.seconds);
    own.verified += other.verified;
    own.wrong += other.wrong;
  }
  return own;
}

void follow_first_pair(Side& side, Channel first) {
  for (;;) {
    const auto run = first.receive<TransportRun>(idle);
    const TransportResult result = side.lead(run, [&] {
      first.send('r');
      first.receive<char>(idle);
    });
    if (run.test == TransportTest::end) return;
    first.send(result);
  }
}

}  // namespace ucclep::perf
