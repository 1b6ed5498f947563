// SPDX-License-Identifier: Apache-2.0
#include "base/quiet_signals.hpp"

#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace ucclep {

QuietSignals::QuietSignals() noexcept {
  sigemptyset(&both_);
  sigaddset(&both_, SIGPIPE);
  sigaddset(&both_, SIGXFSZ);
  sigpending(&pending_);
  pthread_sigmask(SIG_BLOCK, &both_, &before_);
}

QuietSignals::~QuietSignals() {
  const int error = errno;
  // What was waiting before stays for whom it is meant for; what this thread has raised is taken back.
  sigset_t own;
  sigemptyset(&own);
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (sigismember(&pending_, signal) == 0) sigaddset(&own, signal);
  }
  const timespec at_once{};
  while (sigtimedwait(&own, nullptr, &at_once) > 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace ucclep
