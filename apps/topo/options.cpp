// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <sstream>

#include "../standard_output.hpp"
#include "base/env.hpp"
#include "ucclep/ucclep.h"

namespace ucclep::topology {
namespace {

const char* const description =
    "Prints what libucclep sees of this machine, or of machines saved as XML, and how it would place ranks on them: "
    "which ranks share a node and a domain, which NICs each rank uses, and on which CPUs its proxies run.";

const char* const footer = R"(hwloc writes such files:  lstopo --whole-io machine.xml
<info> elements may add what hwloc does not detect: UcclepLinkKind, UcclepLinkIsland and
UcclepLinkFabric of a GPU, UcclepGigabits of a NIC. Each file is one machine.

The path of a rank is what its GPU and the farthest of its NICs have in common: a PCIe switch,
a host bridge, a NUMA node, or the machine only.

Environment, for options that are not given: UCCLEP_TOPO_FILE (--file), UCCLEP_NICS (--nics),
UCCLEP_NODES (--virtual-nodes). Exit code: 0, 2 for a bad command line, 1 for all else.)";

std::string version() {
  return fmt::format("{}.{}.{}", UCCLEP_VERSION / 10000, UCCLEP_VERSION / 100 % 100, UCCLEP_VERSION % 100);
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("--file", o.files, "XML file of hwloc to use instead of this machine; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--copies", o.copies, "Number of machines of each kind")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--ranks", o.ranks, "Ranks on each machine (0 = one per GPU, one where there is none)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--nics", o.nics, "NICs that ranks may use, in the order of rails: names, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--virtual-nodes", o.node_sizes, "Sizes of virtual nodes of consecutive ranks, as in 3,5")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--ranks-per-domain", o.ranks_per_domain, "Divide nodes into domains of this size (0 = do not)")
      ->check(CLI::Range(0, INT_MAX))
      ->capture_default_str();
  app.add_option("--proxies", o.proxy_threads, "Proxy threads of each rank (0 = the library's choice)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--json", o.json, "Print JSON instead of text");
  app.add_option("--svg", o.svg, "Also draw a picture into this file");
}

void take_environment(Options& o) {
  if (o.files.empty()) {
    if (auto file = env::text("UCCLEP_TOPO_FILE")) o.files = {*file};
  }
  if (o.nics.empty()) o.nics = env::name_list("UCCLEP_NICS").value_or(std::vector<std::string>());
  if (o.node_sizes.empty()) {
    if (auto sizes = env::integer_list("UCCLEP_NODES", 1, INT_MAX)) o.node_sizes.assign(sizes->begin(), sizes->end());
  }
}

}  // namespace

Options parse_options(int argc, char** argv, bool* done) {
  Options o;
  CLI::App app(description, "ucclep-topo");
  app.footer(footer);
  app.set_version_flag("--version", version());
  add_options(app, o);
  *done = false;
  hold_standard_descriptors();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    std::ostringstream text;
    app.exit(request, text, text);
    print(text.str());
    *done = true;
    return o;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{} (see --help)", error.what()));
  }
  take_environment(o);
  return o;
}

}  // namespace ucclep::topology
