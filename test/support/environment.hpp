// SPDX-License-Identifier: Apache-2.0
// Variables of this process's environment, and of those that run_ranks starts, while it lives.
#pragma once
#include <cstdlib>
#include <map>
#include <string>

namespace ucclep::test {

class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const std::string& name, const std::string& value)
      : Environment(std::map<std::string, std::string>{{name, value}}) {}
  ~Environment() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const std::map<std::string, std::string> values_;
};

}  // namespace ucclep::test
