// SPDX-License-Identifier: Apache-2.0
// What device-initiated operations need of the network, in groups of which it reaches some ranks only. The
// library's kernels are compiled for such groups, or for others; a user's serves both, so it asks at every peer. Scopes
// may be less than a warp: one lane of a scope talks to the rings and to the proxies' words.
//
// clang-format off
// | who releases                                         | who acquires           | what is ordered                             |
// |------------------------------------------------------|------------------------|---------------------------------------------|
// | push_alone, after the scope's sync:                  | RingReader::poll, then | what the scope has stored before the NIC    |
// |   fence_acq_rel (system), the command                |   the NIC's read       |   reads it                                  |
// | the peer's proxy, and look (protocol/by_network.hpp) | header_came, wait_row  | headers and rows before who asked for them; |
// |                                                      |                        |   others of the scope after its sync        |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace network {

// Does only the network reach the rank?
UCCLEP_FN bool is_remote(const Op& op, uint32_t rank) {
  return op.networked() && !op.has_window(rank);
}

// Of an operation, what its commands need, in few words.
struct Sending {
  NetworkView* network;
  DeviceErrors* errors;
  uint32_t* abort_word;
  GroupState* state;
  uint64_t seq;
  Kind kind;
  Operation name;
  uint32_t slot;

  static UCCLEP_FN Sending of(const Op& op) {
    const ucclEpDeviceGroup& group = op.group;
    return {group.network, group.errors, group.abort_word, group.state, op.seq, op.kind, op.name, op.slot};
  }
};

// Lane verb, after the sync of its scope. False: the ring stayed full, or the operation has failed.
UCCLEP_COLD_FN bool push_alone(Sending of, uint32_t peer, CommandFields command) {
  const Fifo& fifo = of.network->fifo;
  command.epoch = static_cast<uint32_t>(of.seq);
  command.destination = static_cast<uint16_t>(peer);
  command.kind = static_cast<uint8_t>(of.kind);
  fence_acq_rel<Scope::system>();
  const bool control = command.operation == CommandOp::consumed;
  if (push_below_mark(fifo, control ? control_ring(fifo, peer) : bulk_ring(fifo, peer), command)) return true;
  if (load_relaxed<Scope::system>(of.abort_word) == 0) {
    const uint64_t began = clock_ns() - fifo.timeout_ns;
    report_timeout(of.errors, of.abort_word, {of.seq, began, of.state, of.slot, of.name, Phase::ring, peer});
  }
  return false;
}

// Rows [row, row + rows), which lie in one chunk. flags: of the sort of rows.
UCCLEP_FN bool push_rows_alone(const Op& op, uint32_t peer, uint32_t row, uint32_t rows, uint64_t row_bytes,
                               uint8_t flags) {
  CommandFields command;
  command.flags = flags;
  command.operation = CommandOp::put;
  command.row = row;
  command.rows = static_cast<uint16_t>(rows);
  command.bytes = rows * static_cast<uint32_t>(row_bytes);
  return push_alone(Sending::of(op), peer, command);
}
UCCLEP_FN bool push_row_alone(const Op& op, uint32_t peer, uint32_t row, uint64_t row_bytes) {
  return push_rows_alone(op, peer, row, 1, row_bytes, 0);
}
// A row between nodes, as push_stored.
UCCLEP_FN bool push_stored_alone(const Op& op, uint32_t peer, uint32_t row, uint32_t total, uint64_t row_bytes) {
  const StoredChunk chunk = StoredChunk::count(op, peer, row, total);
  return chunk.rows == 0 || push_rows_alone(op, peer, chunk.first, chunk.rows, row_bytes, between_nodes_flag);
}

// rows: in all.
UCCLEP_FN bool push_header_alone(const Op& op, uint32_t peer, uint32_t rows, uint32_t packets) {
  CommandFields command;
  command.operation = CommandOp::header;
  command.row = rows;
  command.bytes = packets * static_cast<uint32_t>(sizeof(Packet));
  return push_alone(Sending::of(op), peer, command);
}

// The header of a source where it has come: nobody copies those of other domains here.
UCCLEP_FN const Packet* header_from(const Op& op, uint32_t source) {
  if (!is_remote(op, source)) return header_packets(op, op.me(), source);
  return reinterpret_cast<const Packet*>(mine(op) +
                                         op.group.layout.in_header(op.group.shape, op.kind, op.slot, source));
}

// Lane verb: a header from another domain is there, whole; packets of others are waited for one by one.
UCCLEP_FN bool header_came(const Op& op, uint32_t source) {
  return !is_remote(op, source) || wait_header(op, source);
}

// Where partial rows of LL land that a rank has sent.
UCCLEP_FN const char* landed_back(const Op& op, uint32_t rank) {
  return op.networked() ? ByNetwork::landed_back(op, rank) : op.mine() + op.group.layout.back_rows_of(op.slot, rank);
}

// Lane verbs of who ends an operation that a kernel has received: all of its rows have come; and peers of other
// domains hear that it has been read.
UCCLEP_FN bool all_in_alone(const Op& op) {
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    if (is_remote(op, source) && !is_masked(op, source) && !wait_all(op, source)) return false;
  }
  return true;
}
UCCLEP_FN bool send_consumed_alone(const Op& op) {
  Sending sending = Sending::of(op);
  sending.seq = last_read(op, op.seq);
  CommandFields command;
  command.operation = CommandOp::consumed;
  for (uint32_t peer = 0; peer < op.ranks(); ++peer) {
    if (is_remote(op, peer) && !is_masked(op, peer) && !push_alone(sending, peer, command)) return false;
  }
  return true;
}

}  // namespace network
}  // namespace UCCLEP_SIMT_NAMESPACE
