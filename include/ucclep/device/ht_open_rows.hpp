// SPDX-License-Identifier: Apache-2.0
// Which rows the output of an HT dispatch has that a user's kernel opened, and how the dispatch ends when a kernel has
// received them all (ht_open_dispatch.hpp, ht_open_dispatch_recv.hpp).
#pragma once
#include "ucclep/device/ht_open.hpp"
#include "ucclep/device/open_receive.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Rows of the output that come from one source: rows [begin, end), of which the source's first is `base`; expert:
// local, in EXPERT_MAJOR.
struct Segment {
  uint32_t source, expert, base, count, begin, end;

  static UCCLEP_FN Segment of(const OpenOperation& open, uint32_t source, uint32_t expert, uint32_t first,
                              uint32_t last) {
    const HandleMemory memory = open.memory();
    Segment s{source, expert, memory.recv_base()[source], memory.rows_from()[source], 0, 0};
    if (open.by_expert()) {
      s.base = memory.expert_base(source)[expert];
      s.count = memory.counts_from(source)[expert];
    }
    s.begin = first > s.base ? first : s.base;
    s.end = last < s.base + s.count ? last : s.base + s.count;
    if (s.end < s.begin) s.end = s.begin;
    return s;
  }
};

// Lane verb: body(segment) for all that rows [first, last) consist of. False: body has said so.
template <class Body>
UCCLEP_FN bool each_segment(const OpenOperation& open, uint32_t first, uint32_t last, Body&& body) {
  const GroupShape& shape = open.handle.group.shape;
  const uint32_t experts = open.by_expert() ? shape.local_experts() : 1;
  for (uint32_t expert = 0; expert < experts; ++expert) {
    for (uint32_t source = 0; source < shape.ranks; ++source) {
      const Segment segment = Segment::of(open, source, expert, first, last);
      if (segment.begin != segment.end && !body(segment)) return false;
    }
  }
  return true;
}

// Lane verb: of the rows that were routed here, those that a group with a limit keeps.
UCCLEP_FN uint32_t rows_kept(const OpenOperation& open) {
  const uint32_t rows = open.memory().state()->rows, most = open.handle.group.shape.recv_rows;
  return rows < most ? rows : most;
}

// Verb of members that are near: how many of them come from some source, and are no pads.
template <class Coop>
UCCLEP_FN uint32_t rows_here(const OpenOperation& open) {
  const GroupShape& shape = open.handle.group.shape;
  const uint32_t kept = rows_kept(open), items = shape.ranks * (open.by_expert() ? shape.local_experts() : 1);
  uint32_t mine = 0;
  for (uint32_t i = Near<Coop>::rank(); i < items; i += Near<Coop>::size()) {
    const Segment segment = Segment::of(open, i % shape.ranks, i / shape.ranks, 0, kept);
    mine += segment.end - segment.begin;
  }
  return Near<Coop>::sum(mine);
}

// Lane verb of the last: what combine needs to know, where ranks agree. Rows beyond a group's limit leave a record,
// unless it drops them in silence.
UCCLEP_FN void end_dispatch(const OpenOperation& open, bool good) {
  const Op op = open.of(Kind::dispatch, Operation::dispatch);
  HandleState* const state = open.memory().state();
  if (good) {
    state->weighted = open.settings.weights_at_dispatch;
    state->capacity = rows_kept(open);
    if (op.group.tells_dropped != 0) tell_dropped(op, state->rows, state->capacity);
  }
  end_received(op);
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
