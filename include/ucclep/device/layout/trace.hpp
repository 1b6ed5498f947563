// SPDX-License-Identifier: Apache-2.0
// When the steps of an operation were, for UCCLEP_TRACE. Kernels note them in host memory, a row of words for each of
// the last operations, so graphs that replay are seen as well. Where nobody asked, a step costs a look at an argument.
#pragma once
#include "ucclep/device/simt/simt.hpp"

namespace ucclep {

enum class Mark : uint32_t {
  begin,
  slots_free,  // all peers have read what this operation writes over
  headers_in,  // all peers have said what they send, as the last block has seen it
  end
};
inline constexpr uint32_t num_marks = 4;
inline constexpr uint32_t trace_depth = 4096;  // operations of a kind that are remembered

// By the clock of the device. A mark that an operation does not make is of one that had the entry before.
struct TraceEntry {
  uint64_t seq, ns[num_marks];
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Verb of one thread. entries: of the operation's kind.
UCCLEP_COLD_FN void note_mark(TraceEntry* entries, uint64_t seq, Mark mark) {
  TraceEntry& entry = entries[seq % trace_depth];
  if (mark == Mark::begin) store_relaxed<Scope::system>(&entry.seq, seq);
  store_relaxed<Scope::system>(&entry.ns[static_cast<uint32_t>(mark)], clock_ns());
}

}  // namespace UCCLEP_SIMT_NAMESPACE
