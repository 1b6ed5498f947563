// SPDX-License-Identifier: Apache-2.0
#include "host/context/trace_marks.hpp"

#include <algorithm>

namespace ucclep {
namespace {

uint64_t at(const TraceEntry& entry, Mark mark) {
  return entry.ns[static_cast<uint32_t>(mark)];
}

// floor: marks before it are of the operation that had the entry before.
TracedOperation operation_of(const TraceEntry& entry, uint64_t floor) {
  TracedOperation operation{entry.seq, at(entry, Mark::begin), {}};
  for (const uint64_t ns : entry.ns) {
    if (ns >= floor) operation.begin = std::min(operation.begin, ns);
  }
  for (const Mark mark : {Mark::slots_free, Mark::headers_in, Mark::end}) {
    if (at(entry, mark) < floor) continue;
    // A block may have had the headers before another had its slots.
    const uint64_t begin = operation.end();
    operation.steps.push_back({mark, begin, std::max(begin, at(entry, mark))});
  }
  return operation;
}

}  // namespace

std::vector<TracedOperation> operations_in(std::span<const TraceEntry> ring) {
  std::vector<TraceEntry> entries(ring.begin(), ring.end());
  std::erase_if(entries, [](const TraceEntry& entry) { return entry.seq == 0; });
  std::ranges::sort(entries, {}, &TraceEntry::seq);
  std::vector<TracedOperation> operations;
  // When the operation before began: what had this one's entry had ended by then, as far fewer operations are in flight
  // than there are entries.
  uint64_t before = 0;
  for (const TraceEntry& entry : entries) {
    const bool first_of_its_entry = entry.seq <= ring.size();
    const uint64_t floor = first_of_its_entry ? 1 : before != 0 ? before : at(entry, Mark::begin);
    operations.push_back(operation_of(entry, floor));
    before = operations.back().begin;
  }
  return operations;
}

}  // namespace ucclep
