// SPDX-License-Identifier: Apache-2.0
// Who sends how many rows to whom: headers with counts to every peer, then, from everybody's headers, where each
// source's rows begin in the output. Rows of lower-numbered sources come first, so the order does not depend on arrival
// (P5).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr uint32_t settings_differ = 0xff;  // in forms_from: that source's header was refused

UCCLEP_FN void store_index(const View& view, int64_t row, int64_t column, int64_t value) {
  if (!view.data) return;
  char* at = view.at(0, row, column);
  if (view.element_bytes == 8) {
    *reinterpret_cast<int64_t*>(at) = value;
  } else {
    *reinterpret_cast<int32_t*>(at) = static_cast<int32_t>(value);
  }
}

constexpr uint64_t int32_most = 0x7fffffff;

// Lane verb: a counter of the caller's, as far as its type goes. False: it holds less than the value.
UCCLEP_FN bool store_count(const View& view, int64_t row, int64_t column, uint64_t value) {
  const bool fits = !view.data || view.element_bytes == 8 || value <= int32_most;
  store_index(view, row, column, static_cast<int64_t>(fits ? value : int32_most));
  return fits;
}

// Lane verb: what was counted is more than can be kept.
UCCLEP_COLD_FN void report_excess(DeviceErrors* errors, Operation operation, uint64_t seq, uint64_t counted,
                                  uint64_t most) {
  ErrorRecord record{};
  record.code = ucclEpOverflow;
  record.operation = operation;
  record.phase = Phase::counts;
  record.peer = -1;
  record.epoch = seq;
  record.expected = counted;
  record.got = most;
  report_data(errors, record);
}

// Lane verb: adds to the caller's statistics, as far as their type goes.
UCCLEP_FN void add_count(const Op& op, const View& cumulative, uint32_t expert, uint32_t count) {
  auto* const at = reinterpret_cast<int32_t*>(cumulative.at(0, 0, expert));
  const int64_t sum = int64_t{*at} + count;
  const bool fits = sum <= static_cast<int64_t>(int32_most);
  *at = static_cast<int32_t>(fits ? sum : static_cast<int64_t>(int32_most));
  if (!fits) report_excess(op.group.errors, op.name, op.seq, static_cast<uint64_t>(sum), int32_most);
}

// Who shares out work by warps: the grid, or a block.
struct WarpShare {
  uint32_t first, step;
};

// What everybody's headers say: arrays of the handle, or, for a block that goes on with them at once, of its shared
// memory.
struct HeaderWords {
  uint32_t *rows, *tokens, *forms;  // [R]
  uint32_t* counts;                 // [R][L]

  static UCCLEP_FN HeaderWords of(const HandleMemory& memory) {
    return {memory.rows_from(), memory.tokens_from(), memory.forms_from(), memory.counts_from(0)};
  }
  static UCCLEP_FN HeaderWords in(uint32_t ranks, uint32_t* words, uint32_t* counts) {
    return {words, words + ranks, words + 2 * ranks, counts};
  }
  // Lane verb.
  UCCLEP_FN void put(uint32_t source, const HeaderFacts& facts) const {
    rows[source] = facts.rows;
    tokens[source] = facts.tokens;
    forms[source] = static_cast<uint32_t>(facts.form);
  }
  // Verb of a block's threads.
  UCCLEP_FN void keep(const HandleMemory& memory) const {
    const HeaderWords kept = of(memory);
    for (uint32_t s = thread_id(); s < memory.shape.ranks; s += block_size()) {
      kept.put(s, {rows[s], tokens[s], static_cast<Form>(forms[s])});
    }
    for (uint32_t e = thread_id(); e < memory.shape.experts; e += block_size()) kept.counts[e] = counts[e];
  }
};

// Verb of all that share: everybody's header. False: a peer was lost; a difference is marked, and reported by
// place_rows.
UCCLEP_FN bool receive_headers(const Op& op, const HeaderWords& words, const Settings& settings, const View& wait_ns,
                               const WarpShare& share) {
  for (uint32_t i = share.first; i < op.ranks(); i += share.step) {
    const uint32_t source = op.rotated(i);
    HeaderFacts facts{};
    const uint64_t start = wait_ns.data ? clock_ns() : 0;
    const Op same = op.with(reload(op.group));
    uint32_t* counts = words.counts + source * same.group.shape.local_experts();
    const HeaderResult result = receive_header(same, source, settings, facts, counts);
    if (result == HeaderResult::lost) return false;
    if (lane_id() != 0) continue;
    words.rows[source] = facts.rows;
    words.tokens[source] = facts.tokens;
    words.forms[source] = result == HeaderResult::good ? static_cast<uint32_t>(facts.form) : settings_differ;
    if (wait_ns.data) *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
  }
  return true;
}

// Block verb: base[r] = rows of sources below r, for r = 0..R. Returns the total: sources have at most B rows each, and
// a group's R * B are numbers of rows.
UCCLEP_FN uint32_t scan_sources(const HandleMemory& memory, const HeaderWords& words, uint32_t* scratch) {
  const uint32_t ranks = memory.shape.ranks;
  uint32_t carry = 0;
  for (uint32_t first = 0; first < ranks; first += block_size()) {
    const uint32_t r = first + thread_id();
    uint32_t total = 0;
    const uint32_t before = block_scan_exclusive(r < ranks ? words.rows[r] : 0u, scratch, &total);
    if (r < ranks) memory.recv_base()[r] = carry + before;
    carry += total;
  }
  if (thread_id() == 0) memory.recv_base()[ranks] = carry;
  return carry;
}

// Of an expert's rows in HT those that a dispatch may write. In FLAT a row serves an expert at most once.
UCCLEP_FN uint64_t rows_kept(const GroupShape& shape, Zones zones, uint64_t offset, uint64_t rows) {
  const uint64_t begin = zones == Zones::experts ? offset : 0;
  const uint64_t room = begin < shape.recv_rows ? shape.recv_rows - begin : 0;
  return rows < room ? rows : room;
}

// Lane verb: of `rows` those at or past the capacity are dropped, and somebody should know.
UCCLEP_FN void report_dropped(const Op& op, uint64_t rows, uint64_t capacity) {
  if (rows <= capacity) return;
  ErrorRecord record = record_of(op, ucclEpOverflow, Phase::capacity, -1);
  record.expected = rows;
  record.got = capacity;
  report_data(op.group.errors, record);
}

// A local expert's rows: where its zone or slab begins among them all, how many all sources have, and with padding.
template <class Number>
struct ExpertRows {
  uint32_t expert, count;
  Number offset, padded;
};

// What rows of all zones are counted by: in LL a slab holds R * B of them, in HT zones follow each other.
template <bool to_handle>
struct RowsOf {
  using Number = uint32_t;
};
template <>
struct RowsOf<true> {
  using Number = uint64_t;
};

// Lane verb: where each source's rows for an expert begin, and the expert's counters. counts: [R][L]. False: a counter
// holds less than was counted.
template <bool to_handle, class Number>
UCCLEP_FN bool place_expert(const Op& op, const HandleMemory& memory, const uint32_t* counts, Zones zones,
                            const CounterViews& out, const ExpertRows<Number>& rows) {
  const uint32_t local = memory.shape.local_experts(), ranks = memory.shape.ranks, l = rows.expert;
  constexpr uint32_t batch = 4;  // loads in flight: none goes ahead of a store that may be to the same place
  Number row = zones == Zones::experts ? rows.offset : 0;
  bool fits = true;
  for (uint32_t first = 0; first < ranks; first += batch) {
    uint32_t from[batch];
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) from[j] = first + j < ranks ? counts[(first + j) * local + l] : 0;
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) {
      if (first + j >= ranks) break;
      memory.expert_base(first + j)[l] = row_number(row);
      row += from[j];
      store_index(out.tokens_per_expert_rank, l, first + j, from[j]);
    }
  }
  const Number kept = to_handle ? rows_kept(memory.shape, zones, rows.offset, rows.padded) : rows.padded;
  const auto store = [&](const View& counter, Number value) {
    if constexpr (to_handle) {
      fits = store_count(counter, 0, l, value) && fits;
    } else {
      store_index(counter, 0, l, value);  // a slab has no more rows than memory
    }
  };
  store(out.tokens_per_expert, kept);
  store(out.tokens_per_expert_unpadded, rows.count);
  store(out.expert_offsets, rows.offset);
  if (out.cumulative.data) add_count(op, out.cumulative, l, rows.count);
  if constexpr (to_handle) {
    store_relaxed<Scope::system>(&out.host_counts->rows_of_experts()[l], static_cast<int64_t>(kept));
  }
  return fits;
}

// Block verb: the same for every local expert. Returns the rows of all zones.
template <bool to_handle>
UCCLEP_FN auto scan_experts(const Op& op, const HandleMemory& memory, const HeaderWords& words, Zones zones,
                            const CounterViews& out, uint32_t* scratch, bool& fits) {
  using Number = typename RowsOf<to_handle>::Number;
  const WarpUniform local = memory.shape.local_experts(), ranks = memory.shape.ranks;
  const WarpUniform alignment = zones == Zones::experts ? memory.handle.expert_alignment : 1;
  Number carry = 0;
  for (uint32_t first = 0; first < local; first += block_size()) {
    const uint32_t l = first + thread_id();
    uint32_t count = 0;
    if (l < local) {
      for (uint32_t s = 0; s < ranks; ++s) count += words.counts[s * local + l];
    }
    const auto padded = static_cast<Number>(round_up(count, alignment));
    Number total = 0;
    const Number offset = carry + block_scan_exclusive(padded, reinterpret_cast<Number*>(scratch), &total);
    carry += total;
    if (l >= local) continue;
    const ExpertRows<Number> rows{l, count, offset, padded};
    fits = place_expert<to_handle>(op, memory, words.counts, zones, out, rows) && fits;
  }
  if (thread_id() == 0 && out.num_expert_offsets > local) {
    fits = store_count(out.expert_offsets, 0, local, carry) && fits;
  }
  return carry;
}

// Verbs of the block that will publish_to_host: the host sees -1 until the count is there, on every replay too. When it
// sees the -1 of a replay, it also sees that the counts are about to change.
UCCLEP_FN void hide_total(const CounterViews& out) {
  if (thread_id() == 0 && out.recv_total_host) store_relaxed<Scope::system>(out.recv_total_host, int64_t{-1});
}
UCCLEP_FN void announce_update(const HandleMemory& memory, const CounterViews& out) {
  if (thread_id() == 0 && out.host_call == 0) {
    store_relaxed<Scope::system>(&out.host_counts->sequence, 2 * memory.state()->updates + 1);
    fence_acq_rel<Scope::system>();
  }
  hide_total(out);
}

// Verb of one thread, after the counters' stores: one release store makes the total known to the host. rows -1: ranks
// disagreed, nothing comes.
UCCLEP_FN void publish_total(const CounterViews& out, int64_t rows) {
  if (!out.recv_total_host) return;
  publish(reinterpret_cast<uint64_t*>(out.recv_total_host), static_cast<uint64_t>(rows < 0 ? 0 : rows));
}

// Block verb: that, and another one for the counts of an Update.
template <bool to_handle>
UCCLEP_FN void publish_to_host(const HandleMemory& memory, const CounterViews& out, int64_t rows) {
  sync_block();
  const uint32_t other_warp = block::warps() > 1 ? wave_size : 0;  // each waits for the host's memory
  if (thread_id() == other_warp) publish_total(out, rows);
  if constexpr (!to_handle) return;
  if (thread_id() != 0) return;
  const uint64_t updates = memory.state()->updates + 1;
  memory.state()->updates = updates;
  store_relaxed<Scope::system>(&out.host_counts->rows, rows);
  if (out.host_call != 0) store_relaxed<Scope::system>(&out.host_counts->call, out.host_call);
  publish(&out.host_counts->sequence, 2 * updates);
}

// Lane verb: the counter of rows of the output that one source fills: its rows, or their copies for the local experts,
// of which counts says how many.
UCCLEP_FN void count_source(const GroupShape& shape, Zones zones, const CounterViews& out, uint32_t source,
                            uint32_t rows, const uint32_t* counts) {
  if (!out.tokens_per_rank.data) return;
  uint32_t copies = 0;
  for (uint32_t l = 0; zones != Zones::sources && l < shape.local_experts(); ++l) copies += counts[l];
  store_index(out.tokens_per_rank, 0, source, zones == Zones::sources ? rows : copies);
}

// Verb of one thread: all rows of the output are counted, or ranks disagree.
UCCLEP_FN bool note_total(const HandleMemory& memory, const CounterViews& out, bool good, uint64_t rows) {
  memory.state()->rows = good ? row_number(rows) : 0;
  memory.state()->updated = good ? memory.handle.stamp : 0;
  return !good || store_count(out.recv_total, 0, 0, rows);
}

// Verb of one block, after receive_headers: the places of all rows in the output, and the counters. scratch:
// block_scratch numbers in shared memory. to_handle: HT, whose handle keeps counts for the host.
template <bool to_handle>
UCCLEP_FN void place_rows(const Op& op, const HandleMemory& memory, const HeaderWords& words, Zones zones,
                          const CounterViews& out, uint32_t* scratch) {
  bool good = true;
  for (uint32_t s = thread_id(); s < op.ranks(); s += block_size()) {
    good = good && words.forms[s] != settings_differ;
    count_source(memory.shape, zones, out, s, words.rows[s], words.counts + s * memory.shape.local_experts());
  }
  good = every_thread(good);
  typename RowsOf<to_handle>::Number rows = 0;
  bool fits = true;
  if (good) {
    const uint32_t by_source = scan_sources(memory, words, scratch);
    const auto by_expert = scan_experts<to_handle>(op, memory, words, zones, out, scratch, fits);
    rows = zones == Zones::sources ? by_source : by_expert;
  }
  if (thread_id() == 0) fits = note_total(memory, out, good, rows) && fits;
  if constexpr (to_handle) {
    const bool numbered = rows <= max_rows;
    if (!fits || (thread_id() == 0 && !numbered)) {
      report_excess(op.group.errors, op.name, op.seq, rows, numbered ? int32_most : max_rows);
    }
  }
  publish_to_host<to_handle>(memory, out, good ? static_cast<int64_t>(rows) : int64_t{-1});
}

}  // namespace UCCLEP_SIMT_NAMESPACE
