// SPDX-License-Identifier: Apache-2.0
// LL dispatch in BULK form, for operations too large for lines: a row goes by bulk stores into the dense place that
// counting gave it, and its epoch is published when it has been written.
//
// Floor: rows to peers * row bytes / link bandwidth, one fence and one flight of a flag.
#pragma once
#include <type_traits>

#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/routing.hpp"
#include "ucclep/device/ll/tables.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/wire.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

struct BulkPlace {
  char *meta, *row;
  bool active;  // else any addresses, to which nothing goes
};

// Where a row of `source` lands at a rank whose window is mapped here. index: by place or by token.
UCCLEP_FN BulkPlace landing_at(const Op& op, const WireShape& wire, uint32_t rank, uint32_t source, uint32_t index) {
  const WindowLayout& window = op.group.layout;
  char* const base = op.window(rank);
  return {base + window.ll_meta_of(op.slot, source) + uint64_t{index} * MetaLayout::of(op.group.shape.top_k).bytes,
          base + window.ll_rows_of(op.slot, source) + uint64_t{index} * wire.row_bytes, true};
}

// A row in BULK form that is under way: its epoch is published when it has arrived. A lane per destination.
struct Unpublished {
  char* epoch = nullptr;  // NULL: nothing

  // Warp verbs of a token that is being counted: its selections, before; where other tokens go, for each round of the
  // sets; before its meta line is built. (Those of a row to a node: ll/network.hpp.)
  UCCLEP_FN void choose(const LlDispatchArgs&, const Selection&) {}
  template <class Sets>
  UCCLEP_FN void add_before(const LlDispatchArgs&, const Sets&, uint32_t) {}
  UCCLEP_FN void write_places(const LlDispatchArgs&, char*, const Selection&) const {}

  // Warp verb: where the row goes.
  UCCLEP_FN BulkPlace begin(const Op& op, const LlDispatchArgs& args, const Selection& selection) {
    const bool sends = selection.sends();
    const uint32_t to = sends ? selection.rank : op.me(), place = sends ? selection.place : 0;
    const BulkPlace there = landing_at(op, args.source.wire, to, op.me(), place);
    if (sends) epoch = there.meta + MetaLayout::of(op.group.shape.top_k).epoch;
    return {there.meta, there.row, sends};
  }
  // Warp verb: what goes behind the body of a meta line.
  UCCLEP_FN void send_places(const LlDispatchArgs&, const BulkPlace&, const char*) const {}
  UCCLEP_FN void publish_all(const Op& op, const LlDispatchArgs&) {
    bulk_wait_written();
    if (epoch) publish(reinterpret_cast<uint64_t*>(epoch), op.seq);
    epoch = nullptr;
    sync_warp();  // the scratch is free for the next token
  }
};

// Warp verb: one token to all ranks that hold an expert of it.
template <class Row, class Out>
UCCLEP_FN void send_token(const Op& op, const LlDispatchArgs& args, Stage& stage, uint32_t token,
                          const Selection& selection, Out& unpublished) {
  const GroupShape& shape = op.group.shape;
  unpublished.write_places(args, stage.scratch(), selection);
  build_meta(shape, token, selection, weight_of(shape.top_k, args.topk_weights, token, selection), stage.scratch());
  const BulkPlace to = unpublished.begin(op, args, selection);
  bulk_store(to.active, to.meta, stage.scratch(), MetaLayout::of(shape.top_k).body_bytes());
  unpublished.send_places(args, to, stage.scratch());
  Row::send(stage, args.source, token, RowSink{to.active, to.row});
}

// Verb of the blocks that send: all tokens. A block goes through its rounds as one, since its warps share the sets.
template <class Row, class Out>
UCCLEP_FN void send_tokens(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage, LlSets& sets,
                           int64_t* bad) {
  Out unpublished;
  const WarpUniform tokens = args.routing.tokens;
  for (WarpUniform begin = 0; begin + job.block() < tokens; begin += job.warps()) {
    const LlDispatchArgs& here = reload(args);
    const WarpUniform token = begin + job.warp(), next = begin + job.warps();
    Selection selection{-1, 0, no_place, 0};
    if (token < tokens) {
      unpublished.publish_all(op, here);
      Row::fetch(stage, here.source, token);  // it arrives while the warp counts
      selection = begin_selection(here, token, bad);
      unpublished.choose(here, selection);
    }
    for (WarpUniform first = 0; first < next && first < tokens; first += sets.capacity) {
      sets.require(first, tokens, bad);
      if (token >= tokens) continue;
      sets.add_before(token, selection);
      unpublished.add_before(reload(args), sets, token);
    }
    if (token >= tokens) continue;
    const LlDispatchArgs& now = reload(args);
    keep_selection(memory_of(now), now.routing, token, selection);
    send_token<Row>(op.with(now.group), now, stage, token, selection, unpublished);
  }
  unpublished.publish_all(op, reload(args));
}

// Verb of the blocks that send, in waves: places are in their order, and rows leave in that of places. The first pass
// counts, and the handle keeps what it has found. Where a row goes to a node once, one pass sends all.
template <class Row, class Out>
UCCLEP_FN void send_tokens_in_waves(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage,
                                    LlSets& sets, int64_t* bad) {
  Out unpublished;
  const WarpUniform tokens = args.routing.tokens, waves = args.waves.of;
  const WarpUniform passes = args.settings.node_copies != 0 ? 1 : uint32_t{waves};
  for (WarpUniform pass = 0; pass < passes; pass += 1) {
    for (WarpUniform begin = 0; begin + job.block() < tokens; begin += job.warps()) {
      const LlDispatchArgs& here = reload(args);
      const WarpUniform token = begin + job.warp();
      const GroupShape& shape = here.group.shape;
      Selection selection{-1, 0, no_place, 0};
      if (token < tokens) {
        unpublished.publish_all(op, here);
        selection = pass == 0 ? begin_selection(here, token, bad) : selection_of(memory_of(here), token);
        if (pass == 0) unpublished.choose(here, selection);
      }
      if (pass == 0) {
        const uint32_t wave = lowest_wave(shape, selection, waves);
        for (WarpUniform first = 0; first < tokens; first += sets.capacity) {
          sets.require(first, tokens, bad);
          if (token >= tokens) continue;
          sets.add_in_waves(token, wave, waves, selection);
          unpublished.add_before(reload(args), sets, token);
        }
      }
      if (token >= tokens) continue;
      const LlDispatchArgs& now = reload(args);
      if (pass == 0) keep_selection(memory_of(now), now.routing, token, selection);
      const Selection sent = passes == 1 ? selection : of_wave(now.group.shape, selection, pass, waves);
      if (ballot(sent.sends()) == 0) continue;
      Row::fetch(stage, now.source, token);
      send_token<Row>(op.with(now.group), now, stage, token, sent, unpublished);
    }
  }
  unpublished.publish_all(op, reload(args));
}

// How rows in BULK form leave, and where they are when they have come. index: which row of the landing, by place or by
// token.
template <class Wire>
struct BulkPath;

template <>
struct BulkPath<ByWindows> {
  using Out = Unpublished;

  // Lane verb.
  static UCCLEP_FN bool wait(const Op& op, const LlDispatchArgs&, uint32_t source, uint32_t index) {
    const char* meta = op.mine() + op.group.layout.ll_meta_of(op.slot, source);
    const MetaLayout layout = MetaLayout::of(op.group.shape.top_k);
    return wait_word(op, Phase::rows, source, meta + uint64_t{index} * layout.bytes + layout.epoch);
  }
  // Warp verb: of a row that left before it was counted, which row of the landing it is. False: its header did not come
  // whole.
  static UCCLEP_FN bool find(const Op& op, const Inbox& inbox, uint32_t source, uint32_t place, WarpUniform& index) {
    index = inbox.find_token(op, source, place);
    return true;
  }
  // Warp verb: what the row says of lane k's selection, and besides it its header.
  static UCCLEP_FN ReceivedSelection selection(const Op& op, const Inbox&, const char* meta, uint32_t, uint32_t) {
    return read_meta(op.group.shape, meta);
  }
  static UCCLEP_FN BulkPlace landed(const Op& op, const LlDispatchArgs& args, uint32_t source, uint32_t index) {
    return landing_at(op, args.output.wire, op.me(), source, index);
  }
};

// Warp verb: a row in BULK form, from its landing slot to its experts. way: finds where a source's rows begin.
template <class Wire, class Way>
UCCLEP_FN bool expand_bulk(const Op& op, const LlDispatchArgs& args, Stage& stage, const WarpUniform& source,
                           const WarpUniform& place, const WarpUniform& index, Way&& way) {
  if (!every_lane(BulkPath<Wire>::wait(op, args, source, index))) return false;
  acquire_then_bulk();
  const LlDispatchArgs& now = reload(args);
  const auto [meta, row, active] = BulkPath<Wire>::landed(op.with(now.group), now, source, index);
  stage.fetch(row, now.output.wire.token_bytes);
  const Arrival arrival{source, place, meta_token(meta)};
  const Op same = op.with(now.group);
  const Inbox inbox = BlockTables::of(stage, now).inbox;
  ReceivedSelection selection = BulkPath<Wire>::selection(same, inbox, meta, source, place);
  if constexpr (std::remove_reference_t<Way>::by_arrival) way.arrange(same, now, arrival, selection);
  const uint32_t base = base_of(same, way, now.output, source, selection);
  const Target target = place_row(same, now.output, arrival, selection, base);
  note_row(same, memory_of(now), now.output, arrival, selection, target);
  deliver_row(stage, reload(args).output, row, target);
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
