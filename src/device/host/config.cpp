// SPDX-License-Identifier: Apache-2.0
#include "device/host/config.hpp"

#include <charconv>
#include <string>
#include <string_view>

#include "base/env.hpp"
#include "base/error.hpp"

namespace ucclep {
namespace {

constexpr int64_t lockstep_watchdog_ms = 10'000;

unsigned parse_count(std::string_view name, const std::string& mode, std::string_view of) {
  const std::string_view text = std::string_view(mode).substr(name.size());
  unsigned count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count == 0) {
    fail(ucclEpInvalidArgument, "UCCLEP_HOST_MODE={}: {} needs a number of {}, at least 1", mode,
         name.substr(0, name.size() - 1), of);
  }
  return count;
}

void parse_mode(HostDeviceConfig& config) {
  constexpr std::string_view residency = "residency=", sms = "sms=";
  for (const std::string& mode : env::name_list("UCCLEP_HOST_MODE").value_or(std::vector<std::string>())) {
    if (mode.starts_with(residency)) {
      config.residency = parse_count(residency, mode, "blocks");
    } else if (mode.starts_with(sms)) {
      config.sms = parse_count(sms, mode, "SMs");
    } else if (mode == "lockstep") {
      config.lockstep = true;
    } else if (mode == "deferred") {
      config.deferred = true;
    } else if (mode == "apart") {
      config.apart = true;
    } else if (mode == "torn" || mode == "torn=16") {
      config.torn = mode == "torn" ? 8 : 16;
    } else {
      fail(ucclEpInvalidArgument,
           "UCCLEP_HOST_MODE has \"{}\", expected residency=N, sms=N, lockstep, deferred, apart, torn or torn=16",
           mode);
    }
  }
}

}  // namespace

HostDeviceConfig HostDeviceConfig::from_environment() {
  HostDeviceConfig config;
  config.wave = static_cast<unsigned>(env::choice("UCCLEP_HOST_WAVE", {{"32", 32}, {"64", 64}}).value_or(32));
  config.workers = static_cast<unsigned>(env::integer("UCCLEP_HOST_WORKERS", 1, 1024).value_or(0));
  config.seed = static_cast<uint64_t>(env::integer("UCCLEP_HOST_SEED", 0, INT64_MAX).value_or(0));
  parse_mode(config);
  config.watchdog_ms =
      env::integer("UCCLEP_HOST_WATCHDOG_MS", 0, 86'400'000).value_or(config.lockstep ? lockstep_watchdog_ms : 0);
  return config;
}

}  // namespace ucclep
