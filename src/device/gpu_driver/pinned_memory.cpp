// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/pinned_memory.hpp"

#include <utility>

#include "ucclep/device/layout/window.hpp"

namespace ucclep::gpu {
namespace {

constexpr size_t page = 4096;

}  // namespace

PinnedMemory::PinnedMemory(const Driver& driver, DeviceOrdinal device, size_t bytes)
    : PinnedMemory(driver, device, SealedMemory::create(round_up(bytes, page)), bytes) {}

PinnedMemory::PinnedMemory(const Driver& driver, DeviceOrdinal device, const MemoryTicket& ticket, Fd fd)
    : PinnedMemory(driver, device, SealedMemory::map(std::move(fd)), ticket.bytes) {
  if (ticket.offset != 0 || bytes_ > memory_.bytes()) {
    fail(ucclEpInternalError, "range [{}, +{}) is outside the pinned allocation of {} bytes", ticket.offset, bytes_,
         memory_.bytes());
  }
}

PinnedMemory::PinnedMemory(const Driver& driver, DeviceOrdinal device, SealedMemory memory, size_t bytes)
    : driver_(driver), context_(driver, device), memory_(std::move(memory)), bytes_(bytes) {
  const DriverApi& api = driver.api();
  driver.check(api.host_register(memory_.data(), memory_.bytes(), host_portable | host_mapped),
               fmt::format("pinning {} bytes of window memory", memory_.bytes()).c_str());
  const Code code = api.host_device_address(&on_device_, memory_.data(), 0);
  if (code == success) return;
  undo(driver, context_.get(), "unpinning window memory",
       [this](const DriverApi& table) { return table.host_unregister(memory_.data()); });
  driver.check(code, "reading the device's address of pinned memory");
}

PinnedMemory::~PinnedMemory() {
  undo(driver_, context_.get(), "unpinning window memory", [this](const DriverApi& api) {
    const OutsideCapture outside(driver_);
    return api.host_unregister(memory_.data());
  });
}

}  // namespace ucclep::gpu
