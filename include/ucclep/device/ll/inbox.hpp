// SPDX-License-Identifier: Apache-2.0
// What a block that receives knows of what comes: everybody's headers, as tables in its shared memory where they fit.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/meta.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Packets of a header; and of the one that `source` sent here, in one domain or once it has been copied here.
UCCLEP_FN const Packet* counts_packet(const Packet* header, uint32_t expert) {
  return header + HeaderLayout::counts + expert / 2;
}
UCCLEP_FN const Packet* counts_packet(const Op& op, uint32_t source, uint32_t expert) {
  return counts_packet(header_packets(op, op.me(), source), expert);
}
UCCLEP_FN const Packet* present_packet(const Op& op, uint32_t source, uint32_t i) {
  return header_packets(op, op.me(), source) + HeaderLayout::present(op.group.shape.local_experts()) + i;
}
// Of such a packet, as its value.
UCCLEP_FN uint32_t count_of(uint64_t counts, uint32_t expert) {
  return static_cast<uint32_t>(counts >> (32 * (expert % 2)));
}

// Lane verb: the first row of `source` in the slab of a local expert: what sources below it have for that expert.
// counts_from(s): the counts_packet of source s for it, as its value.
template <class Counts>
UCCLEP_FN uint32_t rows_below(uint32_t source, uint32_t expert, Counts&& counts_from) {
  constexpr uint32_t batch = 4;  // packets under way
  uint32_t base = 0;
  for (uint32_t first = 0; first < source; first += batch) {
    uint64_t counts[batch];
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < batch; ++i) {
      counts[i] = first + i < source ? counts_from(first + i) : 0;
    }
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < batch; ++i) base += count_of(counts[i], expert);
  }
  return base;
}

struct Inbox {
  static constexpr bool by_arrival = false;  // where rows lie the headers say
  HeaderFacts* facts;                        // [R]
  uint16_t* tokens;  // [R][B rounded up]: by place, which token a row that lies by token is; NULL: no table
  uint32_t* bases;   // [R][L]: first row of a source in the slab of an expert; NULL: no table

  // Block verb, after ready_in has filled the facts: waits for what else the headers say, and fills the tables. slabs:
  // the layout has slabs, and bases matter. False: a header did not come whole. (Not all at once: so many who look for
  // what is not there yet hold up the header itself.)
  UCCLEP_FN bool fill(const Op& op, bool slabs) const {
    const GroupShape& shape = op.group.shape;
    const WarpUniform local = shape.local_experts(), pairs = (local + 1) / 2;
    bool ok = true;
    // The last warps read counts while the first list tokens.
    for (uint32_t i = block_size() - 1 - thread_id(); i < op.ranks() * pairs && slabs; i += block_size()) {
      const uint32_t source = i / pairs, expert = i % pairs * 2;
      uint64_t counts = 0;
      ok = wait_packet(op, Phase::header, source, counts_packet(op, source, expert), counts) && ok;
      if (larger_count(counts) > shape.ll_tokens) {
        report_count(op, source, larger_count(counts), shape.ll_tokens);
        ok = false;
      }
      if (!bases) continue;
      bases[source * local + expert] = static_cast<uint32_t>(counts);
      if (expert + 1 < local) bases[source * local + expert + 1] = static_cast<uint32_t>(counts >> 32);
    }
    sync_warp();
    for (uint32_t source = warp_id(); source < op.ranks(); source += block::warps()) {
      if (by_token(facts[source].form)) ok = list_tokens(op, source) && ok;
    }
    if (!every_thread(ok)) return false;
    for (uint32_t l = thread_id(); l < local && bases && slabs; l += block_size()) {
      uint32_t before = 0;
      for (uint32_t s = 0; s < op.ranks(); ++s) {
        const uint32_t count = bases[s * local + l];
        bases[s * local + l] = before;
        before += count;
      }
    }
    sync_block();
    return true;
  }

  // Warp verb: which token of `source` its row at `place` is.
  UCCLEP_FN uint32_t find_token(const Op& op, uint32_t source, uint32_t place) const {
    if (tokens) return tokens[list_of(op, source) + place];
    const uint32_t packets = HeaderLayout::present_packets(facts[source].tokens);
    uint32_t before = 0, token = 0;
    for (uint32_t first = 0; first < packets; first += wave_size) {
      const uint32_t i = first + lane_id();
      const uint64_t bits = i < packets ? SentBy(op, source).value(present_packet(op, source, i)) : 0;
      const uint32_t upto = before + scan_add(static_cast<uint32_t>(count_lanes(bits)));
      const uint64_t reached = ballot(place < upto);
      before = shfl(upto, wave_size - 1);
      if (reached == 0) continue;
      const uint32_t lane = first_lane(reached);
      uint64_t left = broadcast(bits, lane);
      for (uint32_t skip = place - (broadcast(upto, lane) - count_lanes(left)); skip > 0; --skip) left &= left - 1;
      token = (first + lane) * 64 + first_lane(left);
      break;
    }
    return token;
  }

  // Lane verb: rows_below.
  UCCLEP_FN uint32_t slab_base(const Op& op, uint32_t source, uint32_t expert) const {
    if (bases) return bases[source * op.group.shape.local_experts() + expert];
    return rows_below(source, expert, [&](uint32_t s) { return SentBy(op, s).value(counts_packet(op, s, expert)); });
  }

 private:
  static UCCLEP_FN uint32_t list_of(const Op& op, uint32_t source) {
    return source * ((op.group.shape.ll_tokens + 63) / 64 * 64);
  }

  // Warp verb: the tokens of one source by place.
  UCCLEP_FN bool list_tokens(const Op& op, uint32_t source) const {
    const uint32_t packets = HeaderLayout::present_packets(facts[source].tokens);
    uint32_t before = 0;
    for (uint32_t first = 0; first < packets; first += wave_size) {
      const uint32_t i = first + lane_id();
      uint64_t bits = 0;
      bool ok = true;
      if (i < packets) ok = wait_packet(op, Phase::header, source, present_packet(op, source, i), bits);
      if (!every_lane(ok)) return false;
      if (!tokens) continue;
      const uint32_t end = packets - first < wave_size ? packets - first : wave_size;
      for (uint32_t p = 0; p < end; ++p) {
        const uint64_t all = broadcast(bits, p);
        for (uint32_t bit = lane_id(); bit < 64; bit += wave_size) {
          const uint32_t place = before + count_lanes(all & ((uint64_t{1} << bit) - 1));
          if ((all >> bit & 1) != 0)
            tokens[list_of(op, source) + place] = static_cast<uint16_t>(64 * (first + p) + bit);
        }
        before += count_lanes(all);
      }
    }
    const uint32_t rows = facts[source].rows;
    if (!tokens || before >= rows) return true;
    if (lane_id() == 0) report_count(op, source, rows, before);
    return false;
  }
};

// Warp verb, after place_row: what there is to note of a row in the layouts of LL.
UCCLEP_FN void note_row(const Op& op, const HandleMemory& memory, const DispatchOutput& out, const Arrival& arrival,
                        const ReceivedSelection& selection, const Target& target) {
  note_placed(op, memory, out, arrival, selection, target);
  uint32_t expert = 0;
  if (target.active && out.zones == Zones::slabs && is_mine(op, selection, expert)) {
    memory.row_homes(expert)[target.inner] = arrival.source * memory.handle.tokens + arrival.place;
  }
}

// Lane verb: the first row of a source in the slab of lane k's expert, where it matters; else 0. Way: below, or
// ll/headers.hpp.
template <class Way>
UCCLEP_FN uint32_t base_of(const Op& op, const Way& way, const DispatchOutput& out, uint32_t source,
                           const ReceivedSelection& selection) {
  uint32_t expert = 0;
  const bool matters = out.zones == Zones::slabs && is_mine(op, selection, expert);
  return matters ? way.slab_base(op, source, expert) : 0;
}

// A way to find a row, by the tables: `index` is its place here. The other way is ll/headers.hpp.
template <bool waves>
struct ByTables {
  static constexpr bool in_waves = waves, by_arrival = false;
  const Inbox inbox;
  uint32_t token, place;

  // Warp verb.
  UCCLEP_FN ByTables(const Op& op, const Inbox& inbox, uint32_t source, uint32_t index)
      : inbox(inbox), token(uniform(inbox.find_token(op, source, index))), place(index) {}
  UCCLEP_FN bool find(const Op&, uint32_t) const { return true; }
  // Lane verb.
  UCCLEP_FN uint32_t slab_base(const Op& op, uint32_t source, uint32_t expert) const {
    return inbox.slab_base(op, source, expert);
  }
};

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
