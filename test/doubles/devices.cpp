// SPDX-License-Identifier: Apache-2.0
// The driver, its devices and their contexts.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/host/host_device.hpp"
#include "doubles/capture.hpp"
#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

constexpr int max_devices = 16;

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::mutex mutex;  // of retaining and releasing

Gpu& gpu(DeviceOrdinal ordinal) {
  static std::array<Gpu, max_devices> all;
  expect(ordinal >= 0 && ordinal < gpu_count(), invalid_device);
  return all[static_cast<size_t>(ordinal)];
}

thread_local Gpu* current = nullptr;

// Of the current one to another's memory; drivers answer the second time with a code.
void enable_peer(DeviceOrdinal peer, unsigned flags) {
  Gpu& own = current_gpu();
  expect(flags == 0 && peer != own.ordinal, invalid_value);
  expect(gpu(peer).device != nullptr, invalid_context);
  const std::lock_guard lock(mutex);
  expect(own.peers.insert(peer).second, peer_access_already_enabled);
}

Context context_of(Gpu* gpu) {
  return reinterpret_cast<Context>(gpu);
}

std::unique_ptr<Device> open_device(Gpu& gpu) {
  HostDeviceConfig config = HostDeviceConfig::from_environment();
  config.wave = wave;
  auto device = open_host_device(gpu.ordinal, config);
  gpu.faulted = false;
  device->on_fault([&gpu](const Error& fault) {
    std::fprintf(stderr, "double of GPU %d: %s\n", gpu.ordinal, fault.what());  // a driver has only a code for it
    gpu.faulted = true;
  });
  return device;
}

struct Attribute {
  int number;
  int value;
};

bool linked(DeviceOrdinal device, DeviceOrdinal peer) {
  if (number("UCCLEP_DOUBLE_CHAINED", 0) != 0) return std::abs(device - peer) <= 1;
  const int size = number("UCCLEP_DOUBLE_LINKED", gpu_count());
  return device / size == peer / size;
}

}  // namespace

int gpu_count() {
  return number("UCCLEP_DOUBLE_DEVICES", 4);
}

Gpu& current_gpu() {
  expect(current != nullptr && current->device != nullptr, invalid_context);
  return *current;
}

Code init(unsigned flags) {
  return answer(__func__, [&] { expect(flags == 0, invalid_value); });
}

Code driver_version(int* version) {
  return answer(__func__, [&] { *version = number("UCCLEP_DOUBLE_VERSION", VENDOR(12080, 60200000)); });
}

Code error_string(Code code, const char** text) {
  return answer(__func__, [&] {
    switch (code) {
      case invalid_value:
        *text = "invalid value";
        break;
      case out_of_memory:
        *text = "out of memory";
        break;
      case invalid_context:
        *text = "invalid context";
        break;
      case invalid_handle:
        *text = "invalid handle";
        break;
      case not_found:
        *text = "named symbol not found";
        break;
      case launch_failed:
        *text = "unspecified launch failure";
        break;
      case capture_unsupported:
        *text = "operation not permitted when stream is capturing";
        break;
      case not_supported:
        *text = "operation not supported";
        break;
      case cooperative_launch_too_large:
        *text = "too many blocks in cooperative launch";
        break;
      default:
        throw Refusal{invalid_value};
    }
  });
}

Code device_count(int* count) {
  return answer(__func__, [&] { *count = gpu_count(); });
}

Code device_get(DeviceOrdinal* device, int index) {
  return answer(__func__, [&] {
    gpu(index);
    *device = index;
  });
}

Code device_name(char* name, int bytes, DeviceOrdinal device) {
  return answer(__func__, [&] {
    gpu(device);
    std::snprintf(name, static_cast<size_t>(bytes), "double");
  });
}

// As cuda.h and hip_runtime_api.h number them, not as the library does. CUDA's last five: NICs get at memory by its
// addresses, also at virtual memory, and as dma-bufs; the host may flush what they write; nothing is ordered without
// that.
std::optional<int> attribute_of(DeviceOrdinal device, int attribute) {
  const Attribute known[] = {{VENDOR(10, 87), wave},
                             {VENDOR(16, 63), num_sms},
                             {VENDOR(97, 74), shared_bytes},
                             {VENDOR(95, 10), 1},
                             {VENDOR(102, 89), 1},
                             {VENDOR(50, 69), 0},
                             {VENDOR(33, 67), VENDOR(0x10, 0x40) + device},
                             {VENDOR(34, 68), 0},
                             {VENDOR(75, -1), 9},  // compute capability 9.0
                             {VENDOR(76, -1), 0},
                             {VENDOR(116, -1), 1},
                             {VENDOR(110, -1), 1},
                             {VENDOR(124, -1), 1},
                             {VENDOR(117, -1), 1},
                             {VENDOR(118, -1), 0}};
  const auto asked = [](const std::string& key) { return asked_value("UCCLEP_DOUBLE_ATTRIBUTE", key.c_str()); };
  const std::string number = std::to_string(attribute);
  for (const Attribute& entry : known) {
    if (entry.number != attribute) continue;
    return asked(number + "@" + std::to_string(device)).value_or(asked(number).value_or(entry.value));
  }
  return std::nullopt;
}

Code device_attribute(int* value, int attribute, DeviceOrdinal device) {
  return answer(__func__, [&] {
    gpu(device);
    const std::optional<int> known = attribute_of(device, attribute);
    expect(known.has_value(), invalid_value);
    *value = *known;
  });
}

Code device_can_access_peer(int* can, DeviceOrdinal device, DeviceOrdinal peer) {
  return answer(__func__, [&] { *can = &gpu(device) != &gpu(peer); });
}

// As cuda.h numbers attributes: how fast, access, all atomic operations.
Code peer_attribute(int* value, int attribute, DeviceOrdinal device, DeviceOrdinal peer) {
  return answer(__func__, [&] {
    expect(&gpu(device) != &gpu(peer), invalid_device);
    expect(attribute >= 1 && attribute <= 3, invalid_value);
    *value = attribute != 3 || linked(device, peer);
  });
}

// As hsa_amd_link_info_type_t numbers types: PCIe, xGMI.
Code link_type(DeviceOrdinal device, DeviceOrdinal peer, uint32_t* type, uint32_t* hops) {
  return answer(__func__, [&] {
    expect(&gpu(device) != &gpu(peer), invalid_device);
    *type = linked(device, peer) ? 4 : 2;
    *hops = linked(device, peer) ? 1 : 2;
  });
}

Code primary_context_retain(Context* context, DeviceOrdinal device) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    Gpu& gpu = doubles::gpu(device);
    gpu.ordinal = device;
    if (gpu.retained == 0) gpu.device = open_device(gpu);
    ++gpu.retained;
    ++live_objects;
    *context = context_of(&gpu);
  });
}

// The last one resets the device, with all that was made on it.
Code primary_context_release(DeviceOrdinal device) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    Gpu& gpu = doubles::gpu(device);
    expect(gpu.retained > 0, invalid_context);
    if (--gpu.retained == 0) {
      gpu.streams.clear();
      gpu.device.reset();
      gpu.peers.clear();
    }
    --live_objects;
  });
}

Code context_get_current(Context* context) {
  return answer(__func__, [&] { *context = context_of(current); });
}

Code context_set_current(Context context) {
  return answer(__func__, [&] { current = reinterpret_cast<Gpu*>(context); });
}

Code enable_peer_context(Context peer, unsigned flags) {
  return answer(__func__, [&] { enable_peer(reinterpret_cast<Gpu*>(peer)->ordinal, flags); });
}

Code enable_peer_device(DeviceOrdinal peer, unsigned flags) {
  return answer(__func__, [&] { enable_peer(peer, flags); });
}

Code context_get_device(DeviceOrdinal* device) {
  return answer(__func__, [&] { *device = current_gpu().ordinal; });
}

}  // namespace ucclep::doubles
