// SPDX-License-Identifier: Apache-2.0
#include "base/kept.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "base/fork.hpp"

namespace ucclep {

void keep_for_ever(std::shared_ptr<const void> what) {
  struct Kept {
    std::mutex mutex;
    std::vector<std::shared_ptr<const void>> all;
  };
  constinit static PerProcess<Kept> kept;
  const std::lock_guard lock(kept.get().mutex);
  kept.get().all.push_back(std::move(what));
}

}  // namespace ucclep
