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
// A partial row is made visible like a dispatched one: BULK by publish of an epoch word (per part of a row, so that few
// rows occupy all SMs), LINE by itself. `place` is the row's index among the rows that its home sent here.
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

// How rows travel in LL. There are few: each is sent in parts, signalled and summed each for itself, so that all SMs
// have work; few enough go as lines. HT: ht_combine.hpp.
// vectors: of 16 bytes, that a lane sums at a time: their loads are in flight together.
struct LlRows {
  static constexpr uint32_t vectors = 2;
  static constexpr bool lines = true;
  static constexpr uint32_t run = 1;
  static constexpr uint32_t part_bytes = ll_part_bytes, summed_bytes = ll_part_bytes / 2;
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

UCCLEP_FN uint64_t lines_per_row(const GroupShape& shape, uint32_t row_bytes) {
  return lines_of(shape, row_bytes);
}

template <class Rows>
UCCLEP_FN Form form_of(const CombineArgs& args, uint32_t rows) {
  if constexpr (!Rows::lines) return Form::bulk;
  const uint64_t bytes = rows * lines_per_row(args.group.shape, args.row_bytes) * line_bytes;
  return bytes <= args.group.shape.line_capacity ? Form::line : Form::bulk;
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
  if (i < count) entry = memory.recv_entries(home, place)[i];
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
    sink.put(piece, begin, end - begin, 0, 0);
    if (as_it_stands) stage.refill(row, offset, bytes);
  }
  return true;
}

// Warp verb: rows of one home, or a part of one, whose epoch is published together.
template <class Rows, class Element>
UCCLEP_FN bool send_item(const Op& op, const CombineArgs& args, Stage& stage, uint32_t home, uint32_t rows,
                         uint32_t run, uint32_t part) {
  const GroupShape& shape = op.group.shape;
  const WindowLayout& window = op.group.layout;
  const Form form = form_of<Rows>(args, rows);
  char* landing = op.window(home);
  const uint64_t stride = form == Form::line ? lines_per_row(shape, args.row_bytes) * line_bytes : args.row_bytes;
  char* to =
      landing + (form == Form::line ? window.back_lines_of(op.slot, op.me()) : window.back_rows_of(op.slot, op.me()));
  const Span span = span_of(Rows::part_bytes, part, uniform(args.row_bytes));
  const uint32_t begin = run * Rows::run;
  const uint32_t end = begin + Rows::run < rows ? begin + Rows::run : rows;
  for (uint32_t place = begin; place < end; ++place) {
    const RowSink sink{form, lane_id() == 0, to + place * stride, op.seq};
    const CombineArgs& now = read_again(args);
    if (!send_part<Rows, Element>(op.with(now.group), memory_of(now), now, stage, sink, home, place, span))
      return false;
  }
  if (form == Form::line) return true;  // every line says that it is there
  bulk_wait_written();
  auto* words = reinterpret_cast<uint64_t*>(landing + window.back_epochs_of(op.slot, op.me()));
  if (lane_id() == 0) publish(words + run * parts_of(Rows::part_bytes, uniform(args.row_bytes)) + part, op.seq);
  return true;
}

// Grid verb.
template <class Rows, class Element>
UCCLEP_FN bool send_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage) {
  Parked run = grid_warp();
  for (Parked i = 0; i < op.ranks(); i += 1) {
    const Parked home = op.rotated(i), rows = memory.rows_from()[home];
    const Parked runs = (rows + Rows::run - 1) / Rows::run;
    for (Parked part = 0; part < parts_of(Rows::part_bytes, uniform(args.row_bytes)); part += 1) {
      for (; run < runs; run += grid_warps()) {
        const CombineArgs& now = read_again(args);
        if (!send_item<Rows, Element>(op.with(now.group), now, stage, home, rows, run, part)) return false;
      }
      run -= runs;
    }
  }
  return true;
}

// Warp verb: waits for the partial rows of one token, ranks ascending. In LINE form the lines themselves are waited for
// later; line_mask says which.
struct Partials {
  Terms terms;
  uint64_t line_mask;  // bit i: term i is in LINE form
  uint32_t* ranks;     // of the terms, to name a peer
};

// part: the one that is waited for.
template <class Rows>
UCCLEP_FN bool gather_partials(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                               uint32_t token, uint32_t part, Partials& partials) {
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
    line = form_of<Rows>(args, memory.rows_to()[rank]) == Form::line;
    const uint64_t stride = line ? lines_per_row(shape, args.row_bytes) * line_bytes : args.row_bytes;
    const uint64_t rows = line ? window.back_lines_of(op.slot, rank) : window.back_rows_of(op.slot, rank);
    if (!line) {
      const uint64_t words = window.back_epochs_of(op.slot, rank);
      const uint64_t item = selection.place / Rows::run * parts_of(Rows::part_bytes, uniform(args.row_bytes)) + part;
      ok = wait_word(op, Phase::rows, rank, op.mine() + words + 8 * item);
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

template <class Element>
UCCLEP_FN void add_bias(Vector<Element>& sum, const View& bias, uint32_t token, uint32_t offset) {
  if (bias.data) sum.add(Vector<Element>::unpack(load16(bias.at(0, token) + offset)));
}

template <class Element>
UCCLEP_FN void store_result(const CombineArgs& args, Vector<Element>& sum, uint32_t token, uint32_t offset) {
  add_bias(sum, args.bias, token, offset);
  add_bias(sum, args.bias2, token, offset);
  store16_stream(args.output.at(0, token) + offset, sum.pack());
}

// Warp verb: waits for the lines of bytes [begin, end) of the partial rows that are lines, and decodes them: term i to
// smem + i * line_step.
UCCLEP_FN bool decode_lines(const Op& op, const Partials& partials, char* smem, uint32_t begin, uint32_t end) {
  for (uint64_t left = partials.line_mask; left != 0; left &= left - 1) {
    const uint32_t i = first_lane(left);
    const char* lines = partials.terms.rows[i] + uint64_t{begin / line_payload} * line_bytes;
    if (!line_load(op, Phase::rows, partials.ranks[i], smem + i * line_step, lines, end - begin)) return false;
  }
  return true;
}

// Warp verb: part of the result of one token.
template <class Rows, class Element>
UCCLEP_FN bool reduce_item(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                           uint32_t token, uint32_t part) {
  const Span span = span_of(Rows::summed_bytes, part, uniform(args.row_bytes));
  Partials partials;
  if (!gather_partials<Rows>(op, memory, args, stage, token, part / (Rows::part_bytes / Rows::summed_bytes), partials))
    return false;
  const bool lines = Rows::lines && partials.line_mask != 0;
  constexpr uint32_t vectors = Rows::vectors;
  const uint32_t step = lines ? line_step : vectors * wave_size * 16;
  if (lines) bulk_wait_read();
  for (uint32_t begin = span.begin; begin < span.end; begin += step) {
    const uint32_t end = span.end - begin < step ? span.end : begin + step;
    if (lines && !decode_lines(op, partials, stage.slot(0), begin, end)) return false;
    const uint32_t at = begin + lane_id() * 16;
    Vector<Element> sum[vectors] = {};
    const auto row = [&](uint32_t i) -> const char* {
      const bool decoded = Rows::lines && (partials.line_mask >> i & 1) != 0;
      return decoded ? stage.slot(0) + i * line_step - begin : partials.terms.rows[i];
    };
    if (at < end) sum_terms<false>(partials.terms, row, at, end, sum);
    UCCLEP_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint32_t offset = at + v * wave_size * 16;
      if (offset < end) store_result(args, sum[v], token, offset);
    }
    if (lines) sync_warp();  // the next step writes shared memory again
  }
  sync_warp();  // the scratch is free for the next token
  return true;
}

// Grid verb.
template <class Rows, class Element>
UCCLEP_FN bool reduce_tokens(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage) {
  const Parked tokens = memory.state()->tokens;
  Parked token = grid_warp();
  for (Parked part = 0; part < parts_of(Rows::summed_bytes, uniform(args.row_bytes)); part += 1) {
    for (; token < tokens; token += grid_warps()) {
      const CombineArgs& now = read_again(args);
      if (!reduce_item<Rows, Element>(op.with(now.group), memory_of(now), now, stage, token, part)) return false;
    }
    token -= tokens;
  }
  return true;
}

template <class Rows, class Element>
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
  if (!every_thread(send_rows<Rows, Element>(op, memory, args, stage))) return false;
  const CombineArgs& now = read_again(args);
  const Op here = op.with(now.group);
  if (now.settings.weights_at_combine == 0) ready = ready_in(here, now.settings, now.wait_ns);
  if (ready != HeaderResult::good) return ready == HeaderResult::differs;  // every rank ends without a row
  return reduce_tokens<Rows, Element>(here, memory_of(now), now, stage);
}

template <class Rows, class Element>
UCCLEP_FN void combine(const CombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine);
  const HandleMemory memory{args.handle, args.group.shape};
  Stage stage(args.piece_bytes);
  end_operation(op, exchange_rows<Rows, Element>(op, memory, args, stage));
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
