// SPDX-License-Identifier: Apache-2.0
// Not instrumented: what one lane leaves here another takes, whatever orders them.
#include "device/host/identities.hpp"

#include <atomic>

namespace ucclep::executor {
namespace {

constexpr int max_kept = 4096;  // in all streams: each holds memory of ThreadSanitizer's
std::atomic<int> kept = 0;

}  // namespace

Identities::~Identities() {
  for (Fiber& fiber : kept_) {
    if (has_identity(fiber)) kept.fetch_sub(1, std::memory_order_relaxed);
    destroy_identity(fiber);
  }
}

void Identities::expect(size_t lanes) {
  if (under_tsan && kept_.size() < lanes) kept_.resize(lanes);
}

void Identities::lend(size_t number, Fiber& lane) {
  if (!under_tsan) return;
  if (has_identity(kept_[number])) {
    kept.fetch_sub(1, std::memory_order_relaxed);
    pass_identity(kept_[number], lane);
  } else {
    create_identity(lane);
  }
}

void Identities::give_back(size_t number, Fiber& lane) {
  if (!under_tsan) return;
  if (kept.fetch_add(1, std::memory_order_relaxed) < max_kept) {
    pass_identity(lane, kept_[number]);
  } else {
    kept.fetch_sub(1, std::memory_order_relaxed);
    destroy_identity(lane);
  }
}

}  // namespace ucclep::executor
