// SPDX-License-Identifier: Apache-2.0
// Standard output of all tools: what cannot be written there is an error.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ucclep {

// Before anything else is opened: a file would get the number of a standard descriptor that is closed, and with it what
// is printed. Writes to a descriptor that is held fail.
inline void hold_standard_descriptors() {
  int fd = 0;
  do fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Flushed: whoever watches a long run sees each line when it is printed.
inline void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw std::runtime_error(std::string("standard output cannot be written: ") + std::strerror(errno));
}

}  // namespace ucclep
