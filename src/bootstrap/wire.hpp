// SPDX-License-Identifier: Apache-2.0
// What travels between the processes of a bootstrap. Little-endian PODs of fixed size. Every connection begins with a
// Greeting, of the same size in every version, and a refusal is a Verdict in every version: so versions can tell each
// other apart. The secret of a communicator is the key of proofs (handshake.hpp) and never travels.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/hmac.hpp"
#include "base/node.hpp"
#include "base/token.hpp"
#include "bootstrap/address.hpp"

namespace ucclep::wire {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t magic = 0x3170456c63637500;  // "\0uccLEp1"
constexpr uint32_t version = 2;

// P8: of a communicator; ucclEpGroupQuery says it, too.
constexpr int max_ranks = 4096;

enum class Purpose : uint32_t { rendezvous = 1, hub = 2 };

struct Greeting {
  uint64_t magic = wire::magic;
  uint32_t version = wire::version;
  Purpose purpose = Purpose::rendezvous;
  Token nonce;  // of this connection
  int32_t rank = 0;
  int32_t nranks = 0;
  int32_t pid = 0;
  int32_t timeout_ms = 0;  // how long this rank is ready to wait
  WireAddress hub;         // rank 0 to the rendezvous: where the others find it
  char host[64] = {};
  uint8_t reserved[120] = {};
};
static_assert(sizeof(Greeting) == 256 && std::is_trivially_copyable_v<Greeting>);

// The answer to a Greeting: proof that the listener knows the secret, and what the caller has to prove it with.
struct Challenge {
  uint64_t magic = wire::magic;
  int32_t code = 0;  // else it is a Verdict that refuses
  uint32_t version = wire::version;
  Token nonce;
  Mac proof{};
};
static_assert(sizeof(Challenge) == 64 && std::is_trivially_copyable_v<Challenge>);

// The caller's.
struct Proof {
  uint64_t magic = wire::magic;
  Mac proof{};
};
static_assert(sizeof(Proof) == 40 && std::is_trivially_copyable_v<Proof>);

// What the rendezvous decides for all, when all are there; what the hub says to each at once. text says why when code
// is not success.
struct Verdict {
  uint64_t magic = wire::magic;
  int32_t code = 0;
  uint32_t version = wire::version;
  Token comm_id;
  WireAddress hub;
  char text[456] = {};
};
static_assert(sizeof(Verdict) == 512 && std::is_trivially_copyable_v<Verdict>);

// How a rank introduces itself to all others, once, when the star stands: its part of the first round.
struct PeerCard {
  NodeId node;
  Token process;
  int32_t pid = 0;
  char host[60] = {};
};
static_assert(std::is_trivially_copyable_v<PeerCard>);

// A rank that has waited long enough sends this one byte to the rendezvous, and gets its verdict.
constexpr char give_up_byte = 'g';

// Between a rank and the hub, both ways. payload follows.
enum class FrameType : uint32_t {
  part = 1,     // to the hub: this rank's part of round `sequence`; detail = RoundKind
  give_up = 2,  // to the hub: this rank has waited `detail` ms for round `sequence`
  result = 3,   // from the hub: the end of round `sequence`; detail = result code, payload = result or message
  lost = 4,     // from the hub: rank `detail` is lost, payload = message
  left = 5,     // from the hub: rank `detail` has said goodbye; to the hub: goodbye
  abort = 6,    // to the hub: this rank gives the communicator up; payload = why, or nothing
  notify = 7,   // to the hub: payload is for rank `detail`; from the hub: it is of rank `detail`
};

// gather: parts of one size; collect: of any; agree: contributions of an Agreement; living: without who is gone.
// exchange: a part is a piece for each rank, and each gets the pieces for it, in rank order; exchange_living: without
// who is gone, of whom there are empty pieces.
enum class RoundKind : uint32_t { gather = 1, agree = 2, living = 3, collect = 4, exchange = 5, exchange_living = 6 };

struct FrameHeader {
  uint32_t magic = frame_magic;
  FrameType type = FrameType::part;
  uint64_t sequence = 0;
  uint32_t detail = 0;
  uint32_t reserved = 0;
  uint64_t length = 0;  // of the payload

  static constexpr uint32_t frame_magic = 0x6d726675;
};
static_assert(sizeof(FrameHeader) == 32 && std::is_trivially_copyable_v<FrameHeader>);

// Copies as much as fits and ends it with a zero.
template <size_t N>
void put_text(char (&field)[N], std::string_view text) {
  size_t length = text.size() < N ? text.size() : N - 1;
  text.copy(field, length);
  field[length] = '\0';
}
template <size_t N>
std::string_view get_text(const char (&field)[N]) {
  std::string_view all(field, N);
  return all.substr(0, all.find('\0'));
}

}  // namespace ucclep::wire
