// SPDX-License-Identifier: Apache-2.0
// The LINE form (protocol P15): rows as lines that carry their own epoch, so that no fence and no flag is needed. LINE
// is NCCL's LL128; BULK is its Simple protocol. A line has 128 bytes, written by 8 neighbouring lanes of a warp, on
// NVIDIA, and 16 bytes elsewhere. Its last 8 bytes are the epoch. Rows travel so in groups whose stores of a line
// arrive whole.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr uint32_t line_bytes = 16 * line_lanes;
constexpr uint32_t line_payload = line_bytes - 8;

// Where the data of a packet lies in what the lines carry: 16 bytes of it, or 8 in the packet that holds the epoch.
UCCLEP_FN uint32_t line_offset(uint32_t packet) {
  return packet / line_lanes * line_payload + packet % line_lanes * 16;
}
UCCLEP_FN bool ends_line(uint32_t packet) {
  return packet % line_lanes == line_lanes - 1;
}

// What a warp has in hand of a row in LINE form, in registers, some 16-byte packets a lane. What a lane does in each
// step differs by constants only: a warp waits for its own instructions as much as for memory. used(s): this lane has a
// packet in that step; of a line all have, or none.
struct LinePackets {
  static constexpr uint32_t lines = line_batch_bytes / line_payload, packets = lines * line_lanes;
  static constexpr uint32_t steps = (packets + wave_size - 1) / wave_size;
  Packet part[steps];  // {first 8 bytes, second 8 bytes or epoch}

  // Does this lane's packet of any step end a line?
  static UCCLEP_FN bool ends() { return ends_line(lane_id()); }

  // Warp verb: to a peer's lines.
  template <class Used>
  UCCLEP_FN void send_used(char* lines_there, uint64_t epoch, Used&& used) const {
    auto* to = reinterpret_cast<Packet*>(lines_there) + lane_id();
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      if (!used(s)) continue;
      store_line_part(to + s * wave_size, part[s].value, ends() ? epoch : part[s].epoch);
    }
  }

  // Warp verb: begins to read lines that may not be there yet.
  template <class Used>
  UCCLEP_FN void peek_used(const char* lines_here, Used&& used) {
    const auto* from = reinterpret_cast<const Packet*>(lines_here) + lane_id();
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) part[s] = used(s) ? load_packet(from + s * wave_size) : Packet{};
  }

  // Warp verb, after peek: are all of them there? Else the whole warp looks again: a line's lanes must read it
  // together.
  template <class Used>
  UCCLEP_FN bool used_arrived(uint64_t seq, Used&& used) const {
    bool late = false;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) late = late || (used(s) && part[s].epoch != seq);
    return ballot(late && ends()) == 0;
  }
};

// The same of a row as it stands, up to line_batch_bytes of it: from memory to lines and from lines to memory without
// another stop. `bytes`, a multiple of 8: how many there are; row, lines: where they begin.
class LineBatch : public LinePackets {
  static UCCLEP_FN auto up_to(uint32_t bytes) {
    const uint32_t end = (bytes + line_payload - 1) / line_payload * line_lanes;
    return [end](uint32_t s) { return lane_id() + s * wave_size < end; };
  }

 public:
  static constexpr uint32_t step_bytes = wave_size / line_lanes * line_payload;  // of the row

  // Where the data of this lane's packet of a step lies in the row.
  static UCCLEP_FN uint32_t offset(uint32_t step) { return line_offset(lane_id()) + step * step_bytes; }

  // Warp verb: word(step, i) gives this lane's words 0 and 1 of a step.
  template <class Word>
  UCCLEP_FN void fill(uint32_t bytes, Word&& word) {
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      part[s].value = offset(s) < bytes ? word(s, 0) : 0;
      part[s].epoch = offset(s) + 8 < bytes && !ends() ? word(s, 1) : 0;
    }
  }

  // Warp verb: the same of word(offset), a warp verb: all lanes call it for each of their words.
  template <class Word>
  UCCLEP_FN void fill_together(uint32_t bytes, Word&& word) {
    uint64_t words[steps][2];
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < 2; ++i) words[s][i] = s * step_bytes < bytes ? word(offset(s) + 8 * i) : 0;
    }
    fill(bytes, [&](uint32_t s, uint32_t i) { return words[s][i]; });
  }

  // Warp verb: from memory.
  UCCLEP_FN void read(const char* row, uint32_t bytes) {
    const char* from = row + line_offset(lane_id());
    fill(bytes, [&](uint32_t s, uint32_t i) { return reinterpret_cast<const uint64_t*>(from + s * step_bytes)[i]; });
  }

  // Warp verbs, as above.
  UCCLEP_FN void send(char* lines_there, uint32_t bytes, uint64_t epoch) const {
    send_used(lines_there, epoch, up_to(bytes));
  }
  UCCLEP_FN void peek(const char* lines_here, uint32_t bytes) { peek_used(lines_here, up_to(bytes)); }
  UCCLEP_FN bool arrived(uint32_t bytes, uint64_t seq) const { return used_arrived(seq, up_to(bytes)); }
  UCCLEP_FN void settle() {}

  // Warp verb: to memory, as far as they are tokens.
  UCCLEP_FN void write(char* row, uint32_t end) const {
    char* to = row + line_offset(lane_id());
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      auto* words = reinterpret_cast<uint64_t*>(to + s * step_bytes);
      if (offset(s) < end) words[0] = part[s].value;
      if (offset(s) + 8 < end && !ends()) words[1] = part[s].epoch;
    }
  }
};
static_assert(line_batch_bytes % line_payload == 0 && wave_size % line_lanes == 0);

UCCLEP_FN uint32_t line_batches(uint32_t bytes) {
  return (bytes + line_batch_bytes - 1) / line_batch_bytes;
}
// Neighbouring batches of a row.
struct BatchRange {
  uint32_t begin, end;
  UCCLEP_FN uint32_t count() const { return end - begin; }
};

// How rows are cut into parts, each of which a warp takes.
struct RowParts {
  WarpUniform batches, of_part, count;  // of a row; of a part; parts of a row

  // All rows shared out to so many warps, one part each if parts of `most` batches are large enough: to find out what a
  // part belongs to takes a warp as long as several batches that are under way together. Nothing is divided by what the
  // compiler does not know.
  template <uint32_t most>
  static UCCLEP_FN RowParts of(uint32_t batches, uint32_t rows, uint32_t warps) {
    uint32_t of_part = most, count = (batches + most - 1) / most;
    UCCLEP_UNROLL
    for (uint32_t fewer = most - 1; fewer > 0; --fewer) {
      const uint32_t more = (batches + fewer - 1) / fewer;
      if (more * rows <= warps) of_part = fewer, count = more;
    }
    return {batches, of_part, count};
  }
  // In parts of that size.
  static UCCLEP_FN RowParts of_size(uint32_t batches, uint32_t of_part) {
    return {batches, of_part, (batches + of_part - 1) / of_part};
  }
  UCCLEP_FN BatchRange range(uint32_t part) const {
    const uint32_t begin = part * of_part, end = begin + of_part;
    return {begin, end < batches ? end : uint32_t{batches}};
  }
};

// Bytes of batch `index` of a row.
UCCLEP_FN uint32_t batch_length(uint32_t bytes, uint32_t index) {
  const uint32_t left = bytes - index * line_batch_bytes;
  return left < line_batch_bytes ? left : line_batch_bytes;
}

// What line_store and line_load take for a line: one of the device, in groups where it arrives whole.
struct WholeLines {
  static constexpr uint32_t lanes = line_lanes, payload = line_payload;
  static UCCLEP_FN void store(Packet* to, uint64_t first, uint64_t second) { store_line_part(to, first, second); }
};
// Or a packet, which arrives whole by any link.
struct PacketLines {
  static constexpr uint32_t lanes = 1, payload = 8;
  static UCCLEP_FN void store(Packet* to, uint64_t value, uint64_t epoch) { store_packet(to, value, epoch); }
};

// Runs something with the kind of lines that the metas of HT have.
template <class Run>
UCCLEP_FN auto with_meta_lines(const GroupShape& shape, Run&& run) {
  if constexpr (line_lanes > 1) {
    if (shape.line_bytes == line_bytes) return run(WholeLines{});
  }
  return run(PacketLines{});
}

// Warp verb: `bytes` (a multiple of 8) from shared memory to lines. What is left of the last line is zero.
template <class Lines = WholeLines>
UCCLEP_FN void line_store(char* lines, const char* smem, uint64_t bytes, uint64_t epoch) {
  const auto packets = static_cast<uint32_t>(ceil_div(bytes, Lines::payload)) * Lines::lanes;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = lane_id(); i < packets; i += wave_size) {
    const uint32_t part = i % Lines::lanes;
    const uint64_t offset = uint64_t{i / Lines::lanes} * Lines::payload + part * 16;
    const auto* data = reinterpret_cast<const uint64_t*>(smem + offset);
    const uint64_t low = offset < bytes ? data[0] : 0;
    const bool last = part == Lines::lanes - 1;
    const uint64_t high = last ? epoch : offset + 8 < bytes ? data[1] : 0;
    Lines::store(reinterpret_cast<Packet*>(lines) + i, low, high);
  }
}

// Warp verb: waits for the lines and puts their data into shared memory, for all lanes to read.
template <class Lines = WholeLines>
UCCLEP_FN bool line_load(const Op& op, Phase phase, uint32_t peer, char* smem, const char* lines, uint64_t bytes) {
  const auto packets = static_cast<uint32_t>(ceil_div(bytes, Lines::payload)) * Lines::lanes;
  const uint32_t steps = static_cast<uint32_t>(ceil_div(packets, wave_size));
  UCCLEP_KEEP_LOOP
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t i = step * wave_size + lane_id();
    const bool used = i < packets;
    Packet seen{};
    // The whole warp looks again until every line of the step has its epoch: a line's lanes must have read it together.
    const bool ok = wait_peer_warp(op, phase, peer, [&] {
      if (used) seen = load_packet(reinterpret_cast<const Packet*>(lines) + i);
      return ballot(used && i % Lines::lanes == Lines::lanes - 1 && seen.epoch != op.seq) == 0;
    });
    if (!ok) return false;
    if (used) {
      const uint32_t part = i % Lines::lanes;
      const uint64_t offset = uint64_t{i / Lines::lanes} * Lines::payload + part * 16;
      auto* data = reinterpret_cast<uint64_t*>(smem + offset);
      if (offset < bytes) data[0] = seen.value;
      if (part != Lines::lanes - 1 && offset + 8 < bytes) data[1] = seen.epoch;
    }
  }
  sync_warp();
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
