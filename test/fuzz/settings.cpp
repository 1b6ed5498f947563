// SPDX-License-Identifier: Apache-2.0
// The environment: lines NAME=value, of the variables below. What is read is used as a communicator does.
#include <set>

#include "bootstrap/address.hpp"
#include "device/host/config.hpp"
#include "host/context/config.hpp"
#include "target.hpp"
#include "topology/nic_list.hpp"
#include "topology/plan.hpp"
#include "transport/faulty/settings.hpp"

using namespace ucclep;

namespace {

// Not those whose values are names of files.
const std::set<std::string, std::less<>> variables = {
    "UCCLEP_DEVICE",        "UCCLEP_TRANSPORT",   "UCCLEP_NICS",         "UCCLEP_NODES",
    "UCCLEP_SOCKET_IFNAME", "UCCLEP_TIMEOUT_MS",  "UCCLEP_DEBUG",        "UCCLEP_HOST_WAVE",
    "UCCLEP_HOST_SEED",     "UCCLEP_HOST_MODE",   "UCCLEP_HOST_WORKERS", "UCCLEP_HOST_WATCHDOG_MS",
    "UCCLEP_LL_COPIES",     "UCCLEP_WINDOW_BYTES"};

topology::Machine machine() {
  topology::Machine one;
  one.name = "here";
  one.numa_nodes.push_back({0, {{0}, {1}}});
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    topology::Nic nic;
    nic.name = name;
    one.nics.push_back(nic);
  }
  return one;
}

void set_environment(fuzz::Input input) {
  for (const std::string& name : variables) unsetenv(name.c_str());
  while (!input.empty()) {
    const std::string_view line = input.take_line();
    const std::string name(line.substr(0, line.find('=')));
    const std::string value(line.substr(std::min(name.size() + 1, line.size())));
    if (variables.contains(name)) setenv(name.c_str(), value.c_str(), 1);
  }
}

void use(const Config& config) {
  const auto shared = std::make_shared<const topology::Machine>(machine());
  std::vector<topology::RankFacts> ranks(8);
  for (topology::RankFacts& facts : ranks) {
    facts.machine = shared;
    facts.nics = config.nics;
  }
  fuzz::accepts([&] {
    const topology::Plan plan = topology::make_plan(ranks, config.nodes);
    fuzz::require(config.nodes.empty() || plan.nodes.size() == config.nodes.size(), "as many nodes as were asked for");
  });
  const size_t colon = config.transport.find(':');
  if (config.transport.starts_with("faulty:")) {
    fuzz::accepts([&] { transport::parse_faults(config.transport.substr(colon + 1)); });
  }
  fuzz::accepts([&] { local_address(config.socket_ifname); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_environment(fuzz::Input(data, size));
  fuzz::accepts([] { use(Config::from_environment()); });
  fuzz::accepts([] {
    const HostDeviceConfig config = HostDeviceConfig::from_environment();
    fuzz::require(config.wave == 32 || config.wave == 64, "a wave has 32 or 64 lanes");
  });
  return 0;
}
