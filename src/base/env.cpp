// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"

namespace ucclep::env {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const std::string& expected) {
  fail(ucclEpInvalidArgument, "the environment variable {}=\"{}\" cannot be parsed: expected {}", variable, value,
       expected);
}

// Not strcasecmp, which goes by the program's locale.
bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::optional<int64_t> parse_integer(std::string_view value, int64_t min, int64_t max) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < min || number > max) return std::nullopt;
  return number;
}

std::vector<std::string> split(const std::string& value) {
  std::vector<std::string> parts(1);
  for (char c : value) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

std::optional<std::string> text(const char* variable) {
  const char* value = secure_getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> integer(const char* variable, int64_t min, int64_t max) {
  auto value = text(variable);
  if (!value) return std::nullopt;
  auto number = parse_integer(*value, min, max);
  if (!number) refuse(variable, *value, fmt::format("an integer from {} to {}", min, max));
  return number;
}

std::optional<bool> flag(const char* variable) {
  auto value = text(variable);
  if (!value) return std::nullopt;
  if (*value != "0" && *value != "1") refuse(variable, *value, "0 or 1");
  return *value == "1";
}

std::optional<int> choice(const char* variable, std::initializer_list<std::pair<const char*, int>> choices) {
  auto value = text(variable);
  if (!value) return std::nullopt;
  std::string names;
  for (const auto& [name, meaning] : choices) {
    if (same_name(name, *value)) return meaning;
    names += (names.empty() ? "" : "|") + std::string(name);
  }
  refuse(variable, *value, "one of " + names);
}

std::optional<std::vector<int64_t>> integer_list(const char* variable, int64_t min, int64_t max) {
  auto value = text(variable);
  if (!value) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const std::string& part : split(*value)) {
    auto number = parse_integer(part, min, max);
    if (!number) refuse(variable, *value, fmt::format("integers from {} to {}, separated by commas", min, max));
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> parse_names(const std::string& text) {
  auto names = split(text);
  for (const std::string& name : names) {
    if (name.empty() || name.find_first_of(" \t\n") != std::string::npos) return std::nullopt;
  }
  return names;
}

std::optional<std::vector<std::string>> name_list(const char* variable) {
  auto value = text(variable);
  if (!value) return std::nullopt;
  auto names = parse_names(*value);
  if (!names) refuse(variable, *value, "names separated by commas, without blanks");
  return names;
}

}  // namespace ucclep::env
