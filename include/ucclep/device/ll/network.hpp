// SPDX-License-Identifier: Apache-2.0
// LL between ranks of which some are reached by the network only. Their rows and partial rows are put together in this
// rank's window of the network, where a row waits by destination and place, and a command for each tells the proxy
// threads, which send a chunk as one write when all its rows are there. All others travel in BULK form, as ever: a
// fence is nothing beside the network.
//
// For a GPU that window may be across the bus. So rows go there as whole lines, and come from there by bulk copies,
// several of a warp under way, each row once.
//
// Rows of a dispatch go to each rank, or to each node once (ll/relay.hpp): as the group's cost rule says, the same way
// on all ranks (src/host/ll_copies.hpp).
//
// A user's kernel may send rows before they are counted (ll_dispatch.hpp): they leave as they are sent, and the
// header says behind its counts where they are.
//
// Floor: rows to other domains * (meta + row bytes) / NIC bandwidth, a message's flight, and a proxy at both ends.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/bulk.hpp"
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/relay.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/reduce.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

struct AcrossDomains {
  static constexpr bool bulk = true, by_token = false, in_waves = false;
  using Wire = ByNetwork;
};

// A row under way: to peers by their windows, and into what the network takes, for ranks or for nodes. A lane per
// destination.
struct OutgoingRow {
  char* epoch = nullptr;                          // of a peer with a window; NULL: none
  uint32_t rank = NodeTable::no_rank, place = 0;  // of another peer, where row_bytes is not 0
  uint32_t row_bytes = 0;
  WarpUniform failed = 0;  // pushes: nothing may be pushed any more

  // Where rows go to nodes: a lane whose selection is the first of another node has the relay's rank and the row's
  // place among those for the node, others no rank.
  UCCLEP_FN void choose(const LlDispatchArgs& args, const Selection& selection) {
    if (args.settings.node_copies == 0) return;
    const NodeTable nodes = network::nodes_of(args.group);
    const auto me = static_cast<uint32_t>(args.group.rank);
    const bool valid = selection.expert >= 0;
    const uint32_t node = valid ? nodes.node_of(selection.rank) : nodes.nodes + lane_id();
    const bool leads = first_lane(match_any(node)) == lane_id() && valid && node != nodes.node_of(me);
    rank = leads ? nodes.relay(me, node) : NodeTable::no_rank;
    place = 0;
  }
  template <class Sets>
  UCCLEP_FN void add_before(const LlDispatchArgs& args, const Sets& sets, uint32_t token) {
    if (args.settings.node_copies == 0 || rank == NodeTable::no_rank || token < sets.first) return;
    const NodeTable nodes = network::nodes_of(args.group);
    place += network::count_before(sets, nodes, nodes.node_of(rank), token);
  }
  UCCLEP_FN void write_places(const LlDispatchArgs& args, char* scratch, const Selection& selection) const {
    if (args.settings.node_copies != 0) network::write_places(args.group.shape, scratch, selection.place);
  }

  UCCLEP_FN BulkPlace begin(const Op& op, const LlDispatchArgs& args, const Selection& selection) {
    const bool sends = selection.sends();
    const uint32_t to = sends ? selection.rank : op.me();
    if (op.has_window(to)) {
      const BulkPlace there = landing_at(op, args.source.wire, to, op.me(), sends ? selection.place : 0);
      if (sends) epoch = there.meta + MetaLayout::of(op.group.shape.top_k).epoch;
      return {there.meta, there.row, sends};
    }
    return args.settings.node_copies != 0 ? begin_for_node(op, args) : begin_for_rank(op, args, selection);
  }
  UCCLEP_FN void send_places(const LlDispatchArgs& args, const BulkPlace& to, const char* scratch) const {
    if (args.settings.node_copies == 0) return;
    const GroupShape& shape = args.group.shape;
    const uint32_t body = MetaLayout::of(shape.top_k).body_bytes();
    bulk_store(row_bytes != 0, to.meta + body, scratch + body, relayed_head_bytes(shape) - body);
  }
  UCCLEP_FN void publish_all(const Op& op, const LlDispatchArgs& args) {
    bulk_wait_written();
    if (failed == 0 && ballot(row_bytes != 0) != 0) {
      const uint8_t flags = args.settings.node_copies != 0 ? between_nodes_flag : uint8_t{0};
      failed += network::push_rows(op, row_bytes != 0, rank, place, 1, row_bytes, flags) ? 0 : 1;
    }
    if (epoch) publish(reinterpret_cast<uint64_t*>(epoch), op.seq);
    epoch = nullptr;
    row_bytes = 0;
    sync_warp();  // the scratch is free for the next token
  }

 private:
  UCCLEP_FN BulkPlace begin_for_rank(const Op& op, const LlDispatchArgs& args, const Selection& selection) {
    const GroupShape& shape = op.group.shape;
    rank = selection.rank;
    place = selection.place;
    const auto bytes = static_cast<uint32_t>(network_row_bytes(shape, args.source.wire.row_bytes));
    row_bytes = is_masked(op.group, rank) ? 0 : bytes;
    char* const meta = network::mine(op) + op.group.layout.out_rows_for(shape, op.slot, rank) + uint64_t{place} * bytes;
    return {meta, meta + MetaLayout::of(shape.top_k).bytes, true};
  }
  UCCLEP_FN BulkPlace begin_for_node(const Op& op, const LlDispatchArgs& args) {
    if (rank == NodeTable::no_rank) return {op.mine(), op.mine(), false};  // another lane's row is for that node
    const GroupShape& shape = op.group.shape;
    row_bytes = static_cast<uint32_t>(relayed_row_bytes(shape, args.source.wire.row_bytes));
    const uint32_t node = network::nodes_of(op.group).node_of(rank);
    char* const meta =
        network::mine(op) + op.group.layout.relay_out_for(shape, op.slot, node) + uint64_t{place} * row_bytes;
    return {meta, meta + relayed_head_bytes(shape), true};
  }
};

template <>
struct BulkPath<ByNetwork> {
  using Out = OutgoingRow;

  // Does a row lie in this rank's window: its source, or its source's relay in this node, has stored it there.
  static UCCLEP_FN bool by_window(const Op& op, const LlDispatchArgs& args, uint32_t source) {
    return op.has_window(source) || args.settings.node_copies != 0;
  }
  static UCCLEP_FN bool wait(const Op& op, const LlDispatchArgs& args, uint32_t source, uint32_t index) {
    if (by_window(op, args, source)) return BulkPath<ByWindows>::wait(op, args, source, index);
    return lane_id() != 0 || network::wait_row(op, source, index);
  }
  static UCCLEP_FN bool relay_rows(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage) {
    return relay_all(op, args, job, stage);
  }
  // From another domain such rows come in the order of sending (ll_dispatch.hpp).
  static UCCLEP_FN bool find(const Op& op, const Inbox& inbox, uint32_t source, uint32_t place, WarpUniform& index) {
    if (op.has_window(source)) return BulkPath<ByWindows>::find(op, inbox, source, place, index);
    uint64_t words = 0;
    if (!wait_place(op, inbox, source, place, words)) return false;
    index = static_cast<uint32_t>(broadcast(words, 0));
    return true;
  }
  static UCCLEP_FN ReceivedSelection selection(const Op& op, const Inbox& inbox, const char* meta, uint32_t source,
                                               uint32_t place) {
    ReceivedSelection selection = read_meta(op.group.shape, meta);
    if (op.has_window(source) || inbox.facts[source].form != Form::placed) return selection;
    uint64_t words = 0;
    wait_place(op, inbox, source, place, words);  // it is there: find() has seen it
    const uint32_t word = lane_id() + 1;
    const uint64_t pair = shfl(words, word / 2);
    selection.position = static_cast<uint32_t>(word % 2 == 0 ? pair : pair >> 32);
    return selection;
  }
  static UCCLEP_FN BulkPlace landed(const Op& op, const LlDispatchArgs& args, uint32_t source, uint32_t index) {
    if (by_window(op, args, source)) return BulkPath<ByWindows>::landed(op, args, source, index);
    const GroupShape& shape = op.group.shape;
    char* const meta = network::mine(op) + op.group.layout.in_rows_of(shape, op.slot, source) +
                       index * network_row_bytes(shape, args.output.wire.row_bytes);
    return {meta, meta + MetaLayout::of(shape.top_k).bytes, true};
  }

 private:
  // Warp verb: a packet to each lane of what the header says of a place (HeaderLayout::places).
  static UCCLEP_FN bool wait_place(const Op& op, const Inbox& inbox, uint32_t source, uint32_t place, uint64_t& words) {
    const GroupShape& shape = op.group.shape;
    const uint32_t packets = HeaderLayout::place_packets(shape.top_k);
    const Packet* const places =
        header_packets(op, op.me(), source) + HeaderLayout::places(shape.local_experts(), inbox.facts[source].tokens);
    const Packet* const mine = places + uint64_t{place} * packets + lane_id();
    return every_lane(lane_id() >= packets || wait_packet(op, Phase::header, source, mine, words));
  }
};

}  // namespace ll

namespace combining {

// Rows are whole: a warp has pieces of all that it adds under way together.
template <>
class CombinePath<ByNetwork> {
 public:
  explicit UCCLEP_FN CombinePath(Stage& stage) : stage_(stage), ring_(stage) {}

  // Weights that come with combine go with READY, by place, and so do those of the backward pass: whether all ranks
  // mean to send them shows when they are there.
  static UCCLEP_FN bool begin(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job,
                              bool updated) {
    if (op.group.again != 0) return true;  // in the first run
    for (uint32_t i = job.block(); i < op.ranks(); i += job.blocks) {
      const uint32_t peer = op.rotated(i);
      if (is_masked(op.group, peer)) continue;
      const bool remote = !op.has_window(peer), weights = remote && updated && args.late_weights,
                 weights_back = remote && updated && args.weights_back;
      Packet* const header = ByNetwork::header_for(op, peer);
      if (warp_id() == 0) store_header(op, header, args.settings, 0, Form::bulk, 0, nullptr);
      if (!remote) continue;
      if (weights) store_weights(op, memory, args, peer, header + HeaderLayout::counts);
      if (weights_back) store_weight_rows(op, memory, args, peer, header + HeaderLayout::counts);
      sync_block();
      const uint32_t rows = updated ? memory.rows_from()[peer] : 0;
      const uint32_t weighted = weights ? memory.rows_to()[peer] : weights_back ? rows : 0;
      const uint32_t late = weighted * weight_packets(op.group.shape);
      if (!every_thread(warp_id() != 0 ||
                        network::push_header(op, lane_id() == 0, peer, rows, HeaderLayout::counts + late)))
        return false;
    }
    return true;
  }

  // What only the network reaches, by few blocks; to the windows of others meanwhile, by others.
  template <class Element, class Forms>
  UCCLEP_FN bool send(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
    bool ok = true;
    for (WarpUniform pass = 0; pass < 2 && ok; pass += 1) {  // the code is there once
      const bool by_window = pass != 0;
      ok = send_to<Element, Forms>(op, memory, args,
                                   by_window ? job.rest(ll::network_blocks) : job.head(ll::network_blocks), by_window);
    }
    return ok;
  }

  template <class Element, class Forms>
  UCCLEP_FN bool reduce(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
    const WarpUniform tokens = tokens_out(op, memory, args, job);
    for (WarpUniform token = job.warp(); token < tokens; token += job.warps()) {
      const CombineArgs& now = reload(args);
      Partials partials;
      if (!gather_partials<Forms>(op.with(now.group), memory_of(now), now, stage_, token, 0, partials)) return false;
      acquire_then_bulk();
      ring_.sum<Element>({partials.rows, partials.count, 0}, now.row_bytes,
                         [&](uint32_t offset, Vector<Element>& sum) { store_result(now, sum, token, offset); });
    }
    return true;
  }

  static UCCLEP_FN void give_up(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
    if (op.group.again != 0) return;
    for (uint32_t home = job.warp(); home < op.ranks(); home += job.warps()) {
      if (op.has_window(home) || is_masked(op.group, home)) continue;
      if (!network::push_as_they_are(op, home, memory.rows_from()[home], args.row_bytes)) return;
    }
  }

 private:
  // Verb of the blocks of the job: to all homes by their windows, or to all others.
  template <class Element, class Forms>
  UCCLEP_FN bool send_to(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job,
                         bool by_window) {
    if (!job.mine()) return true;
    WarpUniform item = job.warp();
    for (WarpUniform i = 1; i <= op.ranks(); i += 1) {
      const WarpUniform home = op.rotated(i);
      if (op.has_window(home) != by_window) continue;
      const WarpUniform rows = is_masked(op.group, home) ? 0 : memory.rows_from()[home];
      for (; item < rows; item += job.warps()) {
        const CombineArgs& now = reload(args);
        if constexpr (Forms::in_waves) {
          if (!leaves_in(memory_of(now), now.waves, home, item)) continue;
        }
        if (!send_row<Element>(op.with(now.group), memory_of(now), now, home, item)) return false;
      }
      item -= rows;
    }
    return true;
  }

  // Block verb: of all rows that came from `home`.
  static UCCLEP_FN void store_weight_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args,
                                          uint32_t home, Packet* to) {
    const uint32_t rows = memory.rows_from()[home];
    for (uint32_t place = warp_id(); place < rows; place += block::warps()) {
      store_weight_row(op, memory, args, home, place, to);
    }
  }

  // Block verb: those of all tokens that have a row at `peer`.
  static UCCLEP_FN void store_weights(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t peer,
                                      Packet* to) {
    const uint32_t packets = weight_packets(op.group.shape), tokens = routed_tokens(memory);
    for (uint32_t token = warp_id(); token < tokens; token += block::warps()) {
      const Selection selection = selection_of(memory, token);
      const uint64_t pair = weight_pair(args, token);
      const uint64_t sends = ballot(selection.sends() && selection.rank == peer);
      if (sends == 0) continue;
      const uint32_t place = broadcast(selection.place, first_lane(sends));
      if (lane_id() < packets) store_packet(to + uint64_t{place} * packets + lane_id(), pair, op.seq);
    }
  }

  // Warp verb: a partial row into the home's window, or to where the network takes it.
  template <class Element>
  UCCLEP_FN bool send_row(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t home,
                          uint32_t place) {
    const WindowLayout& window = op.group.layout;
    const bool by_window = op.has_window(home);
    char* const rows = by_window ? op.window(home) + window.back_rows_of(op.slot, op.me())
                                 : network::mine(op) + window.out_back_for(op.group.shape, op.slot, home);
    const uint32_t bytes = uniform(args.row_bytes);
    char* const to = rows + uint64_t{place} * bytes;
    if (args.zones == Zones::sources) {  // the caller's row is the partial row
      const char* row = args.tokens.at(args.ranked ? home : 0, place);
      stage_.fetch(row, bytes);
      stage_.drain(row, bytes, [&](const char* piece, uint64_t offset, uint32_t length) {
        bulk_store(lane_id() == 0, to + offset, piece, length);
      });
      bulk_wait_written();
    } else {
      Terms terms = Terms::in(stage_.scratch());
      if (!gather_copies<ByNetwork>(op, memory, args, home, place, terms)) return false;
      ring_.sum<Element>(
          {terms.rows, terms.count, 0}, bytes,
          [&](uint32_t offset, const Vector<Element>& sum) { store16(to + offset, sum.pack()); },
          [&](Vector<Element>& term, uint32_t i) { term.scale(terms.weights[i]); });
    }
    if (!by_window) return network::push_rows(op, lane_id() == 0, home, place, 1, bytes);
    sync_warp();
    auto* words = reinterpret_cast<uint64_t*>(op.window(home) + window.back_epochs_of(op.slot, op.me()));
    if (lane_id() == 0) publish(words + uint64_t{place} * bulk_parts(bytes), op.seq);
    return true;
  }

  Stage& stage_;
  SumRing ring_;
};

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
