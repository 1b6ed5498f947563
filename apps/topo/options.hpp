// SPDX-License-Identifier: Apache-2.0
// The command line of ucclep-topo.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

namespace ucclep::topology {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::vector<std::string> files;  // empty: this machine
  int copies = 1;                  // of each machine
  int ranks = 0;                   // on each machine; 0: one per GPU, or one
  std::vector<std::string> nics;
  std::vector<int> node_sizes;
  int ranks_per_domain = 0, proxy_threads = 0;
  bool json = false;
  std::string svg;
};

// Environment variables stand in for options that are not given. Throws UsageError; --help and --version print and
// leave `done` set.
Options parse_options(int argc, char** argv, bool* done);

}  // namespace ucclep::topology
