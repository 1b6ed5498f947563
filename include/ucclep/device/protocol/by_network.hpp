// SPDX-License-Identifier: Apache-2.0
// The network as kernels see it: the rings into which they put commands for the proxy threads, and the words in which
// these report what has come. Of a rank that only the network reaches a group has no window.
//
// clang-format off
// | who releases                        | who acquires                  | scope  | what is ordered                           |
// |-------------------------------------|-------------------------------|--------|-------------------------------------------|
// | the warp that stored a row, or a    | RingReader::poll, then the    | system | rows and headers, where they wait to be   |
// |   header (its block's, by a barrier)|   NIC's read                  |        |   sent, before the NIC reads them         |
// |   : order_before_push, the command  |                               |        |                                           |
// | who stored a row of a chunk:        | who stores its last row: the  | gpu    | all of the chunk before its command       |
// |   fetch_add_acq_rel of its count    |   same, then                  |        |                                           |
// |                                     |   order_before_push           |        |                                           |
// | the proxy at the other end: store   | look: load_acquire, by one    | system | what has come before whoever looks        |
// |   of a progress word, after its NIC |   lane at a time              |        |                                           |
// |   reported the arrival              |                               |        |                                           |
// | look: store_release of the word in  | wait_progress: load_acquire,  | gpu    | the same before its readers; before other |
// |   this device's memory              |   then in bulk                |        |   threads by the barrier or warp verb     |
// |                                     |   acquire_then_bulk           |        |   that follows                            |
// | look: store_release of the turn     | look: compare_exchange        | gpu    | looks of a source: words only grow        |
// | headers_in: store_packet of what    | wait_packet: load_packet      | -      | nothing but the packet itself             |
// |   has come                          |                               |        |                                           |
// | the last block out: order_before_   | look, slots_free at the other | system,| all reads of what came before the next    |
// |   push, `consumed`; its proxy, by   |   end: load_acquire of the    |   gpu  |   writes into the same slot, there and    |
// |   the network, to the peer's proxy  |   consumed word               |        |   here                                    |
// clang-format on
// Words of proxies lie in host memory, and to poll them crosses the bus. So of all lanes that wait for a rank one at a
// time reads them, and stores what it saw where all others wait. A reader sees the payload, in host memory or flushed
// (P11), that the word stands for though it has acquired another word, of another lane, at the narrower scope: the
// proxy's release at system scope comes before the looking lane's acquire, that before its release at gpu scope, and
// this before the reader's acquire; both are lanes of one device, so both pairs synchronize, and what happens before is
// transitive whatever the scopes are of which it is made.
//
// A slot may be written again only when all of its operation has come: a write that is late would come to lie
// over the next one. So an operation waits for all of it (all_in), also where it ends without a row.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arrivals.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/network/fifo.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace network {

// The window that NICs read and write, of a rank whose other window is mapped here.
UCCLEP_FN char* window(const Op& op, uint32_t rank) {
  return op.window(op.ranks() + rank);
}
UCCLEP_FN char* mine(const Op& op) {
  return window(op, op.me());
}

// ---- What goes out. Warp verbs; false: the ring stayed full, or the operation has failed, and nothing may be pushed
// any more.

// Each active lane a command of its own for a peer of its own, after all that the warp has stored.
UCCLEP_FN bool push_to(const Op& op, bool active, uint32_t ring, uint32_t peer, const CommandFields& fields) {
  CommandFields command = fields;
  command.epoch = static_cast<uint32_t>(op.seq);
  command.destination = static_cast<uint16_t>(peer);
  command.kind = static_cast<uint8_t>(op.kind);
  order_before_push();
  const Fifo& fifo = op.group.network->fifo;
  if (push(fifo, active, ring, command)) return true;
  const uint64_t waiting = ballot(active);
  if (waiting != 0 && lane_id() == first_lane(waiting) && load_relaxed<Scope::system>(op.group.abort_word) == 0) {
    const uint64_t began = clock_ns() - op.group.timeout_ns;
    report_timeout(op.group.errors, op.group.abort_word, Waiter::of(op, Phase::ring, peer, began));
  }
  return false;
}

// Rows [row, row + rows), which lie in one chunk. flags: of the sort of rows.
UCCLEP_FN bool push_rows(const Op& op, bool active, uint32_t peer, uint32_t row, uint32_t rows, uint32_t row_bytes,
                         uint8_t flags = 0) {
  CommandFields command;
  command.flags = flags;
  command.operation = CommandOp::put;
  command.row = row;
  command.rows = static_cast<uint16_t>(rows);
  command.bytes = rows * row_bytes;
  return push_to(op, active, bulk_ring(op.group.network->fifo, peer), peer, command);
}

// The header, and how many rows there are in all.
UCCLEP_FN bool push_header(const Op& op, bool active, uint32_t peer, uint32_t rows, uint32_t packets,
                           uint8_t flags = 0) {
  CommandFields command;
  command.flags = flags;
  command.operation = CommandOp::header;
  command.row = rows;
  command.bytes = packets * static_cast<uint32_t>(sizeof(Packet));
  return push_to(op, active, bulk_ring(op.group.network->fifo, peer), peer, command);
}

UCCLEP_FN uint32_t rows_per_chunk(const Op& op, uint8_t flags) {
  const uint32_t sort = (flags & between_nodes_flag) != 0 ? num_kinds : 0;
  return op.group.network->rows_per_chunk[sort + static_cast<uint32_t>(op.kind)];
}

// Rows between nodes are counted as they are stored, and leave by one command for each chunk, from whoever has stored
// its last row. total: rows of the operation for the peer.
struct StoredChunk {
  uint32_t first = 0, rows = 0;  // no rows: some of them are missing

  // Lane verb: one more row is stored.
  static UCCLEP_FN StoredChunk count(const Op& op, uint32_t peer, uint32_t row, uint32_t total) {
    const GroupShape& shape = op.group.shape;
    const uint32_t most = rows_per_chunk(op, between_nodes_flag), chunk = row / most, first = chunk * most;
    const uint32_t rows = total - first < most ? total - first : most;
    const uint64_t at = NetworkTables::stored_at(shape, op.kind, op.slot, peer, chunk);
    auto* const stored = reinterpret_cast<uint32_t*>(table(op.group, NetworkTables::of(shape).stored + at));
    if (fetch_add_acq_rel<Scope::gpu>(stored, 1u) + 1 != rows) return {};
    store_relaxed<Scope::gpu>(stored, 0u);  // for the next operation in the slot
    return {first, rows};
  }
};

// Warp verb: rows that the warp has stored, one of each active lane.
UCCLEP_FN bool push_stored(const Op& op, bool active, uint32_t peer, uint32_t row, uint32_t total, uint32_t row_bytes) {
  sync_warp();
  const StoredChunk chunk = active ? StoredChunk::count(op, peer, row, total) : StoredChunk{};
  // One by one: rings have room for the commands of one token of each warp.
  for (uint64_t left = ballot(chunk.rows != 0); left != 0; left &= left - 1) {
    const bool now = lane_id() == first_lane(left);
    if (!push_rows(op, now, peer, chunk.first, chunk.rows, row_bytes, between_nodes_flag)) return false;
  }
  return true;
}

// What was announced has to come, whatever it is: the slot is used again when it has.
UCCLEP_FN bool push_as_they_are(const Op& op, uint32_t peer, uint32_t rows, uint32_t row_bytes, uint8_t flags = 0) {
  const uint32_t chunk = rows_per_chunk(op, flags);
  for (uint32_t row = 0; row < rows; row += chunk) {
    const uint32_t count = rows - row < chunk ? rows - row : chunk;
    if (!push_rows(op, lane_id() == 0, peer, row, count, row_bytes, flags)) return false;
  }
  return true;
}

// ---- What comes in. Lane verbs.

template <class Enough>
UCCLEP_FN bool wait_progress(const Op& op, Phase phase, uint32_t rank, Enough&& enough) {
  const Source source = Source::of(op.group, op.kind, op.seq, rank);
  const uint64_t* const word = source.seen().progress_of(op.kind, op.seq, rank);
  return wait_peer(op, phase, rank, [&] {
    const Progress progress = Progress::of_word(load_acquire<Scope::gpu>(word));
    if (progress.seq == op.seq && enough(progress)) return true;
    look(source);
    return false;
  });
}

UCCLEP_FN bool wait_header(const Op& op, uint32_t source) {
  return wait_progress(op, Phase::header, source, [](const Progress& progress) { return progress.announced; });
}

UCCLEP_FN bool wait_row(const Op& op, uint32_t source, uint32_t place, uint8_t flags = 0) {
  const uint32_t chunk = place / rows_per_chunk(op, flags);
  return wait_progress(op, Phase::rows, source,
                       [&](const Progress& progress) { return progress.complete || progress.below > chunk; });
}

UCCLEP_FN bool wait_all(const Op& op, uint32_t source) {
  return wait_progress(op, Phase::rows, source, [](const Progress& progress) { return progress.complete; });
}

// Warp verb, when it is here: a header to where those of peers land. All of its packets have the epoch. packets: that
// it has at most.
UCCLEP_FN void copy_header(const Op& op, uint32_t source, uint32_t packets = ~0u) {
  const WindowLayout& layout = op.group.layout;
  const auto* from =
      reinterpret_cast<const Packet*>(mine(op) + layout.in_header(op.group.shape, op.kind, op.slot, source));
  Packet* const to = header_packets(op, op.me(), source);
  const auto room = static_cast<uint32_t>(layout.header_bytes / sizeof(Packet)), most = packets < room ? packets : room;
  bool more = true;
  for (uint32_t first = 0; more; first += wave_size) {
    const uint32_t i = first + lane_id();
    const Packet packet = i < most ? load_packet(from + i) : Packet{};
    const bool here = packet.epoch == op.seq;
    if (here) store_packet(to + i, packet.value, packet.epoch);
    more = ballot(!here) == 0;
  }
}

}  // namespace network

// Some ranks by their windows, the others by the network.
struct ByNetwork {
  static constexpr bool network = true;
  static constexpr bool masks = true;
  static UCCLEP_FN uint32_t rounds(const HandleMemory&) { return 1; }  // of HT

  // Lane verb. A rank without a window has its word there, too: what lanes have seen.
  struct Consumed {
    // Whole operations of HT have none, but with the call that waits for the living nvcc hoists fewer loads, and spills
    // nothing.
    static constexpr bool masks = true, networked = true;
    UCCLEP_FN uint64_t operator()(const Op& op, uint32_t peer) const {
      if (!op.has_window(peer)) network::look(network::Source::of(op.group, op.kind, op.seq, peer));
      return ConsumedWord{}(op, peer);
    }
  };

  static UCCLEP_FN Packet* header_for(const Op& op, uint32_t peer) {
    if (op.has_window(peer)) return header_packets(op, peer, op.me());
    return reinterpret_cast<Packet*>(network::mine(op) +
                                     op.group.layout.out_header(op.group.shape, op.kind, op.slot, peer));
  }

  template <class Sets>
  static UCCLEP_FN uint32_t count_relayed(const Op& op, const HandleMemory& memory, const Sets& sets, uint32_t peer) {
    const NodeTable nodes = network::nodes_of(op.group);
    const uint32_t node = nodes.node_of(peer);
    if (op.has_window(peer) || nodes.relay(op.me(), node) != peer) return 0;
    uint32_t& sum = memory.rows_to_nodes()[node];
    const uint32_t earlier = sets.first == 0 ? 0 : sum;
    return sum = earlier + network::count_before(sets, nodes, node, sets.end);
  }
  // node_copies: rows go to relays, and the header says how many. more: packets behind the counts.
  static UCCLEP_FN bool counts_stored(const Op& op, const HandleMemory& memory, bool node_copies, uint32_t first,
                                      uint32_t step, uint32_t more = 0) {
    sync_block();
    bool ok = true;
    const uint32_t packets = HeaderLayout::packets(memory.shape.local_experts()) + more;
    for (uint32_t i = first; i < op.ranks() && warp_id() == 0 && ok; i += step * wave_size) {
      const uint32_t turn = i + lane_id() * step;
      const uint32_t peer = op.rotated(turn < op.ranks() ? turn : 0);
      // Else another block's, or nobody's.
      const bool mine = turn < op.ranks() && !op.has_window(peer) && !is_masked(op.group, peer);
      const uint32_t rows = !mine ? 0 : node_copies ? relayed_by(op, memory, peer) : memory.rows_to()[peer];
      ok = network::push_header(op, mine, peer, rows, packets, node_copies ? between_nodes_flag : uint8_t{0});
    }
    return every_thread(ok);
  }
  // Lane verb: of what count_relayed has counted.
  static UCCLEP_FN uint32_t relayed_by(const Op& op, const HandleMemory& memory, uint32_t peer) {
    const NodeTable nodes = network::nodes_of(op.group);
    const uint32_t node = nodes.node_of(peer);
    return nodes.relay(op.me(), node) == peer ? memory.rows_to_nodes()[node] : 0;
  }

  // One block copies all headers, and all others wait for their packets, as for those of peers: so none of these
  // comes before it. wait_ns: gets the time, where given. packets: that headers have at most.
  static UCCLEP_FN bool headers_in(const Op& op, bool by, const View& wait_ns, uint32_t packets = ~0u) {
    if (!by) return true;
    bool ok = true;
    for (uint32_t i = warp_id(); i < op.ranks() && ok; i += block::warps()) {
      const uint32_t source = op.rotated(i);
      if (op.has_window(source) || is_absent(op.group, op.kind, op.seq, source)) continue;
      const uint64_t start = wait_ns.data ? clock_ns() : 0;
      ok = every_lane(lane_id() != 0 || network::wait_header(op, source));
      sync_warp();
      if (ok) network::copy_header(op, source, packets);
      if (!wait_ns.data || lane_id() != 0) continue;
      *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
    }
    return every_thread(ok);
  }

  static UCCLEP_FN bool wait_part(const Op& op, uint32_t rank, uint32_t place, const char* word) {
    return op.has_window(rank) ? wait_word(op, Phase::rows, rank, word) : network::wait_row(op, rank, place);
  }

  static UCCLEP_FN const char* landed_back(const Op& op, uint32_t rank) {
    return op.has_window(rank) ? op.mine() + op.group.layout.back_rows_of(op.slot, rank)
                               : network::mine(op) + op.group.layout.in_back_of(op.group.shape, op.slot, rank);
  }

  // Block verb: all of the operation has come, from all that are not masked: nobody reads the slots of others. The last
  // block waits for it: peers may have sent all but what waits for this rank's other blocks.
  // rounds: of HT (AcrossNodes).
  static UCCLEP_FN bool all_in(const Op& op, [[maybe_unused]] uint32_t rounds = 1) {
    if (block_id() != grid_size() - 1) return true;
    bool ok = true;
    for (uint32_t source = thread_id(); source < op.ranks(); source += block_size()) {
      if (!op.has_window(source) && !is_masked(op.group, source)) ok = network::wait_all(op, source) && ok;
    }
    return every_thread(ok);
  }

  static UCCLEP_FN void end(const Op& op, bool ok) {
    if (end_operation(op, every_thread(ok) && all_in(op), true)) send_consumed(op, op.seq);
  }

  // Verb of a block's threads: up to which operation this rank has finished reading; `last` as for last_read. Peers
  // with windows hear it from slots_free.
  static UCCLEP_FN void send_consumed(const Op& op, uint64_t last) {
    const Op read{op.group, op.kind, op.name, last_read(op, last), op.slot};
    const Fifo& fifo = op.group.network->fifo;
    for (uint32_t first = 0; first < op.ranks(); first += block_size()) {
      const uint32_t peer = first + thread_id();
      const bool remote = peer < op.ranks() && !op.has_window(peer) && !is_masked(op.group, peer);
      CommandFields command;
      command.operation = CommandOp::consumed;
      if (!network::push_to(read, remote, control_ring(fifo, peer), peer, command)) return;
    }
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE
