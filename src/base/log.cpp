// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <mutex>

#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/quiet_signals.hpp"

namespace ucclep::log {
namespace detail {
std::atomic<int> level{static_cast<int>(Level::off)};
}  // namespace detail

namespace {

thread_local int thread_rank = -1;

// Where lines go.
struct Sink {
  std::mutex mutex;
  std::string pattern;
  std::map<std::string, int> files;  // by expanded name; opened once, kept open
  struct stat standard_error{};      // what it was at init
  bool has_standard_error = false;

  Sink() {
    // A thread may be logging while another one forks ranks, and those log too: they must find the lock free.
    pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                   [] { instance().mutex.unlock(); });
  }

  static Sink& instance();

  // A file that cannot be opened falls back to stderr: a diagnostic must not stop the work.
  int descriptor(int rank) {
    std::lock_guard lock(mutex);
    if (pattern.empty()) return own_standard_error();
    std::string name = expand_file_name(pattern, rank);
    auto [entry, is_new] = files.try_emplace(std::move(name), -1);
    if (is_new) entry->second = open_to_append(entry->first).release();
    return entry->second >= 0 ? entry->second : own_standard_error();
  }

  // -1 where the program has closed it, or uses its number for something else.
  int own_standard_error() const {
    struct stat now{};
    const bool same = has_standard_error && fstat(STDERR_FILENO, &now) == 0 && now.st_dev == standard_error.st_dev &&
                      now.st_ino == standard_error.st_ino;
    return same ? STDERR_FILENO : -1;
  }
};

// Never destroyed: service threads may log while the process exits.
Sink& sink_of_process = *new Sink;

Sink& Sink::instance() {
  return sink_of_process;
}

// A reader that does not read holds up nobody for longer: the line is lost.
bool takes_a_line(int fd) {
  constexpr int patience_ms = 100;
  pollfd wait{fd, POLLOUT, 0};
  return poll(&wait, 1, patience_ms) > 0 && (wait.revents & POLLOUT) != 0;
}

constexpr std::array<const char*, 4> level_names{"OFF", "WARN", "INFO", "TRACE"};

}  // namespace

void init(Level level, const std::string& file) {
  {
    Sink& sink = Sink::instance();
    std::lock_guard lock(sink.mutex);
    sink.pattern = file;
    sink.has_standard_error = fstat(STDERR_FILENO, &sink.standard_error) == 0;
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
    if (fd < 0 || !takes_a_line(fd)) return;
    const QuietSignals quiet;
    while (::write(fd, line.data(), line.size()) < 0 && errno == EINTR) {
    }
  } catch (...) {
  }
}

}  // namespace ucclep::log
