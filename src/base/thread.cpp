// SPDX-License-Identifier: Apache-2.0
#include "base/thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/attempt.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace ucclep {
namespace {

struct Task {
  std::string name;
  int rank;
  std::function<void()> body;
};

void* run_task(void* given) {
  const std::unique_ptr<Task> task(static_cast<Task*>(given));
  pthread_setname_np(pthread_self(), task->name.c_str());
  log::set_rank(task->rank);
  if (const auto failed = attempt(task->body))
    log::warn("thread", "the thread {} ended with an error: {}", task->name, failed->what());
  return nullptr;
}

// Most of it is never touched. The C library takes thread-local variables of all libraries from it.
size_t stack_size() {
  constexpr long own = 1 << 20;
  return static_cast<size_t>(own + std::max(0l, sysconf(_SC_THREAD_STACK_MIN)));
}

int create(pthread_t* handle, Task* task) {
  pthread_attr_t attributes;
  if (const int failed = pthread_attr_init(&attributes)) return failed;
  int failed = pthread_attr_setstacksize(&attributes, stack_size());
  // A new thread inherits the mask: the program's handlers keep running on the program's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (failed == 0) failed = pthread_create(handle, &attributes, &run_task, task);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return failed;
}

[[noreturn]] void refuse(const std::string& name, int failed) {
  if (failed != EAGAIN && failed != ENOMEM) {
    fail(ucclEpSystemError, "cannot start the thread {}: {}", name, std::strerror(failed));
  }
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  const std::string most = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  fail(ucclEpSystemError,
       "cannot start the thread {}: a limit of threads or memory is reached (RLIMIT_NPROC, ulimit -u, is {}; a "
       "container may have a pids limit, and each thread takes a stack of address space, ulimit -v)",
       name, most);
}

}  // namespace

void ServiceThread::join() noexcept {
  if (handle_) pthread_join(*handle_, nullptr);
  handle_.reset();
}

void ServiceThread::detach() noexcept {
  if (handle_) pthread_detach(*handle_);
  handle_.reset();
}

ServiceThread start_service_thread(const std::string& name, int rank, std::function<void()> body) {
  auto task = std::make_unique<Task>(Task{name, rank, std::move(body)});
  pthread_t handle{};
  if (const int failed = create(&handle, task.get())) refuse(name, failed);
  [[maybe_unused]] const Task* owned_by_the_thread = task.release();
  return ServiceThread(handle);
}

}  // namespace ucclep
