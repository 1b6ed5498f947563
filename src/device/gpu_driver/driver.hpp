// SPDX-License-Identifier: Apache-2.0
// A GPU driver that was found on this machine, opened at run time. Its functions throw: driver().check(code, what).
#pragma once
#include <memory>
#include <string>

#include "base/best_effort.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "device/gpu_driver/driver_api.hpp"

namespace ucclep::gpu {

// What differs between the two vendors.
struct DriverFacts {
  int kind;             // UCCLEP_DEVICE_CUDA | _HIP
  const char* vendor;   // "CUDA"
  const char* library;  // "libcuda.so.1"
  int oldest_version;   // as driver_version counts
  const char* maker;    // of the GPUs: "NVIDIA"
  const char* link;     // that joins them: "nvlink"
  unsigned coherent;    // flag of host_alloc that makes host memory coherent with running kernels
  struct {
    int warp_size, multiprocessors, shared_bytes_per_block, cooperative_launch, virtual_memory;
    int pci_domain, pci_bus, pci_device;
    int capability_major, capability_minor;  // 0: it has none
  } attribute;
  // Likewise, of what NICs can do with its memory. 0: not known.
  struct {
    int dma_buf, peer_memory, peer_memory_of_virtual, flush_options, writes_ordering;
  } nic_attribute;
};

extern const DriverFacts cuda_facts, hip_facts;

class Driver {
 public:
  // The machine's driver, loaded and initialised once per process. Throws when there is none that can be used:
  // ucclEpNotSupported with an error message that says what is missing.
  static const Driver& get(const DriverFacts& facts);
  // Opens a library by name, for get and for tests of what can be wrong with one.
  Driver(const DriverFacts& facts, const char* library);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const DriverFacts& facts() const { return facts_; }
  const DriverApi& api() const { return api_; }
  int device_count() const { return device_count_; }
  // Launches may ask for early_start, also those that are captured.
  bool has_early_start() const;

  // Throws for every code but success: "CUDA: what: the driver's own words (code)".
  void check(Code code, const char* what) const {
    if (code != success) refuse(code, what);
  }
  std::string words(Code code) const;  // the driver's own, and the code
  void copy(void* to, const void* from, size_t bytes, Stream stream) const;
  // The current context reaches ordinary memory of a device. success also where it did before.
  Code enable_peer(DeviceOrdinal peer, Context context) const;

 private:
  [[noreturn]] void refuse(Code code, const char* what) const;
  [[noreturn]] void refuse_without_gpu() const;
  void load_functions();
  void start(const char* library) const;
  void check_version();

  const DriverFacts& facts_;
  void* library_ = nullptr;
  DriverApi api_{};
  int version_ = 0;
  int device_count_ = 0;
};

// Makes a context current for a scope, and the caller's own again after it.
class Current {
 public:
  Current(const Driver& driver, Context context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  Context callers_ = nullptr;
  bool changed_ = false;
};

// For a scope, what never becomes part of a graph is allowed while this thread or another one captures: allocating,
// freeing, asking whether an event has come.
class OutsideCapture {
 public:
  explicit OutsideCapture(const Driver& driver);
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = capture_mode_relaxed;
};

// For destructors: undoes something in a context, and logs what cannot be undone.
template <class Undo>
void undo(const Driver& driver, Context context, const char* what, Undo&& call) noexcept {
  best_effort("device", "clean-up failed", [&] {
    const Current current(driver, context);
    driver.check(call(driver.api()), what);
  });
}

}  // namespace ucclep::gpu
