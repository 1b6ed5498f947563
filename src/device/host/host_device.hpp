// SPDX-License-Identifier: Apache-2.0
// The host device: the library's kernels on CPU threads. Any number of them may exist; those with equal workers and
// seed share one pool of threads, so that a process has as many as it has cores, however many ranks it holds.
#pragma once
#include <memory>

#include "device/device.hpp"
#include "device/host/config.hpp"

namespace ucclep {

// Default launches have four blocks (plan.cpp): that keeps a few cores busy, each is some hundred fibres.
constexpr unsigned host_num_sms = 5;
constexpr unsigned host_max_block = 512;  // as on GPUs; launches of tests may go up to 1024
constexpr size_t host_shared_bytes = 192 * 1024;

// What a device opened with this config will say of itself.
DeviceTraits host_device_traits(int index, const HostDeviceConfig& config);

std::unique_ptr<Device> open_host_device(int index, const HostDeviceConfig& config);

}  // namespace ucclep
