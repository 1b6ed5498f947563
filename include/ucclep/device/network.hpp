// SPDX-License-Identifier: Apache-2.0
// The network as kernels see it: the rings into which they put commands for the proxy threads, and the words in which
// these tell what has come. Of a rank that only the network reaches a group has no window.
//
// clang-format off
// | who releases                        | who acquires                  | scope  | what is ordered                           |
// |-------------------------------------|-------------------------------|--------|-------------------------------------------|
// | the warp that stored a row, or a    | RingReader::poll, then the    | system | rows and headers, where they wait to be   |
// |   header (its block's, by a barrier)|   NIC's read                  |        |   sent, before the NIC reads them         |
// |   : order_before_push, the command  |                               |        |                                           |
// | the proxy at the other end: store   | wait_header, wait_row:        | system | what has come before its readers; before  |
// |   of a progress word, after its NIC |   load_acquire, then in bulk  |        |   other threads by the barrier or warp    |
// |   reported the arrival              |   acquire_then_bulk           |        |   verb that follows                       |
// | the last block out: order_before_   | slots_free at the other end:  | system | all reads of what came before the next    |
// |   push, `consumed`; its proxy, by   |   load_acquire of the consumed|        |   writes into the same slot, there and    |
// |   the network, to the peer's proxy  |   word in the window          |        |   here                                    |
// clang-format on
// A slot may be written again only when all that its operation brings has come: a write that is late would come to lie
// over the next one. So an operation waits for all of it (all_in), also where it ends without a row.
#pragma once
#include "ucclep/device/arrivals.hpp"
#include "ucclep/device/fifo.hpp"
#include "ucclep/device/routing.hpp"

namespace ucclep {

// In memory the words of the group's NodeTable follow it.
struct NetworkView {
  Fifo fifo;
  Arrivals arrivals;
  uint32_t rows_per_chunk[2 * num_kinds];  // rows that arrive together; behind those from rank to rank, from node to
                                           // node (between_nodes_flag)
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace network {

UCCLEP_FN NodeTable nodes_of(const ucclEpDeviceGroup& group) {
  const NodeShape& shape = group.shape.nodes;
  return {reinterpret_cast<const uint32_t*>(group.network + 1), group.shape.ranks, shape.nodes, shape.turns};
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
    ErrorRecord record = record_of(op, ucclEpTimeout, Phase::ring, static_cast<int32_t>(peer));
    record.waited_ns = op.group.timeout_ns;
    report_fatal(op.group.errors, op.group.abort_word, record);
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

UCCLEP_FN Progress progress_of(const Op& op, uint32_t source) {
  return Progress::of_word(
      load_acquire<Scope::system>(op.group.network->arrivals.progress_of(op.kind, op.seq, source)));
}

UCCLEP_FN bool wait_header(const Op& op, uint32_t source) {
  return wait_peer(op, Phase::header, source, [&] {
    const Progress progress = progress_of(op, source);
    return progress.seq == op.seq && progress.announced;
  });
}

UCCLEP_FN bool wait_row(const Op& op, uint32_t source, uint32_t place, uint8_t flags = 0) {
  const uint32_t chunk = place / rows_per_chunk(op, flags);
  return wait_peer(op, Phase::rows, source, [&] {
    const Progress progress = progress_of(op, source);
    return progress.seq == op.seq && (progress.complete || progress.below > chunk);
  });
}

UCCLEP_FN bool wait_all(const Op& op, uint32_t source) {
  return wait_peer(op, Phase::rows, source, [&] {
    const Progress progress = progress_of(op, source);
    return progress.seq == op.seq && progress.complete;
  });
}

}  // namespace network

// Some ranks by their windows, the others by the network.
struct ByNetwork {
  static constexpr bool network = true;

  static UCCLEP_FN Packet* header_for(const Op& op, uint32_t peer) {
    const bool there = op.has_window(peer);
    const WindowLayout& layout = op.group.layout;
    const uint64_t ring = static_cast<uint32_t>(op.kind) * op.group.shape.in_flight + op.slot;
    const uint64_t block = ring * op.ranks() + (there ? op.me() : peer);
    return reinterpret_cast<Packet*>(op.window(there ? peer : op.me()) + (there ? layout.headers : layout.out_headers) +
                                     block * layout.header_bytes);
  }

  static UCCLEP_FN bool counts_stored(const Op& op, const HandleMemory& memory, uint32_t first, uint32_t step) {
    sync_block();
    bool ok = true;
    const uint32_t packets = HeaderLayout::packets(memory.shape.local_experts());
    for (uint32_t i = first; i < op.ranks() && warp_id() == 0 && ok; i += step * wave_size) {
      const uint32_t turn = i + lane_id() * step;
      const uint32_t peer = op.rotated(turn < op.ranks() ? turn : 0);
      const bool mine = turn < op.ranks() && !op.has_window(peer);  // else another block's
      ok = network::push_header(op, mine, peer, mine ? memory.rows_to()[peer] : 0, packets);
    }
    return every_thread(ok);
  }

  // wait_ns: gets the time, where given.
  static UCCLEP_FN bool headers_in(const Op& op, const View& wait_ns) {
    bool ok = true;
    for (uint32_t source = thread_id(); source < op.ranks(); source += block_size()) {
      if (op.has_window(source)) continue;
      const uint64_t start = wait_ns.data ? clock_ns() : 0;
      ok = network::wait_header(op, source) && ok;
      if (!wait_ns.data) continue;
      *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
    }
    return every_thread(ok);
  }

  static UCCLEP_FN bool wait_part(const Op& op, uint32_t rank, uint32_t place, const char* word) {
    return op.has_window(rank) ? wait_word(op, Phase::rows, rank, word) : network::wait_row(op, rank, place);
  }

  // Block verb: all that the operation brings has come, from all.
  static UCCLEP_FN bool all_in(const Op& op) {
    bool ok = true;
    for (uint32_t source = thread_id(); source < op.ranks(); source += block_size()) {
      if (!op.has_window(source)) ok = network::wait_all(op, source) && ok;
    }
    return every_thread(ok);
  }

  static UCCLEP_FN void end(const Op& op, bool ok) {
    if (!end_operation(op, every_thread(ok) && all_in(op), true)) return;
    const Fifo& fifo = op.group.network->fifo;
    for (uint32_t first = 0; first < op.ranks(); first += block_size()) {
      const uint32_t peer = first + thread_id();
      const bool remote = peer < op.ranks() && !op.has_window(peer);  // the others hear it from slots_free
      CommandFields command;
      command.operation = CommandOp::consumed;
      if (!network::push_to(op, remote, control_ring(fifo, peer), peer, command)) return;
    }
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE
