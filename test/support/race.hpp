// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer's build only: a hidden case of this executable that it must report runs in a process of its own,
// since a report is an exit code.
#pragma once
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

namespace ucclep::test {

inline std::string output_of(const std::string& hidden_case) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  REQUIRE(length > 0);
  const std::string command = "TSAN_OPTIONS=exitcode=66 UCCLEP_TEST_REPORT= '" + std::string(path.data()) + "' '" +
                              hidden_case + "' 2>&1; echo exit $?";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  std::array<char, 4096> part{};
  while (fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
  pclose(pipe);
  return output;
}

inline void is_reported(const std::string& hidden_case) {
  INFO(hidden_case);
  const std::string output = output_of(hidden_case);
  CHECK_THAT(output, Catch::Matchers::Contains("WARNING: ThreadSanitizer: data race"));
  CHECK_THAT(output, Catch::Matchers::Contains("exit 66"));
}

}  // namespace ucclep::test
