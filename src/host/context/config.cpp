// SPDX-License-Identifier: Apache-2.0
#include "host/context/config.hpp"

#include <climits>

#include "base/env.hpp"
#include "base/log.hpp"
#include "device/host/config.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {
namespace {

constexpr const char* use_window_bytes =
    "set UCCLEP_WINDOW_BYTES instead: HT operations that need more room run in rounds";

constexpr RemovedVariable removed[] = {
    {"UCCLEP_ZERO_COPY_WITH_MASK", "leave it 0: with enable_mask no peer writes to a tensor of the caller"},
    {"UCCLEP_HT_RING", use_window_bytes},
    {"UCCLEP_HT_RELAY_RING", use_window_bytes},
};

void warn_of_removed_variables() {
  for (const RemovedVariable& variable : removed) {
    if (env::text(variable.name)) {
      log::warn("config", "{} is set, but this version does not read it: {}", variable.name, variable.successor);
    }
  }
}

}  // namespace

std::span<const RemovedVariable> removed_variables() {
  return removed;
}

Config Config::from_environment() {
  log::init_from_environment();
  warn_of_removed_variables();
  Config config;
  config.device = env::choice("UCCLEP_DEVICE", {{"auto", UCCLEP_DEVICE_AUTO},
                                                {"cuda", UCCLEP_DEVICE_CUDA},
                                                {"hip", UCCLEP_DEVICE_HIP},
                                                {"host", UCCLEP_DEVICE_HOST}});
  config.transport = env::text("UCCLEP_TRANSPORT").value_or("");
  config.nics = env::name_list("UCCLEP_NICS").value_or(std::vector<std::string>());
  if (auto sizes = env::integer_list("UCCLEP_NODES", 1, INT_MAX)) config.nodes.assign(sizes->begin(), sizes->end());
  config.socket_ifname = env::text("UCCLEP_SOCKET_IFNAME").value_or("");
  if (auto ms = env::integer("UCCLEP_TIMEOUT_MS", 1, INT_MAX)) config.timeout_ms = static_cast<int>(*ms);
  config.window_bytes = env::integer("UCCLEP_WINDOW_BYTES", 1, INT64_MAX);
  config.topo_file = env::text("UCCLEP_TOPO_FILE").value_or("");
  config.network_memory = static_cast<Config::NetworkMemory>(
      env::choice("UCCLEP_NETWORK_MEMORY", {{"auto", static_cast<int>(Config::NetworkMemory::automatic)},
                                            {"device", static_cast<int>(Config::NetworkMemory::device)},
                                            {"host", static_cast<int>(Config::NetworkMemory::host)}})
          .value_or(static_cast<int>(Config::NetworkMemory::automatic)));
  config.stats_dir = env::text("UCCLEP_STATS_DIR").value_or("");
  config.trace_file = env::text("UCCLEP_TRACE").value_or("");
  if (const auto copies = env::choice("UCCLEP_LL_COPIES", {{"auto", static_cast<int>(LlCopies::automatic)},
                                                           {"rank", static_cast<int>(LlCopies::rank)},
                                                           {"node", static_cast<int>(LlCopies::node)}})) {
    config.ll_copies = static_cast<LlCopies>(*copies);
  }
  // What only one kind of device reads is checked for all of them.
  static_cast<void>(env::flag("UCCLEP_EARLY_START"));
  static_cast<void>(HostDeviceConfig::from_environment());
  return config;
}

int resolve_timeout_ms(const Config& config, int group_timeout_ms, int comm_timeout_ms) {
  if (config.timeout_ms) return *config.timeout_ms;
  if (group_timeout_ms > 0) return group_timeout_ms;
  return comm_timeout_ms > 0 ? comm_timeout_ms : default_timeout_ms;
}

}  // namespace ucclep
