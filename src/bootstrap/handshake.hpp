// SPDX-License-Identifier: Apache-2.0
// How two sides of a connection prove to each other that they know the communicator's secret, which never travels: each
// sends a nonce, and each a MAC with the secret as key over all that was said. The caller speaks first; the listener
// proves itself before the caller does, so neither hears anything of a stranger that it could use elsewhere.
//
//   caller                      listener
//   Greeting with a nonce  ->
//                          <-   Challenge: a nonce, proof over both; or a Verdict that refuses
//   Proof over both        ->
//                          <-   Verdict
#pragma once
#include <functional>
#include <string>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/token.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/stream_io.hpp"
#include "bootstrap/wire.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

wire::Challenge challenge_to(const wire::Greeting& greeting, const Token& secret);
wire::Proof proof_of(const wire::Greeting& greeting, const wire::Challenge& challenge, const Token& secret);

wire::Verdict refusal(ucclEpResult_t code, const std::string& text);

// The caller's side up to its proof. done: the Verdict follows. closed: the listener hung up. again: the deadline came.
// Throws Error: the listener is a stranger, has another version, or refuses. what: names it in messages.
IoStatus shake_hands(int socket, const wire::Greeting& greeting, const Token& secret, Deadline deadline,
                     const std::string& what);

// A listener whose places are taken for a moment hangs up: attempts until one ends otherwise or the deadline comes.
// The socket, if there is one, is the first attempt's. Throws what attempts throw; after a hang-up, when nobody listens
// any more, ucclEpRemoteError with `gone`.
struct Call {
  const SocketAddress& address;
  Deadline deadline;
  std::string what;  // is called
  std::string gone;
};
Fd call_until_answered(const Call& call, Fd socket, const std::function<IoStatus(int socket)>& attempt);

}  // namespace ucclep
