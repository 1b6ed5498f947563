// SPDX-License-Identifier: Apache-2.0
#include "transport/faulty/settings.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace ucclep::transport {
namespace {

uint64_t number_of(std::string_view setting, std::string_view value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    fail(ucclEpInvalidArgument, "faulty: the setting {} is '{}', expected a number", setting, value);
  }
  return number;
}

void hide(FaultSettings& settings, std::string_view what) {
  if (what != "source" && what != "length" && what != "both") {
    fail(ucclEpInvalidArgument, "faulty: the setting hide is '{}', expected source, length or both", what);
  }
  settings.hide_source |= what != "length";
  settings.hide_length |= what != "source";
}

void set(FaultSettings& settings, std::string_view name, std::string_view value) {
  if (name == "hide") return hide(settings, value);
  const std::pair<std::string_view, uint64_t*> numbers[] = {
      {"seed", &settings.seed},      {"delay", &settings.delay},    {"withhold", &settings.withhold},
      {"repeat", &settings.repeat},  {"break", &settings.break_at}, {"kill", &settings.kill_at},
      {"at", &settings.at},          {"peer", &settings.peer},      {"outage", &settings.outage_at},
      {"stall", &settings.stall_at}, {"ms", &settings.ms}};
  for (const auto& [known, number] : numbers) {
    if (name != known) continue;
    *number = number_of(name, value);
    return;
  }
  fail(ucclEpInvalidArgument, "faulty: the setting '{}' does not exist", name);
}

}  // namespace

FaultSettings parse_faults(const std::string& text) {
  FaultSettings settings;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view setting = std::string_view(text).substr(begin, end - begin);
    const size_t equals = std::min(setting.find('='), setting.size());
    set(settings, setting.substr(0, equals), setting.substr(std::min(equals + 1, setting.size())));
    begin = end + 1;
  }
  return settings;
}

}  // namespace ucclep::transport
