// SPDX-License-Identifier: Apache-2.0
// What tests over doubles of a GPU's driver and of NICs ask of the platform, and what the library says of it.
#pragma once
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string>

#include "doubles/support.hpp"

namespace ucclep::test {

// Scopes of flushes, as cuda.h numbers them.
inline constexpr int to_owner = 100, to_all_devices = 200;

using Settings = std::map<std::string, std::string>;  // of the environment

inline void replace_all(std::string& text, const std::string& there, const std::string& by) {
  size_t at = text.find(there);
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = text.find(there, at + by.size())) text.replace(at, there.size(), by);
}

// A machine with two NICs of these names.
inline std::string topology_with(const std::array<std::string, 2>& nics) {
  std::ifstream file(UCCLEP_TEST_TWO_NICS);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i < nics.size(); ++i) replace_all(text, "mlx5_" + std::to_string(i + 1), nics[i]);
  return text;
}

// What a case asks of the platform, and what the library says of it in its log.
class Platform {
 public:
  explicit Platform(const Settings& settings = {}) : Platform(settings, topology_with(nics_of(settings))) {}
  Platform(const Settings& settings, const std::string& topology) : double_(gpu::cuda_facts) {
    std::ofstream(log().path, std::ios::trunc);
    for (const auto& [variable, value] : settings) settings_.emplace_back(variable, value);
    std::ofstream(topology_) << topology;
    settings_.emplace_back("UCCLEP_TOPO_FILE", topology_);
    for (const int scope : {to_owner, to_all_devices}) before_[scope] = double_.flushes(scope);
  }
  ~Platform() { std::remove(topology_.c_str()); }
  int flushes(int scope) const { return double_.flushes(scope) - before_.at(scope); }
  // What ranks said that begins so.
  std::multiset<std::string> said(const std::string& words = "NICs read and write") const {
    std::multiset<std::string> lines;
    std::ifstream file(log().path);
    for (std::string line; std::getline(file, line);) {
      const size_t begin = line.find(words);
      if (begin != std::string::npos) lines.insert(line.substr(begin));
    }
    return lines;
  }
  // All of so many ranks, this message.
  void all_said(int ranks, const std::string& message) const {
    const std::multiset<std::string> lines = said();
    CHECK(lines.size() == static_cast<size_t>(ranks));
    for (const std::string& line : lines) CHECK_THAT(line, Catch::Matchers::Contains(message));
  }
  const Double& driver() const { return double_; }

 private:
  // Those of the doubles: of verbs the first has no active port.
  static std::array<std::string, 2> nics_of(const Settings& settings) {
    const auto verbs = settings.find("UCCLEP_DOUBLE_NIC");
    if (verbs == settings.end()) return {"efa_0", "efa_1"};
    return {verbs->second + "_1", verbs->second + "_2"};
  }

  // Of the process, which has it open.
  struct Log {
    const std::string path = "/tmp/ep-test-network-memory-" + std::to_string(getpid());
    ~Log() { std::remove(path.c_str()); }
  };
  static const Log& log() {
    static const Log log;
    std::ofstream(log.path, std::ios::app);
    return log;
  }

  // The library reads a file of topology once.
  static inline int number_ = 0;
  std::string topology_ = log().path + "_" + std::to_string(number_++) + ".xml";
  Double double_;
  std::list<Setting> settings_;
  Setting level_{"UCCLEP_DEBUG", "INFO"}, file_{"UCCLEP_DEBUG_FILE", log().path};
  std::map<int, int> before_;
};

}  // namespace ucclep::test
