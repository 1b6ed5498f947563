// SPDX-License-Identifier: Apache-2.0
// A ticket of memory, and the descriptor that comes with it: {which descriptor, ticket}. Of what is mapped every byte
// can be reached.
#include <fcntl.h>
#include <sys/mman.h>

#include "base/sealed_memory.hpp"
#include "device/host/memory.hpp"
#include "target.hpp"

using namespace ucclep;

namespace {

Fd descriptor(uint8_t which) {
  constexpr size_t page = 4096;
  switch (which % 4) {
    case 0:
      return Fd(fcntl(SealedMemory::create(page * (1 + which / 4 % 4)).fd(), F_DUPFD_CLOEXEC, 0));
    case 1:
      return Fd(memfd_create("not-sealed", MFD_CLOEXEC));
    case 2:
      return Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    default:
      return {};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  Fd fd = descriptor(input.byte());
  const auto ticket = input.object<MemoryTicket>();
  fuzz::accepts([&] {
    const auto memory = executor::map_shared_memory(ticket, std::move(fd));
    auto* const bytes = static_cast<volatile char*>(memory->data());
    bytes[0] = 1;
    bytes[memory->bytes() - 1] = 1;
  });
  return 0;
}
