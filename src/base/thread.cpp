// SPDX-License-Identifier: Apache-2.0
#include "base/thread.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace ucclep {
namespace {

void run(const std::string& name, int rank, const std::function<void()>& body) noexcept {
  pthread_setname_np(pthread_self(), name.c_str());
  log::set_rank(rank);
  try {
    body();
  } catch (const std::exception& error) {
    log::warn("thread", "{} ended: {}", name, error.what());
  }
}

}  // namespace

std::thread start_service_thread(const std::string& name, int rank, std::function<void()> body) {
  // A new thread inherits the mask: the program's handlers keep running on the program's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread([name, rank, body = std::move(body)] { run(name, rank, body); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error.code() != std::errc::resource_unavailable_try_again) {
      fail(ucclEpSystemError, "cannot start the thread {}: {}", name, error.code().message());
    }
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    const std::string most = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
    fail(ucclEpSystemError,
         "cannot start the thread {}: a limit of threads or memory is reached (RLIMIT_NPROC, ulimit -u, is {}; a "
         "container may have a pids limit, and each thread takes a stack of address space, ulimit -v)",
         name, most);
  }
}

}  // namespace ucclep
