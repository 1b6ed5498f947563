// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/files_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

namespace ucclep {

size_t files_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
}

void raise_files_limit(int newest) noexcept {
  constexpr rlim_t reserve = 512;  // for the rest of the program
  rlimit limit{};
  const auto used = static_cast<rlim_t>(std::max(newest, 0));
  if (used < reserve || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= used + reserve) return;
  limit.rlim_cur = std::min(limit.rlim_max, 2 * (used + reserve));
  setrlimit(RLIMIT_NOFILE, &limit);
}

size_t places_for_strangers() noexcept {
  return std::clamp<size_t>(files_limit() / 8, 8, 1024);
}

}  // namespace ucclep
