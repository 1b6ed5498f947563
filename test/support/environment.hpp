// SPDX-License-Identifier: Apache-2.0
// Variables of this process's environment, and of those that run_ranks starts, while it lives; then they are what they
// were.
#pragma once
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace ucclep::test {

class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  Environment(const std::string& name, const std::string& value)
      : Environment(std::map<std::string, std::string>{{name, value}}) {}
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace ucclep::test
