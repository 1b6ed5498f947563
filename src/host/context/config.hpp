// SPDX-License-Identifier: Apache-2.0
// What the environment asks of a communicator: every UCCLEP_* variable, read once at its init.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/context/ll_copies.hpp"

namespace ucclep {

struct Config {
  std::optional<int> device;                 // UCCLEP_DEVICE=auto|cuda|hip|host -> UCCLEP_DEVICE_*
  std::string transport;                     // UCCLEP_TRANSPORT; empty: choose
  std::vector<std::string> nics;             // UCCLEP_NICS; empty: choose
  std::vector<int> nodes;                    // UCCLEP_NODES=3,5: sizes of virtual nodes; empty: discover
  std::string socket_ifname;                 // UCCLEP_SOCKET_IFNAME, see bootstrap/address.hpp; empty: choose
  std::optional<int> timeout_ms;             // UCCLEP_TIMEOUT_MS
  std::optional<int64_t> window_bytes;       // UCCLEP_WINDOW_BYTES, of each group
  std::string topo_file;                     // UCCLEP_TOPO_FILE; empty: discover
  std::string trace_file;                    // UCCLEP_TRACE, a pattern with %r and %p; empty: no trace
  std::string stats_dir;                     // UCCLEP_STATS_DIR; empty: no statistics for ucclep.top
  LlCopies ll_copies = LlCopies::automatic;  // UCCLEP_LL_COPIES=auto|rank|node
  enum class NetworkMemory { automatic, device, host };
  NetworkMemory network_memory = NetworkMemory::automatic;  // UCCLEP_NETWORK_MEMORY=auto|device|host

  // Sets up the log as well (UCCLEP_DEBUG, UCCLEP_DEBUG_FILE). Throws Error(ucclEpInvalidArgument) that names the
  // first variable that does not parse.
  static Config from_environment();
};

// A variable that an earlier version read. One that is set gives one WARN line, which says what takes its place.
struct RemovedVariable {
  const char *name, *successor;
};
std::span<const RemovedVariable> removed_variables();

constexpr int default_timeout_ms = 100000;

// environment > group > communicator > default; 0 in an argument means "not given".
int resolve_timeout_ms(const Config& config, int group_timeout_ms, int comm_timeout_ms);

}  // namespace ucclep
