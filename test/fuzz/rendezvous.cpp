// SPDX-License-Identifier: Apache-2.0
// Strangers and ranks that knock at a rendezvous. An input is a list of {how, greeting}; the secret is all zeros, so
// that inputs can know it. Bits of `how`: 1 gives up, 2 goes away, 4 sends only half of its greeting, 8 a wrong proof.
#include <sys/socket.h>

#include <vector>

#include "bootstrap/accept_filter.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/roll_call.hpp"
#include "bootstrap/stream_io.hpp"
#include "target.hpp"

using namespace ucclep;

namespace {

// The side that closes first would keep its port for a minute; a reset keeps none.
void reset_on_close(int socket) {
  const linger none{1, 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  SocketAddress address;
  Fd listener = listen_on(local_address("lo"), &address);
  Poller poller;
  RollCall roll;
  std::vector<Fd> guests;
  AcceptFilter door(
      poller, std::move(listener), Token{}, wire::Purpose::rendezvous,
      [&](Fd socket, const wire::Greeting& greeting) {
        reset_on_close(socket.get());
        guests.push_back(std::move(socket));
        roll.arrive(greeting);
      },
      [](const std::string&) {});
  for (int knocks = 0; knocks < 8 && !input.empty(); ++knocks) {
    const uint8_t how = input.byte();
    const auto greeting = input.object<wire::Greeting>();
    Fd socket = connect_to(address, Deadline::after_ms(5000), "the rendezvous");
    reset_on_close(socket.get());
    const size_t bytes = (how & 4) != 0 ? sizeof greeting / 2 : sizeof greeting;
    send_all(socket.get(), &greeting, bytes, Deadline::after_ms(5000));
    const size_t known = guests.size();
    const auto serve = [&] {
      for (const Poller::Event& event : std::vector<Poller::Event>(poller.wait(100))) door.handle(event);
      door.tend();
    };
    serve();
    wire::Challenge challenge;
    size_t have = 0;
    if (receive_some(socket.get(), &challenge, sizeof challenge, &have) == IoStatus::done && challenge.code == 0) {
      const wire::Proof proof = proof_of(greeting, challenge, (how & 8) != 0 ? Token{{1}} : Token{});
      send_all(socket.get(), &proof, sizeof proof, Deadline::after_ms(5000));
      serve();
      fuzz::require((guests.size() > known) == ((how & 8) == 0), "a proof decides who comes in");
    }
    fuzz::require(guests.size() == known || have != 0, "nobody comes in without a proof");
    const bool arrived = guests.size() > known && greeting.rank >= 0 && greeting.rank < greeting.nranks;
    if (arrived && roll.knows(greeting.rank) && (how & 1) != 0) roll.give_up(greeting.rank);
    if (arrived && roll.knows(greeting.rank) && (how & 2) != 0) roll.vanish(greeting.rank);
    fuzz::require(!roll.decided() || roll.code() == ucclEpSuccess || !roll.message().empty(),
                  "a refusal has an error message");
  }
  return 0;
}
