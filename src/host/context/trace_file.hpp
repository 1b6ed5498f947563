// SPDX-License-Identifier: Apache-2.0
// The file of UCCLEP_TRACE in the Trace Event format, which Perfetto and chrome://tracing open: a JSON array of events.
// An event belongs to a process (`pid`, here a rank) and to one of its tracks (`tid`, a thread of the format).
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace ucclep {

using TraceEvents = std::vector<nlohmann::json>;

// Ranks and processes may append to one file. It is valid JSON whenever nobody writes to it, whatever ended the
// process: each append replaces the last bracket by some whole events and a bracket.
class TraceFile {
 public:
  // Throws Error(ucclEpSystemError) that names the variable.
  explicit TraceFile(std::string name);
  // What cannot be written is lost, with one line in the log.
  void append(const TraceEvents& events) noexcept;

 private:
  void append_locked(std::string_view events);
  off_t end_of_events(off_t size) const;

  std::string name_;
  Fd fd_, reader_;  // reader_: of a regular file
  bool failed_ = false;
};

// The tracks with one name. In a track of the format spans lie within each other or apart; those that overlap otherwise
// are dropped by Perfetto. So a span that overlaps with one of a track goes to another.
class TrackSet {
 public:
  TrackSet(int rank, std::string name) : rank_(rank), name_(std::move(name)) {}
  // The number of a track that has nothing after begin_us. events: takes the name of a new track.
  uint32_t take(double begin_us, double end_us, TraceEvents& events);

 private:
  struct Track {
    uint32_t number;
    double end_us;  // of its last span
  };
  int rank_;
  std::string name_;
  std::vector<Track> tracks_;
};

// A span of a track is two events, between which stand those of the spans within it.
nlohmann::json begin_span(int rank, uint32_t track, const std::string& name, double us);
nlohmann::json end_span(int rank, uint32_t track, const std::string& name, double us);

}  // namespace ucclep
