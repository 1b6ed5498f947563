// SPDX-License-Identifier: Apache-2.0
// One line of what a tool prints.
#pragma once
#include <fmt/format.h>

#include <utility>

#include "../apps/standard_output.hpp"

namespace ucclep::perf {

template <class... Args>
void line(fmt::format_string<Args...> format, Args&&... args) {
  print(fmt::format(format, std::forward<Args>(args)...) + '\n');
}

}  // namespace ucclep::perf
