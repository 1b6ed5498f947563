// SPDX-License-Identifier: Apache-2.0
// What holds across fork(). A child has all memory of its parent, but only the thread that forked: a lock that another
// thread held is never released, and the library's own threads are gone. So state of the whole process is PerProcess
// or MadeOnce, or it is locked by pthread_atfork handlers while the process forks, as in log.cpp.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace ucclep {

// How many forks led to this process: never the same in a process and in one that it forked.
uint32_t fork_depth() noexcept;

// A T for each process: a child begins with a new one and leaves its parent's as it is. None is ever destroyed, because
// threads of the library may use it while the process exits.
template <class T>
class PerProcess {
 public:
  T& get() {
    Instance* known = instance_.load(std::memory_order_acquire);
    if (known != nullptr && known->process == fork_depth()) return known->value;
    auto* const made = new Instance{fork_depth(), known, {}};
    if (instance_.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made->value;
    delete made;  // another thread was faster
    return known->value;
  }

 private:
  struct Instance {
    uint32_t process;
    Instance* of_parent;  // reachable for a leak checker
    T value;
  };
  std::atomic<Instance*> instance_{nullptr};
};

// A value that takes long to make. A child takes over what its parent had made, and makes again what another thread was
// making when the parent forked.
template <class T>
class MadeOnce {
 public:
  // make() may throw: then the next call tries again.
  template <class Make>
  const T& get(Make&& make) {
    if (const T* const made = value_.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(making_.get());
    if (const T* const made = value_.load(std::memory_order_acquire)) return *made;
    const T* const made = new T(std::forward<Make>(make)());
    value_.store(made, std::memory_order_release);
    return *made;
  }

 private:
  std::atomic<const T*> value_{nullptr};
  PerProcess<std::mutex> making_;
};

}  // namespace ucclep
