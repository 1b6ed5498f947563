// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/error.hpp"
#include "device/host/config.hpp"

namespace ucclep {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

void is_refused(const char* name, const char* value) {
  INFO(name << "=" << value);
  const Variable variable(name, value);
  try {
    HostDeviceConfig::from_environment();
    FAIL("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    CHECK_THAT(error.what(), Catch::Matchers::Contains(name));
  }
}

TEST_CASE("host device: variables that do not parse are named", "[config]") {
  is_refused("UCCLEP_HOST_WAVE", "48");
  is_refused("UCCLEP_HOST_WORKERS", "0");
  is_refused("UCCLEP_HOST_WORKERS", "two");
  is_refused("UCCLEP_HOST_SEED", "-1");
  is_refused("UCCLEP_HOST_WATCHDOG_MS", "1s");
  is_refused("UCCLEP_HOST_MODE", "lockstep,");
  is_refused("UCCLEP_HOST_MODE", "residency");
  is_refused("UCCLEP_HOST_MODE", "residency=0");
  is_refused("UCCLEP_HOST_MODE", "residency=4x");
  is_refused("UCCLEP_HOST_MODE", "sms=0");
  is_refused("UCCLEP_HOST_MODE", "lockstep,warp");
  is_refused("UCCLEP_HOST_MODE", "torn=32");
}

TEST_CASE("host device: variables are read", "[config]") {
  const Variable wave("UCCLEP_HOST_WAVE", "64");
  const Variable workers("UCCLEP_HOST_WORKERS", "3");
  const Variable seed("UCCLEP_HOST_SEED", "17");
  const Variable mode("UCCLEP_HOST_MODE", "residency=4,sms=9,lockstep,deferred,apart,torn");
  const Variable watchdog("UCCLEP_HOST_WATCHDOG_MS", "250");
  const auto config = HostDeviceConfig::from_environment();
  CHECK(config.wave == 64);
  CHECK(config.workers == 3);
  CHECK(config.seed == 17);
  CHECK(config.residency == 4);
  CHECK(config.sms == 9);
  CHECK(config.lockstep);
  CHECK(config.deferred);
  CHECK(config.apart);
  CHECK(config.torn == 8);
  CHECK(config.watchdog_ms == 250);
}

TEST_CASE("host device: lockstep alone turns the watchdog on", "[config]") {
  CHECK(HostDeviceConfig::from_environment().watchdog_ms == 0);
  const Variable mode("UCCLEP_HOST_MODE", "lockstep");
  CHECK(HostDeviceConfig::from_environment().watchdog_ms == 10'000);
}

}  // namespace
}  // namespace ucclep
