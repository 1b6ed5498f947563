// SPDX-License-Identifier: Apache-2.0
// One host device, the memory of a trial kernel, and what the device complained of.
#pragma once
#include <future>
#include <memory>
#include <string>

#include "device/host/host_device.hpp"
#include "trial_kernels.hpp"

namespace ucclep::test {

class Trial {
 public:
  static constexpr size_t bytes = 1 << 20;

  explicit Trial(const HostDeviceConfig& config, int index = 0) : device_(open_host_device(index, config)) {
    device_->on_fault([this](const Error& fault) { fault_.set_value(fault.what()); });
    args.words = static_cast<uint64_t*>(device_->alloc(bytes));
    args.out = static_cast<uint64_t*>(device_->alloc(bytes));
    args.data = static_cast<unsigned char*>(device_->alloc(bytes));
    args.copy = static_cast<unsigned char*>(device_->alloc(bytes));
  }
  ~Trial() {
    device_->on_fault(nullptr);
    for (void* data : {static_cast<void*>(args.words), static_cast<void*>(args.out), static_cast<void*>(args.data),
                       static_cast<void*>(args.copy)}) {
      device_->free(data);
    }
  }

  void launch(const char* kernel, const LaunchShape& shape, ucclEpStream_t stream = nullptr) {
    device_->launch({kernel}, shape, &args, sizeof args, stream);
  }
  bool ends() { return device_->stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess; }
  bool run(const char* kernel, const LaunchShape& shape) {
    launch(kernel, shape);
    return ends();
  }
  // Launches a kernel that is diagnosed; empty if it was not.
  std::string complaint(const char* kernel, const LaunchShape& shape) {
    auto message = fault_.get_future();
    if (!run(kernel, shape)) return "the launch did not end";
    if (message.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return "";
    return message.get();
  }
  Device& device() { return *device_; }

  TrialArgs args{};

 private:
  static constexpr int64_t timeout_ms = 60'000;
  std::unique_ptr<Device> device_;
  std::promise<std::string> fault_;
};

}  // namespace ucclep::test
