// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/driver.hpp"

#include <dlfcn.h>

#include <array>
#include <mutex>

#include "base/fork.hpp"
#include "base/log.hpp"

namespace ucclep::gpu {

// libcuda: the VMM functions and stream capture that the table names are all there from 12.0 on.
const DriverFacts cuda_facts{UCCLEP_DEVICE_CUDA,
                             "CUDA",
                             "libcuda.so.1",
                             12000,
                             "NVIDIA",
                             "nvlink",
                             0,
                             {10, 16, 97, 95, 102, 50, 33, 34, 75, 76},
                             {124, 116, 110, 117, 118}};
// libamdhip64 counts 6.0 as 60000000. Coherent host memory has to be asked for.
const DriverFacts hip_facts{UCCLEP_DEVICE_HIP,
                            "HIP",
                            "libamdhip64.so.6",
                            60000000,
                            "AMD",
                            "xgmi",
                            0x40000000,
                            {87, 63, 74, 10, 89, 69, 67, 68, 0, 0},
                            {}};

namespace {

constexpr int memcpy_default = 4;  // hipMemcpyDefault: the addresses say where they lie

ucclEpResult_t code_of(Code code) {
  if (code >= first_of_capture && code <= last_of_capture) return ucclEpInvalidUsage;
  return code == out_of_memory ? ucclEpOutOfMemory : ucclEpUnhandledDeviceError;
}

// One driver of each kind per process, kept until it ends: unloading a GPU driver is not safe. A driver that was
// started does not work in a forked child, which has to ask anew.
struct Slot {
  std::mutex mutex;
  std::unique_ptr<Driver> driver;
};
Slot& slot_of(const DriverFacts& facts) {
  constinit static PerProcess<std::array<Slot, 2>> slots;
  return slots.get()[facts.kind == UCCLEP_DEVICE_HIP ? 1 : 0];
}

}  // namespace

const Driver& Driver::get(const DriverFacts& facts) {
  Slot& slot = slot_of(facts);
  std::lock_guard lock(slot.mutex);
  if (slot.driver == nullptr) slot.driver = std::make_unique<Driver>(facts, facts.library);
  return *slot.driver;
}

Driver::Driver(const DriverFacts& facts, const char* library) : facts_(facts) {
  library_ = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) fail(ucclEpNotSupported, "cannot load the {} driver: {}", facts.vendor, dlerror());
  load_functions();
  start(library);
  check_version();
  const Code counted = api_.device_count(&device_count_);
  if (counted == no_device || (counted == success && device_count_ == 0)) refuse_without_gpu();
  check(counted, "counting the devices");
}

void Driver::load_functions() {
  each_function(api_, [this](auto& member, const char* in_cuda, const char* in_hip) {
    const char* name = facts_.kind == UCCLEP_DEVICE_CUDA ? in_cuda : in_hip;
    if (name == nullptr) return;
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library_, name));
    if (member == nullptr) {
      fail(ucclEpNotSupported, "the {} driver has no function {}: install a newer driver", facts_.vendor, name);
    }
  });
}

void Driver::start(const char* library) const {
  const Code code = api_.init(0);
  if (code == no_device) refuse_without_gpu();
  if (code != success) {
    fail(ucclEpNotSupported, "the {} driver {} cannot be initialised: {}", facts_.vendor, library, words(code));
  }
}

void Driver::refuse_without_gpu() const {
  fail(ucclEpNotSupported, "the {} driver finds no GPU", facts_.vendor);
}

void Driver::check_version() {
  check(api_.driver_version(&version_), "reading the driver's version");
  if (version_ >= facts_.oldest_version) return;
  fail(ucclEpNotSupported, "the {} driver has version {}, this library needs {} or newer", facts_.vendor, version_,
       facts_.oldest_version);
}

bool Driver::has_early_start() const {
  constexpr int first_in_graphs = 12030;
  return api_.launch_with != nullptr && version_ >= first_in_graphs;
}

std::string Driver::words(Code code) const {
  const char* text = nullptr;
  const bool known = api_.error_string(code, &text) == success && text != nullptr;
  return fmt::format("{} (code {})", known ? text : "no description", code);
}

void Driver::refuse(Code code, const char* what) const {
  fail(code_of(code), "{}: {} failed: {}", facts_.vendor, what, words(code));
}

void Driver::copy(void* to, const void* from, size_t bytes, Stream stream) const {
  const bool plain = api_.memcpy_async != nullptr;
  check(plain ? api_.memcpy_async(to, from, bytes, stream)
              : api_.memcpy_async_kind(to, from, bytes, memcpy_default, stream),
        "copying memory");
}

Code Driver::enable_peer(DeviceOrdinal peer, Context context) const {
  const Code code =
      api_.enable_peer_context != nullptr ? api_.enable_peer_context(context, 0) : api_.enable_peer_device(peer, 0);
  return code == peer_access_already_enabled ? success : code;
}

Current::Current(const Driver& driver, Context context) : driver_(driver) {
  driver.check(driver.api().context_get_current(&callers_), "reading the current context");
  if (callers_ == context) return;
  driver.check(driver.api().context_set_current(context), "setting the current context");
  changed_ = true;
}

Current::~Current() {
  if (!changed_) return;
  if (driver_.api().context_set_current(callers_) != success) {
    log::warn("device", "{}: the caller's context could not be made current again", driver_.facts().vendor);
  }
}

OutsideCapture::OutsideCapture(const Driver& driver) : driver_(driver) {
  driver.check(driver.api().thread_capture_mode(&mode_), "leaving a thread's capture mode");
}

OutsideCapture::~OutsideCapture() {
  if (driver_.api().thread_capture_mode(&mode_) != success) {
    log::warn("device", "{}: a thread's capture mode could not be restored", driver_.facts().vendor);
  }
}

}  // namespace ucclep::gpu
