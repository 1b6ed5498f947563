// SPDX-License-Identifier: Apache-2.0
// What a driver knows of the links between GPUs, and what becomes of it in a machine.
#include "device/gpu_driver/gpu_links.hpp"
#include "device/gpu_driver/gpu_device.hpp"
#include "doubles/support.hpp"
#include "topology/driver_gpus.hpp"

namespace ucclep {
namespace {

using test::both_drivers;
using test::Setting;
using topology::DriverGpu;
using topology::GpuLinks;

std::vector<int> islands_of(const gpu::DriverFacts& facts) {
  std::vector<int> islands;
  for (const gpu::ShownGpu& one : gpu::shown_gpus(gpu::Driver(facts, facts.library))) islands.push_back(one.island);
  return islands;
}

TEST_CASE("links: GPUs that the driver says are linked make an island", "[links]") {
  for (const gpu::DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    CHECK(islands_of(*facts) == std::vector<int>{0, 0, 0, 0});
    const Setting pairs("UCCLEP_DOUBLE_LINKED", "2");
    CHECK(islands_of(*facts) == std::vector<int>{0, 0, 2, 2});
    const Setting devices("UCCLEP_DOUBLE_DEVICES", "5");
    CHECK(islands_of(*facts) == std::vector<int>{0, 0, 2, 2, 4});
    // What the driver does not answer is no link, and no error.
    const Setting failure("UCCLEP_DOUBLE_FAIL",
                          facts->kind == UCCLEP_DEVICE_CUDA ? "peer_attribute:101" : "link_type:101");
    CHECK(islands_of(*facts) == std::vector<int>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("links: GPUs that links join over others only make no island", "[links]") {
  for (const gpu::DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    const Setting chained("UCCLEP_DOUBLE_CHAINED", "1");
    CHECK(islands_of(*facts) == std::vector<int>{0, 1, 2, 3});
    const Setting devices("UCCLEP_DOUBLE_DEVICES", "2");
    CHECK(islands_of(*facts) == std::vector<int>{0, 0});
  }
}

TEST_CASE("links: an island is named by the address of its first GPU", "[links]") {
  for (const gpu::DriverFacts* facts : both_drivers) {
    const bool cuda = facts->kind == UCCLEP_DEVICE_CUDA;
    const Setting devices("UCCLEP_DOUBLE_DEVICES", "3"), pairs("UCCLEP_DOUBLE_LINKED", "2");
    const gpu::Driver driver(*facts, facts->library);
    const std::vector<DriverGpu> gpus = topology::driver_gpus(driver);
    REQUIRE(gpus.size() == 3);
    CHECK(gpus[1].vendor == (cuda ? "NVIDIA" : "AMD"));
    CHECK(gpus[1].model == "double");
    CHECK(gpus[1].address == topology::address_of(gpu::open_gpu_device(driver, 1)->traits().place));
    CHECK(gpus[1].address.text() == (cuda ? "0000:11:00.0" : "0000:41:00.0"));
    const GpuLinks links{cuda ? "nvlink" : "xgmi", cuda ? "0000:10:00.0" : "0000:40:00.0", ""};
    CHECK(gpus[0].links == links);
    CHECK(gpus[1].links == links);
    CHECK(gpus[2].links == GpuLinks{});
  }
}

TEST_CASE("links: of a GPU that it shows alone a driver knows nothing", "[links]") {
  for (const gpu::DriverFacts* facts : both_drivers) {
    const Setting devices("UCCLEP_DOUBLE_DEVICES", "1");
    const std::vector<DriverGpu> gpus = topology::driver_gpus(gpu::Driver(*facts, facts->library));
    REQUIRE(gpus.size() == 1);
    CHECK_FALSE(gpus[0].links.has_value());
  }
}

}  // namespace
}  // namespace ucclep
