// SPDX-License-Identifier: Apache-2.0
// For tests over the doubles: what to tell them, and what to expect of the library.
#pragma once
#include <dlfcn.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "device/gpu_driver/driver.hpp"
#include "doubles/hooks.hpp"
#include "support/graph_api.hpp"

namespace ucclep::test {

inline const std::array<const gpu::DriverFacts*, 2> both_drivers = {&gpu::cuda_facts, &gpu::hip_facts};

// A variable of the environment for a scope. Nothing else may run meanwhile that reads the environment.
class Setting {
 public:
  Setting(const std::string& variable, const std::string& value) : variable_(variable) {
    setenv(variable.c_str(), value.c_str(), 1);
  }
  ~Setting() { unsetenv(variable_.c_str()); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const std::string variable_;
};

// The hooks of a double. Fails the case where the loader finds another library of that name, or none.
class Double {
 public:
  explicit Double(const gpu::DriverFacts& facts) : library_(dlopen(facts.library, RTLD_NOW | RTLD_LOCAL)) {
    INFO(facts.library << " has to be the double: LD_LIBRARY_PATH");
    REQUIRE(library_ != nullptr);
    fail_after_ = find<UcclepDoubleFailAfter>("ucclep_double_fail_after");
    has_failed_ = find<UcclepDoubleHasFailed>("ucclep_double_has_failed");
    service_streams_ = find<UcclepDoubleServiceStreams>("ucclep_double_service_streams");
    live_objects_ = find<UcclepDoubleLiveObjects>("ucclep_double_live_objects");
    live_bytes_ = find<UcclepDoubleLiveBytes>("ucclep_double_live_bytes");
    flushes_ = find<UcclepDoubleFlushes>("ucclep_double_flushes");
    host_memory_near_ = find<UcclepDoubleHostMemoryNear>("ucclep_double_host_memory_near");
  }
  Double(const Double&) = delete;
  Double& operator=(const Double&) = delete;
  ~Double() {
    fail_after(-1, 0);
    dlclose(library_);
  }
  void fail_after(int calls, int code) { fail_after_(calls, code); }
  bool has_failed() const { return has_failed_(); }
  GraphApi graphs(const gpu::DriverFacts& facts) {
    GraphApi api{};
    each_graph_function(api, [&](auto& member, const char* in_cuda, const char* in_hip) {
      const char* name = facts.kind == UCCLEP_DEVICE_CUDA ? in_cuda : in_hip;
      member = find<std::remove_pointer_t<std::remove_reference_t<decltype(member)>>>(name);
    });
    return api;
  }
  int service_streams() const { return service_streams_(); }
  int live_objects() const { return live_objects_(); }
  struct Bytes {
    int64_t device = 0, host = 0;
  };
  Bytes live_bytes() const {
    Bytes bytes;
    live_bytes_(&bytes.device, &bytes.host);
    return bytes;
  }
  int flushes(int scope) const { return flushes_(scope); }
  struct Times {
    int allocated = 0, pinned = 0;
  };
  Times host_memory_near(int node) const {
    Times times;
    host_memory_near_(node, &times.allocated, &times.pinned);
    return times;
  }

 private:
  template <class Hook>
  Hook* find(const char* name) {
    auto* hook = reinterpret_cast<Hook*>(dlsym(library_, name));
    REQUIRE(hook != nullptr);
    return hook;
  }

  void* library_;
  UcclepDoubleFailAfter* fail_after_;
  UcclepDoubleHasFailed* has_failed_;
  UcclepDoubleServiceStreams* service_streams_;
  UcclepDoubleLiveObjects* live_objects_;
  UcclepDoubleLiveBytes* live_bytes_;
  UcclepDoubleFlushes* flushes_;
  UcclepDoubleHostMemoryNear* host_memory_near_;
};

// The call throws an Error with this code and all these words.
template <class Call>
void is_refused(ucclEpResult_t code, std::initializer_list<std::string> words, Call&& call) {
  try {
    call();
    FAIL_CHECK("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == code);
    for (const std::string& word : words) CHECK_THAT(error.what(), Catch::Matchers::Contains(word));
  }
}

}  // namespace ucclep::test
