// SPDX-License-Identifier: Apache-2.0
// Combine, LL and HT: the rank that holds the experts sums its copies of a row and sends one partial row home; home
// adds the partials of the ranks. One arithmetic tree (protocol P6): experts ascending in fp32, rounded once per rank
// to the token type, ranks ascending in fp32, bias, one final rounding. No fused multiply-add; each sum starts with its
// first term.
//
//   slots free -> READY headers out -> [weights out, if given here] -> partial rows out -> READY headers in
//   -> per token: wait for its rows, add, write -> end
// Floor: partial rows to peers * row bytes / link bandwidth, plus one exchange.
//
// A partial row is made visible like a dispatched one: BULK by publish of an epoch word (per row in LL, per run of rows
// in HT), LINE by itself. `place` is the row's index among the rows that its home sent here.
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
  bool ranked;        // RANK_MAJOR
  bool weighted;      // products with weights: LL EXPERT_MAJOR
  bool line_allowed;  // LL
  uint32_t row_bytes;
  uint32_t rows_per_signal;
  uint32_t piece_bytes;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// Terms of one sum, in the stage's scratch: row addresses, and weights where there are any.
struct Terms {
  const char** rows;
  float* weights;
  uint32_t count;

  static UCCLEP_FN Terms in(char* scratch) {
    return {reinterpret_cast<const char**>(scratch), reinterpret_cast<float*>(scratch + 8 * max_top_k), 0};
  }
};

UCCLEP_FN uint64_t lines_per_row(const GroupShape& shape, uint32_t row_bytes) {
  return lines_of(shape, row_bytes);
}

UCCLEP_FN Form form_of(const CombineArgs& args, uint32_t rows) {
  const uint64_t bytes = rows * lines_per_row(args.group.shape, args.row_bytes) * line_bytes;
  return args.line_allowed && bytes <= args.group.shape.line_capacity ? Form::line : Form::bulk;
}

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
      auto* to = reinterpret_cast<Packet*>(op.window(rank) + op.group.layout.ll_weights_of(shape, op.seq, op.me()));
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
    const auto* from = reinterpret_cast<const Packet*>(op.mine() + op.group.layout.ll_weights_of(shape, op.seq, home));
    bool ok = true;
    if (i < packets) ok = wait_packet(op, Phase::weights, home, from + uint64_t{place} * packets + i, late);
    if (!every_lane(ok)) return false;
  }
  RecvEntry entry{};
  if (i < count) entry = memory.recv_entries(home, place)[i];
  const uint64_t pair = shfl(late, entry.k / 2);
  if (args.settings.weights_at_combine) entry.weight = float_of(static_cast<uint32_t>(entry.k % 2 ? pair >> 32 : pair));
  const bool present = i < count && entry.row < args.capacity;
  const uint64_t mask = ballot(present);
  if (present) {
    const uint32_t at = count_lanes(mask & ((uint64_t{1} << i) - 1));
    terms.rows[at] = args.tokens.at(args.zones == Zones::slabs ? entry.expert : 0, entry.row);
    terms.weights[at] = entry.weight;
  }
  terms.count = count_lanes(mask);
  sync_warp();
  return true;
}

// This lane's 16 bytes of the sum of the terms, rounded to the element type.
template <class Element, bool weighted>
UCCLEP_FN vec16 sum_copies(const Terms& terms, uint64_t offset) {
  Vector<Element> sum{};
  for (uint32_t i = 0; i < terms.count; ++i) {
    Vector<Element> x = Vector<Element>::unpack(load16(terms.rows[i] + offset));
    if constexpr (weighted) x.scale(terms.weights[i]);
    if (i == 0) {
      sum = x;
    } else {
      sum.add(x);
    }
  }
  return sum.pack();
}

// Warp verb: a partial row that has to be computed, piece by piece.
template <class Element, bool weighted>
UCCLEP_FN void send_sum(const CombineArgs& args, Stage& stage, const Terms& terms, const RowSink& sink) {
  uint32_t slot = 0;
  for (uint32_t offset = 0; offset < args.row_bytes; offset += stage.piece_bytes()) {
    const uint32_t left = args.row_bytes - offset;
    const uint32_t bytes = left < stage.piece_bytes() ? left : stage.piece_bytes();
    bulk_wait_read();
    char* piece = stage.slot(slot++);
    for (uint32_t b = lane_id() * 16; b < bytes; b += wave_size * 16) {
      store16(piece + b, sum_copies<Element, weighted>(terms, uint64_t{offset} + b));
    }
    smem_to_bulk();
    sink.put(piece, offset, bytes, 0, 0);
  }
}

// Warp verb: the partial row of (home, place) to its landing slot at home.
template <class Element>
UCCLEP_FN bool send_row(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                        const RowSink& sink, uint32_t home, uint32_t place) {
  Terms terms = Terms::in(stage.scratch());
  if (args.zones == Zones::sources) {
    const int64_t inner = args.ranked ? place : uniform(memory.recv_base()[home]) + int64_t{place};
    if (inner < static_cast<int64_t>(args.capacity)) {
      // The caller's row is the partial row: it travels as it stands.
      stage.stream(args.tokens.at(args.ranked ? home : 0, inner), args.row_bytes,
                   [&](const char* piece, uint64_t offset, uint32_t bytes) { sink.put(piece, offset, bytes, 0, 0); });
      return true;
    }
  } else if (!gather_copies(op, memory, args, home, place, terms)) {
    return false;
  }
  if (args.weighted) {
    send_sum<Element, true>(args, stage, terms, sink);
  } else {
    send_sum<Element, false>(args, stage, terms, sink);
  }
  return true;
}

// Warp verb: the rows of one home whose epoch is published together.
template <class Element>
UCCLEP_FN bool send_run(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage, uint32_t home,
                        uint32_t begin, uint32_t end) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const Form form = form_of(args, uniform(memory.rows_from()[home]));
  char* landing = op.window(home);
  const uint64_t stride = form == Form::line ? lines_per_row(shape, args.row_bytes) * line_bytes : args.row_bytes;
  char* rows = landing + (form == Form::line ? window.back_lines_of(shape, op.seq, op.me())
                                             : window.back_rows_of(shape, op.seq, op.me()));
  for (uint32_t place = begin; place < end; ++place) {
    const RowSink sink{form, lane_id() == 0, rows + place * stride, op.seq};
    const CombineArgs& now = read_again(args);
    if (!send_row<Element>(op.with(now.group), memory_of(now), now, stage, sink, home, place)) return false;
  }
  if (form == Form::line) return true;
  bulk_wait_written();
  auto* words = reinterpret_cast<uint64_t*>(landing + window.back_epochs_of(shape, op.seq, op.me()));
  if (lane_id() == 0) publish(words + begin / args.rows_per_signal, op.seq);
  return true;
}

// Grid verb.
template <class Element>
UCCLEP_FN bool send_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage) {
  for (uint32_t i = 0; i < op.ranks(); ++i) {
    const uint32_t home = op.rotated(i);
    const uint32_t rows = uniform(memory.rows_from()[home]);
    const uint32_t step = args.rows_per_signal;
    for (uint32_t begin = grid_warp() * step; begin < rows; begin += grid_warps() * step) {
      const uint32_t end = begin + step < rows ? begin + step : rows;
      const CombineArgs& now = read_again(args);
      if (!send_run<Element>(op.with(now.group), memory_of(now), now, stage, home, begin, end)) return false;
    }
  }
  return true;
}

// Warp verb: waits for the partial rows of one token, ranks ascending. In LINE form the lines themselves are waited for
// later; forms[i] says which.
struct Partials {
  Terms terms;
  uint64_t line_mask;  // bit i: term i is in LINE form
  uint32_t* ranks;     // of the terms, to name a peer
};

UCCLEP_FN bool gather_partials(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                               uint32_t token, Partials& partials) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const Selection selection = selection_of(memory, token);
  const bool sends = selection.sends();
  partials.terms = Terms::in(stage.scratch());
  partials.ranks = reinterpret_cast<uint32_t*>(partials.terms.weights);  // partials have no weights
  const uint64_t mask = ballot(sends);
  uint32_t order = 0;
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    if (broadcast(selection.rank, first_lane(left)) < selection.rank) ++order;
  }
  bool ok = true, line = false;
  if (sends) {
    const uint32_t rank = selection.rank;
    line = form_of(args, memory.rows_to()[rank]) == Form::line;
    const uint64_t stride = line ? lines_per_row(shape, args.row_bytes) * line_bytes : args.row_bytes;
    const uint64_t rows = line ? window.back_lines_of(shape, op.seq, rank) : window.back_rows_of(shape, op.seq, rank);
    if (!line) {
      const uint64_t words = window.back_epochs_of(shape, op.seq, rank);
      ok = wait_word(op, Phase::rows, rank, op.mine() + words + 8ull * (selection.place / args.rows_per_signal));
    }
    partials.terms.rows[order] = op.mine() + rows + selection.place * stride;
    partials.ranks[order] = rank;
  }
  partials.terms.count = count_lanes(mask);
  partials.line_mask = 0;
  for (uint64_t left = ballot(line); left != 0; left &= left - 1) {
    partials.line_mask |= uint64_t{1} << broadcast(order, first_lane(left));
  }
  sync_warp();
  return every_lane(ok);
}

// Warp verb: one step of one partial row: every lane gets its 16 bytes. Lines are decoded through shared memory.
UCCLEP_FN bool load_partial(const Op& op, const Partials& partials, uint32_t i, char* smem, uint32_t offset,
                            uint32_t bytes, vec16& x) {
  const uint32_t b = lane_id() * 16;
  if ((partials.line_mask >> i & 1) == 0) {
    if (b < bytes) x = load16(partials.terms.rows[i] + offset + b);
    return true;
  }
  const char* lines = partials.terms.rows[i] + uint64_t{offset / line_payload} * line_bytes;
  if (!line_load(op, Phase::rows, partials.ranks[i], smem, lines, bytes)) return false;
  if (b < bytes) x = load16(smem + b);
  sync_warp();  // the next step writes smem again
  return true;
}

template <class Element>
UCCLEP_FN void add_bias(Vector<Element>& sum, const View& bias, uint32_t token, uint32_t offset) {
  if (bias.data) sum.add(Vector<Element>::unpack(load16(bias.at(0, token) + offset)));
}

// Warp verb: the result of one token. A step is what lines of one warp-wide access carry, and at most 16 bytes a lane.
template <class Element>
UCCLEP_FN bool reduce_token(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                            uint32_t token) {
  Partials partials;
  if (!gather_partials(op, memory, args, stage, token, partials)) return false;
  bulk_wait_read();
  const uint32_t step = partials.line_mask != 0 ? line_step : wave_size * 16;
  for (uint32_t offset = 0; offset < args.row_bytes; offset += step) {
    const uint32_t left = args.row_bytes - offset, bytes = left < step ? left : step;
    Vector<Element> sum{};
    for (uint32_t i = 0; i < partials.terms.count; ++i) {
      vec16 x{};
      if (!load_partial(op, partials, i, stage.slot(0), offset, bytes, x)) return false;
      if (i == 0) {
        sum = Vector<Element>::unpack(x);
      } else {
        sum.add(Vector<Element>::unpack(x));
      }
    }
    const uint32_t at = offset + lane_id() * 16;
    if (lane_id() * 16 >= bytes) continue;
    add_bias(sum, args.bias, token, at);
    add_bias(sum, args.bias2, token, at);
    store16_stream(args.output.at(0, token) + at, sum.pack());
  }
  sync_warp();  // the scratch is free for the next token
  return true;
}

template <class Element>
UCCLEP_FN bool reduce_tokens(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage) {
  const uint32_t tokens = uniform(memory.state()->tokens);
  for (uint32_t token = grid_warp(); token < tokens; token += grid_warps()) {
    const CombineArgs& now = read_again(args);
    if (!reduce_token<Element>(op.with(now.group), memory_of(now), now, stage, token)) return false;
  }
  return true;
}

template <class Element>
UCCLEP_FN bool exchange_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage) {
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
  if (!every_thread(send_rows<Element>(op, memory, args, stage))) return false;
  const CombineArgs& now = read_again(args);
  const Op here = op.with(now.group);
  if (now.settings.weights_at_combine == 0) ready = ready_in(here, now.settings, now.wait_ns);
  if (ready != HeaderResult::good) return ready == HeaderResult::differs;  // every rank ends without a row
  return reduce_tokens<Element>(here, memory_of(now), now, stage);
}

template <class Element>
UCCLEP_FN void combine(const CombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine);
  const HandleMemory memory{args.handle, args.group.shape};
  Stage stage(args.piece_bytes);
  end_operation(op, exchange_rows<Element>(op, memory, args, stage));
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
