// SPDX-License-Identifier: Apache-2.0
// What the hub reads of three ranks: bytes in whatever pieces, frames in whatever order. An input is a list of
// {rank, length, bytes}; a length of 0 is a rank's end.
#include <array>
#include <vector>

#include "bootstrap/rounds.hpp"
#include "bootstrap/stream_io.hpp"
#include "target.hpp"

using namespace ucclep;

namespace {

constexpr int nranks = 3;

void handle(Rounds& rounds, int rank, Frame frame) {
  const wire::FrameHeader& header = frame.header;
  std::vector<Rounds::Delivery> deliveries;
  if (header.type == wire::FrameType::part) {
    deliveries =
        rounds.add_part(rank, header.sequence, static_cast<wire::RoundKind>(header.detail), std::move(frame.payload));
  } else if (header.type == wire::FrameType::give_up) {
    deliveries = rounds.give_up(rank, header.sequence, header.detail);
  } else if (header.type != wire::FrameType::notify) {
    deliveries = rounds.leave(rank, "it has left");
  }
  for (const Rounds::Delivery& one : deliveries) {
    fuzz::require(one.rank >= 0 && one.rank < nranks && one.payload != nullptr && one.code != ucclEpInProgress,
                  "a delivery has a rank, a payload and an end");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  Rounds rounds(nranks);
  std::array<FrameReader, nranks> readers;
  while (!input.empty()) {
    const int rank = input.byte() % nranks;
    const std::string_view piece = input.take(input.byte());
    FrameReader& reader = readers[static_cast<size_t>(rank)];
    if (piece.empty()) rounds.leave(rank, "it has died");
    reader.append(piece);
    while (auto frame = reader.next()) handle(rounds, rank, std::move(*frame));
  }
  return 0;
}
