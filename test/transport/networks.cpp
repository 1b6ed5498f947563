// SPDX-License-Identifier: Apache-2.0
#include "transport/networks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/deadline.hpp"

namespace ucclep::test {
namespace {

// A thread may live in a network of its own.
void in_thread(const std::function<void()>& body) {
  std::string failure;
  std::thread([&] {
    try {
      body();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }).join();
  check(failure.empty(), failure);
}

bool runs(const char* device) {
  const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, device);
  return ioctl(any.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

}  // namespace

void Networks::prepare() {
  if (!network_[0]) make();
  // The kernel takes its time to notice that a link works, and libfabric does not use one that does not.
  link(true);
  for (int i = 0; i < 2; ++i) {
    inside(i, [] {
      const Deadline deadline = Deadline::after_ms(20000);
      while (!runs("cable")) {
        check(!deadline.expired(), "the link between the networks does not come up");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
}

void Networks::make() {
  for (Fd& network : network_) {
    in_thread([&] {
      check(unshare(CLONE_NEWNET) == 0, "a network namespace cannot be made");
      network = Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
      check(static_cast<bool>(network), "a network namespace cannot be opened");
    });
  }
  run(0, fmt::format("link add cable type veth peer name cable netns /proc/{}/fd/{}", getpid(), network_[1].get()));
  for (int i = 0; i < 2; ++i) {
    run(i, "link set lo up");
    run(i, "link set cable addrgenmode none");  // IPv4 only: an address of IPv6 would have to wait for its check
    run(i, fmt::format("addr add {}/24 dev cable", address[i]));
    run(i, "link set cable up");
  }
}

void Networks::enter(int rank) {
  check(setns(network_[rank % 2].get(), CLONE_NEWNET) == 0, "a network namespace cannot be entered");
}

void Networks::link(bool up) {
  run(0, up ? "link set cable up" : "link set cable down");
}

void Networks::inside(int network, const std::function<void()>& body) {
  in_thread([&] {
    enter(network);
    body();
  });
}

void Networks::run(int network, const std::string& command) {
  inside(network, [&] { check(std::system(("ip " + command).c_str()) == 0, "this failed: ip " + command); });
}

}  // namespace ucclep::test
