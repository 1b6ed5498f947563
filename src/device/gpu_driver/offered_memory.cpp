// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/offered_memory.hpp"

#include <cstring>
#include <mutex>

#include "base/fork.hpp"

namespace ucclep::gpu {
namespace {

class IpcMemory : public SharedMemory {
 public:
  IpcMemory(const Driver& driver, Context context, const MemoryTicket& ticket)
      : driver_(driver), context_(context), ticket_(ticket) {
    IpcHandle handle;
    std::memcpy(handle.bytes, ticket.ipc_handle, sizeof handle.bytes);
    const Code code = driver.api().ipc_open(&base_, handle, ipc_lazy_peer_access);
    if (code == success) return;
    fail(ucclEpNotSupported, "the {} driver cannot open the IPC handle of {} bytes: {}", driver.facts().vendor,
         ticket.allocation_bytes, driver.words(code));
  }
  ~IpcMemory() override {
    undo(driver_, context_, "closing an IPC handle", [this](const DriverApi& api) { return api.ipc_close(base_); });
  }
  void* data() const override { return static_cast<char*>(base_) + ticket_.offset; }
  void* host_data() const override { return nullptr; }
  MemoryTicket ticket() const override { return ticket_; }
  int fd() const override { return -1; }

 private:
  const Driver& driver_;
  Context context_;
  MemoryTicket ticket_;
  void* base_ = nullptr;
};

}  // namespace

std::unique_ptr<SharedMemory> open_ipc_memory(const Driver& driver, Context context, const MemoryTicket& ticket) {
  return std::make_unique<IpcMemory>(driver, context, ticket);
}

OfferedMemory::OfferedMemory(const Driver& driver, DeviceOrdinal device, Context context, void* data, size_t bytes,
                             bool beyond_process)
    : driver_(driver), owner_(device), context_(context), data_(data) {
  ticket_.bytes = bytes;
  find_allocation();
  HeldAllocation allocation(driver);
  virtual_memory_ = driver.api().allocation_retain(allocation.receive(), data) == success;
  if (virtual_memory_) {
    allocation.hold();
    if (beyond_process) offer_descriptor(allocation);
  } else {
    offer_ipc_handle();
  }
}

void OfferedMemory::refuse(const char* why, Code code) const {
  fail(ucclEpNotSupported, "the {} bytes at {} cannot be shared: {}: {}", ticket_.bytes, data_, why,
       driver_.words(code));
}

void OfferedMemory::find_allocation() {
  size_t bytes = 0;
  const Code code = driver_.api().address_range(&base_, &bytes, data_);
  if (code != success) refuse("the driver has no allocation there", code);
  ticket_.allocation_bytes = bytes;
  ticket_.offset = static_cast<uint64_t>(static_cast<char*>(data_) - static_cast<char*>(base_));
  if (ticket_.bytes > bytes - ticket_.offset) {
    fail(ucclEpNotSupported,
         "the {} bytes at {} cannot be shared: the allocation there ends after {}, and a window must be within one "
         "allocation",
         ticket_.bytes, data_, bytes - ticket_.offset);
  }
}

void OfferedMemory::offer_descriptor(const HeldAllocation& allocation) {
  const Code code = allocation.to_descriptor(fd_);
  if (code != success) refuse("its allocation has no file descriptor (was it made with that handle type?)", code);
  ticket_.way = MemoryTicket::Way::descriptor;
}

// Asked for among threads too, which do not need it: what has no handle, such as memory of a stream-ordered pool, is
// not made accessible by access between devices either.
void OfferedMemory::offer_ipc_handle() {
  IpcHandle handle;
  const Code code = driver_.api().ipc_get(&handle, base_);
  if (code != success) refuse("it is not virtual memory and has no IPC handle", code);
  ticket_.way = MemoryTicket::Way::ipc_handle;
  std::memcpy(ticket_.ipc_handle, handle.bytes, sizeof handle.bytes);
}

void OfferedMemory::allow(DeviceOrdinal device) {
  if (device == owner_) return;
  if (!virtual_memory_) {
    const Code code = driver_.enable_peer(owner_, context_);
    if (code != success) refuse("a device of another rank cannot reach its device", code);
    return;
  }
  // Windows over one allocation, and its owner, give the same access; a driver refuses to be told twice.
  constinit static PerProcess<std::mutex> one_asks;
  const std::lock_guard lock(one_asks.get());
  const Access access{{location_device, device}, access_read_write};
  unsigned long long flags = 0;
  driver_.check(driver_.api().get_access(&flags, &access.location, base_), "reading a device's access to memory");
  if (flags == static_cast<unsigned long long>(access_read_write)) return;
  const Code code = driver_.api().set_access(base_, ticket_.allocation_bytes, &access, 1);
  if (code != success) refuse("cannot enable access for a device of another rank", code);
}

}  // namespace ucclep::gpu
