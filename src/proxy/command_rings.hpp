// SPDX-License-Identifier: Apache-2.0
// The memory of a group's command rings, on the host and on the device.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.hpp"
#include "proxy/ring_reader.hpp"
#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

struct RingsShape {
  uint32_t bulk_log2 = 0, control_log2 = 0;  // how many rings there are of each
  // How many commands all lanes that may push at the same time can push to one ring, each lane in one push. So many
  // slots stay free above the high-water mark; more commands would overwrite some that have not been read.
  uint32_t max_concurrent = 0;
  uint32_t capacity_log2 = 0;  // of a ring; 0: as max_concurrent asks for
};

class CommandRings {
 public:
  // timeout_ns, abort_word: what bounds the waits of lanes. Error(ucclEpInvalidArgument) where the shape is none.
  CommandRings(Device& device, const RingsShape& shape, uint64_t timeout_ns, const uint32_t* abort_word);

  static uint64_t host_bytes(const RingsShape& shape);  // of the host's memory that such rings take

  const Fifo& fifo() const { return fifo_; }  // for kernels
  uint32_t count() const { return (1u << fifo_.bulk_log2) + (1u << fifo_.control_log2); }
  RingMemory memory(uint32_t ring) const;  // for its one reader
  uint64_t stalls() const;                 // pushes that had to wait for a reader
  // Commands in all rings that no reader has reported as released. Any thread, while readers and kernels go on.
  uint64_t waiting() const;

 private:
  struct Free {
    Device* device;
    void (Device::*how)(void*);
    void operator()(void* data) const;
  };
  template <class T>
  using Owned = std::unique_ptr<T, Free>;

  Fifo fifo_{};
  Owned<Packet> slots_{nullptr, {}};
  Owned<uint64_t> positions_{nullptr, {}}, heads_{nullptr, {}};
};

}  // namespace ucclep::proxy
