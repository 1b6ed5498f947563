// SPDX-License-Identifier: Apache-2.0
// Diagnostics for people: silent unless UCCLEP_DEBUG asks. One line is one write(2), so lines of different threads and
// processes never mix. Nothing here throws once the log is set up; when a level is off, a call costs one relaxed load.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

namespace ucclep::log {

enum class Level : int { off = 0, warn = 1, info = 2, trace = 3 };

// Reads UCCLEP_DEBUG and UCCLEP_DEBUG_FILE. Throws Error(ucclEpInvalidArgument) when a value does not parse.
void init_from_environment();
// file: a pattern (%r = rank, %p = pid), or empty for stderr, if that is open now: what has its number later is not
// written to.
void init(Level level, const std::string& file);

// The rank for which the calling thread works; it heads every line of the thread. -1: none.
void set_rank(int rank) noexcept;
int rank() noexcept;

// %r -> rank ("-" when unknown), %p -> pid, %% -> %.
std::string expand_file_name(std::string_view pattern, int rank);

namespace detail {
extern std::atomic<int> level;
void write(Level level, std::string_view subsystem, std::string_view text) noexcept;
template <class... Args>
void format_and_write(Level level, std::string_view subsystem, fmt::format_string<Args...> format,
                      Args&&... args) noexcept {
  try {
    write(level, subsystem, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {  // a line lost for want of memory must not become a fault of its own
  }
}
}  // namespace detail

inline bool enabled(Level level) noexcept {
  return static_cast<int>(level) <= detail::level.load(std::memory_order_relaxed);
}

template <class... Args>
void warn(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (enabled(Level::warn)) detail::format_and_write(Level::warn, subsystem, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (enabled(Level::info)) detail::format_and_write(Level::info, subsystem, format, std::forward<Args>(args)...);
}
template <class... Args>
void trace(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (enabled(Level::trace)) detail::format_and_write(Level::trace, subsystem, format, std::forward<Args>(args)...);
}

}  // namespace ucclep::log
