// SPDX-License-Identifier: Apache-2.0
// What an input makes a target ask for is bounded, whatever numbers it holds. Sanitizers have operators of their own.
#include <cstdio>
#include <cstdlib>
#include <new>

void* operator new(size_t bytes) {
  constexpr size_t largest = size_t{64} << 20;
  void* memory = bytes > largest ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory != nullptr) return memory;
  std::fprintf(stderr, "an allocation of %zu bytes\n", bytes);
  std::abort();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
