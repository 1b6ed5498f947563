// SPDX-License-Identifier: Apache-2.0
#include "host/context/trace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/best_effort.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/quiet_signals.hpp"

namespace ucclep {
namespace {

using nlohmann::json;

constexpr std::string_view last_bracket = "\n]\n";

// Another rank writes its events in no time. False: somebody holds the file, and does not go on.
bool lock_soon(int fd) {
  for (const Deadline deadline = Deadline::after_ms(1000); ::flock(fd, LOCK_EX | LOCK_NB) != 0;) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// False: errno says why.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Unique within a process, and with that many tracks also among the processes that append to a file: ranks of several
// communicators may have the same number.
uint32_t next_track() {
  constexpr uint32_t tracks_of_process = 1024;
  static std::atomic<uint32_t> taken{0};
  return static_cast<uint32_t>(::getpid()) * tracks_of_process + taken.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

TraceFile::TraceFile(std::string name) : name_(std::move(name)) {
  fd_ = open_to_append(name_);
  if (!fd_) fail(ucclEpSystemError, "UCCLEP_TRACE: cannot open {}: {}", name_, why_not_opened(errno));
  struct stat facts = {};
  if (::fstat(fd_.get(), &facts) == 0 && S_ISREG(facts.st_mode)) {
    reader_ = Fd(::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  }
}

void TraceFile::append(const TraceEvents& events) noexcept {
  best_effort("trace", "events were lost", [&] {
    if (events.empty() || failed_) return;
    std::string text;
    for (const json& event : events) text += (text.empty() ? "" : ",\n") + event.dump();
    if (!lock_soon(fd_.get())) {
      failed_ = true;
      log::warn("trace", "cannot write to {}: another process keeps it locked; the rest of the trace is lost", name_);
      return;
    }
    append_locked(text);
    ::flock(fd_.get(), LOCK_UN);
  });
}

// A file whose end cannot be read gets no last bracket, which the format allows.
void TraceFile::append_locked(std::string_view events) {
  const std::string_view last = reader_ ? last_bracket : "\n";
  struct stat facts = {};
  const off_t size = ::fstat(fd_.get(), &facts) == 0 ? facts.st_size : 0, end = end_of_events(size);
  const std::string text = fmt::format("{}{}{}", size == 0 ? "[\n" : ",\n", events, last);
  const QuietSignals quiet;
  if ((end == size || ::ftruncate(fd_.get(), end) == 0) && write_all(fd_.get(), text)) return;
  failed_ = true;
  log::warn("trace", "cannot write to {}: {}; the rest of the trace is lost", name_, errno_text(errno));
  if (reader_ && ::ftruncate(fd_.get(), end) == 0 && end > 0) write_all(fd_.get(), last);
}

// Before its last bracket. A file that has none is not whole, or none of ours: nothing of it is replaced.
off_t TraceFile::end_of_events(off_t size) const {
  char tail[last_bracket.size()];
  const auto bytes = static_cast<off_t>(sizeof tail);
  if (!reader_ || size < bytes) return size;
  if (::pread(reader_.get(), tail, sizeof tail, size - bytes) != bytes) return size;
  return std::string_view(tail, sizeof tail) == last_bracket ? size - bytes : size;
}

uint32_t TrackSet::take(double begin_us, double end_us, TraceEvents& events) {
  const auto free = std::ranges::find_if(tracks_, [&](const Track& track) { return track.end_us <= begin_us; });
  if (free != tracks_.end()) {
    free->end_us = end_us;
    return free->number;
  }
  tracks_.push_back({next_track(), end_us});
  const uint32_t number = tracks_.back().number;
  events.push_back(
      {{"ph", "M"}, {"pid", rank_}, {"tid", number}, {"name", "thread_name"}, {"args", {{"name", name_}}}});
  return number;
}

json begin_span(int rank, uint32_t track, const std::string& name, double us) {
  return {{"ph", "B"}, {"pid", rank}, {"tid", track}, {"name", name}, {"ts", us}};
}

json end_span(int rank, uint32_t track, const std::string& name, double us) {
  return {{"ph", "E"}, {"pid", rank}, {"tid", track}, {"name", name}, {"ts", us}};
}

}  // namespace ucclep
