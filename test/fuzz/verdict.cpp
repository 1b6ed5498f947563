// SPDX-License-Identifier: Apache-2.0
// What a rank hears of a rendezvous: of one that proves itself, a verdict; of one that does not, whatever it says.
// Secret and nonces are all zeros, so that the answer can be there before the question.
#include <sys/socket.h>

#include "bootstrap/handshake.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/stream_io.hpp"
#include "target.hpp"

using namespace ucclep;

namespace {

void hear(std::string_view proof, std::string_view said) {
  static SocketAddress address;
  static const Fd listener = listen_on(local_address("lo"), &address);
  const Deadline deadline = Deadline::after_ms(5000);
  fuzz::accepts([&] {
    RendezvousVisit visit({address, Token{}}, deadline);
    // Reset, not closed: the side that closes first would keep its port for a minute.
    const linger none{1, 0};
    setsockopt(visit.socket(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    SocketAddress peer;
    if (!wait_readable(listener.get(), deadline)) return;
    const Fd answering = accept_from(listener.get(), &peer);
    send_all(answering.get(), proof.data(), proof.size(), deadline);
    send_all(answering.get(), said.data(), said.size(), deadline);
    shutdown(answering.get(), SHUT_WR);
    wire::Verdict verdict;
    if (visit.ask(visit.socket(), {}, &verdict) == IoStatus::done) from_wire(verdict.hub);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view said(reinterpret_cast<const char*>(data), size);
  const wire::Challenge challenge = challenge_to({}, Token{});
  hear({reinterpret_cast<const char*>(&challenge), sizeof challenge}, said);
  hear({}, said);
  return 0;
}
