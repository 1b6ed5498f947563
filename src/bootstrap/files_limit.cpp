// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/files_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace ucclep {

void raise_files_limit(size_t connections) noexcept {
  constexpr size_t reserve = 512;  // for the rest of the program
  constexpr size_t rarely_less = 1024;
  if (connections + reserve < rarely_less) return;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= connections + reserve) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * (connections + reserve));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ucclep
