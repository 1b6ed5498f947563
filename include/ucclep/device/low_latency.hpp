// SPDX-License-Identifier: Apache-2.0
// LL dispatch: for decode, where latency counts. A row leaves as soon as it is read, once per destination rank, into
// the landing slot that follows from (seq, source, place), so nothing is negotiated; the receiver expands it to its
// experts.
//
// Steps of one rank, all blocks taking part, without a barrier between them:
//   slots free -> count, headers out -> count, rows out -> headers in -> expand each row when its epoch is there -> end
// Floor: rows * row bytes / link bandwidth, plus one flag-in-data exchange.
//
// | a row travels as | its data                  | made visible by                                              |
// |------------------|---------------------------|--------------------------------------------------------------|
// | BULK             | bulk stores, then meta    | bulk_wait_written, publish of the meta's epoch (system       |
// |                  |                           |   release) -> load_acquire, acquire_then_bulk                |
// | LINE             | lines with epochs inside  | each line by itself                                          |
#pragma once
#include "ucclep/device/deliver.hpp"
#include "ucclep/device/ll_routing.hpp"

namespace ucclep {

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;  // of this call, or what the Update left in the handle
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

// A row in BULK form that is under way: its epoch is published when it has arrived. A lane per destination.
struct Unpublished {
  char* epoch = nullptr;  // NULL: nothing

  UCCLEP_FN void publish_all(const Op& op) {
    bulk_wait_written();
    if (epoch) publish(reinterpret_cast<uint64_t*>(epoch), op.seq);
    epoch = nullptr;
    sync_warp();  // the scratch is free for the next token
  }
};

// Warp verb: one token to all ranks that hold an expert of it.
template <class Row>
UCCLEP_FN void send_token(const Op& op, const LlDispatchArgs& args, Stage& stage, Form form, uint32_t token,
                          const Selection& selection, Unpublished& unpublished) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const bool sends = selection.sends();
  char* const peer = op.window(sends ? selection.rank : op.me());
  const uint64_t place = sends ? selection.place : 0;
  build_meta(shape, args.topk_weights, token, selection, stage.scratch());
  if (form == Form::line) {
    const uint64_t row = place * lines_per_row(shape, args.source.wire) * line_bytes;
    char* lines = peer + window.ll_lines_of(op.slot, op.me()) + row;
    const uint64_t meta_lines = lines_of(shape, layout.body_bytes()) * line_bytes;
    RowSink{form, sends, lines, op.seq}.put(stage.scratch(), 0, layout.body_bytes(), 0, 0);
    Row::send(stage, args.source, token, RowSink{form, sends, lines + meta_lines, op.seq});
    return;
  }
  char* meta = peer + window.ll_meta_of(op.slot, op.me()) + place * layout.bytes;
  char* row = peer + window.ll_rows_of(op.slot, op.me()) + place * args.source.wire.row_bytes;
  bulk_store(sends, meta, stage.scratch(), layout.body_bytes());
  Row::send(stage, args.source, token, RowSink{form, sends, row, op.seq});
  if (sends) unpublished.epoch = meta + layout.epoch;
}

// Block verb: the header for every peer that this block is in charge of. These are the blocks that get tokens last.
UCCLEP_FN void send_headers(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Tile& tile, Form form,
                            int64_t* bad) {
  for (uint32_t i = grid_size() - 1 - block_id(); i < op.ranks(); i += grid_size()) {
    const uint32_t peer = op.rotated(i);
    count_for_peer(memory, tile, peer, bad);
    if (warp_id() != 0) continue;
    const uint32_t* counts = memory.counts_to() + uint64_t{peer} * op.group.shape.local_experts();
    send_header(op, peer, args.settings, memory.rows_to()[peer], form, args.routing.tokens, counts);
  }
}

// Grid verb: all tokens. A block goes through its rounds as one, since its warps share the tile.
template <class Row>
UCCLEP_FN void send_tokens(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                           Tile& tile, const BlockCounts& counts, Form form, Unpublished& unpublished, int64_t* bad) {
  const uint32_t tokens = args.routing.tokens;
  for (Parked begin = 0; begin + block_id() < tokens; begin += grid_warps()) {
    const uint32_t token = begin + grid_warp();
    const uint32_t last = begin + grid_warps() < tokens ? begin + grid_warps() : tokens;
    Selection selection{-1, 0, no_place, 0};
    if (token < tokens) {
      unpublished.publish_all(op);
      Row::fetch(stage, args.source, token);  // it arrives while the warp counts
      selection = begin_selection(op.group.shape, args.routing, token, bad);
    }
    counts.begin(selection);
    sync_block();
    for (Parked first = 0; first < last; first += tile.capacity()) {
      tile.require(first, bad);
      Parked mine = begin + block_id();
      for (Parked owner = 0; owner < block::warps() && mine < tokens; owner += 1, mine += grid_size()) {
        count_before(tile, counts, owner, mine);
      }
    }
    sync_block();
    if (token >= tokens) continue;
    counts.end(selection);
    keep_selection(memory, args.routing, token, selection);
    const LlDispatchArgs& now = read_again(args);
    send_token<Row>(op.with(now.group), now, stage, form, token, selection, unpublished);
  }
}

// Lane verb: the first row of `source` in the slab of a local expert: what sources below it have for that expert, from
// their headers. False: a header did not come.
UCCLEP_FN bool slab_base(const Op& op, uint32_t source, uint32_t expert, uint32_t& base) {
  constexpr uint32_t batch = 4;  // loads in flight
  const uint32_t packet = HeaderLayout::counts + expert / 2, shift = 32 * (expert % 2);
  bool ok = true;
  base = 0;
  for (uint32_t first = 0; first < source && ok; first += batch) {
    Packet seen[batch];
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) {
      seen[j] = load_packet(header_packets(op, op.me(), first + j < source ? first + j : first) + packet);
    }
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) {
      if (first + j >= source) continue;
      uint64_t value = seen[j].value;
      if (seen[j].epoch != op.seq) {
        ok = ok && wait_packet(op, Phase::header, first + j, header_packets(op, op.me(), first + j) + packet, value);
      }
      base += static_cast<uint32_t>(value >> shift);
    }
  }
  return ok;
}

// Warp verb: where a row goes, in the layouts of LL.
UCCLEP_FN bool target_of(const Op& op, const HandleMemory& memory, const DispatchOutput& out, const Arrival& arrival,
                         const ReceivedSelection& selection, Target& target) {
  uint32_t base = 0, expert = 0;
  bool ok = true;
  if (out.zones == Zones::slabs && is_mine(op, selection, expert)) ok = slab_base(op, arrival.source, expert, base);
  if (!every_lane(ok)) return false;
  target = place_row(op, memory, out, arrival, selection, base);
  return true;
}

// Warp verb: a row in BULK form, from its landing slot to its experts.
UCCLEP_FN bool expand_bulk(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                           uint32_t source, uint32_t place) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const char* meta = op.mine() + op.group.layout.ll_meta_of(op.slot, source) + uint64_t{place} * layout.bytes;
  const char* row =
      op.mine() + op.group.layout.ll_rows_of(op.slot, source) + uint64_t{place} * args.source.wire.row_bytes;
  if (!every_lane(wait_word(op, Phase::rows, source, meta + layout.epoch))) return false;
  acquire_then_bulk();
  stage.fetch(row, args.output.wire.token_bytes);
  Target target{};
  const Arrival arrival{source, place, meta_token(meta)};
  const bool placed = target_of(op, memory, args.output, arrival, read_meta(shape, meta), target);
  deliver_row(stage, args.output, row, target);
  return placed;
}

// Warp verb: a row in LINE form.
UCCLEP_FN bool expand_lines(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                            uint32_t source, uint32_t place) {
  const GroupShape& shape = op.group.shape;
  const WireShape& wire = args.source.wire;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const char* lines = op.mine() + op.group.layout.ll_lines_of(op.slot, source) +
                      uint64_t{place} * lines_per_row(shape, wire) * line_bytes;
  char* meta = stage.scratch();
  if (!line_load(op, Phase::rows, source, meta, lines, layout.body_bytes())) return false;
  Target target{};
  const Arrival arrival{source, place, meta_token(meta)};
  if (!target_of(op, memory, args.output, arrival, read_meta(shape, meta), target)) return false;
  lines += lines_of(shape, layout.body_bytes()) * line_bytes;

  char* destination = target.active ? args.output.tokens.at(target.outer, target.inner) : stage.scratch();
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

// Grid verb: rows of all sources, the own ones first, as they arrive. Warps that have sent are the last to get one.
UCCLEP_FN bool expand_rows(const Op& op, const LlDispatchArgs& args, Stage& stage, const HeaderFacts* facts) {
  Parked place = grid_warp();
  while (place < args.routing.tokens) place += grid_warps();
  place -= args.routing.tokens;
  for (Parked i = 0; i < op.ranks(); i += 1) {
    const Parked source = op.rotated(i), rows = facts[source].rows, form = static_cast<uint32_t>(facts[source].form);
    for (; place < rows; place += grid_warps()) {
      const LlDispatchArgs& now = read_again(args);
      const bool line = form == static_cast<uint32_t>(Form::line);
      const bool ok = line ? expand_lines(op.with(now.group), memory_of(now), now, stage, source, place)
                           : expand_bulk(op.with(now.group), memory_of(now), now, stage, source, place);
      if (!ok) return false;
    }
    place -= rows;
  }
  bulk_wait_written();
  return true;
}

// Grid verb: entries of unused RANK_MAJOR rows.
UCCLEP_FN void mark_unused_rows(const Op& op, const LlDispatchArgs& args, const HeaderFacts* facts) {
  if (!args.output.ranked) return;
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    mark_unused(args.output, source, facts[source].rows, args.output.top_k);
  }
}

// The block that counts what arrives: the last, which has no token to send unless there are many.
UCCLEP_FN bool counts_here() {
  return block_id() == grid_size() - 1;
}

// Verb of that block: the counters of the caller, and the counts that combine needs.
UCCLEP_FN bool count_arrivals(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, uint32_t* scratch) {
  if (thread_id() == 0) {
    memory.state()->tokens = args.routing.tokens;
    memory.state()->top_k = args.routing.top_k;
  }
  const bool complete = receive_headers(op, memory, args.settings, View{}, {warp_id(), block::warps()});
  if (!every_thread(complete)) return false;
  place_rows(op, memory, args.output.zones, args.counters, scratch);
  return true;
}

// What a block shares besides the stages of its warps.
struct BlockTables {
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape, uint32_t top_k) {
    return TileShape::of(top_k).bytes(top_k) + round_up(sizeof(HeaderFacts) * uint64_t{shape.ranks}, 16) +
           sizeof(uint32_t) * most_warps + BlockCounts::bytes(most_warps, top_k);
  }
  static constexpr uint32_t most_warps = 16;  // of a block, on any device: the host computes bytes for all of them
  static_assert(block_scratch <= most_warps);
  uint16_t* ids;
  HeaderFacts* facts;
  uint32_t* scratch;  // [most_warps]
  BlockCounts counts;

  static UCCLEP_FN BlockTables at(char* base, const GroupShape& shape, uint32_t top_k) {
    char* facts = base + TileShape::of(top_k).bytes(top_k);
    char* scratch = facts + round_up(sizeof(HeaderFacts) * uint64_t{shape.ranks}, 16);
    return {reinterpret_cast<uint16_t*>(base), reinterpret_cast<HeaderFacts*>(facts),
            reinterpret_cast<uint32_t*>(scratch),
            BlockCounts::at(scratch + sizeof(uint32_t) * most_warps, most_warps, top_k)};
  }
};

// Grid verb: from everybody's headers to the rows in the output.
UCCLEP_FN bool receive_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage,
                            const BlockTables& tables, Unpublished& unpublished) {
  const HeaderResult ready = ready_in(op, args.settings, args.counters.wait_ns, tables.facts);
  unpublished.publish_all(op);
  if (ready == HeaderResult::lost) return false;
  if (counts_here() && !count_arrivals(op, memory, args, tables.scratch)) return false;
  if (ready == HeaderResult::differs) return true;  // every rank ends without a row
  mark_unused_rows(op, args, tables.facts);
  return expand_rows(op, args, stage, tables.facts);
}

template <class Row>
UCCLEP_FN bool exchange_rows(const Op& op, const HandleMemory& memory, const LlDispatchArgs& args, Stage& stage) {
  if (counts_here()) announce_update(args.counters);
  if (!slots_free(op)) return false;
  const BlockTables tables = BlockTables::at(stage.beyond(), op.group.shape, args.routing.top_k);
  Tile tile{op.group.shape, args.routing, tables.ids};
  Unpublished unpublished;
  int64_t bad = no_bad_id;
  const Form form = form_of(op.group.shape, args.source.wire, args.routing.tokens);
  send_headers(op, memory, args, tile, form, &bad);
  send_tokens<Row>(op, memory, args, stage, tile, tables.counts, form, unpublished, &bad);
  report_bad_id(op, bad);
  const LlDispatchArgs& now = read_again(args);
  return receive_rows(op.with(now.group), memory_of(now), now, stage, tables, unpublished);
}

// The whole operation. Block verb of every block of the grid.
template <class Row>
UCCLEP_FN void dispatch(const LlDispatchArgs& args) {
  const Op op = next_operation(args.group, Kind::dispatch, Operation::dispatch);
  const HandleMemory memory{args.handle, args.group.shape};
  Stage stage(args.piece_bytes);
  end_operation(op, exchange_rows<Row>(op, memory, args, stage));
}

// HandleUpdate: local, takes no sequence number. Keeps the checked ids; what follows from them the dispatch counts.
UCCLEP_FN void update(const LlUpdateArgs& args) {
  const Op op{args.group, Kind::update, Operation::update, 0, 0};
  const HandleMemory memory{args.handle, args.group.shape};
  int64_t bad = no_bad_id;
  for (uint32_t token = grid_warp(); token < args.routing.tokens; token += grid_warps()) {
    keep_selection(memory, args.routing, token, begin_selection(args.group.shape, args.routing, token, &bad));
  }
  report_bad_id(op, bad);
  if (block_id() != 0 || thread_id() != 0) return;
  memory.state()->tokens = args.routing.tokens;
  memory.state()->top_k = args.routing.top_k;
  memory.state()->updated = 1;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
