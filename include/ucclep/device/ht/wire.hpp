// SPDX-License-Identifier: Apache-2.0
// What operations of HT do where all ranks reach each other's windows, without and with masks. The other way, for ranks
// in several nodes, is ht_network.hpp.
#pragma once
#include "ucclep/device/protocol/halves.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/protocol/token_sets.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

struct OneNode {
  static constexpr bool network = false;
  static constexpr bool masks = false;  // true: in a group with masks, of those who are not lost
  static constexpr bool rings = false;  // true: rows from other nodes land in rings
  using Consumed = ConsumedWord;

  // ---- Update
  // Lane verb: tokens before `token` that have a row for the column.
  static UCCLEP_FN uint32_t count_before(const TokenSets<HtUpdateArgs>& sets, uint32_t column, uint32_t token) {
    return sets.count_before(column, token);
  }
  // What ends the wait of blocks for each other.
  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) { return op.group.abort_word; }
  static UCCLEP_FN void end_update(const Op& op, bool ok) { end_operation(op, ok); }

  // ---- Headers
  // Does an Update have one for the peer that has not left yet.
  static UCCLEP_FN bool has_header_for(const Op&, uint32_t) { return true; }
  // Where the one for a peer is put together; and a warp verb, when the warp has done so.
  static UCCLEP_FN Packet* header_for(const Op& op, uint32_t peer) { return header_packets(op, peer, op.me()); }
  static UCCLEP_FN bool header_stored(const Op&, uint32_t, uint32_t, uint32_t) { return true; }
  // Block verb: before they are read. by: the block that has the time for it.
  static UCCLEP_FN bool headers_in(const Op&, uint32_t, const View&) { return true; }
  // Rows that READY announces to a peer.
  static UCCLEP_FN uint32_t announced(const Op&, const HandleMemory&, uint32_t) { return 0; }

  // ---- Dispatch and combine
  static UCCLEP_FN bool reaches(const Op&, uint32_t) { return true; }  // the other's window
  // Is a partial row of the rank a term of its own at home.
  static UCCLEP_FN bool is_term(const Op&, uint32_t) { return true; }
  static UCCLEP_FN void end(const Op& op, bool ok, bool lent) { end_lending(op, ok, lent); }

  // Where else a row goes: nowhere.
  struct Away {
    UCCLEP_FN Away(const Op&, const HandleMemory&, const HtDispatchArgs&, uint32_t, const Selection&) {}
    UCCLEP_FN bool any() const { return false; }
    UCCLEP_FN void write_places(const GroupShape&, char*, const Selection&) const {}
    UCCLEP_FN void send_head(const GroupShape&, const char*) {}
    UCCLEP_FN const RowTargets& and_to(const RowTargets& targets, char*) const { return targets; }
  };
  static UCCLEP_FN bool push_run(const Op&, const HtDispatchArgs&, uint32_t, uint32_t) { return true; }

  // Where a row lies that is pulled.
  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    return op.window(source) + op.group.layout.ht_rows_of(op.slot) + uint64_t{meta_token(meta)} * wire.row_bytes;
  }
  // At which a run of partial rows for a home is announced.
  static UCCLEP_FN uint64_t* run_words(const Op& op, uint32_t home) {
    return reinterpret_cast<uint64_t*>(op.window(home) + op.group.layout.back_epochs_of(op.slot, op.me()));
  }
  // Beside them, by place: which rows of the pool they take (ht_pool.hpp).
  static UCCLEP_FN uint32_t* pool_places(const Op& op, uint32_t home) {
    return reinterpret_cast<uint32_t*>(op.window(home) + op.group.layout.back_places_of(op.slot, op.me()));
  }
};

// The same in kernels of groups that may have masks. Others do without, as in LL (ConsumedOfLiving).
struct OneNodeOfLiving : OneNode {
  static constexpr bool masks = true;
  using Consumed = ConsumedOfLiving;
  // A rank whose headers did not leave would wait in its mend for others who wait in theirs. No block leaves before the
  // barrier, so nothing need end the wait for it.
  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) { return &op.group.masks->never; }
  static UCCLEP_FN bool reaches(const Op& op, uint32_t rank) { return !is_masked(op.group, rank); }
  static UCCLEP_FN bool is_term(const Op& op, uint32_t rank) { return !is_masked(op.group, rank); }
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
