// SPDX-License-Identifier: Apache-2.0
// What ranks say of the memory that they offer, against what was agreed and what comes.
#include "host/memory/peer_memory.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "device/host/config.hpp"
#include "device/host/host_device.hpp"
#include "host/context/communicator.hpp"
#include "ranks.hpp"

using namespace ucclep;
using namespace ucclep::test;

namespace {

constexpr uint64_t agreed = 65536;

// Memory whose owner says something else of it than there is.
class Misdescribed : public SharedMemory {
 public:
  Misdescribed(std::unique_ptr<SharedMemory> memory, std::function<void(MemoryTicket&)> lie, bool hides = false)
      : memory_(std::move(memory)), lie_(std::move(lie)), hides_(hides) {}
  void* data() const override { return memory_->data(); }
  MemoryTicket ticket() const override {
    MemoryTicket ticket = memory_->ticket();
    if (lie_) lie_(ticket);
    return ticket;
  }
  int fd() const override { return hides_ ? -1 : memory_->fd(); }

 private:
  std::unique_ptr<SharedMemory> memory_;
  std::function<void(MemoryTicket&)> lie_;
  bool hides_;
};

using Offer = std::function<std::shared_ptr<SharedMemory>(Device&)>;

// Rank 1 offers that; what the three ranks hear.
std::vector<Outcome> offers(const Offer& of_rank_1) {
  const ucclEpUniqueId id = local_rendezvous();
  return run_processes(3, [&](int rank) {
    ucclEpComm comm;
    comm.bootstrap = join(id, rank, 3);
    comm.device = open_host_device(rank, HostDeviceConfig::from_environment());
    comm.topology.plan.ranks.resize(3);
    std::shared_ptr<SharedMemory> own = comm.device->share(agreed);
    if (rank == 1) own = of_rank_1(*comm.device);
    exchange_memory(comm, own, "ucclEpTest", Deadline::after_ms(20000), agreed);
    return std::string("exchanged");
  });
}

Offer lying(const std::function<void(MemoryTicket&)>& lie, uint64_t bytes = agreed) {
  return [=](Device& device) { return std::make_shared<Misdescribed>(device.share(bytes), lie); };
}

}  // namespace

TEST_CASE("memory that is as agreed is exchanged") {
  check_all(offers(lying([](MemoryTicket&) {})), ucclEpSuccess, "exchanged");
}

TEST_CASE("memory of a peer that is smaller than agreed is refused by name, whatever its ticket says") {
  check_all(offers(lying([](MemoryTicket&) {}, 4096)), ucclEpRemoteError,
            "rank 1 offers 4096 bytes of memory, expected at least 65536");
  // So large says the ticket, but the descriptor is of less.
  check_all(offers(lying([](MemoryTicket& ticket) { ticket.bytes = ticket.allocation_bytes = agreed; }, 4096)),
            ucclEpInvalidArgument, "cannot map the memory of rank 1: 65536 bytes from byte 0 on are outside the 4096");
  check_all(offers(lying([](MemoryTicket& ticket) { ticket.offset = UINT64_MAX - 4095; })), ucclEpInvalidArgument,
            "cannot map the memory of rank 1: 65536 bytes from byte 18446744073709547520 on");
}

TEST_CASE("a descriptor that does not come is missed by name") {
  const Offer nothing = [](Device& device) {
    return std::make_shared<Misdescribed>(device.share(agreed), [](MemoryTicket&) {}, true);
  };
  check_all(offers(nothing), ucclEpRemoteError, "cannot map the memory of rank 1: the rank sent no descriptor");
}
