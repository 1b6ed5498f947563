// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <mutex>

#include "base/env.hpp"

namespace ucclep::log {
namespace detail {
std::atomic<int> level{static_cast<int>(Level::off)};
}  // namespace detail

namespace {

thread_local int thread_rank = -1;

// Where lines go. Never destroyed: service threads may log while the process exits.
struct Sink {
  std::mutex mutex;
  std::string pattern;
  std::map<std::string, int> files;  // by expanded name; opened once, kept open

  Sink() {
    // A thread may be logging while another one forks ranks, and those log too: they must find the lock free.
    pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                   [] { instance().mutex.unlock(); });
  }

  static Sink& instance() {
    static auto* sink = new Sink;
    return *sink;
  }

  // A file that cannot be opened falls back to stderr: a diagnostic must not stop the work.
  int descriptor(int rank) {
    std::lock_guard lock(mutex);
    if (pattern.empty()) return STDERR_FILENO;
    std::string name = expand_file_name(pattern, rank);
    auto [entry, is_new] = files.try_emplace(std::move(name), STDERR_FILENO);
    if (is_new) {
      int fd = ::open(entry->first.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (fd >= 0) entry->second = fd;
    }
    return entry->second;
  }
};

constexpr std::array<const char*, 4> level_names{"OFF", "WARN", "INFO", "TRACE"};

}  // namespace

void init(Level level, const std::string& file) {
  {
    Sink& sink = Sink::instance();
    std::lock_guard lock(sink.mutex);
    sink.pattern = file;
  }
  detail::level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void init_from_environment() {
  int level = env::choice("UCCLEP_DEBUG", {{"WARN", 1}, {"INFO", 2}, {"TRACE", 3}}).value_or(0);
  init(static_cast<Level>(level), env::text("UCCLEP_DEBUG_FILE").value_or(""));
}

void set_rank(int rank) noexcept {
  thread_rank = rank;
}
int rank() noexcept {
  return thread_rank;
}

std::string expand_file_name(std::string_view pattern, int rank) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] != '%' || (next != 'r' && next != 'p' && next != '%')) {
      name += pattern[i];
      continue;
    }
    ++i;
    if (next == '%') {
      name += '%';
    } else if (next == 'p') {
      name += fmt::format("{}", ::getpid());
    } else {
      name += rank < 0 ? std::string("-") : fmt::format("{}", rank);
    }
  }
  return name;
}

void detail::write(Level level, std::string_view subsystem, std::string_view text) noexcept {
  try {
    int rank = thread_rank;
    std::string line = fmt::format("[ucclep {}:{} {} {}] {}\n", ::getpid(), rank < 0 ? "-" : fmt::format("{}", rank),
                                   level_names[static_cast<size_t>(level)], subsystem, text);
    int fd = Sink::instance().descriptor(rank);
    while (::write(fd, line.data(), line.size()) < 0 && errno == EINTR) {
    }
  } catch (...) {
  }
}

}  // namespace ucclep::log
