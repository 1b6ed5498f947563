// SPDX-License-Identifier: Apache-2.0
// Test doubles of libcuda.so.1 and libamdhip64.so.6: shared libraries with the functions that the library's driver
// table names, over the host device. Memory is host memory, kernels are the library's own for the host (wave 32 in the
// one, 64 in the other), and mistakes that a driver would answer with a code get one. Both are made from the same
// sources, with VENDOR(cuda, hip) defined by the build as one of its arguments.
//
// They obey the environment:
//   UCCLEP_DOUBLE_DEVICES=4              how many GPUs there are
//   UCCLEP_DOUBLE_LINKED=2               so many consecutive GPUs have links with each other (all of them)
//   UCCLEP_DOUBLE_CHAINED=1              only neighbours have links
//   UCCLEP_DOUBLE_VERSION=12080          of the driver
//   UCCLEP_DOUBLE_ATTRIBUTE=number:value what device_attribute answers for a number; number@2:value: of GPU 2
//   UCCLEP_DOUBLE_PEER_MEMORY=1          NICs reach memory of the GPUs by its addresses
//   UCCLEP_DOUBLE_FAIL=member:code       every call of the function that DriverApi calls so answers the code; of all
//                                        functions that concern a context, if the member is "all"
// each also as a list with commas, and the functions of hooks.hpp.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <type_traits>

#include "base/error.hpp"
#include "device/device.hpp"
#include "device/gpu_driver/driver_api.hpp"

namespace ucclep::doubles {

using namespace gpu;

constexpr unsigned wave = VENDOR(32, 64);

// Codes of both drivers besides those that the library knows.
constexpr Code invalid_value = 1, invalid_device = 101, invalid_context = 201, invalid_handle = 400,
               already_registered = 712, not_registered = 713, launch_failed = 719, cooperative_launch_too_large = 720,
               not_supported = 801, unknown = 999;

// Thrown inside a driver function.
struct Refusal {
  Code code;
};
inline void expect(bool condition, Code otherwise) {
  if (!condition) throw Refusal{otherwise};
}

// The code that a test has asked for, if this call is to fail.
Code asked_failure(const char* function);
Code code_of(const Error& error);

// The body of every driver function.
template <class Body>
Code answer(const char* function, Body&& body) noexcept {
  try {
    if (const Code asked = asked_failure(function); asked != success) return asked;
    body();
    return success;
  } catch (const Refusal& refusal) {
    return refusal.code;
  } catch (const Error& error) {
    return code_of(error);
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  }
}

// "number:value" or "name:value" in the environment.
std::optional<int> asked_value(const char* variable, const char* key);
std::optional<int> attribute_of(DeviceOrdinal device, int attribute);

// A device; it exists while its primary context is retained.
struct Gpu {
  DeviceOrdinal ordinal = 0;
  int retained = 0;
  std::unique_ptr<Device> device;     // the host device that does its work
  std::atomic<bool> faulted = false;  // a kernel was diagnosed: all later work fails
  std::set<DeviceOrdinal> peers;      // whose ordinary memory it may reach
  std::set<Stream> streams;           // of its context, which takes them with it
};
int gpu_count();
Gpu& current_gpu();             // of the calling thread's context
void follow_streams(Gpu& gpu);  // the caller comes after all that has ended on them

constexpr int num_sms = 4;
constexpr int shared_bytes = VENDOR(128, 64) * 1024;

// Where memory is mapped.
struct Range {
  void* base;
  size_t bytes;
  DeviceOrdinal device = -1;  // whose it is, if that is known
  bool for_nics = false;      // it was allocated for them, too
};
std::optional<Range> mapped_range(const void* data);     // of virtual memory
std::optional<Range> allocated_range(const void* data);  // of ordinary memory of a device

// What the caller has made and not destroyed.
extern std::atomic<int> live_objects;
extern std::atomic<int> service_streams;                         // that were made so far
extern std::atomic<int64_t> live_device_bytes, live_host_bytes;  // allocations, and what is pinned

}  // namespace ucclep::doubles
