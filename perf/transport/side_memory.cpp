// SPDX-License-Identifier: Apache-2.0
#include "transport/side_memory.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/sealed_memory.hpp"
#include "device/gpu_driver/pinned_memory.hpp"
#include "find_gpu.hpp"

namespace ucclep::perf {
namespace {

class HostMemory : public SideMemory {
 public:
  explicit HostMemory(size_t bytes) : memory_(SealedMemory::create(bytes)) {}
  char* data() const override { return memory_.data(); }
  transport::Memory region() const override {
    return {UCCLEP_MEMORY_HOST, 0, memory_.data(), memory_.bytes(), memory_.fd(), 0};
  }

 private:
  SealedMemory memory_;
};

class GpuPinnedMemory : public SideMemory {
 public:
  GpuPinnedMemory(const gpu::Driver& driver, gpu::DeviceOrdinal device, size_t bytes)
      : context_(driver, device), current_(driver, context_.get()), memory_(driver, device, bytes) {}
  char* data() const override { return static_cast<char*>(memory_.host_data()); }
  transport::Memory region() const override {
    return {UCCLEP_MEMORY_HOST, 0, data(), memory_.bytes(), memory_.fd(), 0};
  }

 private:
  gpu::PrimaryContext context_;
  gpu::Current current_;
  gpu::PinnedMemory memory_;
};

}  // namespace

std::unique_ptr<SideMemory> make_side_memory(const TransportOptions& options, Place place, size_t bytes) {
  if (options.memory == "host") return std::make_unique<HostMemory>(bytes);
  std::string why;
  const gpu::Driver* driver = find_gpu_driver(options.device, &why);
  if (driver == nullptr) fail(ucclEpNotSupported, "--memory pinned needs a GPU: {}", why);
  gpu::DeviceOrdinal device = 0;
  driver->check(driver->api().device_get(&device, place.of_all(options.pairs) % driver->device_count()),
                "opening a device");
  return std::make_unique<GpuPinnedMemory>(*driver, device, bytes);
}

}  // namespace ucclep::perf
