// SPDX-License-Identifier: Apache-2.0
// NICs that read and write the memory of a GPU: what its driver says of them, and P11's rule for what they have
// written.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace ucclep {

// Whose kernels see what a NIC has written into a device's memory, once its report of the arrival has been passed on.
// Each of them includes the ones before it.
enum class NicWritesReach : uint32_t { nobody, owner, all_devices };

// What the platform promises.
struct NicWrites {
  NicWritesReach reach = NicWritesReach::nobody;  // without more ado
  bool flushes = false;                           // NicAccess::flush makes them reach as far as is asked for
};

// What a proxy owes its kernels between the report of an arrival and the word by which they hear of it.
enum class FlushRule { nothing, by_driver, unknown };

// P11, for every platform. readers: who looks at the memory. unknown: NICs must not write there.
constexpr FlushRule flush_rule(const NicWrites& writes, NicWritesReach readers) {
  if (writes.reach >= readers) return FlushRule::nothing;
  return writes.flushes ? FlushRule::by_driver : FlushRule::unknown;
}

struct NicFacts {
  std::string lacks;        // why NICs get hold of none of the memory; empty: they may
  bool dma_buf = false;     // it can be handed to them as a dma-buf
  bool by_address = false;  // or to a driver that knows the device's addresses (peer memory)
  NicWrites writes;
};

struct DmaBuf {
  Fd fd;
  uint64_t offset;  // in it, of the memory that was asked for
};

// Every function throws ucclep::Error. From any thread.
class NicAccess {
 public:
  virtual ~NicAccess() = default;
  virtual const NicFacts& facts() const = 0;
  // Of memory of the device that is mapped here. Whoever has registered it needs the descriptor no more.
  virtual DmaBuf dma_buf(const void* data, size_t bytes) = 0;
  // Comes back when all that NICs had written has come so far.
  virtual void flush(NicWritesReach readers) = 0;
};

}  // namespace ucclep
