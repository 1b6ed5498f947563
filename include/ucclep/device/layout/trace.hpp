// SPDX-License-Identifier: Apache-2.0
// When the steps of an operation were, for UCCLEP_TRACE. Kernels note them in host memory, a row of words for each of
// the last operations, so graphs that replay are seen as well. Where nobody asked, a step costs a look at an argument.
#pragma once
#include <cstdint>

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
