// SPDX-License-Identifier: Apache-2.0
// LL dispatch: for decode, where latency counts. A row leaves as soon as it is read, once per destination rank, into
// the landing slot that follows from (seq, source, place), so nothing is negotiated; the receiver expands it to its
// experts.
//
// Steps of one rank, all blocks taking part (G: grid barrier):
//   route (G G, only if topk_idx comes with the dispatch) -> slots free -> headers out -> rows out
//   -> headers in -> G, places, G -> expand each row when its epoch is there -> end
// Floor: rows * row bytes / link bandwidth, plus one flag-in-data exchange.
//
// | a row travels as | its data                  | made visible by                                              |
// |------------------|---------------------------|--------------------------------------------------------------|
// | BULK             | bulk stores, then meta    | bulk_wait_written, publish of the meta's epoch (system       |
// |                  |                           |   release) -> load_acquire, acquire_then_bulk                |
// | LINE             | lines with epochs inside  | each line by itself                                          |
#pragma once
#include "ucclep/device/deliver.hpp"

namespace ucclep {

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;
  bool route_first;  // else the handle was updated before
  Settings settings;
  RowSource source;
  View topk_weights;  // f32 [T, K] or not given
  DispatchOutput output;
  CounterViews counters;
  uint32_t piece_bytes;
};

struct LlUpdateArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Lines of one row: its meta, then the row, each from the start of a line.
UCCLEP_FN uint64_t lines_per_row(const GroupShape& shape, const WireShape& wire) {
  return lines_of(shape, MetaLayout::of(shape.top_k).body_bytes()) + wire.row_lines(shape);
}

// P15: LINE when all rows of the operation could fit the LINE landing of one receiver, whatever the routing.
UCCLEP_FN Form form_of(const GroupShape& shape, const WireShape& wire, uint32_t tokens) {
  return tokens * lines_per_row(shape, wire) * line_bytes <= shape.line_capacity ? Form::line : Form::bulk;
}

// Warp verb: one token to all ranks that hold an expert of it.
template <class Row>
UCCLEP_FN void send_token(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage, Form form,
                          uint32_t token) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const Selection selection = selection_of(memory, token);
  const bool sends = selection.sends();
  if (every_lane(!sends)) return;

  char* const peer = sends ? op.window(selection.rank) : nullptr;
  build_meta(shape, args.topk_weights, token, selection, stage.scratch());
  if (form == Form::line) {
    const uint64_t row = uint64_t{selection.place} * lines_per_row(shape, args.source.wire) * line_bytes;
    char* lines = sends ? peer + window.ll_lines_of(shape, op.seq, op.me()) + row : nullptr;
    const uint64_t meta_lines = lines_of(shape, layout.body_bytes()) * line_bytes;
    RowSink{form, sends, lines, op.seq}.put(stage.scratch(), 0, layout.body_bytes(), 0, 0);
    Row::send(stage, args.source, token, RowSink{form, sends, sends ? lines + meta_lines : nullptr, op.seq});
    sync_warp();  // the scratch is free for the next token
    return;
  }
  const uint64_t place = selection.place;
  char* meta = sends ? peer + window.ll_meta_of(shape, op.seq, op.me()) + place * layout.bytes : nullptr;
  char* row = sends ? peer + window.ll_rows_of(shape, op.seq, op.me()) + place * args.source.wire.row_bytes : nullptr;
  bulk_store(sends, meta, stage.scratch(), layout.body_bytes());
  Row::send(stage, args.source, token, RowSink{form, sends, row, op.seq});
  bulk_wait_written();
  if (sends) publish(reinterpret_cast<uint64_t*>(meta + layout.epoch), op.seq);
  sync_warp();  // the scratch is free for the next token
}

// Warp verb: a row in BULK form, from its landing slot to its experts.
UCCLEP_FN bool expand_bulk(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                           uint32_t source, uint32_t place) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const char* meta = op.mine() + op.group.layout.ll_meta_of(shape, op.seq, source) + uint64_t{place} * layout.bytes;
  const char* row =
      op.mine() + op.group.layout.ll_rows_of(shape, op.seq, source) + uint64_t{place} * args.source.wire.row_bytes;
  if (!every_lane(wait_word(op, Phase::rows, source, meta + layout.epoch))) return false;
  acquire_then_bulk();
  const ReceivedSelection selection = read_meta(shape, meta);
  const Target target = place_row(op, memory, args.output, source, place, meta_token(meta), selection);
  deliver_row(stage, args.output, row, target);
  return true;
}

// Warp verb: a row in LINE form.
UCCLEP_FN bool expand_lines(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                            uint32_t source, uint32_t place) {
  const GroupShape& shape = op.group.shape;
  const WireShape& wire = args.source.wire;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const char* lines = op.mine() + op.group.layout.ll_lines_of(shape, op.seq, source) +
                      uint64_t{place} * lines_per_row(shape, wire) * line_bytes;
  char* meta = stage.scratch();
  if (!line_load(op, Phase::rows, source, meta, lines, layout.body_bytes())) return false;
  const ReceivedSelection selection = read_meta(shape, meta);
  const Target target = place_row(op, memory, args.output, source, place, meta_token(meta), selection);
  lines += lines_of(shape, layout.body_bytes()) * line_bytes;

  char* destination = target.active ? args.output.tokens.at(target.outer, target.inner) : nullptr;
  for (uint64_t offset = 0; offset < wire.token_bytes; offset += stage.piece_bytes()) {
    const uint64_t left = wire.token_bytes - offset;
    const auto bytes = static_cast<uint32_t>(left < stage.piece_bytes() ? left : stage.piece_bytes());
    bulk_wait_read();
    if (!line_load(op, Phase::rows, source, stage.slot(0), lines + offset / line_payload * line_bytes, bytes))
      return false;
    smem_to_bulk();
    bulk_store(target.active, destination + offset, stage.slot(0), bytes);
  }
  if (wire.scale_count > 0) {
    const uint32_t scales = wire.row_bytes - wire.token_bytes;
    bulk_wait_read();
    lines += lines_of(shape, wire.token_bytes) * line_bytes;
    if (!line_load(op, Phase::rows, source, stage.slot(0), lines, scales)) return false;
    store_scales(args.output, stage.slot(0), target);
  }
  sync_warp();  // scratch and slot are free for the next row
  return true;
}

// Grid verb: rows of all sources, the own ones first, as they arrive.
UCCLEP_FN bool expand_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage) {
  for (uint32_t i = 0; i < op.ranks(); ++i) {
    const uint32_t source = op.rotated(i);
    const uint32_t rows = uniform(memory.rows_from()[source]);
    const bool line = uniform(memory.forms_from()[source]) == static_cast<uint32_t>(Form::line);
    for (uint32_t place = grid_warp(); place < rows; place += grid_warps()) {
      const LlDispatchArgs& now = read_again(args);
      const bool ok = line ? expand_lines(op.with(now.group), memory_of(now), now, stage, source, place)
                           : expand_bulk(op.with(now.group), memory_of(now), now, stage, source, place);
      if (!ok) return false;
    }
  }
  bulk_wait_written();
  return true;
}

// Grid verb: entries of unused RANK_MAJOR rows.
UCCLEP_FN void mark_unused_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args) {
  if (!args.output.ranked) return;
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    mark_unused(args.output, source, memory.rows_from()[source], args.settings.top_k);
  }
}

// Grid verb: from everybody's headers to the rows in the output.
UCCLEP_FN bool receive_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage) {
  if (!every_thread(receive_headers(op, memory, args.settings, args.counters.wait_ns))) return false;
  if (!place_rows(op, memory, args.output.zones, args.counters)) return false;
  if (uniform(memory.state()->updated) == 0) return true;  // the settings differ: every rank ends without a row
  mark_unused_rows(op, memory, args);
  return expand_rows(op, memory, args, stage);
}

template <class Row>
UCCLEP_FN bool exchange_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage) {
  announce_update(args.counters);
  if (args.route_first && !route(op, memory, args.routing)) return false;
  if (!slots_free(op)) return false;
  const uint32_t tokens = uniform(memory.state()->tokens);
  const Form form = form_of(op.group.shape, args.source.wire, tokens);
  send_headers(op, memory, args.settings, form);
  for (uint32_t token = grid_warp(); token < tokens; token += grid_warps()) {
    const LlDispatchArgs& now = read_again(args);
    send_token<Row>(op.with(now.group), memory_of(now), now, stage, form, token);
  }
  bulk_wait_read();
  const LlDispatchArgs& now = read_again(args);
  return receive_rows(op.with(now.group), memory_of(now), now, stage);
}

// The whole operation. Block verb of every block of the grid.
template <class Row>
UCCLEP_FN void dispatch(const LlDispatchArgs& args) {
  const Op op = next_operation(args.group, Kind::dispatch, Operation::dispatch);
  const HandleMemory memory{args.handle, args.group.shape};
  Stage stage(args.piece_bytes);
  end_operation(op, exchange_rows<Row>(op, memory, args, stage));
}

// HandleUpdate: local, takes no sequence number.
UCCLEP_FN void update(const LlUpdateArgs& args) {
  const Op op{args.group, Kind::update, Operation::update, 0};
  route(op, HandleMemory{args.handle, args.group.shape}, args.routing);
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
