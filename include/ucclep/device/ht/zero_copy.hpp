// SPDX-License-Identifier: Apache-2.0
// HT's READY (protocol P14): I have begun, with these settings; and, where the caller's tensor lies in a window of the
// caller's, here it is. Peers then write rows to where they belong (dispatch), or read them where they are (combine),
// without a copy in between. Its owner learns by the consumed word that they have finished: a rank that has exposed a
// tensor ends its operation only when every peer has ended its own part of it.
//
// clang-format off
// | who releases                             | who acquires                     | what is ordered             |
// |------------------------------------------|----------------------------------|-----------------------------|
// | send_ready: fence_acq_rel, then          | receive_ready: load_packet, then | the caller's earlier writes |
// |   store_packet                           |   fence_acq_rel and              |   and reads before the      |
// |                                          |   acquire_then_bulk              |   peer's reads and writes   |
// | end_exposing: publish of consumed, after | end_exposing of the owner:       | the peer's reads and writes |
// |   bulk_wait_written and the last ticket  |   load_acquire                   |   before the owner's caller |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/turns.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace ucclep {

// READY's words behind the settings, two to a packet.
struct OfferWords {
  static constexpr uint32_t base = 0, capacity = 1, tokens = 2, scales = 7;
  // Of a tensor. window: its id + 1; 0: not exposed, as where the rank has no header. The offset has two words.
  static constexpr uint32_t window = 0, stride = 1, step = 2, offset = 3;
  static constexpr uint32_t count = 12;
  // Places that come in the first round (ht/rounds.hpp), the first and the one behind the last. In a packet of their
  // own, which later rounds in the slot write over: blocks that begin late read the others alone.
  static constexpr uint32_t first_place = 12, end_place = 13, count_sent = 14;
};
static_assert(HeaderLayout::packets(OfferWords::count_sent) <= HeaderLayout::min_packets);
static_assert(HeaderLayout::packets(OfferWords::first_place) == HeaderLayout::round);

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

UCCLEP_FN void offer_tensor(uint32_t* words, const ExposedTensor& tensor) {
  words[OfferWords::window] = tensor.window + 1;
  words[OfferWords::stride] = tensor.stride;
  words[OfferWords::step] = tensor.step;
  words[OfferWords::offset] = static_cast<uint32_t>(tensor.offset);
  words[OfferWords::offset + 1] = static_cast<uint32_t>(tensor.offset >> 32);
}

UCCLEP_FN PeerTensor peer_tensor(const Op& op, uint32_t owner, const uint32_t* words) {
  const uint32_t window = words[OfferWords::window];
  if (window == 0) return {nullptr, 0, 0};
  const uint64_t offset = uint64_t{words[OfferWords::offset + 1]} << 32 | words[OfferWords::offset];
  char* begin = op.group.user_windows[uint64_t{window - 1} * op.ranks() + owner];
  return {begin + offset, words[OfferWords::stride], words[OfferWords::step]};
}

// Lane verb: whether the rows of an offered tensor lie in a window of its owner's. row_bytes: of a row that is dense.
UCCLEP_FN bool lies_in_window(const Op& op, uint32_t owner, const uint32_t* words, uint32_t capacity,
                              uint32_t row_bytes, uint32_t element) {
  const uint32_t window = words[OfferWords::window];
  if (window == 0 || capacity == 0) return true;
  const uint64_t columns = (row_bytes + element - 1) / element;
  const uint64_t rows = uint64_t{capacity - 1} * words[OfferWords::stride],
                 row = columns == 0 ? 0 : (columns - 1) * words[OfferWords::step] + element;
  const uint64_t offset = uint64_t{words[OfferWords::offset + 1]} << 32 | words[OfferWords::offset];
  const uint64_t bytes =
      window <= max_windows ? op.group.user_window_bytes[uint64_t{window - 1} * op.ranks() + owner] : 0;
  // Rows that span 2^63 bytes or more lie in no window, and their sum would wrap.
  if (rows < uint64_t{1} << 63 && offset <= bytes && rows + row <= bytes - offset) return true;
  report_count(op.group.errors, op.group.abort_word, Waiter::of(op, Phase::offer, owner, 0), offset, bytes);
  return false;
}

// Warp verb: what READY's words say. False: no peer could reach that.
UCCLEP_FN bool read_exposed(const Op& op, uint32_t source, const Settings& settings, const uint32_t* words,
                            PeerTensors& peer) {
  const bool given = words[OfferWords::tokens + OfferWords::window] != 0;
  if (given) fence_acq_rel<Scope::system>();
  bool lies = true;
  if (lane_id() == 0) {
    const uint32_t *const tokens = words + OfferWords::tokens, *const scales = words + OfferWords::scales,
                          capacity = words[OfferWords::capacity], element = element_bytes(settings.output_dtype);
    lies = lies_in_window(op, source, tokens, capacity, settings.hidden * element, element) &&
           lies_in_window(op, source, scales, capacity, settings.scale_bytes, element_bytes(settings.scale_dtype));
    if (lies) {
      peer = {given, peer_tensor(op, source, tokens), peer_tensor(op, source, scales), words[OfferWords::base],
              capacity};
    }
  }
  return every_lane(lies);
}

// One of the warps of the grid that do the same.
struct Worker {
  uint32_t index, workers;
};

// Lane verb: whether this rank exposes what it offers. That ends by the peers' consumed words, which stay behind an
// older operation that is pending: beside one, rows go by staging.
UCCLEP_FN bool exposes(const Op& op, const ZeroCopyOffer& offer) {
  return offer.tokens.given() && pending_slots(op) == 0;
}

// Verb of the workers: READY to every peer. words: OfferWords::count_sent of them, memory of the warp's own.
template <class Wire>
UCCLEP_FN bool send_ready(const Op& op, const HandleMemory& memory, const Settings& settings,
                          const ZeroCopyOffer& offer, uint32_t* words, const Worker& worker) {
  const bool exposed = exposes(op, offer);
  bool ok = true;
  for (uint32_t i = worker.index; i < op.ranks() && ok; i += worker.workers) {
    const uint32_t peer = op.rotated(i);
    if (lane_id() == 0) {
      words[OfferWords::base] = memory.recv_base()[peer];
      words[OfferWords::capacity] = offer.capacity;
      offer_tensor(words + OfferWords::tokens, exposed ? offer.tokens : ExposedTensor{});
      offer_tensor(words + OfferWords::scales, exposed ? offer.scales : ExposedTensor{});
      const PlaceRange sent = sent_in_round(op, memory, peer);
      words[OfferWords::first_place] = sent.begin;
      words[OfferWords::end_place] = sent.end;
    }
    sync_warp();
    if (exposed) fence_acq_rel<Scope::system>();
    const uint32_t rows = Wire::announced(op, memory, peer);
    store_header(op, Wire::header_for(op, peer), settings, rows, Form::bulk, 0, words, OfferWords::count_sent);
    ok = Wire::header_stored(op, peer, rows, HeaderLayout::packets(OfferWords::count_sent));
  }
  return ok;
}

UCCLEP_FN PeerTensors* exposed_of(const Stage& stage) {
  return reinterpret_cast<PeerTensors*>(stage.beyond() + before_exposed);
}

// Block verb: every block reads every rank's READY itself, so all blocks decide alike without a barrier between them.
// words as above.
UCCLEP_FN HeaderResult receive_ready(const Op& op, const Settings& settings, const View& wait_ns, PeerTensors* exposed,
                                     uint32_t* words) {
  bool lost = false, differs = false;
  for (uint32_t i = warp_id(); i < op.ranks() && !lost; i += block::warps()) {
    const uint32_t source = op.rotated(i);
    HeaderFacts facts{};
    const uint64_t start = clock_ns();
    const HeaderResult result = receive_header(op, source, settings, facts, words, OfferWords::count);
    lost = result == HeaderResult::lost;
    differs = differs || result == HeaderResult::differs;
    sync_warp();
    if (result == HeaderResult::good) lost = !read_exposed(op, source, settings, words, exposed[source]);
    if (wait_ns.data && block_id() == 0 && lane_id() == 0) {
      *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
    }
    sync_warp();  // the words are free for the next header
  }
  if (!every_thread(!lost)) return HeaderResult::lost;
  if (thread_id() == 0) mark(op, Mark::headers_in);
  if (!every_thread(!differs)) return HeaderResult::differs;
  acquire_then_bulk();
  return HeaderResult::good;
}

// Block verb, in a group with masks: nobody exposes a tensor (P13), so nobody waits for READY before rows leave.
UCCLEP_FN void clear_exposed(const Op& op, PeerTensors* exposed) {
  for (uint32_t r = thread_id(); r < op.ranks(); r += block_size()) exposed[r] = {};
  sync_block();
}

// Block verb, the first of an operation whose counts are known: what every rank exposes, in shared memory. The first
// block sends READY: no block that waits for other ranks is resident before it. lost: this rank gives up; differs:
// ranks differ, or did in the update, and every rank ends without a row.
template <class Wire>
UCCLEP_FN HeaderResult exchange_ready(const Op& op, const OpState& op_state, const HandleMemory& memory,
                                      const Settings& settings, const ZeroCopyOffer& offer, const View& wait_ns,
                                      const Stage& stage) {
  // A later round waits for what is published here, and no block is resident before the first.
  const bool publishes = routed_rounds(memory) > 1 ? block_id() == 0 : publishes_consumed();
  if (!slots_free(op, op_state, typename Wire::Consumed{}, publishes)) return HeaderResult::lost;
  auto* words = reinterpret_cast<uint32_t*>(stage.scratch());
  const Worker sender{block_id() == 0 ? warp_id() : op.ranks(), block::warps()};
  const bool sent = send_ready<Wire>(op, memory, settings, offer, words, sender);
  if (Wire::network && !every_thread(sent)) return HeaderResult::lost;
  if (has_masks<Wire>(op.group)) {
    clear_exposed(op, exposed_of(stage));
  } else {
    if (!Wire::ready_in(op, block_id() == 0, wait_ns)) return HeaderResult::lost;
    const HeaderResult ready = receive_ready(op, settings, wait_ns, exposed_of(stage), words);
    if (ready != HeaderResult::good) return ready;
  }
  return is_routed(op, memory, uniform(memory.state()->updated)) ? HeaderResult::good : HeaderResult::differs;
}

// Block verb, of a receive phase: what the send phase has waited for, again; or for the first time, after a user's
// kernel or in a group with masks.
template <class Wire>
UCCLEP_FN HeaderResult ready_before(const Op& op, const HandleMemory& memory, const Settings& settings,
                                    const View& wait_ns, const Stage& stage) {
  if (has_masks<Wire>(op.group) && !Wire::ready_in(op, block_id() == 0, wait_ns)) return HeaderResult::lost;
  auto* words = reinterpret_cast<uint32_t*>(stage.scratch());
  const HeaderResult ready = receive_ready(op, settings, wait_ns, exposed_of(stage), words);
  if (ready != HeaderResult::good) return ready;
  return memory.state()->updated == memory.handle.stamp ? HeaderResult::good : HeaderResult::differs;
}

// The warps of every block that do the same: a run of them.
struct WarpRole {
  WarpUniform first, warps;

  UCCLEP_FN bool has_me() const { return warp_id() >= first && warp_id() - first < warps; }
  // Neighbours are on different SMs, so that little work uses them all.
  UCCLEP_FN Worker me() const { return in(block_id()); }
  // This warp, as if of another block.
  UCCLEP_FN Worker in(uint32_t block) const { return {(warp_id() - first) * grid_size() + block, warps * grid_size()}; }
};

// Verb of a warp of a role: what others wait for, by turns, round by round. first: from begin_turn. send(op, worker): a
// share of a round; false: nothing more can be sent. Bulk stores of shares are written when it returns. Each warp looks
// before its share whether one will be left, so that where all blocks are resident it does not wait for that
// afterwards.
template <class Send>
UCCLEP_FN bool in_turns(const Op& op, Turn what, const WarpRole& role, const SentRounds& sent, uint32_t first,
                        Send&& send) {
  const WarpUniform all = (sent.end - sent.first) * grid_size(), round = sent.first;
  const uint32_t seen = look_at_turns(op, what);
  for (WarpUniform turn = turn_in(first); turn < all; turn = turn_in(begin_turn(op, what))) {
    if (!send(op.in_round(round + turn / grid_size()), role.in(turn % grid_size()))) return false;
    if (turn_in(seen) >= all) break;
  }
  bulk_wait_written();
  return true;
}
// The same of an operation in one round.
template <class Send>
UCCLEP_FN bool in_turns(const Op& op, Turn what, const WarpRole& role, Send&& send) {
  return in_turns(op, what, role, {1, 0, 1}, begin_turn(op, what),
                  [&](const Op&, const Worker& worker) { return send(worker); });
}

// In FLAT this rank's own rows never leave: it is as if it had exposed the tensors to itself.
UCCLEP_FN PeerTensors own_tensors(const HandleMemory& memory, const View& tokens, const View& scales, uint64_t capacity,
                                  uint32_t me) {
  return {true,
          {tokens.data, tokens.inner, tokens.element},
          {scales.data, scales.inner, scales.element},
          memory.recv_base()[me],
          static_cast<uint32_t>(capacity)};
}

// Lane verb: one element of scales, 1 to 8 bytes; most have 4, and over a link a store of 4 is one store.
UCCLEP_FN void copy_element(char* to, const char* from, uint32_t bytes) {
  if (bytes == 4) {
    *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
  } else {
    for (uint32_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// Where one row goes, piece by piece: a RowSink that knows two kinds of destinations.
struct RowTargets {
  const WireShape& wire;
  char* staging;  // of the row, or NULL
  bool direct;    // this lane has a destination of its own:
  char* tokens;
  char* scales;
  int64_t scale_step;

  // Scales that lie in a row and fill 16 bytes each time are copied like tokens.
  UCCLEP_FN bool bulk_scales() const {
    const uint64_t unaligned = reinterpret_cast<uint64_t>(scales) | wire.scale_bytes();
    return scale_step == int64_t{wire.scale_element_bytes} && unaligned % 16 == 0;
  }

  // at: in the row on the wire, tokens first.
  UCCLEP_FN void put(const char* smem, uint64_t at, uint32_t bytes) const {
    if (staging) bulk_store(lane_id() == 0, staging + at, smem, bytes);
    if (at < wire.token_bytes) {
      bulk_store(direct, tokens + at, smem, bytes);
      return;
    }
    const uint64_t offset = at - wire.token_bytes;
    const bool whole = direct && bulk_scales();
    bulk_store(whole, scales + offset, smem, bytes);
    for (uint64_t left = ballot(direct && !whole); left != 0; left &= left - 1) {
      const uint32_t lane = first_lane(left);
      char* to = reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(scales), lane));
      const int64_t step = broadcast(scale_step, lane);
      const uint32_t size = wire.scale_element_bytes, first = static_cast<uint32_t>(offset) / size;
      const uint32_t end = first + bytes / size < wire.scale_count ? first + bytes / size : wire.scale_count;
      for (uint32_t e = first + lane_id(); e < end; e += wave_size)
        copy_element(to + e * step, smem + (e - first) * size, size);
    }
    sync_warp();  // all lanes have read the piece
  }
};

// at: place among those of the round.
UCCLEP_FN char* meta_at(const Op& op, uint32_t receiver, uint32_t source, uint32_t at) {
  return op.window(receiver) + op.group.layout.ht_meta_of(op.slot, source) +
         uint64_t{at} * MetaLayout::of(op.group.shape.top_k).bytes;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
