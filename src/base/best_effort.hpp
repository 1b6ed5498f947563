// SPDX-License-Identifier: Apache-2.0
// Taking things down: what cannot be done is logged, and the rest goes on.
#pragma once
#include <string_view>
#include <utility>

#include "base/attempt.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace ucclep {

// Runs one step. what: heads the line that says why it failed.
template <class Step>
void best_effort(std::string_view subsystem, std::string_view what, Step&& step) noexcept {
  if (const auto failed = attempt(std::forward<Step>(step))) log::warn(subsystem, "{}: {}", what, failed->what());
}

}  // namespace ucclep
