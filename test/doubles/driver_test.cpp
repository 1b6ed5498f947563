// SPDX-License-Identifier: Apache-2.0
// Opening a driver: what it has to bring, and what is said where it does not.
#include "device/gpu_driver/gpu_device.hpp"
#include "device/gpu_driver/kernel_code.hpp"
#include "doubles/support.hpp"

namespace ucclep {
namespace {

using gpu::Driver;
using gpu::DriverFacts;
using test::both_drivers;
using test::is_refused;
using test::Setting;

// libcuda_older.so lacks stream capture.
std::string older_library(const DriverFacts& facts) {
  const std::string name = facts.library;
  return name.substr(0, name.find(".so")) + "_older.so";
}

TEST_CASE("driver: every function of the table is in the driver's library", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->library);
    const Driver driver(*facts, facts->library);
    gpu::DriverApi api = driver.api();
    size_t functions = 0;
    gpu::each_function(api, [&](auto& member, const char* in_cuda, const char* in_hip) {
      const char* name = facts->kind == UCCLEP_DEVICE_CUDA ? in_cuda : in_hip;
      INFO((name == nullptr ? "a function of the other driver" : name));
      CHECK((member != nullptr) == (name != nullptr));
      functions += name != nullptr ? 1 : 0;
    });
    // Each has its own way to copy, to reach a peer, to ask for links; NICs and an early start are CUDA's alone.
    const size_t of_the_other = facts->kind == UCCLEP_DEVICE_CUDA ? 3 : 6;
    CHECK(functions == sizeof(gpu::DriverApi) / sizeof(void*) - of_the_other);
    CHECK(driver.device_count() == 4);
  }
}

TEST_CASE("driver: a library that is not there", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    const std::string vendor = facts->vendor;
    is_refused(ucclEpNotSupported, {"cannot load the " + vendor + " driver: ", "libno_such_driver.so.1"},
               [&] { Driver(*facts, "libno_such_driver.so.1"); });
  }
}

TEST_CASE("driver: a library without a function that is needed", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    const std::string name = facts->kind == UCCLEP_DEVICE_CUDA ? "cuStreamIsCapturing" : "hipStreamIsCapturing";
    is_refused(ucclEpNotSupported, {"has no function " + name + ": install a newer driver"},
               [&] { Driver(*facts, older_library(*facts).c_str()); });
  }
}

TEST_CASE("driver: a version that is too old", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    const std::string old = std::to_string(facts->oldest_version - 1);
    const Setting version("UCCLEP_DOUBLE_VERSION", old);
    is_refused(ucclEpNotSupported, {"has version " + old, "needs " + std::to_string(facts->oldest_version)},
               [&] { Driver(*facts, facts->library); });
  }
}

TEST_CASE("driver: it does not start", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    const Setting failure("UCCLEP_DOUBLE_FAIL", "init:719");
    is_refused(ucclEpNotSupported, {facts->library, "cannot be initialised: unspecified launch failure (code 719)"},
               [&] { Driver(*facts, facts->library); });
  }
}

TEST_CASE("driver: no GPU, in each of the ways in which drivers say so", "[driver]") {
  const std::pair<const char*, const char*> ways[] = {
      {"UCCLEP_DOUBLE_DEVICES", "0"}, {"UCCLEP_DOUBLE_FAIL", "init:100"}, {"UCCLEP_DOUBLE_FAIL", "device_count:100"}};
  for (const DriverFacts* facts : both_drivers) {
    for (const auto& [variable, value] : ways) {
      INFO(variable << '=' << value);
      const Setting setting(variable, value);
      is_refused(ucclEpNotSupported, {"driver finds no GPU"}, [&] { Driver(*facts, facts->library); });
    }
  }
}

TEST_CASE("driver: its own words, or the code where it has none", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    const Driver driver(*facts, facts->library);
    CHECK_NOTHROW(driver.check(gpu::success, "nothing"));
    is_refused(ucclEpOutOfMemory, {facts->vendor, "asking much failed: out of memory (code 2)"},
               [&] { driver.check(gpu::out_of_memory, "asking much"); });
    is_refused(ucclEpUnhandledDeviceError, {"no description (code 4711)"}, [&] { driver.check(4711, "asking"); });
  }
}

TEST_CASE("driver: a device that the library cannot use", "[driver]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    test::Double dbl(*facts);
    const int before = dbl.live_objects();
    const Driver driver(*facts, facts->library);
    {
      const Setting failure("UCCLEP_DOUBLE_FAIL", "module_load:209");
      is_refused(ucclEpNotSupported,
                 {"no code in this library runs on " + std::string(facts->vendor) + " 0 (double)",
                  "it holds: sm_90a compute_80 gfx942"},
                 [&] { gpu::open_gpu_device(driver, 0); });
    }
    {
      const Setting failure("UCCLEP_DOUBLE_FAIL", "module_load:2");
      is_refused(ucclEpOutOfMemory, {"loading the library's kernels failed: out of memory"},
                 [&] { gpu::open_gpu_device(driver, 0); });
    }
    const std::pair<int, std::string> lacking[] = {{facts->attribute.cooperative_launch, "cooperative launch"},
                                                   {facts->attribute.virtual_memory, "virtual memory"}};
    for (const auto& [number, words] : lacking) {
      const Setting attribute("UCCLEP_DOUBLE_ATTRIBUTE", std::to_string(number) + ":0");
      is_refused(ucclEpNotSupported, {"does not support " + words}, [&] { gpu::open_gpu_device(driver, 0); });
    }
    is_refused(ucclEpInvalidArgument, {"config.device_index is 4", "has 4 devices"},
               [&] { gpu::open_gpu_device(driver, 4); });
    CHECK(dbl.live_objects() == before);
  }
}

// Of the images that run on a device of this compute capability, the first one.
std::string image_of(const char* major, const char* minor) {
  const Setting capability("UCCLEP_DOUBLE_ATTRIBUTE", "75:" + std::string(major) + ",76:" + minor);
  const Driver driver(gpu::cuda_facts, gpu::cuda_facts.library);
  return gpu::images_for(driver, 0, "a GPU").front().target;
}

TEST_CASE("driver: the image that fits a GPU", "[driver]") {
  CHECK(image_of("9", "0") == "sm_90a");
  CHECK(image_of("8", "0") == "compute_80");
  CHECK(image_of("8", "9") == "compute_80");
  CHECK(image_of("10", "0") == "compute_80");  // sm_90a runs on 9.0 alone
  CHECK(image_of("12", "1") == "compute_80");
  is_refused(ucclEpNotSupported, {"no code in this library runs on a GPU, compute capability 7.5", "it holds: sm_90a"},
             [] { image_of("7", "5"); });
  const Driver driver(gpu::hip_facts, gpu::hip_facts.library);
  const auto of_amd = gpu::images_for(driver, 0, "a GPU");
  CHECK(of_amd.size() == 1);
  CHECK(std::string(of_amd.front().target) == "gfx942");
}

TEST_CASE("driver: UCCLEP_GPU_IMAGE chooses the image", "[driver]") {
  {
    const Setting image("UCCLEP_GPU_IMAGE", "compute_80");
    CHECK(image_of("9", "0") == "compute_80");
    const Driver driver(gpu::hip_facts, gpu::hip_facts.library);
    is_refused(ucclEpInvalidArgument, {"UCCLEP_GPU_IMAGE is compute_80, which does not run on a GPU; unset it"},
               [&] { gpu::images_for(driver, 0, "a GPU"); });
  }
  {
    const Setting image("UCCLEP_GPU_IMAGE", "sm_90a");
    CHECK(image_of("9", "0") == "sm_90a");
    is_refused(ucclEpInvalidArgument,
               {"UCCLEP_GPU_IMAGE is sm_90a, which does not run on a GPU, compute capability 8.6"},
               [] { image_of("8", "6"); });
  }
  for (const char* name : {"sm_80", "sm_70", "gfx1100"}) {  // not built, and unknown
    const Setting image("UCCLEP_GPU_IMAGE", name);
    is_refused(ucclEpInvalidArgument,
               {"UCCLEP_GPU_IMAGE is " + std::string(name) + ", which this library does not hold; it holds: sm_90a"},
               [] { image_of("9", "0"); });
  }
}

}  // namespace
}  // namespace ucclep
