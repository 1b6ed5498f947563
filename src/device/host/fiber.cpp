// SPDX-License-Identifier: Apache-2.0
#include "device/host/fiber.hpp"

#include <pthread.h>

namespace ucclep::executor {
namespace {

constexpr size_t stacks_of_chunk = 128;

}  // namespace

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

void StackPool::reserve(size_t lanes) {
  while (chunks_.size() * stacks_of_chunk < reserved_ + lanes) grow();
  reserved_ += lanes;
}

void StackPool::grow() {
  Pages chunk(stacks_of_chunk * stack_bytes);
  // A huge page would make every byte of all its stacks resident, where a lane touches the last few KiB of its own.
  madvise(chunk.data(), chunk.bytes(), MADV_NOHUGEPAGE);
  chunks_.reserve(chunks_.size() + 1);
  free_.reserve((chunks_.size() + 1) * stacks_of_chunk);  // so that give() never allocates: a lane calls it
  for (size_t i = stacks_of_chunk; i-- > 0;) free_.push_back(chunk.data() + i * stack_bytes);
  chunks_.push_back(std::move(chunk));
}

}  // namespace ucclep::executor
