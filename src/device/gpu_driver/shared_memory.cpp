// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/shared_memory.hpp"

#include "base/log.hpp"
#include "device/gpu_driver/held_allocation.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::gpu {
namespace {

// NICs reach it where the driver lets them.
AllocationProperties properties_on(const Driver& driver, DeviceOrdinal device) {
  AllocationProperties properties{};
  if (const int attribute = driver.facts().nic_attribute.peer_memory_of_virtual; attribute != 0) {
    int capable = 0;
    driver.check(driver.api().device_attribute(&capable, attribute, device), "reading what NICs can do with a device");
    properties.rdma_capable = capable != 0 ? 1 : 0;
  }
  properties.type = allocation_pinned;
  properties.handle_types = handle_posix_fd;
  properties.location = {location_device, device};
  return properties;
}

}  // namespace

size_t window_granularity(const Driver& driver, DeviceOrdinal device) {
  const AllocationProperties properties = properties_on(driver, device);
  size_t granularity = 0;
  driver.check(driver.api().allocation_granularity(&granularity, &properties, granularity_recommended),
               "reading the granularity of window memory");
  return granularity;
}

std::unique_ptr<MappedAllocation> MappedAllocation::create(const Driver& driver, DeviceOrdinal device, size_t bytes,
                                                           bool with_descriptor) {
  const size_t mapped = round_up(bytes, window_granularity(driver, device));
  std::unique_ptr<MappedAllocation> memory(new MappedAllocation(driver, mapped, 0, bytes));
  const DriverApi& api = driver.api();
  const AllocationProperties properties = properties_on(driver, device);
  HeldAllocation handle(driver);
  driver.check(api.allocation_create(handle.receive(), mapped, &properties, 0), "allocating window memory");
  handle.hold();
  if (with_descriptor) {
    driver.check(handle.to_descriptor(memory->fd_), "exporting window memory as a file descriptor");
  }
  memory->map(device, handle.value());
  return memory;
}

std::unique_ptr<MappedAllocation> MappedAllocation::import(const Driver& driver, DeviceOrdinal device,
                                                           const MemoryTicket& ticket, const Fd& fd) {
  std::unique_ptr<MappedAllocation> memory(
      new MappedAllocation(driver, ticket.allocation_bytes, ticket.offset, ticket.bytes));
  HeldAllocation handle(driver);
  auto* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
  driver.check(driver.api().allocation_import(handle.receive(), shareable, handle_posix_fd),
               "importing a peer's window memory");
  handle.hold();
  memory->map(device, handle.value());
  return memory;
}

void MappedAllocation::map(DeviceOrdinal device, AllocationHandle handle) {
  const DriverApi& api = driver_.api();
  driver_.check(api.address_reserve(&base_, mapped_, 0, nullptr, 0), "reserving addresses for window memory");
  driver_.check(api.map(base_, mapped_, 0, handle, 0), "mapping window memory");
  holds_mapping_ = true;
  allow(device);
}

void MappedAllocation::allow(DeviceOrdinal device) {
  const std::lock_guard lock(mutex_);
  if (allowed_.count(device) != 0) return;
  const Access access{{location_device, device}, access_read_write};
  driver_.check(driver_.api().set_access(base_, mapped_, &access, 1),
                "enabling a device's access to window memory (can the devices reach each other?)");
  allowed_.insert(device);
}

MappedAllocation::~MappedAllocation() {
  if (base_ == nullptr) return;
  const bool unmapped = !holds_mapping_ || driver_.api().unmap(base_, mapped_) == success;
  if (!unmapped || driver_.api().address_free(base_, mapped_) != success) {
    log::warn("device", "{}: {} bytes of window memory could not be unmapped", driver_.facts().vendor, mapped_);
  }
}

}  // namespace ucclep::gpu
