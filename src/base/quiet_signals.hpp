// SPDX-License-Identifier: Apache-2.0
// Writing must not end the process: to a pipe that nobody reads it raises SIGPIPE, beyond RLIMIT_FSIZE it raises
// SIGXFSZ. While one of these lives, its thread gets neither, only the error of the call.
#pragma once
#include <csignal>

namespace ucclep {

class QuietSignals {
 public:
  QuietSignals() noexcept;
  ~QuietSignals();
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t both_, before_, pending_;
};

}  // namespace ucclep
