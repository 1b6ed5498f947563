// SPDX-License-Identifier: Apache-2.0
// A fibre: a stack of its own and a place to go on. Every switch is symmetric, and the sanitizers are told of it; this
// is the only file that calls them. Built with -DUCCLEP_TSAN or -DUCCLEP_ASAN, never instrumented itself.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "device/host/ordering.hpp"
#include "device/host/pages.hpp"

#if defined(UCCLEP_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif
#if defined(UCCLEP_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old, size_t* size_old);
void __asan_unpoison_memory_region(void const volatile* address, size_t size);
}
#endif

namespace ucclep::executor {

#if defined(UCCLEP_TSAN) || defined(UCCLEP_ASAN)
constexpr size_t stack_bytes = 64 * 1024;  // instrumented frames are several times as large
#else
constexpr size_t stack_bytes = 16 * 1024;
#endif

#if defined(UCCLEP_TSAN)
constexpr bool under_tsan = true;
#else
constexpr bool under_tsan = false;
#endif

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;  // null: never ran
  char* stack = nullptr;                                 // lowest byte; null: none
#if defined(UCCLEP_TSAN)
  void* identity = nullptr;
#endif
#if defined(UCCLEP_ASAN)
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
#endif
};

// ThreadSanitizer's view of a fibre: who makes the accesses.
inline void create_identity([[maybe_unused]] Fiber& fiber) {
#if defined(UCCLEP_TSAN)
  fiber.identity = __tsan_create_fiber(0);
#endif
}
inline void destroy_identity([[maybe_unused]] Fiber& fiber) {
#if defined(UCCLEP_TSAN)
  if (fiber.identity != nullptr) __tsan_destroy_fiber(fiber.identity);
  fiber.identity = nullptr;
#endif
}
inline bool has_identity([[maybe_unused]] const Fiber& fiber) {
#if defined(UCCLEP_TSAN)
  return fiber.identity != nullptr;
#else
  return false;
#endif
}
inline void pass_identity([[maybe_unused]] Fiber& from, [[maybe_unused]] Fiber& to) {
#if defined(UCCLEP_TSAN)
  to.identity = std::exchange(from.identity, nullptr);
#endif
}
inline void assume_identity([[maybe_unused]] Fiber& fiber) {
#if defined(UCCLEP_TSAN)
  __tsan_switch_to_fiber(fiber.identity, 1 /* the switch orders nothing */);
#endif
}

// Called first thing by a fibre's function. Whoever switched to it said where its own place is to be kept.
inline void arrive(boost::context::detail::transfer_t from) {
  *static_cast<boost::context::detail::fcontext_t*>(from.data) = from.fctx;
}
inline void arrive_first(boost::context::detail::transfer_t from) {
#if defined(UCCLEP_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  arrive(from);
}

// jump_fcontext, called so that the processor's return predictor stays right: the switch ends in a jump, so an ordinary
// call would leave one return too many on the predictor's stack, and every return of the other fibre would be a
// misprediction (16 ns a switch instead of 6). Files that include this are compiled without a red zone.
[[gnu::always_inline]] inline boost::context::detail::transfer_t jump(boost::context::detail::fcontext_t to,
                                                                      void* data) {
#if defined(__x86_64__)
  register void* rdi asm("rdi") = to;
  register void* rsi asm("rsi") = data;
  register void* rax asm("rax");
  register void* rdx asm("rdx");
  asm volatile(
      "leaq 1f(%%rip), %%rcx\n\t"
      "pushq %%rcx\n\t"
      "jmp jump_fcontext@PLT\n"
      "1:"
      : "=r"(rax), "=r"(rdx), "+r"(rdi), "+r"(rsi)
      :
      : "rcx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
  return {rax, rdx};
#else
  return boost::context::detail::jump_fcontext(to, data);
#endif
}

// ends: `from` is never switched to again.
inline void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool ends = false) {
  assume_identity(to);
#if defined(UCCLEP_ASAN)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.bottom, to.size);
#endif
  const auto back = jump(to.context, static_cast<void*>(&from.context));
#if defined(UCCLEP_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
  arrive(back);
}

// colour moves the first frame, so that the frames of neighbouring lanes do not compete for the same cache sets.
inline void start_fiber(Fiber& fiber, char* stack, size_t colour,
                        void (*function)(boost::context::detail::transfer_t)) {
  fiber.stack = stack;
#if defined(UCCLEP_ASAN)
  __asan_unpoison_memory_region(stack, stack_bytes);
  fiber.bottom = stack;
  fiber.size = stack_bytes;
#endif
  fiber.context = boost::context::detail::make_fcontext(stack + stack_bytes - colour, stack_bytes - colour, function);
}

// The lane that ends hands its stack to one that has not begun, and goes on as that lane.
inline void adopt_stack(Fiber& from, Fiber& to) {
  to.stack = std::exchange(from.stack, nullptr);
#if defined(UCCLEP_ASAN)
  to.bottom = from.bottom;
  to.size = from.size;
#endif
}

// The thread itself, as somewhere to switch back to.
void describe_thread(Fiber& fiber);
inline void describe_identity([[maybe_unused]] Fiber& fiber) {
#if defined(UCCLEP_TSAN)
  fiber.identity = __tsan_get_current_fiber();
#endif
}

// The stacks of one worker. They are kept for the next lanes: a warm stack costs nothing. There are as many as all
// lanes of resident blocks may want, so that a lane never finds none.
class StackPool {
 public:
  void reserve(size_t lanes);  // Error: the process gets no memory for them
  void release(size_t lanes) { reserved_ -= lanes; }

  char* take() {
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(char* stack) { free_.push_back(stack); }

 private:
  void grow();
  size_t reserved_ = 0;
  std::vector<Pages> chunks_;
  std::vector<char*> free_;
};

}  // namespace ucclep::executor
