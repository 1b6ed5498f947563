// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace ucclep {
namespace {

// Both sides sign the same bytes with different names, so that nobody can send a side its own proof back.
Mac sign(std::string_view side, const wire::Greeting& greeting, const Token& nonce, const Token& secret) {
  std::string all(side);
  all.append(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
  all.append(reinterpret_cast<const char*>(nonce.bytes.data()), nonce.bytes.size());
  return hmac_sha256({reinterpret_cast<const char*>(secret.bytes.data()), secret.bytes.size()}, all);
}

constexpr std::string_view listener_side = "ucclep listener";
constexpr std::string_view caller_side = "ucclep caller";

// The first bytes are there already: a Verdict and a Challenge begin alike.
[[noreturn]] void throw_refusal(int socket, const wire::Challenge& begin, Deadline deadline, const std::string& what) {
  wire::Verdict verdict;
  std::memcpy(static_cast<void*>(&verdict), &begin, sizeof(begin));
  auto* rest = reinterpret_cast<char*>(&verdict) + sizeof(begin);
  std::string text = "it sent no reason";
  if (receive_all(socket, rest, sizeof(verdict) - sizeof(begin), deadline) == IoStatus::done) {
    text = wire::get_text(verdict.text);
  }
  fail(result_of(begin.code), "{} refused the connection: {}", what, text);
}

}  // namespace

wire::Challenge challenge_to(const wire::Greeting& greeting, const Token& secret) {
  wire::Challenge challenge;
  challenge.nonce = Token::random();
  challenge.proof = sign(listener_side, greeting, challenge.nonce, secret);
  return challenge;
}

wire::Proof proof_of(const wire::Greeting& greeting, const wire::Challenge& challenge, const Token& secret) {
  wire::Proof proof;
  proof.proof = sign(caller_side, greeting, challenge.nonce, secret);
  return proof;
}

wire::Verdict refusal(ucclEpResult_t code, const std::string& text) {
  wire::Verdict verdict;
  verdict.code = code;
  wire::put_text(verdict.text, text);
  return verdict;
}

IoStatus shake_hands(int socket, const wire::Greeting& greeting, const Token& secret, Deadline deadline,
                     const std::string& what) {
  wire::Challenge challenge;
  IoStatus status = send_all(socket, &greeting, sizeof(greeting), deadline);
  if (status == IoStatus::done) status = receive_all(socket, &challenge, sizeof(challenge), deadline);
  if (status != IoStatus::done) return status;
  if (challenge.magic != wire::magic)
    fail(ucclEpRemoteError, "{} is another program: its answer is not a message of this library", what);
  if (challenge.code != 0) throw_refusal(socket, challenge, deadline, what);
  if (challenge.version != wire::version) {
    fail(ucclEpInvalidArgument,
         "{} uses version {} of the library's wire format, rank {} uses version {}: all ranks need the same version of "
         "the library",
         what, challenge.version, greeting.rank, wire::version);
  }
  if (!same_mac(challenge.proof, sign(listener_side, greeting, challenge.nonce, secret))) {
    fail(ucclEpRemoteError, "{} does not know the secret of rank {}'s unique id: it belongs to another communicator",
         what, greeting.rank);
  }
  const wire::Proof proof = proof_of(greeting, challenge, secret);
  return send_all(socket, &proof, sizeof(proof), deadline);
}

Fd call_until_answered(const Call& call, Fd socket, const std::function<IoStatus(int socket)>& attempt) {
  std::chrono::milliseconds pause{10};
  for (int hung_up = 0;; ++hung_up) {
    try {
      if (!socket) socket = connect_to(call.address, call.deadline, call.what);
    } catch (const Error& error) {
      if (hung_up > 0 && error.code() == ucclEpRemoteError) fail(ucclEpRemoteError, "{}", call.gone);
      throw;
    }
    if (attempt(socket.get()) == IoStatus::done) return socket;
    socket.reset();
    if (call.deadline.expired()) {
      fail(ucclEpTimeout, "{} at {} did not answer within {} ms (it closed {} connections)", call.what,
           call.address.text(), call.deadline.total_ms(), hung_up);
    }
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(call.deadline.remaining_ms())));
    pause = std::min(2 * pause, std::chrono::milliseconds(500));
  }
}

}  // namespace ucclep
