// SPDX-License-Identifier: Apache-2.0
// One line of what a tool prints. Flushed: whoever watches a long run sees each size when it is done.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace ucclep::perf {

template <class... Args>
void line(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace ucclep::perf
