// SPDX-License-Identifier: Apache-2.0
// What a rank hears of a rendezvous.
#include <sys/socket.h>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/stream_io.hpp"
#include "target.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
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
    send_all(answering.get(), data, size, deadline);
    shutdown(answering.get(), SHUT_WR);
    wire::Verdict verdict = visit.meet({});
    from_wire(verdict.hub);
  });
  return 0;
}
