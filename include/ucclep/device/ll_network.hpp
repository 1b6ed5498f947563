// SPDX-License-Identifier: Apache-2.0
// LL between ranks of which some are reached by the network only. Their rows and partial rows are put together in this
// rank's window, where a row waits by destination and place, and a command for each tells the proxy threads, which send
// a chunk as one write when all its rows are there. All others travel in BULK form, as ever: a fence is nothing beside
// the network.
//
// Floor: rows to other domains * (meta + row bytes) / NIC bandwidth, a message's flight, and a proxy at both ends.
#pragma once
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/low_latency.hpp"
#include "ucclep/device/network.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

struct AcrossDomains {
  static constexpr bool bulk = true, by_token = false;
  using Wire = ByNetwork;
};

// A row under way: to peers by their windows, and into what the network takes. A lane per destination.
struct UnsentRow {
  char* epoch = nullptr;         // of a peer with a window; NULL: none
  uint32_t rank = 0, place = 0;  // of another peer, where row_bytes is not 0
  uint32_t row_bytes = 0;
  Parked failed = 0;  // pushes: nothing may be pushed any more

  UCCLEP_FN BulkPlace begin(const Op& op, const LlDispatchArgs& args, const Selection& selection) {
    const WindowLayout& window = op.group.layout;
    const MetaLayout layout = MetaLayout::of(op.group.shape.top_k);
    const bool sends = selection.sends();
    const uint32_t to = sends ? selection.rank : op.me();
    const uint64_t at = sends ? selection.place : 0;
    if (op.has_window(to)) {
      char* const peer = op.window(to);
      char* const meta = peer + window.ll_meta_of(op.slot, op.me()) + at * layout.bytes;
      if (sends) epoch = meta + layout.epoch;
      return {meta, peer + window.ll_rows_of(op.slot, op.me()) + at * args.source.wire.row_bytes};
    }
    rank = to;
    place = selection.place;
    row_bytes = static_cast<uint32_t>(network_row_bytes(op.group.shape, args.source.wire.row_bytes));
    char* const meta = op.mine() + window.out_rows_for(op.group.shape, op.slot, to) + at * row_bytes;
    return {meta, meta + layout.bytes};
  }
  UCCLEP_FN void publish_all(const Op& op) {
    bulk_wait_written();
    if (failed == 0 && ballot(row_bytes != 0) != 0) {
      failed += network::push_rows(op, row_bytes != 0, rank, place, 1, row_bytes) ? 0 : 1;
    }
    if (epoch) publish(reinterpret_cast<uint64_t*>(epoch), op.seq);
    epoch = nullptr;
    row_bytes = 0;
    sync_warp();  // the scratch is free for the next token
  }
};

template <>
struct BulkPath<ByNetwork> {
  using Out = UnsentRow;

  static UCCLEP_FN bool wait(const Op& op, uint32_t source, uint32_t place) {
    if (op.has_window(source)) return BulkPath<ByWindows>::wait(op, source, place);
    return network::wait_row(op, source, place);
  }
  static UCCLEP_FN BulkPlace landed(const Op& op, const WireShape& wire, uint32_t source, uint32_t place) {
    if (op.has_window(source)) return BulkPath<ByWindows>::landed(op, wire, source, place);
    const GroupShape& shape = op.group.shape;
    char* const meta =
        op.mine() + op.group.layout.ll_meta_of(op.slot, source) + place * network_row_bytes(shape, wire.row_bytes);
    return {meta, meta + MetaLayout::of(shape.top_k).bytes};
  }
};

}  // namespace ll

namespace combining {

template <>
struct CombinePath<ByNetwork> {
  // Weights that come with combine go with READY, by place: whether all ranks mean to send them shows when they are
  // there.
  static UCCLEP_FN bool begin(const Op& op, const HandleMemory& memory, const CombineArgs& args, bool updated) {
    for (uint32_t i = block_id(); i < op.ranks(); i += grid_size()) {
      const uint32_t peer = op.rotated(i);
      const bool remote = !op.has_window(peer), weights = remote && updated && args.settings.weights_at_combine != 0;
      Packet* const header = ByNetwork::header_for(op, peer);
      if (warp_id() == 0) store_header(op, header, args.settings, 0, Form::bulk, 0, nullptr);
      if (!remote) continue;
      if (weights) store_weights(op, memory, args, peer, header + HeaderLayout::counts);
      sync_block();
      const uint32_t rows = updated ? memory.rows_from()[peer] : 0;
      const uint32_t late = weights ? memory.rows_to()[peer] * weight_packets(op.group.shape) : 0;
      if (!every_thread(warp_id() != 0 ||
                        network::push_header(op, lane_id() == 0, peer, rows, HeaderLayout::counts + late)))
        return false;
    }
    return true;
  }

  // What only the network reaches comes first: a row each. To the windows of others while it flies, in parts.
  template <class Element, class Forms>
  static UCCLEP_FN bool send(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job,
                             Stage& stage) {
    Parked item = job.warp();
    for (Parked i = 0; i < 2 * op.ranks(); i += 1) {
      const bool by_window = i >= op.ranks();
      const Parked home = op.rotated(1 + i - (by_window ? op.ranks() : 0));
      if (op.has_window(home) != by_window) continue;
      const CombineArgs& here = read_again(args);
      const Parked parts = by_window ? bulk_parts(here.row_bytes) : 1, items = memory.rows_from()[home] * parts;
      for (; item < items; item += job.warps()) {
        const CombineArgs& now = read_again(args);
        if (!send_part<Element>(op.with(now.group), memory_of(now), now, stage, home, item / parts, item % parts))
          return false;
      }
      item -= items;
    }
    return true;
  }

  static UCCLEP_FN void give_up(const Op& op, const HandleMemory& memory, const CombineArgs& args) {
    for (uint32_t home = grid_warp(); home < op.ranks(); home += grid_warps()) {
      if (op.has_window(home)) continue;
      if (!network::push_as_they_are(op, home, memory.rows_from()[home], args.row_bytes)) return;
    }
  }

 private:
  // Block verb: those of all tokens that have a row at `peer`.
  static UCCLEP_FN void store_weights(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t peer,
                                      Packet* to) {
    const uint32_t packets = weight_packets(op.group.shape), tokens = uniform(memory.state()->tokens);
    for (uint32_t token = warp_id(); token < tokens; token += block::warps()) {
      const Selection selection = selection_of(memory, token);
      const uint64_t pair = weight_pair(memory, args, token);
      const uint64_t sends = ballot(selection.sends() && selection.rank == peer);
      if (sends == 0) continue;
      const uint32_t place = broadcast(selection.place, first_lane(sends));
      if (lane_id() < packets) store_packet(to + uint64_t{place} * packets + lane_id(), pair, op.seq);
    }
  }

  // Warp verb: a part of a partial row into the home's window, or the whole of it for the network.
  template <class Element>
  static UCCLEP_FN bool send_part(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                                  uint32_t home, uint32_t place, uint32_t part) {
    const WindowLayout& window = op.group.layout;
    const bool by_window = op.has_window(home);
    char* const rows = by_window ? op.window(home) + window.back_rows_of(op.slot, op.me())
                                 : op.mine() + window.out_back_for(op.group.shape, op.slot, home);
    char* const to = rows + uint64_t{place} * args.row_bytes;
    const bool as_it_stands = args.zones == Zones::sources;  // the caller's row is the partial row
    const char* row = as_it_stands ? args.tokens.at(args.ranked ? home : 0, place) : nullptr;
    Terms terms = Terms::in(stage.scratch());
    if (!as_it_stands && !gather_copies<ByNetwork>(op, memory, args, home, place, terms)) return false;
    const uint32_t all = line_batches(args.row_bytes), of_part = ll_part_bytes / line_batch_bytes;
    const uint32_t from = part * of_part;
    const BatchRange range{from, by_window && all - from > of_part ? from + of_part : all};
    const auto write = [&](uint32_t index, const LineBatch& batch) {
      batch.write(to + index * line_batch_bytes, batch_length(args.row_bytes, index));
    };
    if (as_it_stands) {
      copy_batches<ll::AcrossDomains>(row, args.row_bytes, range, write);
    } else {
      sum_batches<Element>(CopyTerms<ll::AcrossDomains>{terms, args.row_bytes}, range,
                           [&](uint32_t index, const BatchSum<Element>& sum) { write(index, sum.rounded()); });
    }
    if (!by_window) return network::push_rows(op, lane_id() == 0, home, place, 1, args.row_bytes);
    sync_warp();
    auto* words = reinterpret_cast<uint64_t*>(op.window(home) + window.back_epochs_of(op.slot, op.me()));
    if (lane_id() == 0) publish(words + place * bulk_parts(args.row_bytes) + part, op.seq);
    return true;
  }
};

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
