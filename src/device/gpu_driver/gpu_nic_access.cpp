// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/gpu_nic_access.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::gpu {
namespace {

// CUGPUDirectRDMAWritesOrdering and CUflushGPUDirectRDMAWritesScope have one numbering.
constexpr int to_owner = 100, to_all_devices = 200;
constexpr int flushes_from_host = 1;   // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
constexpr int current_context = 0;     // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
constexpr int dma_buf_descriptor = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

NicWritesReach reach_of(int ordering) {
  if (ordering >= to_all_devices) return NicWritesReach::all_devices;
  return ordering >= to_owner ? NicWritesReach::owner : NicWritesReach::nobody;
}

NicFacts facts_of(const Driver& driver, DeviceOrdinal device) {
  const auto& attribute = driver.facts().nic_attribute;
  NicFacts facts;
  if (attribute.dma_buf == 0) {
    facts.lacks = fmt::format("this library cannot make a NIC's writes visible on {} GPUs", driver.facts().vendor);
    return facts;
  }
  const auto ask = [&](int which) {
    int value = 0;
    driver.check(driver.api().device_attribute(&value, which, device), "reading what NICs can do with a device");
    return value;
  };
  facts.dma_buf = ask(attribute.dma_buf) != 0;
  facts.by_address = ask(attribute.peer_memory) != 0 && ask(attribute.peer_memory_of_virtual) != 0;
  facts.writes = {reach_of(ask(attribute.writes_ordering)), (ask(attribute.flush_options) & flushes_from_host) != 0};
  if (!facts.dma_buf && !facts.by_address) {
    facts.lacks = fmt::format("the {} driver does not let NICs access this GPU's memory", driver.facts().vendor);
  }
  return facts;
}

}  // namespace

GpuNicAccess::GpuNicAccess(const Driver& driver, DeviceOrdinal device, Context context)
    : driver_(driver), context_(context), facts_(facts_of(driver, device)) {}

// Whole pages of the host, as the driver wants them.
DmaBuf GpuNicAccess::dma_buf(const void* data, size_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uint64_t offset = address % page;
  if (driver_.api().dma_buf == nullptr)
    fail(ucclEpNotSupported, "the {} driver has no dma-bufs", driver_.facts().vendor);
  const Current current(driver_, context_);
  int fd = -1;
  const Code code = driver_.api().dma_buf(&fd, reinterpret_cast<void*>(address - offset),
                                          round_up(offset + bytes, page), dma_buf_descriptor, 0);
  if (code != success) {
    fail(ucclEpNotSupported, "the {} bytes at {} have no dma-buf (were they allocated for GPUDirect RDMA?): {}", bytes,
         data, driver_.words(code));
  }
  DmaBuf made{Fd(fd), offset};
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    fail(ucclEpSystemError, "cannot set close-on-exec on the dma-buf of GPU memory: fcntl: {}", errno_text(errno));
  }
  return made;
}

void GpuNicAccess::flush(NicWritesReach readers) {
  if (driver_.api().flush_nic_writes == nullptr) {
    fail(ucclEpNotSupported, "the {} driver cannot flush writes of NICs to GPU memory", driver_.facts().vendor);
  }
  const Current current(driver_, context_);
  const OutsideCapture outside(driver_);
  const int scope = readers == NicWritesReach::owner ? to_owner : to_all_devices;
  driver_.check(driver_.api().flush_nic_writes(current_context, scope), "flushing writes of NICs");
}

}  // namespace ucclep::gpu
