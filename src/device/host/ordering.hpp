// SPDX-License-Identifier: Apache-2.0
// What ThreadSanitizer is told of the order in which kernels and streams do things: the edges of the SIMT model, at the
// places where it has them and nowhere else. Without -DUCCLEP_TSAN all of this is nothing.
#pragma once
#include <cstddef>

#if defined(UCCLEP_TSAN)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace ucclep::executor {

// A tag is any address that nobody else uses: what was before order_before() happens before what is after
// order_after().
#if defined(UCCLEP_TSAN)
[[gnu::always_inline]] inline void order_after(void* tag) {
  __tsan_acquire(tag);
}
[[gnu::always_inline]] inline void order_before(void* tag) {
  __tsan_release(tag);
}
#else
inline void order_after(void*) {}
inline void order_before(void*) {}
#endif

}  // namespace ucclep::executor
