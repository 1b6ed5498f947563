// SPDX-License-Identifier: Apache-2.0
// HT: for training and prefill, where bandwidth counts. HandleUpdate routes and exchanges counts, so every row has its
// final place before anything moves. Dispatch stages the rank's own rows, each once, in its window, and every rank
// pulls its rows from there straight into the caller's tensor: a row crosses each link once, and is written once at the
// far side.
//
//   update:    slots free -> route G G -> headers out -> headers in -> G, places, G -> end
//   dispatch:  slots free -> READY headers out -> stage the first round of own chunks -> READY headers in -> pads
//              -> round by round: stage the next round, pull this one, peers in rotated order -> end
// Floor of dispatch: rows from peers * row bytes / link bandwidth. No barrier between ranks; one between blocks.
//
// clang-format off
// | who releases                                    | who acquires                       | what is ordered          |
// |-------------------------------------------------|------------------------------------|--------------------------|
// | publish of a chunk's staged word in every       | wait_word, then sync_block and     | rows, meta, order of the |
// |   peer's window, after bulk_wait_written by     |   acquire_then_bulk                |   chunk before the pull  |
// |   each warp and sync_block                      |                                    |                          |
// clang-format on
#pragma once
#include "ucclep/device/deliver.hpp"

namespace ucclep {

struct HtUpdateArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;
  Settings settings;
  Zones zones;
  CounterViews counters;
};

struct HtDispatchArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  Settings settings;
  RowSource source;
  View topk_weights;
  DispatchOutput output;
  View cumulative;  // int32 [L], added to
  View wait_ns;     // int64 [R], added to
  uint32_t piece_bytes;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

UCCLEP_FN bool exchange_counts(const Op& op, const HandleMemory& memory, const HtUpdateArgs& args) {
  if (block_id() == 0) announce_update(args.counters);
  if (!slots_free(op)) return false;
  if (!route(op, memory, args.routing)) return false;
  send_headers(op, memory, args.settings, Form::bulk);
  const bool complete = receive_headers(op, memory, args.settings, View{}, {grid_warp(), grid_warps()});
  if (!every_thread(complete) || !sync_grid(op)) return false;
  // The rest is for the launches that follow.
  auto* scratch = static_cast<uint32_t*>(shared_memory());
  if (block_id() == 0) place_rows(op, memory, args.zones, args.counters, scratch);
  return true;
}

UCCLEP_FN void update(const HtUpdateArgs& args) {
  const Op op = next_operation(args.group, Kind::update, Operation::update);
  end_operation(op, exchange_counts(op, HandleMemory{args.handle, args.group.shape}, args));
}

// Warp verb: one own token into staging, and its number into the order of every rank that gets it.
template <class Row>
UCCLEP_FN void stage_token(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                           uint32_t token) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  Row::fetch(stage, args.source, token);
  const Selection selection = selection_of(memory, token);
  if (selection.sends()) {
    auto* order = reinterpret_cast<uint32_t*>(op.mine() + window.ht_order_of(shape, op.slot, selection.rank));
    order[selection.place] = token;
  }
  const bool first = lane_id() == 0;
  char* meta = op.mine() + window.ht_meta_of(op.slot) + uint64_t{token} * layout.bytes;
  char* row = op.mine() + window.ht_rows_of(op.slot) + uint64_t{token} * args.source.wire.row_bytes;
  build_meta(shape, args.topk_weights, token, selection, stage.scratch());
  bulk_store(first, meta, stage.scratch(), layout.body_bytes());
  Row::send(stage, args.source, token, RowSink{Form::bulk, first, row, op.seq});
  bulk_wait_read();  // the scratch is free for the next token
}

// Places of one destination that a chunk's rows have.
struct PlaceRange {
  uint32_t begin, end;
};

UCCLEP_FN PlaceRange* place_range(const Op& op, uint32_t owner, uint32_t destination, uint32_t chunk) {
  const uint64_t at = op.group.layout.ht_range_of(op.group.shape, op.slot, destination, chunk);
  return reinterpret_cast<PlaceRange*>(op.window(owner) + at);
}

// Block verb.
UCCLEP_FN void store_ranges(const Op& op, const HandleMemory& memory, uint32_t chunk, bool last) {
  for (uint32_t r = thread_id(); r < op.ranks(); r += block_size()) {
    const uint32_t end = last ? memory.rows_to()[r] : memory.chunk(chunk + 1)[r];
    *place_range(op, op.me(), r, chunk) = {memory.chunk(chunk)[r], end};
  }
}

// Block verb: stages one chunk of own tokens, and says so to every peer.
template <class Row>
UCCLEP_FN void stage_chunk(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                           uint32_t chunk) {
  const uint32_t tokens = uniform(memory.state()->tokens);
  const auto chunks = static_cast<uint32_t>(ceil_div(tokens, chunk_tokens));
  if (chunk >= chunks) return;
  const uint32_t begin = chunk * chunk_tokens;
  const uint32_t end = begin + chunk_tokens < tokens ? begin + chunk_tokens : tokens;
  for (uint32_t t = begin + warp_id(); t < end; t += block::warps()) {
    const HtDispatchArgs& now = read_again(args);
    stage_token<Row>(op.with(now.group), memory_of(now), now, stage, t);
  }
  store_ranges(op, memory, chunk, chunk + 1 == chunks);
  bulk_wait_written();
  sync_block();
  for (uint32_t i = thread_id(); i < op.ranks(); i += block_size()) {
    const uint32_t peer = op.rotated(i);
    const uint64_t word = op.group.layout.staged_word(op.group.shape, op.slot, op.me(), chunk);
    publish(reinterpret_cast<uint64_t*>(op.window(peer) + word), op.seq);
  }
}

// Warp verb: one row from a source's staging into the output.
UCCLEP_FN void pull_row(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        uint32_t source, uint32_t place, uint32_t token) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const char* from = op.window(source);
  const char* meta = from + window.ht_meta_of(op.slot) + uint64_t{token} * MetaLayout::of(shape.top_k).bytes;
  const char* row = from + window.ht_rows_of(op.slot) + uint64_t{token} * args.output.wire.row_bytes;
  stage.fetch(row, args.output.wire.token_bytes);
  const ReceivedSelection selection = read_meta(shape, meta);
  uint32_t base = 0, expert = 0;
  if (args.output.zones == Zones::sources) {
    base = memory.recv_base()[source];
  } else if (is_mine(op, selection, expert)) {
    base = memory.expert_base(source)[expert];
  }
  const Target target = place_row(op, memory, args.output, {source, place, token}, selection, base);
  deliver_row(stage, args.output, row, target);
}

// Block verb: this rank's rows in one chunk of one source.
UCCLEP_FN bool pull_chunk(const Op& op, const HtDispatchArgs& args, Stage& stage, uint32_t source, uint32_t chunk) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const char* staged = op.mine() + window.staged_word(shape, op.slot, source, chunk);
  bool ok = true;
  if (thread_id() == 0) ok = wait_word(op, Phase::staging, source, staged);
  if (!every_thread(ok)) return false;
  acquire_then_bulk();
  const PlaceRange range = *place_range(op, source, op.me(), chunk);
  const auto* order =
      reinterpret_cast<const uint32_t*>(op.window(source) + window.ht_order_of(shape, op.slot, op.me()));
  const uint32_t end = uniform(range.end);
  for (uint32_t place = uniform(range.begin) + warp_id(); place < end; place += block::warps()) {
    const HtDispatchArgs& now = read_again(args);
    pull_row(op.with(now.group), memory_of(now), now, stage, source, place, order[place]);
  }
  return true;
}

// Grid verb: pulls the chunks of all sources, and stages the own ones one round ahead: round r is chunks r * grid to
// (r + 1) * grid - 1, one for each block to stage. A block stages round r + 1 before it waits for round r of anybody,
// so the rank that is furthest behind never waits, also where ranks have grids of different sizes.
template <class Row>
UCCLEP_FN bool move_chunks(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage) {
  uint32_t most = 0;
  for (uint32_t s = 0; s < op.ranks(); ++s) {
    const uint32_t tokens = uniform(memory.tokens_from()[s]);
    most = tokens > most ? tokens : most;
  }
  const Parked chunks = static_cast<uint32_t>(ceil_div(most, chunk_tokens));
  for (Parked first = 0; first < chunks; first += grid_size()) {
    const HtDispatchArgs& now = read_again(args);
    stage_chunk<Row>(op.with(now.group), memory_of(now), now, stage, first + grid_size() + block_id());
    // The chunk of that number from every source, the own rank first: early chunks of all, since those are there.
    for (Parked i = 0; i < op.ranks(); i += 1) {
      const uint32_t source = op.rotated(i), chunk = first + block_id();
      if (chunk >= ceil_div(uniform(memory.tokens_from()[source]), chunk_tokens)) continue;
      const HtDispatchArgs& again = read_again(args);
      if (!pull_chunk(op.with(again.group), again, stage, source, chunk)) return false;
    }
  }
  bulk_wait_written();
  return true;
}

// Warp verb: a row of zeros that pads a zone.
UCCLEP_FN void zero_row(const DispatchOutput& out, int64_t row) {
  char* tokens = out.tokens.at(0, row);
  for (uint32_t b = lane_id() * 16; b < out.wire.token_bytes; b += wave_size * 16) store16(tokens + b, vec16{});
  for (uint32_t e = lane_id(); e < out.wire.scale_count; e += wave_size) {
    char* scale = out.scales.at(0, row, e);
    for (uint32_t i = 0; i < out.wire.scale_element_bytes; ++i) scale[i] = 0;
  }
  if (lane_id() != 0) return;
  if (out.topk_weights.data) *reinterpret_cast<float*>(out.topk_weights.at(0, row)) = 0.0f;
  View info = out.src_info;
  if (!info.data) return;
  info.data = info.at(0, row);
  store_index(info, 0, 0, -1);
}

// Grid verb: what lies between a zone's last row and its padded end.
UCCLEP_FN void zero_pads(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args) {
  const uint32_t local = op.group.shape.local_experts(), last = op.ranks() - 1;
  for (uint32_t l = grid_warp(); l < local; l += grid_warps()) {
    const uint64_t end = memory.expert_base(last)[l] + uint64_t{memory.counts_from(last)[l]};
    const uint64_t begin = memory.expert_base(0)[l];
    const uint64_t padded = begin + round_up(end - begin, memory.handle.expert_alignment);
    for (uint64_t row = end; row < padded && row < args.output.capacity; ++row)
      zero_row(args.output, static_cast<int64_t>(row));
  }
}

// Rows at or past the capacity are dropped, and somebody should know.
UCCLEP_FN void check_capacity(const Op& op, const HandleMemory& memory, const DispatchOutput& out) {
  if (block_id() != 0 || thread_id() != 0 || memory.state()->rows <= out.capacity) return;
  ErrorRecord record = record_of(op, ucclEpOverflow, Phase::capacity, -1);
  record.expected = memory.state()->rows;
  record.got = out.capacity;
  report_data(op.group.errors, record);
}

// Grid verb: adds the rows of this dispatch to the caller's statistics.
UCCLEP_FN void count_rows(const Op& op, const HandleMemory& memory, const View& cumulative) {
  if (!cumulative.data || block_id() != 0) return;
  for (uint32_t l = thread_id(); l < op.group.shape.local_experts(); l += block_size()) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < op.ranks(); ++s) count += memory.counts_from(s)[l];
    *reinterpret_cast<int32_t*>(cumulative.at(0, 0, l)) += static_cast<int32_t>(count);
  }
}

template <class Row>
UCCLEP_FN bool exchange_rows(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage) {
  if (!slots_free(op)) return false;
  ready_out(op, args.settings);
  const bool updated = uniform(memory.state()->updated) != 0;
  if (updated) stage_chunk<Row>(op, memory, args, stage, block_id());
  const HeaderResult ready = ready_in(op, args.settings, args.wait_ns);
  if (ready == HeaderResult::lost) return false;
  if (ready == HeaderResult::differs || !updated) return true;  // every rank ends without a row
  check_capacity(op, memory, args.output);
  count_rows(op, memory, args.cumulative);
  if (args.output.zones == Zones::experts) zero_pads(op, memory, args);
  mark_unused(args.output, 0, memory.state()->rows, args.settings.top_k);
  return move_chunks<Row>(op, memory, args, stage);
}

template <class Row>
UCCLEP_FN void dispatch(const HtDispatchArgs& args) {
  const Op op = next_operation(args.group, Kind::dispatch, Operation::dispatch);
  const HandleMemory memory{args.handle, args.group.shape};
  Stage stage(args.piece_bytes);
  end_operation(op, exchange_rows<Row>(op, memory, args, stage));
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
