// SPDX-License-Identifier: Apache-2.0
// What a result depends on besides the options: machine, system, compiler, library.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ucclep::perf {

struct Environment {
  std::string host, system, cpu, compiler, build, library_version, library_build;
  int cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::map<std::string, std::string> variables;  // UCCLEP_*
};

Environment read_environment();

// "2026-11-21T03:33:35Z"
std::string utc_now();

// Writable memory of this process, resident or not: private memory, and each shared anonymous file once however often
// it is mapped. Address space that is only reserved does not count.
uint64_t process_memory_bytes();

}  // namespace ucclep::perf
