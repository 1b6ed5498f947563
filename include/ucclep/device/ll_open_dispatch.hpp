// SPDX-License-Identifier: Apache-2.0
// LL dispatch from a user's kernel: the one that computes the rows, or their experts, sends them.
//
//   const auto op = ll::dispatch_begin(handle, shape);                    every thread of the grid
//   ll::dispatch_send(warp{}, op, token, row, scales, experts, weights);  each token once: any scope, block and order
//   ll::dispatch_end(block{}, op, tokens);                                every block, once, after its last send
// and then ucclEpCompleteDispatch, or dispatch_recv in the same kernel (ll_open_dispatch_recv.hpp).
//
// clang-format off
// | who writes                                   | who reads                              | ordered by                  |
// |----------------------------------------------|----------------------------------------|-----------------------------|
// | dispatch_send: rows in LINE form             | CompleteDispatch of the peers          | the lines' epochs           |
// | dispatch_send: rows in BULK form, experts,   | the last block in dispatch_end         | its ticket (acq_rel, gpu)   |
// |   weights                                    |                                        |                             |
// | the last block: rows in BULK form            | CompleteDispatch of the peers          | publish of the metas' epochs|
// | the last block: the handle's state           | CompleteDispatch, on the same stream   | the end of the kernel       |
// clang-format on
//
// A row is read during its dispatch_send only. No wait but dispatch_begin's, for slots that peers still read.
// Floor: as dispatch's (ll_lines.hpp), but positions leave after the last row instead of with the first.
#pragma once
#include "ucclep/device/ll_lines.hpp"
#include "ucclep/device/open.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// A dispatch that is open, as every thread of the grid holds it.
struct OpenDispatch : OpenOperation {
  WireShape wire;  // how rows lie on the wire
  Form form;       // in which of the wire forms

  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::dispatch, Operation::dispatch); }
};

// What all ranks must agree on.
UCCLEP_FN Settings dispatch_settings(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Settings s;
  s.hidden = shape.hidden;
  s.scale_bytes = shape.scale_bytes;
  s.top_k = shape.top_k;
  s.mode = UCCLEP_MODE_LL;
  s.layout = static_cast<uint32_t>(handle.view.layout);
  s.dtype = s.output_dtype = static_cast<uint32_t>(shape.dtype);
  s.scale_dtype = static_cast<uint32_t>(shape.scale_dtype);
  s.weights_at_dispatch = handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR || shape.weighted ? 1 : 0;
  return s;
}

// Block verb of every block: the handle's group begins a dispatch. Waits until peers have finished with the slots; at
// most the group's timeout.
UCCLEP_FN OpenDispatch dispatch_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Opening opening = Opening::of(handle.group, Kind::dispatch);
  const Op op = next_operation(handle.group, Kind::dispatch, Operation::dispatch, opening);
  opening.last = last_read(op, opening.last);
  const bool ok = fits(op, handle, shape, UCCLEP_MODE_LL, handle.group.shape.top_k) && slots_free(op, opening);
  const WireShape wire = WireShape::of(shape.token_bytes(), shape.scale_bytes, 1);
  // How many tokens there are, nobody knows yet: as if there were as many as there can be.
  const Form form = form_of(handle.group.shape, wire, handle.view.tokens) == Form::line ? Form::line : Form::placed;
  return {{handle, shape, dispatch_settings(handle, shape), op.seq, op.slot, ok}, wire, form};
}

// The experts of one token, where the caller has them.
template <class Index>
struct Choices {
  const Index* ids;
  const GroupShape& shape;

  // Expert k, or -1: out of range, or there twice.
  UCCLEP_FN int32_t expert(uint32_t k) const {
    const auto id = static_cast<int64_t>(ids[k]);
    if (id < 0 || id >= shape.experts) return -1;
    for (uint32_t j = 0; j < k; ++j) {
      if (static_cast<int64_t>(ids[j]) == id) return -1;
    }
    return static_cast<int32_t>(id);
  }
  // An id that counts as -1 but is another, or no_bad_id.
  UCCLEP_FN int64_t bad() const {
    for (uint32_t k = 0; k < shape.top_k; ++k) {
      if (static_cast<int64_t>(ids[k]) != expert(k)) return static_cast<int64_t>(ids[k]);
    }
    return no_bad_id;
  }
  // A bit for each k that is the first with an expert of its rank.
  UCCLEP_FN uint32_t ranks() const {
    const uint32_t local = shape.local_experts();
    uint32_t first = 0;
    for (uint32_t k = 0; k < shape.top_k; ++k) {
      const int32_t mine = expert(k);
      bool seen = mine < 0;
      for (uint32_t j = 0; j < k && !seen; ++j) {
        const int32_t other = expert(j);
        seen = other >= 0 && static_cast<uint32_t>(other) / local == static_cast<uint32_t>(mine) / local;
      }
      if (!seen) first |= 1u << k;
    }
    return first;
  }
};

// Verb of the scope: the routing of a token, for dispatch_end and for combine.
template <class Coop, class Index>
UCCLEP_FN void keep_choices(const OpenDispatch& open, uint32_t token, const Choices<Index>& choices,
                            const float* weights) {
  const HandleMemory memory = open.memory();
  const uint32_t top_k = memory.shape.top_k;
  auto* ids = memory.at<int32_t>(memory.handle.offsets.topk) + uint64_t{token} * top_k;
  auto* kept = memory.at<float>(memory.handle.offsets.weights) + uint64_t{token} * top_k;
  for (uint32_t k = Coop::rank(); k < top_k; k += Coop::size()) {
    ids[k] = choices.expert(k);
    kept[k] = weights != nullptr ? weights[k] : 0.0f;
  }
}

// Verb of the scope: one token. row: `hidden` elements, 16-byte aligned, in any memory that the scope can read, as are
// scales (scale_bytes of them; NULL where that is 0), experts (K ids, int32 or int64) and weights (K, or NULL where
// rows have none). lanes<N>: all groups of a warp call it together; token >= the tokens of dispatch_end sends nothing.
template <class Coop, class Index>
UCCLEP_FN void dispatch_send(Coop, const OpenDispatch& open, uint32_t token, const void* row, const void* scales,
                             const Index* experts, const float* weights) {
  if (!open.ok) return;
  const Op op = open.op();
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const bool sends = token < open.handle.view.tokens;
  const Choices<Index> choices{experts, shape};
  const uint32_t ranks = sends ? choices.ranks() : 0;
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
      for (uint32_t left = ranks; left != 0; left &= left - 1) {
        const auto expert = static_cast<uint32_t>(choices.expert(first_lane(left)));
        store(op.window(expert / shape.local_experts()) + at);
      }
    };
  };
  if (sends) keep_choices<Coop>(open, token, choices, weights);
  if (open.form == Form::line) {
    const RowLines lines = RowLines::of(shape, open.wire);
    const uint64_t begin = window.ll_lines_of(op.slot, op.me()) + uint64_t{token} * lines.all() * line_bytes;
    const uint64_t tokens_at = begin + uint64_t{lines.meta} * line_bytes;
    const uint64_t scales_at = tokens_at + uint64_t{lines.tokens} * line_bytes;
    if (ranks != 0) {
      put_lines<Coop>(token_bytes, op.seq, to(tokens_at), row_word);
      put_lines<Coop>(scale_bytes, op.seq, to(scales_at), word_of_scales);
    }
    Coop::sync();
    if (ranks != 0) {
      end_lines<Coop>(token_bytes, op.seq, to(tokens_at));
      end_lines<Coop>(scale_bytes, op.seq, to(scales_at));
    }
  } else {
    const uint64_t begin = window.ll_rows_of(op.slot, op.me()) + uint64_t{token} * open.wire.row_bytes;
    if (ranks != 0) {
      put_bytes<Coop>(token_bytes, to(begin), row_word);
      put_bytes<Coop>(open.wire.row_bytes - token_bytes, to(begin + token_bytes), word_of_scales);
    }
    Coop::sync();
  }
  if (sends && Coop::rank() == 0) report_bad_id(op, choices.bad());
}

// What the last block needs of a dispatch to count it, under the names that ll_routing.hpp and ll_lines.hpp know.
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
// For loops over tokens (simt.hpp).
UCCLEP_FN const SentDispatch& read_again(const SentDispatch& sent) {
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
  return {open.handle.group, handle, {ids, tokens, top_k, 0}, open.settings, weights, {open.wire}};
}

// Warp verb: the meta of a token to all ranks that get its row.
UCCLEP_FN void send_meta(const Op& op, const SentDispatch& sent, Form form, uint32_t token,
                         const Selection& selection) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  char* scratch = memory_of(sent).scratch_of_warp();
  build_meta(shape, token, selection, weight_of(shape, sent.topk_weights, token, selection), scratch);
  sync_warp();
  if (form == Form::line) {
    const RowLines lines = RowLines::of(shape, sent.source.wire);
    put_lines<warp>(
        layout.body_bytes(), op.seq, [&](auto&& store) { lines_of_token(op, lines, token, selection).each(store); },
        [&](uint32_t at) { return *reinterpret_cast<const uint64_t*>(scratch + at); });
    return;
  }
  const bool sends = selection.sends();
  char* meta = op.window(sends ? selection.rank : op.me()) + op.group.layout.ll_meta_of(op.slot, op.me()) +
               uint64_t{token} * layout.bytes;
  Addresses{sends, meta}.each([&](char* to) {
    put_bytes<warp>(
        layout.body_bytes(), [&](auto&& store) { store(to); },
        [&](uint32_t at) { return *reinterpret_cast<const uint64_t*>(scratch + at); });
  });
  sync_warp();
  if (sends) publish(reinterpret_cast<uint64_t*>(meta + layout.epoch), op.seq);
}
static_assert(MetaLayout::of(max_top_k).bytes <= HandleLayout::meta_scratch);

// Verb of every block, after its last send: the last block out counts what was sent and says so to the peers. tokens:
// T, sent as 0 .. T - 1; of more than B the first B count, and a data record says so. False: the operation has failed.
UCCLEP_FN bool dispatch_end(block, const OpenDispatch& open, uint32_t tokens) {
  if (!last_out(open)) return open.ok;
  const Op op = open.op();
  const uint32_t most = open.handle.view.tokens;  // dispatch_send has sent no more
  if (tokens > most) refuse(op, Field::tokens, most, tokens);
  const SentDispatch sent = sent_dispatch(open, tokens < most ? tokens : most);
  const HandleMemory memory = open.memory();
  TokenSets<SentDispatch> sets{sent, memory.token_sets(),
                               static_cast<uint32_t>(round_up(uint64_t{open.handle.view.tokens}, 64))};
  int64_t bad = no_bad_id;  // dispatch_send has reported them
  for (uint32_t i = 0; i < op.ranks(); ++i) {
    const uint32_t peer = op.rotated(i);
    send_routed_header(op, sent, sets, peer, header_packets(op, peer, op.me()), open.form, &bad);
  }
  IdAhead ahead;
  ahead.read(sent, warp_id());
  place_tokens(op, sent, {block_id(), 1}, sets, ahead, &bad,
               [&](const Op& same, const SentDispatch& now, uint32_t token, const Selection& selection) {
                 send_meta(same, now, open.form, token, selection);
               });
  if (thread_id() == 0) {
    memory.state()->tokens = sent.routing.tokens;
    memory.state()->top_k = sent.routing.top_k;
  }
  leave_to_receive(open, Kind::dispatch);
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
