// SPDX-License-Identifier: Apache-2.0
#include "base/fork.hpp"

#include <pthread.h>

namespace ucclep {
namespace {

constinit std::atomic<uint32_t> forks{0};
// When the library is loaded: before any of its state can be forked.
[[maybe_unused]] const int counts_forks =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint32_t fork_depth() noexcept {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace ucclep
