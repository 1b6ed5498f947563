// SPDX-License-Identifier: Apache-2.0
// LL dispatch from a user's kernel: the one that computes the rows, or their experts, sends them.
//
//   const auto op = ll::dispatch_begin(handle, shape);                    every thread of the grid
//   ll::dispatch_send(warp{}, op, token, row, scales, experts, weights);  each token once: any scope, block and order
//   ll::dispatch_end(block{}, op, tokens);                                every block, once, after its last send
// and then ucclEpCompleteDispatch, or dispatch_recv in the same kernel (ll_dispatch_recv.hpp).
//
// clang-format off
// | who writes                                   | who reads                              | ordered by                  |
// |----------------------------------------------|----------------------------------------|-----------------------------|
// | dispatch_send: rows in LINE form             | CompleteDispatch of the peers          | the lines' epochs           |
// | dispatch_send: rows in BULK form, experts,   | the last block in dispatch_end         | its ticket (acq_rel, gpu)   |
// |   weights                                    |                                        |                             |
// | the last block: rows in BULK form            | CompleteDispatch of the peers          | publish of the metas' epochs|
// | the last block: the handle's state           | CompleteDispatch, on the same stream   | the end of the kernel       |
// | dispatch_send, to other domains: rows; the   | CompleteDispatch of the peers          | user/network.hpp            |
// |   last block: their places                   |                                        |                             |
// clang-format on
//
// A row is read during its dispatch_send only. In one domain there is no wait but dispatch_begin's, for slots that
// peers still read. Between domains dispatch_send and dispatch_end may wait while proxies have too many commands.
// Floor: as dispatch's (ll/lines.hpp), but positions leave after the last row instead of with the first.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/routing.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/network/fifo.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/routing.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// What all ranks must agree on.
UCCLEP_FN Settings dispatch_settings(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Settings s;
  s.hidden = shape.hidden;
  s.scale_bytes = shape.scale_bytes;
  s.top_k = shape.top_k;
  s.mode = UCCLEP_MODE_LL;
  s.layout = static_cast<uint32_t>(handle.view.layout);
  s.waves = handle.view.waves;
  s.dtype = s.output_dtype = static_cast<uint32_t>(shape.dtype);
  s.scale_dtype = static_cast<uint32_t>(shape.scale_dtype);
  s.weights_at_dispatch = handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR || shape.weighted ? 1 : 0;
  return s;
}

// Block verb of every block: an operation begins whose slots are free.
UCCLEP_FN OpenDispatch begin_dispatch(const ucclEpDeviceHandle& handle, const RowShape& shape,
                                      const Settings& settings) {
  OpState op_state = OpState::load(handle.group, Kind::dispatch);
  const Op op = begin_next(handle, Kind::dispatch, Operation::dispatch, op_state);
  const bool ok = op.seq != 0 &&
                  fits(op, handle, shape, UCCLEP_MODE_LL, handle.group.shape.top_k, settings.by_rows != 0) &&
                  slots_free_in_any_group(op, op_state);
  const WireShape wire = WireShape::of(shape.token_bytes(), shape.scale_bytes, 1);
  // How many tokens there are, nobody knows yet: as if there were as many as there can be.
  const Form form = form_of(handle.group.shape, wire, handle.view.tokens) == Form::line ? Form::line : Form::placed;
  return {{handle, shape, settings, op.seq, op.slot, ok}, wire, form};
}

// Block verb of every block: the handle's group begins a dispatch. Waits until peers have finished with the slots; at
// most the group's timeout.
// Registers: 76 (sm_90a), 39 (gfx942).
UCCLEP_FN OpenDispatch dispatch_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  return begin_dispatch(handle, shape, dispatch_settings(handle, shape));
}

// Block verb of every block: the same with a routing that is known already. Headers and metas leave ahead of the rows,
// from all blocks, where rows travel as lines; else with the last row, since there a meta says that its row is whole.
// More than B tokens: the first B count, and a data record says so.
template <class Index>
UCCLEP_FN RoutedDispatch<Index> dispatch_begin(const ucclEpDeviceHandle& handle, const RowShape& shape,
                                               const TopkRouting<Index>& routing) {
  RoutedDispatch<Index> open{dispatch_begin(handle, shape), routing};
  const uint32_t most = handle.view.tokens;
  if (routing.tokens > most) refuse(open.op(), Field::tokens, most, routing.tokens);
  if (open.routing.tokens > most) open.routing.tokens = most;
  open.announced = handle.group.network == nullptr && open.form == Form::line;
  if (open.ok && open.announced) {
    in_group_of(open.op(), [=](const Op& op) {
      announce(open, op);
      return true;
    });
  }
  return open;
}

// Verb of the scope: the routing of a token, for dispatch_end and for combine.
template <class Coop, class TopkOfToken>
UCCLEP_FN void keep_topk(const OpenDispatch& open, uint32_t token, const TopkOfToken& topk, const float* weights) {
  const HandleMemory memory = open.memory();
  auto* ids = memory.at<int32_t>(memory.handle.offsets.topk) + uint64_t{token} * memory.shape.top_k;
  auto* kept = memory.at<float>(memory.handle.offsets.weights) + uint64_t{token} * memory.shape.top_k;
  topk.template each<Coop>([&](uint32_t k, int32_t expert) {
    ids[k] = expert;
    kept[k] = weights != nullptr ? weights[k] : 0.0f;
  });
}

// A row on its way to ranks of other domains, a bit of `ranks` for each. They leave when they are sent: they lie there
// in the order of sending, and what follows from counting goes behind the header (HeaderLayout::places).
struct RemoteRow {
  const OpenDispatch& open;
  uint32_t token, ranks;

  template <class TopkOfToken>
  static UCCLEP_FN RemoteRow of(const OpenDispatch& open, uint32_t token, const TopkOfToken& topk, uint32_t ranks) {
    const Op op = open.op();
    uint32_t remote = 0;
    UCCLEP_KEEP_LOOP
    for (uint32_t left = op.networked() ? ranks : 0; left != 0; left &= left - 1) {
      const uint32_t k = first_lane(left);
      if (!op.has_window(topk.rank(k))) remote |= 1u << k;
    }
    return {open, token, remote};
  }
  UCCLEP_FN uint64_t bytes() const { return network_row_bytes(open.handle.group.shape, open.wire.row_bytes); }
  UCCLEP_FN uint32_t rank(uint32_t k) const {
    const HandleMemory memory = open.memory();
    const auto* const experts = memory.at<int32_t>(memory.handle.offsets.topk);
    return static_cast<uint32_t>(experts[uint64_t{token} * memory.shape.top_k + k]) / memory.shape.local_experts();
  }
  // Until dispatch_end has counted, the place is which of the rows to that rank this is. no_place: it does not go
  // there, since the rank is masked; or a token was sent again, and there is no room.
  UCCLEP_FN uint32_t& place(uint32_t k) const {
    const HandleMemory memory = open.memory();
    return memory.at<uint32_t>(memory.handle.offsets.places)[uint64_t{token} * memory.shape.top_k + k];
  }

  // Lane verb, after keep_topk.
  UCCLEP_FN void take_places() const {
    for (uint32_t left = ranks; left != 0; left &= left - 1) {
      const uint32_t k = first_lane(left);
      place(k) = no_place;
      if (is_masked(open.handle.group, rank(k))) continue;
      const uint32_t taken = fetch_add_relaxed<Scope::gpu>(open.memory().sent_to() + rank(k), 1u);
      if (taken < open.handle.view.tokens) place(k) = taken;
    }
  }
  // Calls store(address) for each row that waits to be sent.
  template <class Store>
  UCCLEP_FN void each(Store&& store) const {
    const Op op = open.op();
    for (uint32_t left = ranks; left != 0; left &= left - 1) {
      const uint32_t k = first_lane(left), at = place(k);
      if (at == no_place) continue;
      store(network::mine(op) + op.group.layout.out_rows_for(op.group.shape, op.slot, rank(k)) + at * bytes());
    }
  }
  // Lane verb, after the scope's sync.
  UCCLEP_FN void push() const {
    for (uint32_t left = ranks; left != 0; left &= left - 1) {
      const uint32_t k = first_lane(left);
      if (place(k) != no_place && !network::push_row_alone(open.op(), rank(k), place(k), bytes())) return;
    }
  }
};

// Verb of the scope: such a row.
template <class Coop, class Word, class ScaleWord>
UCCLEP_FN void send_remote(const RemoteRow& remote, const float* weights, Word&& row_word, ScaleWord&& scale_word) {
  Coop::sync();  // the token's ids are kept
  if (Coop::rank() == 0) remote.take_places();
  Coop::sync();
  const HandleMemory memory = remote.open.memory();
  const WireShape& wire = remote.open.wire;
  const uint32_t meta_bytes = MetaLayout::of(memory.shape.top_k).bytes;
  const auto to = [&](uint64_t at) {
    return [&, at](auto&& store) { remote.each([&](char* row) { store(row + at); }); };
  };
  if (remote.ranks != 0) {
    put_bytes<Coop>(meta_bytes, to(0), [&](uint32_t at) { return meta_word(memory, remote.token, weights, at); });
    put_bytes<Coop>(wire.token_bytes, to(meta_bytes), row_word);
    put_bytes<Coop>(wire.row_bytes - wire.token_bytes, to(meta_bytes + wire.token_bytes), scale_word);
  }
  Coop::sync();
  if (Coop::rank() == 0) remote.push();
}

// Where the meta of a token lies at a rank that gets it.
UCCLEP_FN uint64_t meta_at(const OpenDispatch& open, const Op& op, uint32_t token) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  if (open.form != Form::line) {
    return window.ll_meta_of(op.slot, op.me()) + uint64_t{token} * MetaLayout::of(shape.top_k).bytes;
  }
  return window.ll_lines_of(op.slot, op.me()) + uint64_t{token} * RowLines::of(shape, open.wire).all() * line_bytes;
}

// Verb of the scope, after the row: the meta of a token that nobody has counted. each(offset): stores there at every
// rank that gets the row. In BULK form it says that the row is whole. sends: there is one.
template <class Coop, class TopkOfToken, class Each>
UCCLEP_FN void send_meta_alone(const OpenDispatch& open, const Op& op, uint32_t token, const TopkOfToken& topk,
                               const float* weights, bool sends, Each&& each) {
  if (!whole_warps<Coop> || open.form != Form::line) Coop::sync();  // the row is whole, and the token's ids are kept
  if constexpr (whole_warps<Coop>) {
    const bool given = sends && weights != nullptr && lane_id() < open.shape.top_k;
    if (Near<Coop>::index() == 0 && sends) send_meta(op, open, token, topk.mine, given ? weights[lane_id()] : 0.0f);
  } else {
    const MetaLayout layout = MetaLayout::of(open.shape.top_k);
    const uint64_t at = meta_at(open, op, token);
    const auto word = [&](uint32_t offset) { return meta_word(open.memory(), token, weights, offset); };
    if (open.form == Form::line) {
      if (sends) put_lines<Coop>(layout.body_bytes(), op.seq, each(at), word);
      Coop::sync();
      if (sends) end_lines<Coop>(layout.body_bytes(), op.seq, each(at));
      return;
    }
    for (uint32_t b = 8 * Coop::rank(); sends && b < layout.body_bytes(); b += 8 * Coop::size()) {
      const uint64_t value = word(b);
      each(at + b)([&](char* to) { *reinterpret_cast<uint64_t*>(to) = value; });
    }
    Coop::sync();
    if (sends && Coop::rank() == 0) {
      each(at + layout.epoch)([&](char* to) { publish(reinterpret_cast<uint64_t*>(to), op.seq); });
    }
  }
}

// Verb of the scope: a token to the landings of all ranks that get it. sends: there is one. by_rows: as the settings
// say.
template <class Coop, bool by_rows = false, class Index>
UCCLEP_FN void send_token(const OpenDispatch& open, const Op& op, uint32_t token, const void* row, const void* scales,
                          const Index* experts, const float* weights, bool sends) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const Topk<Coop, Index> topk{experts, op.group, token, sends};
  const uint32_t all_ranks = sends ? topk.ranks() : 0;
  const RemoteRow remote = RemoteRow::of(open, token, topk, all_ranks);
  const uint32_t ranks = all_ranks & ~remote.ranks;
  const uint32_t token_bytes = open.wire.token_bytes, scale_bytes = open.shape.scale_bytes;
  const auto row_word = [&](uint32_t at) {
    return *reinterpret_cast<const uint64_t*>(static_cast<const char*>(row) + at);
  };
  const auto word_of_scales = [&](uint32_t at) {
    return scale_word(static_cast<const char*>(scales), at, scale_bytes);
  };
  // To offset `at` of every landing where the row goes.
  const auto to = [&](uint64_t at) {
    return [&, at](auto&& store) {
      UCCLEP_KEEP_LOOP
      for (uint32_t left = ranks; left != 0; left &= left - 1) {
        store(op.window(topk.rank(first_lane(left))) + at);
      }
    };
  };
  if (sends && !open.announced) keep_topk<Coop>(open, token, topk, weights);
  if (!op.may.bulk || open.form == Form::line) {
    const RowLines lines = RowLines::of(shape, open.wire);
    const uint64_t begin = window.ll_lines_of(op.slot, op.me()) + uint64_t{token} * lines.all() * line_bytes;
    const uint64_t tokens_at = begin + uint64_t{lines.meta} * line_bytes;
    const uint64_t scales_at = tokens_at + uint64_t{lines.tokens} * line_bytes;
    if (ranks != 0) {
      put_lines<Coop>(token_bytes, op.seq, to(tokens_at), row_word);
      put_lines<Coop>(scale_bytes, op.seq, to(scales_at), word_of_scales);
    }
    if constexpr (!whole_warps<Coop>) {
      Coop::sync();
      if (ranks != 0) {
        end_lines<Coop>(token_bytes, op.seq, to(tokens_at));
        end_lines<Coop>(scale_bytes, op.seq, to(scales_at));
      }
    }
  } else {
    const uint64_t begin = window.ll_rows_of(op.slot, op.me()) + uint64_t{token} * open.wire.row_bytes;
    if (ranks != 0) {
      put_bytes<Coop>(token_bytes, to(begin), row_word);
      put_bytes<Coop>(open.wire.row_bytes - token_bytes, to(begin + token_bytes), word_of_scales);
    }
    if (op.networked()) send_remote<Coop>(remote, weights, row_word, word_of_scales);
    if constexpr (!by_rows) Coop::sync();
  }
  if constexpr (by_rows) send_meta_alone<Coop>(open, op, token, topk, weights, ranks != 0, to);
  if (sends) topk.template report<Coop>(op);
}

// Verb of the scope: one token. row: `hidden` elements, 16-byte aligned, in any memory that the scope can read, as are
// scales (scale_bytes of them; NULL where that is 0), experts (K ids of HandleUpdate's kind, int32 or int64) and
// weights (K, or NULL where rows have none). lanes<N>: all groups of a warp call it together; token >= the tokens of
// dispatch_end sends nothing.
// Registers: 80 and 416 bytes of stack (sm_90a), 62 (gfx942).
template <class Coop, class Index>
UCCLEP_FN void dispatch_send(Coop, const OpenDispatch& open, uint32_t token, const void* row, const void* scales,
                             const Index* experts, const float* weights) {
  if (!open.ok) return;
  const bool sends = token < open.handle.view.tokens;
  in_group_of(open.op(), [=](const Op& op) {
    send_token<Coop>(open, op, token, row, scales, experts, weights, sends);
    return true;
  });
}

// The same of a dispatch that knew the routing when it began.
template <class Coop, class Index>
UCCLEP_FN void dispatch_send(Coop coop, const RoutedDispatch<Index>& open, uint32_t token, const void* row,
                             const void* scales) {
  const bool sends = token < open.routing.tokens;
  const uint64_t first = sends ? uint64_t{token} * open.shape.top_k : 0;
  const float* const weights = open.routing.topk_weights;
  dispatch_send(coop, static_cast<const OpenDispatch&>(open), sends ? token : ~0u, row, scales,
                open.routing.topk_idx + first, weights != nullptr ? weights + first : nullptr);
}

// What the last block needs of a dispatch to count it, under the names that ll/routing.hpp and ll/lines.hpp know.
struct SentDispatch {
  struct Source {
    WireShape wire;
  };
  const ucclEpDeviceGroup& group;
  const HandleView& handle;
  RoutingInput routing;
  Settings settings;
  View topk_weights;
  Source source;
};
using ::ucclep::reload;  // of all other arguments
// For loops over tokens (simt/simt.hpp).
UCCLEP_FN const SentDispatch& reload(const SentDispatch& sent) {
  return sent;  // it lies in no kernel's arguments
}

// The dispatch whose `tokens` have been sent.
UCCLEP_FN SentDispatch sent_dispatch(const OpenDispatch& open, uint32_t tokens) {
  const HandleView& handle = open.handle.view;
  const uint32_t top_k = open.shape.top_k;
  View ids, weights;
  ids.data = handle.memory + handle.offsets.topk;
  weights.data = handle.memory + handle.offsets.weights;
  ids.element = weights.element = ids.element_bytes = weights.element_bytes = 4;
  ids.inner = weights.inner = 4 * int64_t{top_k};
  return {open.handle.group, handle, {ids, tokens, Divisor(top_k), 0, true}, open.settings, weights, {open.wire}};
}

// Where the header for a peer is put together.
UCCLEP_FN Packet* header_to(const Op& op, uint32_t peer) {
  return op.networked() ? ByNetwork::header_for(op, peer) : header_packets(op, peer, op.me());
}

// Warp verb, before the token's places are kept: behind the headers for other domains, what counting found out.
UCCLEP_FN void send_places(const Op& op, const SentDispatch& sent, uint32_t token, const Selection& selection) {
  const GroupShape& shape = op.group.shape;
  const HandleMemory memory = memory_of(sent);
  const uint32_t packets = HeaderLayout::place_packets(shape.top_k), k = lane_id();
  const bool remote = selection.sends() && !op.has_window(selection.rank);
  uint32_t taken = remote ? memory.at<uint32_t>(memory.handle.offsets.places)[uint64_t{token} * shape.top_k + k] : 0;
  if (taken == no_place) taken = 0;  // push_headers leaves a record
  const uint32_t odd = shfl(selection.position, k == 0 ? 0 : (2 * k - 1) % wave_size);
  const uint32_t even = shfl(selection.position, 2 * k % wave_size);
  for (uint64_t left = ballot(remote); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    const uint32_t rank = broadcast(selection.rank, lane), place = broadcast(selection.place, lane),
                   row = broadcast(taken, lane);
    const uint64_t low = k == 0 ? row : odd;
    Packet* const to =
        ByNetwork::header_for(op, rank) + HeaderLayout::places(shape.local_experts(), sent.routing.tokens);
    if (k < packets) store_packet(to + uint64_t{place} * packets + k, low | uint64_t{even} << 32, op.seq);
  }
}

// Verb of the last block: the headers to other domains are whole. They announce all rows that were sent there, also
// those of tokens that dispatch_end does not count.
UCCLEP_FN void push_headers(const Op& op, const SentDispatch& sent) {
  const HandleMemory memory = memory_of(sent);
  const GroupShape& shape = op.group.shape;
  const uint32_t packets = HeaderLayout::place_packets(shape.top_k), most = sent.handle.tokens;
  sync_block();
  bool again = false;
  for (uint32_t peer = thread_id(); peer < op.ranks(); peer += block_size()) {
    if (op.has_window(peer) || is_masked(op, peer)) continue;
    uint32_t& taken = memory.sent_to()[peer];
    const uint32_t rows = taken < most ? taken : most, counted = memory.rows_to()[peer];
    again = again || taken > most;
    taken = 0;
    network::push_header_alone(op, peer, rows,
                               HeaderLayout::places(shape.local_experts(), sent.routing.tokens) + counted * packets);
  }
  if (sync_block_or(again)) refuse(op, Field::tokens, most, most + 1);  // tokens that were sent more than once
}

// Verb of every block, after its last send: the last block out counts what was sent and says so to the peers. tokens:
// T, sent as 0 .. T - 1; of more than B the first B count, and a data record says so. False: the operation has failed.
// Registers: 93 (sm_90a), 60 (gfx942).
UCCLEP_FN bool dispatch_end(block, const OpenDispatch& open, uint32_t tokens) {
  if (!last_out(open, Kind::dispatch)) return open.ok;
  const Op op = open.op();
  if (open.announced) {
    leave_to_receive(open, Kind::dispatch);
    return true;
  }
  if (!may_store(op)) return false;
  const uint32_t most = open.handle.view.tokens;  // dispatch_send has sent no more
  if (tokens > most) refuse(op, Field::tokens, most, tokens);
  const SentDispatch sent = sent_dispatch(open, tokens < most ? tokens : most);
  const HandleMemory memory = open.memory();
  auto sets = TokenSets<SentDispatch>::in_handle(sent, memory.token_sets(), open.handle.view.tokens);
  int64_t bad = no_bad_id;  // dispatch_send has reported them
  for (uint32_t i = 0; i < op.ranks(); ++i) {
    const uint32_t peer = op.rotated(i);
    if (is_masked(op, peer)) continue;
    send_routed_header(op, sent, sets, peer, header_to(op, peer), open.form, &bad,
                       // Rows go to each rank, as they are not counted yet: no peer relays any.
                       [&](const auto&) { return op.has_window(peer) ? HeaderLayout::has_index >> 32 : 0; });
  }
  IdAhead ahead;
  ahead.read(sent, warp_id());
  place_tokens(op, sent, {block_id(), 1}, sets, ahead, &bad,
               [&](const Op& same, const SentDispatch& now, uint32_t token, const Selection& selection) {
                 const float weight = weight_of(now.routing.top_k, now.topk_weights, token, selection);
                 send_meta(same, open, token, selection, weight);
                 send_index(same, token, selection);
                 if (same.networked()) send_places(same, now, token, selection);
               });
  if (op.networked()) push_headers(op, sent);
  if (thread_id() == 0) note_routing(memory, sent.routing.tokens, sent.routing.top_k);
  leave_to_receive(open, Kind::dispatch);
  return true;
}
// Of a dispatch that knew the routing when it began.
template <class Index>
UCCLEP_FN bool dispatch_end(block scope, const RoutedDispatch<Index>& open) {
  return dispatch_end(scope, open, open.routing.tokens);
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
