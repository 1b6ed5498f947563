// SPDX-License-Identifier: Apache-2.0
// ucclep-topo: the machine, or machines, and the plan that the library would make for ranks on them.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "../standard_output.hpp"
#include "base/error.hpp"
#include "options.hpp"
#include "topology/discover.hpp"
#include "topology/driver_gpus.hpp"
#include "topology/json.hpp"
#include "topology/text.hpp"

using namespace ucclep;
using namespace ucclep::topology;

namespace {

Machine this_machine() {
  Machine machine = discover();
  add_driver_gpus(gpus_of_all_drivers(), machine);
  return machine;
}

std::vector<std::shared_ptr<const Machine>> machines_of(const Options& options) {
  std::vector<std::shared_ptr<const Machine>> kinds, machines;
  for (const std::string& file : options.files)
    kinds.push_back(std::make_shared<const Machine>(read_topology_file(file)));
  if (kinds.empty()) kinds.push_back(std::make_shared<const Machine>(this_machine()));
  for (int copy = 0; copy < options.copies; ++copy) machines.insert(machines.end(), kinds.begin(), kinds.end());
  return machines;
}

std::vector<RankFacts> ranks_of(const Options& options) {
  std::vector<RankFacts> ranks;
  int number = 0;
  for (const auto& machine : machines_of(options)) {
    RankFacts facts;
    fmt::format_to_n(facts.node.boot_id.data(), facts.node.boot_id.size() - 1, "machine {}", number++);
    facts.machine = machine;
    facts.nics = options.nics;
    facts.ranks_per_domain = options.ranks_per_domain;
    facts.proxy_threads = options.proxy_threads;
    const auto gpus = static_cast<int>(machine->gpus.size());
    const int count = options.ranks > 0 ? options.ranks : std::max(gpus, 1);
    for (int i = 0; i < count; ++i) {
      facts.gpu = gpus > 0 ? i % gpus : -1;
      ranks.push_back(facts);
    }
  }
  return ranks;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (!file) fail(ucclEpSystemError, "{} cannot be written: {}", path, std::strerror(errno));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool done = false;
    const Options options = parse_options(argc, argv, &done);
    if (done) return 0;
    const std::vector<RankFacts> ranks = ranks_of(options);
    const Plan plan = make_plan(ranks, options.node_sizes);
    if (!options.svg.empty()) write(options.svg, to_svg(ranks, plan));
    const std::string text = options.json ? to_json(ranks, plan) + "\n" : to_text(ranks, plan);
    print(text);
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "ucclep-topo: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ucclep-topo: %s\n", error.what());
    return 1;
  }
}
