// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "doubles/double.hpp"
#include "doubles/hooks.hpp"

namespace ucclep::doubles {

std::atomic<int> live_objects = 0;
std::atomic<int> service_streams = 0;
std::atomic<int64_t> live_device_bytes = 0, live_host_bytes = 0;

namespace {

struct Countdown {
  int calls = -1;
  Code code = success;
  bool failed = false;
};
thread_local Countdown countdown;

constexpr std::string_view undoing[] = {
    "context_set_current", "primary_context_release", "mem_free",           "ipc_close",
    "host_free",           "host_unregister",         "allocation_release", "unmap",
    "address_free",        "stream_destroy",          "event_destroy",      "module_unload",
    "thread_capture_mode"};

// After a fault in a context a driver answers these as before.
constexpr std::string_view without_context[] = {"init",
                                                "driver_version",
                                                "error_string",
                                                "device_count",
                                                "device_get",
                                                "device_name",
                                                "device_attribute",
                                                "device_can_access_peer",
                                                "primary_context_retain",
                                                "primary_context_release",
                                                "context_get_current",
                                                "context_set_current",
                                                "context_get_device",
                                                "thread_capture_mode"};

bool counted_out(std::string_view function) {
  if (countdown.calls < 0 || std::ranges::count(undoing, function) != 0) return false;
  if (--countdown.calls >= 0) return false;
  countdown.failed = true;
  return true;
}

}  // namespace

std::optional<int> asked_value(const char* variable, const char* key) {
  const char* text = std::getenv(variable);
  for (; text != nullptr; text = std::strchr(text, ',')) {
    if (*text == ',') ++text;
    const char* colon = std::strchr(text, ':');
    if (colon != nullptr && std::string_view(text, colon) == key) return std::atoi(colon + 1);
  }
  return std::nullopt;
}

Code asked_failure(const char* function) {
  if (counted_out(function)) return countdown.code;
  if (const auto asked = asked_value("UCCLEP_DOUBLE_FAIL", function)) return *asked;
  if (std::ranges::count(without_context, function) != 0) return success;
  return asked_value("UCCLEP_DOUBLE_FAIL", "all").value_or(success);
}

Code code_of(const Error& error) {
  switch (error.code()) {
    case ucclEpInvalidArgument:
      return invalid_handle;
    case ucclEpInvalidUsage:
      return invalid_value;
    case ucclEpOutOfMemory:
      return out_of_memory;
    case ucclEpInProgress:
      return not_ready;
    default:
      return unknown;
  }
}

}  // namespace ucclep::doubles

using ucclep::doubles::countdown;

void ucclep_double_fail_after(int calls, int code) {
  countdown = {calls, code, false};
}
bool ucclep_double_has_failed() {
  return countdown.failed;
}
int ucclep_double_service_streams() {
  return ucclep::doubles::service_streams;
}
int ucclep_double_live_objects() {
  return ucclep::doubles::live_objects;
}
void ucclep_double_live_bytes(int64_t* device, int64_t* host) {
  *device = ucclep::doubles::live_device_bytes;
  *host = ucclep::doubles::live_host_bytes;
}
