// SPDX-License-Identifier: Apache-2.0
// Whatever a step throws, as an Error of the library's.
#pragma once
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace ucclep {

// In a catch block: whatever was thrown, as a code and a sentence. The text of an exception that is not the library's
// own goes to the log only: it is not written for users.
Error current_error() noexcept;

// What the step throws, if it throws.
template <class Step>
std::optional<Error> attempt(Step&& step) {
  try {
    std::forward<Step>(step)();
    return std::nullopt;
  } catch (...) {
    return current_error();
  }
}

}  // namespace ucclep
