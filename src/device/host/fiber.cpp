// SPDX-License-Identifier: Apache-2.0
#include "device/host/fiber.hpp"

#include <pthread.h>

namespace ucclep::executor {

void describe_thread([[maybe_unused]] Fiber& fiber) {
  describe_identity(fiber);
#if defined(UCCLEP_ASAN)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &fiber.size);
  fiber.bottom = bottom;
  pthread_attr_destroy(&attributes);
#endif
}

void StackPool::grow() {
  constexpr size_t stacks = 128;
  Pages& chunk = chunks_.emplace_back(stacks * stack_bytes);
  // A huge page would make every byte of all its stacks resident, where a lane touches the last few KiB of its own.
  madvise(chunk.data(), chunk.bytes(), MADV_NOHUGEPAGE);
  free_.reserve(chunks_.size() * stacks);  // so that give() never allocates: a lane calls it
  for (size_t i = stacks; i-- > 0;) free_.push_back(chunk.data() + i * stack_bytes);
}

}  // namespace ucclep::executor
