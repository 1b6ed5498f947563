// SPDX-License-Identifier: Apache-2.0
// Rows of an HT dispatch on their way to other nodes. A row leaves once for each node that wants it, to the source's
// relay there (protocol/relayed_row.hpp). The relay keeps it where it landed, and forwards its meta line to the ranks
// of the node that want it; they pull the row from there, as they pull what is staged.
//
// Where it landed in host memory (GroupShape::relay_stages), each of them would read it over the bus, whose other end
// proxies and NICs need. So the relay stages it in its GPU's memory first, and its meta line says so.
// Floor: rows * row bytes / bus bandwidth, beside the network's; without, that times the ranks that want a row.
//
// clang-format off
// | who releases                                  | who acquires        | what is ordered              |
// |-----------------------------------------------|---------------------|------------------------------|
// | relay, of what its proxy reported, or of what | wait_word, then     | the row in the relay's       |
// |   it staged: publish of a meta line's epoch,  |   acquire_then_bulk |   window before it is pulled |
// |   after bulk_wait_written                     |                     |                              |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace relay {

using network::Addressee;
using network::nodes_of;
using network::own_node;

// The block of a rank whose relay in this node is this rank.
UCCLEP_FN uint32_t own_block(const Op& op, uint32_t rank) {
  return nodes_of(op).block_of(rank, own_node(op));
}

// Rows that a rank of another node sends to this relay in a round: its READY says so, which check_header has looked at,
// or the header of the round.
UCCLEP_FN uint32_t announced_by(const Op& op, uint32_t source) {
  const Packet* header = header_packets(op, op.me(), source);
  const uint32_t packet = op.round == 0 ? HeaderLayout::rows : HeaderLayout::relayed;
  const auto rows = static_cast<uint32_t>(SentBy(op, source).value(header + packet));
  return rows < op.group.shape.ht_tokens ? rows : op.group.shape.ht_tokens;
}

// Which of a meta line's words says where the row lies at the relay. Elsewhere it is 0.
constexpr uint32_t place_word = 1;
// In that word, whose places are below 2^30: the relay has staged the row in its own memory.
constexpr uint32_t staged_flag = 1u << 31;

// ---- The source

// A row to other nodes. A lane whose selection is the first of another node has the row's place there. masks: the group
// may have some; rows for a rank that is masked have no places of their own.
template <bool masks>
class RemoteRow {
 public:
  UCCLEP_FN RemoteRow(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, uint32_t token,
                      const Selection& selection) {
    const GroupShape& shape = op.group.shape;
    const uint32_t place = lane_id() < shape.top_k ? memory.node_places(token)[lane_id()] : no_place;
    active_ = place != no_place;
    if constexpr (masks) active_ = active_ && !is_masked(op.group, selection.rank);
    if (!active_) return;
    const uint32_t node = nodes_of(op).node_of(selection.rank);
    row_ = network::mine(op) + op.group.layout.relay_out_for(shape, op.slot, node) +
           node_place_in_round(op, memory, node, place) * relayed_row_bytes(shape, args.source.wire.row_bytes);
  }
  UCCLEP_FN bool any() const { return ballot(active_) != 0; }

  // Warp verbs. What follows the body of the meta line, before that is built; and then all of it.
  UCCLEP_FN void write_places(const Op& op, const HandleMemory& memory, char* scratch,
                              const Selection& selection) const {
    uint32_t place = no_place;
    if (selection.sends()) place = place_in_round(op, memory, selection.rank, selection.place);
    network::write_places(op.group.shape, scratch, place);
  }
  UCCLEP_FN void send_head(const GroupShape& shape, const char* scratch) {
    bulk_store(active_, active_ ? row_ : const_cast<char*>(scratch), scratch, relayed_head_bytes(shape));
    if (active_) row_ += relayed_head_bytes(shape);
  }

  // The row itself, to other nodes and to all that RowTargets knows.
  struct Targets {
    const RemoteRow& remote;
    const RowTargets& others;
    char* idle;  // any memory

    UCCLEP_FN void put(const char* smem, uint64_t at, uint32_t bytes) const {
      bulk_store(remote.active_, remote.active_ ? remote.row_ + at : idle, smem, bytes);
      others.put(smem, at, bytes);
    }
  };
  UCCLEP_FN Targets and_to(const RowTargets& others, char* idle) const { return {*this, others, idle}; }

 private:
  bool active_ = false;
  char* row_ = nullptr;
};
static_assert(MetaLayout::of(max_top_k).bytes + 4 * max_top_k <= StageShape::scratch_bytes);

// Warp verb: rows of tokens [begin, end) have been put together. masks: the group may have some.
template <bool masks>
UCCLEP_FN bool push_run(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, uint32_t begin,
                        uint32_t end) {
  const GroupShape& shape = op.group.shape;
  const NodeTable nodes = nodes_of(op);
  const auto row_bytes = static_cast<uint32_t>(relayed_row_bytes(shape, args.source.wire.row_bytes));
  const uint32_t stop = end * shape.top_k;
  for (uint32_t first = begin * shape.top_k; first < stop; first += wave_size) {
    const uint32_t i = first + lane_id(), place = i < stop ? memory.node_places(0)[i] : no_place;
    bool active = place != no_place;
    const auto expert = static_cast<uint32_t>(active ? memory.at<int32_t>(memory.handle.offsets.topk)[i] : 0);
    const uint32_t rank = shape.rank_of(expert), node = nodes.node_of(rank);
    if constexpr (masks) active = active && !is_masked(op.group, rank);
    const PlaceRange sent = sent_in_round(op, memory, op.ranks() + node);
    const uint32_t to = nodes.relay(op.me(), node), row = active ? place - sent.begin : 0;
    if (!network::push_stored(op, active, to, row, sent.end - sent.begin, row_bytes)) return false;
  }
  return true;
}

// ---- The relay

constexpr uint32_t batch_rows = StageShape::slots;  // whose meta lines are announced together

// Lane verb, for combine and later operations: how many rows a block has in the round.
UCCLEP_FN void note_rows(const Op& op, const HandleMemory& memory, uint32_t block) {
  const uint32_t source = nodes_of(op).rank_of(block, op.me());
  memory.relayed(op.round)[block] = source != NodeTable::no_rank ? announced_by(op, source) : 0;
}
// Block verb: the same of all blocks in the first round. Where ranks differ there are none in any.
UCCLEP_FN void note_rows(const Op& op, const HandleMemory& memory, bool good) {
  if (block_id() != 0) return;
  const uint32_t blocks = op.group.shape.nodes.blocks();
  for (uint32_t block = thread_id(); good && block < blocks; block += block_size()) note_rows(op, memory, block);
  for (uint32_t i = thread_id(); !good && i < memory.handle.rounds * blocks; i += block_size())
    memory.relayed(0)[i] = 0;
}

// Warp verb: for combine, where the partial rows of a row will lie, ranks ascending. With masks it is this rank alone
// that has one, at the same place.
UCCLEP_FN void keep_addressees(const Op& op, const HandleMemory& memory, uint32_t block, uint32_t place,
                               const Addressee& to) {
  if (op.group.masks != nullptr) return;
  const uint64_t mask = ballot(to.mine);
  uint32_t order = 0;
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    if (broadcast(to.rank, first_lane(left)) < to.rank) ++order;
  }
  const uint64_t row = memory.relay_row(op.round, block, place);
  if (to.mine) memory.relay_entries(row)[order] = {to.rank, to.place};
  if (lane_id() == 0) memory.relay_count(row) = count_lanes(mask);
}

// Rows of a block on their way to the ranks that they are for.
struct Forwarder {
  const Op& op;
  const HandleMemory& memory;
  uint32_t block, source;

  // Warp verb: a row's meta line, but for the epoch. where: its word there. head: of the row. meta: shared memory to
  // put it together in. Of a lane that has a rank: where the epoch goes.
  UCCLEP_FN uint64_t* meta_of(uint32_t where, const char* head, char* meta) const {
    const MetaLayout layout = MetaLayout::of(op.group.shape.top_k);
    for (uint32_t w = lane_id(); w < layout.body_bytes() / 4; w += wave_size) {
      reinterpret_cast<uint32_t*>(meta)[w] = w == place_word ? where : reinterpret_cast<const uint32_t*>(head)[w];
    }
    const Addressee to = Addressee::of(op, head);
    keep_addressees(op, memory, block, where & ~staged_flag, to);
    char* const there = to.mine ? meta_at(op, to.rank, source, to.place) : meta;
    smem_to_bulk();
    bulk_store(to.mine, there, meta, layout.body_bytes());
    return to.mine ? reinterpret_cast<uint64_t*>(there + layout.epoch) : nullptr;
  }

  // The same, and the row to `staged`, with its head; and then the epochs.
  UCCLEP_FN void stage_row(Stage& stage, uint32_t place, const char* row, uint32_t bytes, char* staged) const {
    uint64_t* epoch = nullptr;
    stage.fetch(row, bytes);
    stage.drain(row, bytes, [&](const char* piece, uint64_t at, uint32_t count) {
      if (at == 0) epoch = meta_of(place | staged_flag, piece, stage.scratch());
      bulk_store(lane_id() == 0, staged + at, piece, count);
    });
    bulk_wait_written();
    if (epoch != nullptr) publish(epoch, op.seq);
    sync_warp();
  }
};

// Warp verb: rows [first, end) of a block, which have come, to the ranks that they are for; they are staged.
UCCLEP_FN void stage_rows(const Op& op, const HtDispatchArgs& args, Stage& stage, const WarpUniform& block,
                          const WarpUniform& first, const WarpUniform& end) {
  for (WarpUniform place = first; place < end; place += 1) {
    const HtDispatchArgs& now = reload(args);
    const Op here = op.with(now.group);
    const GroupShape& shape = now.group.shape;
    const WindowLayout& layout = now.group.layout;
    const auto bytes = static_cast<uint32_t>(relayed_row_bytes(shape, now.output.wire.row_bytes));
    const uint64_t offset = uint64_t{place} * bytes;
    const HandleMemory memory = memory_of(now);
    const Forwarder forwarder{here, memory, block, nodes_of(here).rank_of(block, here.me())};
    forwarder.stage_row(stage, place, network::mine(here) + layout.relay_in_of(shape, here.slot, block) + offset, bytes,
                        here.mine() + layout.relay_staged_of(shape, here.slot, block) + offset);
  }
}

// The same of at most batch_rows rows, which stay where they are, unless the relays of the group stage them.
UCCLEP_FN void forward_rows(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                            uint32_t block, uint32_t first, uint32_t end) {
  const GroupShape& shape = op.group.shape;
  acquire_then_bulk();
  if (shape.relay_stages != 0) return stage_rows(op, args, stage, block, first, end);
  const Forwarder forwarder{op, memory, block, nodes_of(op).rank_of(block, op.me())};
  const uint64_t row_bytes = relayed_row_bytes(shape, args.output.wire.row_bytes);
  const char* const landed = network::mine(op) + op.group.layout.relay_in_of(shape, op.slot, block);
  uint64_t* epochs[batch_rows] = {};
  bulk_wait_read();
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < batch_rows; ++i) {
    const uint32_t place = first + i;
    if (place >= end) break;
    epochs[i] = forwarder.meta_of(place, landed + place * row_bytes, stage.slot(i));
  }
  bulk_wait_written();
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < batch_rows; ++i) {
    if (epochs[i] != nullptr) publish(epochs[i], op.seq);
  }
  sync_warp();
}

// Warp verb: the same rows, which are waited for.
UCCLEP_FN bool relay_run(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                         uint32_t block, uint32_t first, uint32_t end) {
  const uint32_t source = nodes_of(op).rank_of(block, op.me());
  if (!every_lane(lane_id() != 0 || network::wait_row(op, source, end - 1, between_nodes_flag))) return false;
  forward_rows(op, memory, args, stage, block, first, end);
  return true;
}

// Verb of the relaying warps of the grid: the rows of all blocks, in turn, low places first, as they come.
// run(args, op, block, first, end): as relay_run.
template <class Args, class Run>
UCCLEP_FN bool relay_rows(const Args& args, const Op& op, const Worker& worker, Run&& run) {
  const auto rows_of = [](const Op& here, uint32_t block) {
    const uint32_t source = nodes_of(here).rank_of(block, here.me());
    return source == NodeTable::no_rank ? 0 : uniform(announced_by(here, source));
  };
  const WarpUniform blocks = op.group.shape.nodes.blocks();
  uint32_t most = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t of_block = rows_of(op, block);
    most = of_block > most ? of_block : most;
  }
  const WarpUniform items = (most + batch_rows - 1) / batch_rows * blocks;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const Args& now = reload(args);
    const Op here = op.with(now.group);
    const uint32_t block = item % blocks, first = item / blocks * batch_rows, all = rows_of(here, block);
    if (first >= all) continue;
    if (!run(now, here, block, first, all - first < batch_rows ? all : first + batch_rows)) return false;
  }
  return true;
}

// ---- The ranks of its node

// A row that came from another node: where its relay has it.
UCCLEP_FN const char* row_at_relay(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
  const GroupShape& shape = op.group.shape;
  const NodeTable nodes = nodes_of(op);
  const uint32_t node = own_node(op), at = nodes.relay(source, node), block = nodes.block_of(source, node);
  const uint32_t where = reinterpret_cast<const uint32_t*>(meta)[place_word];
  const char* const rows = (where & staged_flag) != 0
                               ? op.window(at) + op.group.layout.relay_staged_of(shape, op.slot, block)
                               : network::window(op, at) + op.group.layout.relay_in_of(shape, op.slot, block);
  return rows + (where & ~staged_flag) * relayed_row_bytes(shape, wire.row_bytes) + relayed_head_bytes(shape);
}

}  // namespace relay
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
