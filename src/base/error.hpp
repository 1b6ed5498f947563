// SPDX-License-Identifier: Apache-2.0
// An error inside the library: a result code and an error message. It is thrown, and caught once at the C boundary.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "ucclep/ucclep.h"

namespace ucclep {

class Error : public std::runtime_error {
 public:
  Error(ucclEpResult_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ucclEpResult_t code() const noexcept { return code_; }

 private:
  ucclEpResult_t code_;
};

template <class... Args>
[[noreturn]] void fail(ucclEpResult_t code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// What errno says, and which limit of the process it may be, with its value.
std::string errno_text(int error);

// How something ended in another process. What is none of ucclEpResult_t's, or no end, counts as ucclEpInternalError.
constexpr ucclEpResult_t result_of(int64_t number) noexcept {
  const bool ends = number >= ucclEpSuccess && number <= ucclEpOverflow && number != ucclEpInProgress;
  return ends ? static_cast<ucclEpResult_t>(number) : ucclEpInternalError;
}

}  // namespace ucclep
