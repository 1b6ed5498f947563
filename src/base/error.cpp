// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace ucclep {
namespace {

std::string value_of(__rlimit_resource resource) {
  rlimit limit{};
  const bool known = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::to_string(limit.rlim_cur) : "unlimited";
}

}  // namespace

std::string errno_text(int error) {
  std::string text = std::strerror(error);
  switch (error) {
    case EMFILE:
      return fmt::format("{}: the process has too many open files (RLIMIT_NOFILE, ulimit -n, is {})", text,
                         value_of(RLIMIT_NOFILE));
    case ENFILE:
      return text + ": the machine has too many open files (sysctl fs.file-max)";
    case ENOMEM:
      return fmt::format(
          "{}: the machine is out of memory, or the process is at a limit (RLIMIT_AS, ulimit -v, is {}; sysctl "
          "vm.max_map_count)",
          text, value_of(RLIMIT_AS));
    case EFBIG:
      return fmt::format("{} (RLIMIT_FSIZE, ulimit -f, is {})", text, value_of(RLIMIT_FSIZE));
    default:
      return text;
  }
}

}  // namespace ucclep
