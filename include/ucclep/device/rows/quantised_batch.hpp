// SPDX-License-Identifier: Apache-2.0
// What a warp has in hand of a row that is quantised on its way, in LINE form: line_batch_quantised elements. The
// packets of a group are those of the lanes that quantise it, so nothing goes through shared memory, and a receiver's
// lanes store side by side. What the epoch takes of a group's line travels behind all groups, with the group's scale.
//
// clang-format off
// | lines of    | are                                                                                       |
// |-------------|-------------------------------------------------------------------------------------------|
// | 8 packets   | each group without its last 8 bytes; one line, a packet a group: those bytes, the scale   |
// | one packet  | 8 elements each; one for each group: the scale                                            |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/quantise.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

struct QuantisedBatch : LinePackets {
  static constexpr bool tails = line_lanes > 1;  // the end of a group travels apart
  static constexpr uint32_t vectors = tails ? 2 : 1, packet_elements = vectors * quant_per_lane;
  static constexpr uint32_t groups = line_batch_quantised / quant_group;
  static constexpr uint32_t group_lanes = quant_group / packet_elements, step_groups = wave_size / group_lanes;
  static_assert(!tails || (line_lanes == group_lanes && groups < line_lanes));
  // Behind all groups, a packet for each: all in one step.
  static constexpr uint32_t group_packets = groups * group_lanes;
  static constexpr uint32_t last_step = group_packets / wave_size, first_lane_there = group_packets % wave_size;
  static_assert(last_step == steps - 1 && first_lane_there + (tails ? line_lanes : groups) <= wave_size);

  static UCCLEP_FN uint32_t packet(uint32_t step) { return step * wave_size + lane_id(); }
  // Which of the batch's elements is the first of this lane's packet, if it carries some.
  static UCCLEP_FN uint32_t element(uint32_t step) { return packet(step) * packet_elements; }
  static UCCLEP_FN bool holds(uint32_t step, uint32_t elements) {
    return packet(step) < group_packets && element(step) < elements;
  }

  // Where the packets behind all groups begin; and what the lines of the groups of a batch of so many elements carry,
  // and those behind them.
  static constexpr uint32_t behind_groups = group_packets * sizeof(Packet);
  static UCCLEP_FN uint32_t group_payload(uint32_t elements) {
    return elements / packet_elements / line_lanes * line_payload;
  }
  static UCCLEP_FN uint32_t behind_payload(uint32_t elements) {
    return (tails ? 1 : elements / quant_group) * line_payload;
  }

  // The one that is sent last.
  static UCCLEP_FN uint32_t last_line(uint32_t elements) {
    return behind_groups / line_bytes + (tails ? 0 : elements / quant_group - 1);
  }

  // used(s) of a batch of so many elements.
  static UCCLEP_FN auto up_to(uint32_t elements) {
    return [elements](uint32_t s) {
      const uint32_t behind = elements / quant_group;
      return packet(s) < group_packets ? element(s) < elements
                                       : packet(s) - group_packets < (tails ? line_lanes : behind);
    };
  }

  // What a lane has of a batch's elements before it is quantised.
  struct Raw {
    vec16 x[steps][vectors];

    // Warp verb. from: the batch's first element.
    UCCLEP_FN void read(const char* from, uint32_t elements) {
      UCCLEP_UNROLL
      for (uint32_t s = 0; s < steps; ++s) {
        UCCLEP_UNROLL
        for (uint32_t v = 0; v < vectors; ++v) {
          x[s][v] = holds(s, elements) ? load16(from + 2 * (element(s) + v * quant_per_lane)) : vec16{};
        }
      }
    }
  };

  // Warp verb.
  UCCLEP_FN void quantise(const RowSource& source, const Raw& raw) {
    const uint32_t group = lane_id() - first_lane_there;  // of this lane's packet behind all groups, if it has one
    const uint32_t end = (group * group_lanes + group_lanes - 1) % wave_size;  // that group's last lane, in its step
    Packet last{};
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const Quantised<vectors> made = quantise_group(source, raw.x[s]);
      part[s] = {made.packed[0], tails ? made.packed[vectors - 1] : 0};
      const uint64_t scale = shfl(made.scale, end), tail = tails ? shfl(made.packed[vectors - 1], end) : scale;
      if (group / step_groups == s) last = {tail, scale};
    }
    if (group < groups) part[last_step] = last;
  }

  // Warp verbs, of a batch of so many elements.
  UCCLEP_FN void send(char* lines_there, uint32_t elements, uint64_t epoch) const {
    send_used(lines_there, epoch, up_to(elements));
  }
  UCCLEP_FN void peek(const char* lines_here, uint32_t elements) { peek_used(lines_here, up_to(elements)); }
  UCCLEP_FN bool arrived(uint32_t elements, uint64_t seq) const { return used_arrived(seq, up_to(elements)); }

  // Warp verb, when all are there: puts the ends of groups where they belong.
  UCCLEP_FN void settle() {
    if constexpr (!tails) return;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint64_t tail = shfl(part[last_step].value, first_lane_there + packet(s) / group_lanes);
      if (ends()) part[s].epoch = tail;
    }
  }
  // Warp verb: of a group, for each lane the one that it names.
  UCCLEP_FN uint32_t scale(uint32_t group) const {
    const Packet& last = part[last_step];
    return static_cast<uint32_t>(shfl(tails ? last.epoch : last.value, first_lane_there + group));
  }
  // Warp verb: the elements to memory.
  UCCLEP_FN void write(char* row, uint32_t elements) const {
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      if (!holds(s, elements)) continue;
      if constexpr (tails) {
        *reinterpret_cast<Packet*>(row + element(s)) = part[s];
      } else {
        *reinterpret_cast<uint64_t*>(row + element(s)) = part[s].value;
      }
    }
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE
