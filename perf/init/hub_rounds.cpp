// SPDX-License-Identifier: Apache-2.0
#include "init/hub_rounds.hpp"

#include <vector>

#include "bootstrap/agreement.hpp"
#include "bootstrap/pieces.hpp"

namespace ucclep::perf {
namespace {

using wire::RoundKind;

constexpr HubRound join_rounds[] = {{RoundKind::gather, sizeof(wire::PeerCard)}};
// Settings, the hash of the machine, and the facts of each rank. The text of a machine, which one rank brings, is left
// out.
constexpr HubRound init_rounds[] = {{RoundKind::agree, 139},
                                    {RoundKind::gather, 8},
                                    {RoundKind::collect, 0},
                                    {RoundKind::collect, 95},
                                    {RoundKind::collect, 30}};
// Settings; the windows of kernels, then those of the network: tickets, doors, what became of them; the offers of
// connections, and whether all are connected.
constexpr HubRound group_rounds[] = {{RoundKind::agree, 604}, {RoundKind::gather, 96}, {RoundKind::gather, 24},
                                     {RoundKind::agree, 36},  {RoundKind::agree, 30},  {RoundKind::agree, 30},
                                     {RoundKind::gather, 96}, {RoundKind::gather, 24}, {RoundKind::agree, 36},
                                     {RoundKind::agree, 30},  {RoundKind::agree, 30},  {RoundKind::exchange, 220, 20},
                                     {RoundKind::collect, 12}};

constexpr size_t length_bytes = sizeof(uint32_t);  // before each piece

// Equal on all ranks, with names and fields of a usual length.
Agreement agreement_of(size_t bytes) {
  constexpr size_t usual = 32, frame = 3 * length_bytes + 1;  // around the name of the call: lengths and a code
  size_t left = bytes - frame;
  const size_t name = left <= usual ? left : usual / 2;
  Agreement agreement(std::string(name, 'n'));
  for (left -= name; left > 0;) {
    const size_t field = left < 2 * usual ? left : usual;
    agreement.field(std::string(), std::string(field - 2 * length_bytes, 'v'));
    left -= field;
  }
  return agreement;
}

std::string pieces_of(const HubRound& round, int rank, int nranks) {
  std::string part;
  const std::string piece(round.bytes, 'p');
  for (int other = 0; other < nranks; ++other) put_piece(part, other == rank ? std::string(round.own, 'p') : piece);
  return part;
}

}  // namespace

std::span<const HubRound> rounds_of_join() {
  return join_rounds;
}
std::span<const HubRound> rounds_of_init() {
  return init_rounds;
}
std::span<const HubRound> rounds_of_group() {
  return group_rounds;
}

std::string part_of(const HubRound& round, int rank, int nranks) {
  std::string part;
  switch (round.kind) {
    case RoundKind::agree:
      return agreement_of(round.bytes).contribution();
    case RoundKind::collect:
      put_piece(part, std::string(round.bytes, 'p'));
      return part;
    case RoundKind::exchange:
      return pieces_of(round, rank, nranks);
    default:
      return std::string(round.bytes, '\0');
  }
}

size_t result_bytes(const HubRound& round, int nranks) {
  const auto ranks = static_cast<size_t>(nranks);
  switch (round.kind) {
    case RoundKind::agree:
      return 0;
    case RoundKind::collect:
      return ranks * (length_bytes + round.bytes);
    case RoundKind::exchange:
      return ranks * length_bytes + (ranks - 1) * round.bytes + round.own;
    default:
      return ranks * round.bytes;
  }
}

void take_part(Bootstrap& bootstrap, const HubRound& round, Deadline deadline) {
  const auto ranks = static_cast<size_t>(bootstrap.nranks());
  if (round.kind == RoundKind::agree) return agreement_of(round.bytes).settle(bootstrap, deadline);
  if (round.kind == RoundKind::collect) {
    bootstrap.collect(std::string(round.bytes, 'p'), deadline);
  } else if (round.kind == RoundKind::exchange) {
    std::vector<std::string> pieces(ranks, std::string(round.bytes, 'p'));
    pieces[static_cast<size_t>(bootstrap.rank())].resize(round.own);
    bootstrap.exchange(pieces, false, deadline);
  } else {
    std::vector<char> all(ranks * round.bytes);
    bootstrap.allgather(all.data(), round.bytes, deadline);
  }
}

}  // namespace ucclep::perf
