// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <vector>

#include "ucclep/ucclep.h"

extern char** environ;

namespace ucclep::perf {
namespace {

// The value of the first line that begins with this key, in the form of /proc/cpuinfo and /proc/meminfo.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::string build_info() {
  size_t length = 0;
  if (ucclEpGetBuildInfo(nullptr, &length) != ucclEpSuccess || length == 0) return "";
  std::vector<char> text(length);
  return ucclEpGetBuildInfo(text.data(), &length) == ucclEpSuccess ? text.data() : "";
}

std::string compiler_name() {
#ifdef __clang__
  return __VERSION__;  // begins with "Clang"
#else
  return std::string("g++ ") + __VERSION__;
#endif
}

std::string build_kind() {
  std::string kind =
#ifdef __OPTIMIZE__
      "optimised";
#else
      "not optimised";
#endif
#ifdef UCCLEP_PERF_SANITIZED
  kind += ", sanitizers";
#endif
  return kind;
}

}  // namespace

Environment read_environment() {
  Environment result;
  utsname names{};
  uname(&names);
  result.host = names.nodename;
  result.system = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  result.cpu = proc_value("/proc/cpuinfo", "model name");
  result.compiler = compiler_name();
  result.build = build_kind();
  int number = 0;
  if (ucclEpGetVersion(&number) == ucclEpSuccess) {
    result.library_version = fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }
  result.library_build = build_info();
  result.cores = usable_cores();
  result.memory_bytes = std::strtoull(proc_value("/proc/meminfo", "MemTotal").c_str(), nullptr, 10) * 1024;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (text.rfind("UCCLEP_", 0) == 0) result.variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

uint64_t process_memory_bytes() {
  std::ifstream maps("/proc/self/maps");
  std::map<uint64_t, uint64_t> shared;  // end of the highest mapped part of each file
  uint64_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, permissions, offset, device, path;
    uint64_t inode = 0;
    fields >> range >> permissions >> offset >> device >> inode >> path;
    const size_t dash = range.find('-');
    const uint64_t bytes =
        std::stoull(range.substr(dash + 1), nullptr, 16) - std::stoull(range.substr(0, dash), nullptr, 16);
    if (permissions.size() < 4 || permissions[1] != 'w') continue;
    if (permissions[3] == 's' && inode != 0) {
      uint64_t& end = shared[inode];
      end = std::max<uint64_t>(end, std::stoull(offset, nullptr, 16) + bytes);
    } else {
      total += bytes;
    }
  }
  for (const auto& [inode, end] : shared) total += end;
  return total;
}

}  // namespace ucclep::perf
