// SPDX-License-Identifier: Apache-2.0
// Which device a rank gets. One case, in this order: a driver that was opened once stays.
#include "host/context/open_device.hpp"

#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/log.hpp"
#include "doubles/support.hpp"

namespace ucclep {
namespace {

using test::Setting;

// What the library has logged since.
class Log {
 public:
  Log() {
    REQUIRE(mkstemp(name_) >= 0);
    log::init(log::Level::info, name_);
  }
  ~Log() {
    log::init(log::Level::off, "");
    unlink(name_);
  }
  std::vector<std::string> lines() const {
    std::ifstream in(name_);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }

 private:
  char name_[32] = "/tmp/ep-test-device-XXXXXX";
};

int kind_of(int asked) {
  return open_device(asked, UCCLEP_DEVICE_INDEX_CURRENT, 0)->traits().kind;
}

TEST_CASE("open_device: AUTO takes the first driver that can be used, else the host device", "[open_device]") {
  {
    const Log log;
    const Setting version("UCCLEP_DOUBLE_VERSION", "11080");
    CHECK(kind_of(UCCLEP_DEVICE_AUTO) == UCCLEP_DEVICE_HOST);
    const std::vector<std::string> lines = log.lines();
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0],
               Catch::Matchers::Contains("INFO device] using the host device: the CUDA driver has version 11080") &&
                   Catch::Matchers::Contains("; the HIP driver has version 11080"));
    test::is_refused(ucclEpNotSupported, {"the CUDA driver has version 11080"}, [] { kind_of(UCCLEP_DEVICE_CUDA); });
    test::is_refused(ucclEpNotSupported, {"the HIP driver has version 11080"}, [] { kind_of(UCCLEP_DEVICE_HIP); });
  }
  {
    const Setting version("UCCLEP_DOUBLE_VERSION", "60000000");  // new enough for both
    CHECK(kind_of(UCCLEP_DEVICE_HIP) == UCCLEP_DEVICE_HIP);
    CHECK(kind_of(UCCLEP_DEVICE_AUTO) == UCCLEP_DEVICE_CUDA);
  }
  CHECK(kind_of(UCCLEP_DEVICE_HOST) == UCCLEP_DEVICE_HOST);
  {
    // A device that no embedded code runs on, too, is a reason to take the next.
    const Setting failure("UCCLEP_DOUBLE_FAIL", "module_load:209");
    CHECK(kind_of(UCCLEP_DEVICE_AUTO) == UCCLEP_DEVICE_HOST);
  }
  {
    // A GPU that is there and fails is an error, not a reason to compute on the CPU.
    const Setting failure("UCCLEP_DOUBLE_FAIL", "stream_create:2");
    test::is_refused(ucclEpOutOfMemory, {"creating a stream"}, [] { kind_of(UCCLEP_DEVICE_AUTO); });
  }
}

}  // namespace
}  // namespace ucclep
