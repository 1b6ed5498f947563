// SPDX-License-Identifier: Apache-2.0
// Combine as LL does it, and what HT shares with it (ht_combine.hpp): the rank that holds the experts sums its copies
// of a row and sends one partial row home; home adds the partials of the ranks. One arithmetic tree (protocol P6):
// experts ascending in fp32, rounded once per rank to the token type, ranks ascending in fp32, bias, one final
// rounding. No fused multiply-add; each sum starts with its first term.
//
//   slots free -> READY headers out -> [weights out, if given here] -> partial rows out -> READY headers in
//   -> per token: wait for its rows, add, write -> end
// Floor: partial rows to peers * row bytes / link bandwidth, plus one exchange.
//
// A partial row is made visible like a dispatched one: BULK by publish of an epoch word, LINE (ll_combine.hpp) by
// itself. `place` is the row's index among the rows that its home sent here.
#pragma once
#include "ucclep/device/deliver.hpp"
#include "ucclep/device/element.hpp"

namespace ucclep {

struct CombineArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  Settings settings;
  View tokens;        // the experts' rows, laid out as dispatch's output
  View topk_weights;  // f32 [T, K], if given here (LL EXPERT_MAJOR)
  View bias, bias2;   // [T, H] or not given
  View output;        // [T, H]
  View wait_ns;
  uint64_t capacity;  // rows of `tokens` (HT) or of a slab (LL); rows at or past it count as zero
  Zones zones;
  bool ranked;    // RANK_MAJOR
  bool weighted;  // products with weights: LL EXPERT_MAJOR
  uint32_t row_bytes;
  uint32_t piece_bytes;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// How rows travel in BULK form: there are few, and each is sent in parts, signalled each for itself, so that all SMs
// have work. vectors: of 16 bytes, that a lane sums at a time: their loads are in flight together.
struct LlRows {
  static constexpr uint32_t vectors = 1;
  static constexpr uint32_t run = 1;
  static constexpr uint32_t part_bytes = ll_part_bytes;
};

// Bytes of a row.
struct Span {
  uint32_t begin, end;
};
UCCLEP_FN Span span_of(uint32_t part_bytes, uint32_t index, uint32_t row_bytes) {
  const uint32_t begin = index * part_bytes;
  return {begin, row_bytes - begin < part_bytes ? row_bytes : begin + part_bytes};
}
UCCLEP_FN uint32_t parts_of(uint32_t part_bytes, uint32_t row_bytes) {
  return (row_bytes - 1) / part_bytes + 1;
}

// Terms of one sum, in the stage's scratch: row addresses, and weights where there are any.
struct Terms {
  const char** rows;
  float* weights;
  uint32_t count;

  static UCCLEP_FN Terms in(char* scratch) {
    return {reinterpret_cast<const char**>(scratch), reinterpret_cast<float*>(scratch + 8 * max_top_k), 0};
  }
};

UCCLEP_FN uint32_t weight_packets(const GroupShape& shape) {
  return (shape.top_k + 1) / 2;
}

// Grid verb (P7): weights that come with combine go to the far sides as packets of the same seq, two to a packet.
UCCLEP_FN void send_weights(const Op& op, const HandleMemory& memory, const CombineArgs& args) {
  const GroupShape& shape = op.group.shape;
  const uint32_t packets = weight_packets(shape);
  const uint32_t top_k = memory.state()->top_k, tokens = uniform(memory.state()->tokens);
  for (uint32_t token = grid_warp(); token < tokens; token += grid_warps()) {
    const Selection selection = selection_of(memory, token);
    const uint32_t k = lane_id();
    uint32_t bits = 0;
    if (k < top_k) bits = float_bits(*reinterpret_cast<const float*>(args.topk_weights.at(0, token, k)));
    const uint32_t even = shfl(bits, 2 * k % wave_size), odd = shfl(bits, (2 * k + 1) % wave_size);
    for (uint64_t left = ballot(selection.sends()); left != 0; left &= left - 1) {
      const uint32_t lane = first_lane(left);
      const uint32_t rank = broadcast(selection.rank, lane), place = broadcast(selection.place, lane);
      auto* to = reinterpret_cast<Packet*>(op.window(rank) + op.group.layout.ll_weights_of(op.slot, op.me()));
      if (k < packets) store_packet(to + uint64_t{place} * packets + k, uint64_t{even} | uint64_t{odd} << 32, op.seq);
    }
    sync_warp();  // no lane goes on to wait for a peer that may wait for these
  }
}

// Warp verb: the copies of one received row, experts ascending. False: the home's weights did not come.
UCCLEP_FN bool gather_copies(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t home,
                             uint32_t place, Terms& terms) {
  const GroupShape& shape = op.group.shape;
  const uint32_t count = memory.recv_count(home)[place], i = lane_id();
  uint64_t late = 0;
  if (args.settings.weights_at_combine) {
    const uint32_t packets = weight_packets(shape);
    const auto* from = reinterpret_cast<const Packet*>(op.mine() + op.group.layout.ll_weights_of(op.slot, home));
    bool ok = true;
    if (i < packets) ok = wait_packet(op, Phase::weights, home, from + uint64_t{place} * packets + i, late);
    if (!every_lane(ok)) return false;
  }
  RecvEntry entry{};
  if (i < shape.top_k) entry = memory.recv_entries(home, place)[i];  // beyond the count it is not used
  const uint64_t pair = shfl(late, entry.k / 2);
  if (args.settings.weights_at_combine) entry.weight = float_of(static_cast<uint32_t>(entry.k % 2 ? pair >> 32 : pair));
  const bool present = i < count && entry.row < args.capacity;
  const uint64_t mask = ballot(present);
  if (present) {
    const uint32_t at = count_lanes(mask & ((uint64_t{1} << i) - 1));
    terms.rows[at] = args.tokens.at(args.zones == Zones::slabs ? entry.expert : 0, entry.row);
    terms.weights[at] = args.weighted ? entry.weight : 1.0f;
  }
  terms.count = count_lanes(mask);
  sync_warp();
  return true;
}

// This lane's vectors of the sum of the terms, from byte `at` of the row on, one in every wave_size * 16 bytes.
// row(i): where term i lies.
template <bool weighted, class Element, uint32_t vectors, class Row>
UCCLEP_FN void sum_terms(const Terms& terms, Row&& row, uint32_t at, uint32_t end, Vector<Element> (&sum)[vectors]) {
  for (uint32_t i = 0; i < terms.count; ++i) {
    vec16 x[vectors];
    UCCLEP_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint32_t offset = at + v * wave_size * 16;
      x[v] = load16(row(i) + (offset < end ? offset : at));  // no branch: what is too much is not stored
    }
    UCCLEP_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      Vector<Element> term = Vector<Element>::unpack(x[v]);
      if constexpr (weighted) term.scale(terms.weights[i]);
      if (i == 0) {
        sum[v] = term;
      } else {
        sum[v].add(term);
      }
    }
  }
}

// Warp verb: a piece of a partial row that has to be computed: bytes [begin, end) of it.
template <class Rows, class Element>
UCCLEP_FN void sum_piece(const Terms& terms, char* piece, uint32_t begin, uint32_t end) {
  constexpr uint32_t vectors = Rows::vectors;
  bulk_wait_read();
  for (uint32_t at = begin + lane_id() * 16; at < end; at += vectors * wave_size * 16) {
    Vector<Element> sum[vectors] = {};
    sum_terms<true>(terms, [&](uint32_t i) { return terms.rows[i]; }, at, end, sum);
    UCCLEP_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint32_t offset = at + v * wave_size * 16;
      if (offset < end) store16(piece + (offset - begin), sum[v].pack());
    }
  }
  smem_to_bulk();
}

// Warp verb: part of the partial row of (home, place) to its landing slot at home.
template <class Rows, class Element>
UCCLEP_FN bool send_part(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                         const RowSink& sink, uint32_t home, uint32_t place, const Span& span) {
  Terms terms = Terms::in(stage.scratch());
  const char* row = nullptr;  // the caller's, if it is the partial row and travels as it stands
  if (args.zones == Zones::sources) {
    const int64_t inner = args.ranked ? place : uniform(memory.recv_base()[home]) + int64_t{place};
    if (inner < static_cast<int64_t>(args.capacity)) row = args.tokens.at(args.ranked ? home : 0, inner) + span.begin;
  } else if (!gather_copies(op, memory, args, home, place, terms)) {
    return false;
  }
  const uint32_t bytes = span.end - span.begin, step = uniform(stage.piece_bytes());
  const bool as_it_stands = uniform(row ? 1 : 0) != 0;
  if (as_it_stands) stage.fetch(row, bytes);
  for (uint32_t offset = 0; offset < bytes; offset += step) {
    const uint32_t begin = span.begin + offset;
    const uint32_t end = bytes - offset < step ? span.end : begin + step;
    char* piece = stage.slot(0);
    if (as_it_stands) {
      piece = stage.arrived();
    } else {
      sum_piece<Rows, Element>(terms, piece, begin, end);
    }
    sink.put(piece, begin, end - begin);
    if (as_it_stands) stage.refill(row, offset, bytes);
  }
  return true;
}

// Warp verb: rows of one home, or a part of one, whose epoch is published together.
template <class Rows, class Element>
UCCLEP_FN bool send_item(const Op& op, const CombineArgs& args, Stage& stage, uint32_t home, uint32_t rows,
                         uint32_t run, uint32_t part) {
  const WindowLayout& window = op.group.layout;
  char* landing = op.window(home);
  char* to = landing + window.back_rows_of(op.slot, op.me());
  const Span span = span_of(Rows::part_bytes, part, uniform(args.row_bytes));
  const uint32_t begin = run * Rows::run;
  const uint32_t end = begin + Rows::run < rows ? begin + Rows::run : rows;
  for (uint32_t place = begin; place < end; ++place) {
    const RowSink sink{lane_id() == 0, to + uint64_t{place} * args.row_bytes};
    const CombineArgs& now = read_again(args);
    if (!send_part<Rows, Element>(op.with(now.group), memory_of(now), now, stage, sink, home, place, span))
      return false;
  }
  bulk_wait_written();
  auto* words = reinterpret_cast<uint64_t*>(landing + window.back_epochs_of(op.slot, op.me()));
  if (lane_id() == 0) publish(words + run * parts_of(Rows::part_bytes, uniform(args.row_bytes)) + part, op.seq);
  return true;
}

// Verb of all that share: the rows of one home.
template <class Rows, class Element>
UCCLEP_FN bool send_bulk(const Op& op, const CombineArgs& args, Stage& stage, uint32_t home, uint32_t rows,
                         const WarpShare& share) {
  const Parked runs = (rows + Rows::run - 1) / Rows::run, step = share.step;
  Parked run = share.first;
  for (Parked part = 0; part < parts_of(Rows::part_bytes, uniform(args.row_bytes)); part += 1) {
    for (; run < runs; run += step) {
      const CombineArgs& now = read_again(args);
      if (!send_item<Rows, Element>(op.with(now.group), now, stage, home, rows, run, part)) return false;
    }
    run -= runs;
  }
  return true;
}

template <class Element>
UCCLEP_FN void add_bias(Vector<Element>& sum, const View& bias, uint32_t token, uint32_t offset) {
  if (bias.data) sum.add(Vector<Element>::unpack(load16(bias.at(0, token) + offset)));
}

// Lane verb: 16 bytes of a result.
template <class Element>
UCCLEP_FN void store_result(const CombineArgs& args, Vector<Element>& sum, uint32_t token, uint32_t offset) {
  add_bias(sum, args.bias, token, offset);
  add_bias(sum, args.bias2, token, offset);
  store16_stream(args.output.at(0, token) + offset, sum.pack());
}

// Grid verb: the whole exchange. send(): all partial rows out; reduce(): the results, when everybody is known to take
// part.
template <class Send, class Reduce>
UCCLEP_FN bool exchange_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, Send&& send,
                             Reduce&& reduce) {
  if (!slots_free(op)) return false;
  ready_out(op, args.settings);
  if (uniform(memory.state()->updated) == 0) return true;
  // Normally rows fly while the headers do. Where this rank is going to wait for weights it first makes sure that
  // everybody means to send them.
  HeaderResult ready = HeaderResult::good;
  if (args.settings.weights_at_combine != 0) {
    ready = ready_in(op, args.settings, args.wait_ns);
    if (ready != HeaderResult::good) return ready == HeaderResult::differs;
    send_weights(op, memory, args);
  }
  if (!every_thread(send())) return false;
  const CombineArgs& now = read_again(args);
  const Op here = op.with(now.group);
  if (now.settings.weights_at_combine == 0) ready = ready_in(here, now.settings, now.wait_ns);
  if (ready != HeaderResult::good) return ready == HeaderResult::differs;  // every rank ends without a row
  return reduce();
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
