// SPDX-License-Identifier: Apache-2.0
// Rows of an LL dispatch that cross the network once for each node (GroupShape::node_copies, Settings::node_copies).
// They go to the source's relay in that node (layout/nodes.hpp), with their place at each rank
// (protocol/relayed_row.hpp), and the relay stores each into the landings of the ranks that want it: there it lies, and
// is announced, as a row of a peer with a window. The header to a relay says how many rows it gets. Headers go to every
// rank, by the network.
//
// A rank sends, then relays, then receives. Who sends waits for nobody, who relays for the network alone, who receives
// for relays too: so a grid of any size gets on. A send phase relays (send_only): others' whole operations wait for it.
//
// clang-format off
// | who releases                                | who acquires                       | what is ordered              |
// |---------------------------------------------|------------------------------------|------------------------------|
// | the proxy, of rows at the relay; look       | relay_row: wait_row, then          | the row before it is read    |
// |                                             |   acquire_then_bulk                |                              |
// | relay_row: publish of a meta line's epoch   | wait_word, then acquire_then_bulk, | the row before its receiver  |
// |   (system), after bulk_wait_written         |   at the rank that it is for       |                              |
// | the relay's next operation: slots_free, for | see protocol/slots.hpp             | the receiver's reads of a    |
// |   all ranks of its node                     |                                    |   landing before a relay     |
// |                                             |                                    |   writes there again         |
// | the end of the operation: `consumed`        | the source: slots_free             | the relay's reads before the |
// |                                             |                                    |   source's next rows         |
// clang-format on
//
// Floor: rows to other nodes * (head + row bytes) / NIC bandwidth, a message's flight, a proxy at both ends; then, of
// what comes last, a read over the bus, a flight and a fence between peers.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/bulk.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Warp verb: rows that a source has for this relay, when its header is here. None where it has other settings: then the
// operation ends without a row, and how such rows would lie is not known.
UCCLEP_FN bool rows_to_relay(const Op& op, const Settings& settings, uint32_t source, WarpUniform& rows) {
  const Packet* const header = header_packets(op, op.me(), source);
  uint64_t value = 0;
  bool ok = true;
  if (lane_id() < HeaderLayout::counts) ok = wait_packet(op, Phase::header, source, header + lane_id(), value);
  if (!every_lane(ok)) return false;
  const bool agrees = broadcast(value, HeaderLayout::settings_low) == settings.low() &&
                      broadcast(value, HeaderLayout::settings_high) == settings.high();
  rows = agrees ? static_cast<uint32_t>(broadcast(value, HeaderLayout::tokens) >> 32) : 0;
  const uint32_t most = op.group.shape.ll_tokens;
  if (rows <= most) return true;
  if (lane_id() == 0) report_count(op, source, rows, most);
  return false;
}

// Warp verb: a row that has come, to the ranks of this node that it is for; it is under way then.
UCCLEP_FN bool relay_row(const Op& op, const LlDispatchArgs& args, Stage& stage, uint32_t block, uint32_t place,
                         Unpublished& unpublished) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const WireShape& wire = args.source.wire;
  const uint32_t source = network::nodes_of(op.group).rank_of(block, op.me());
  if (!every_lane(lane_id() != 0 || network::wait_row(op, source, place, between_nodes_flag))) return false;
  acquire_then_bulk();
  const char* const meta = network::mine(op) + op.group.layout.relay_in_of(shape, op.slot, block) +
                           place * relayed_row_bytes(shape, wire.row_bytes);
  const char* const row = meta + relayed_head_bytes(shape);
  stage.fetch(row, wire.row_bytes);
  for (uint32_t at = 8 * lane_id(); at < layout.body_bytes(); at += 8 * wave_size) {
    *reinterpret_cast<uint64_t*>(stage.scratch() + at) = *reinterpret_cast<const uint64_t*>(meta + at);
  }
  const network::Addressee to = network::Addressee::of(op, meta);
  smem_to_bulk();
  const BulkPlace there = landing_at(op, wire, to.mine ? to.rank : op.me(), source, to.mine ? to.place : 0);
  bulk_store(to.mine, there.meta, stage.scratch(), layout.body_bytes());
  stage.drain(row, wire.row_bytes, [&](const char* piece, uint64_t offset, uint32_t bytes) {
    bulk_store(to.mine, there.row + offset, piece, bytes);
  });
  if (to.mine) unpublished.epoch = there.meta + layout.epoch;
  return true;
}

// Verb of the blocks that receive, when headers are being copied: the rows of all ranks whose relay this rank is, low
// places first, as they come. A warp's last row is written while it waits for no other.
UCCLEP_FN bool relay_all(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage) {
  Unpublished unpublished;
  WarpUniform item = job.warp();
  const WarpUniform blocks = op.group.shape.nodes.blocks();
  for (WarpUniform block = 0; block < blocks; block += 1) {
    const LlDispatchArgs& here = reload(args);
    const uint32_t source = network::nodes_of(here.group).rank_of(block, op.me());
    if (source == NodeTable::no_rank) continue;
    WarpUniform rows = 0;
    if (!rows_to_relay(op.with(here.group), here.settings, source, rows)) return false;
    for (; item < rows; item += job.warps()) {
      const LlDispatchArgs& now = reload(args);
      const Op same = op.with(now.group);
      unpublished.publish_all(same, now);
      if (!relay_row(same, now, stage, block, item, unpublished)) return false;
    }
    item -= rows;
  }
  unpublished.publish_all(op, reload(args));
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
