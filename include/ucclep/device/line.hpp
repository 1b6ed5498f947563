// SPDX-License-Identifier: Apache-2.0
// The LINE form (protocol P15): rows as lines that carry their own epoch, so that no fence and no flag is needed. A
// line is the widest store that arrives whole on the device: 128 bytes written by 8 neighbouring lanes of a warp on
// NVIDIA, 16 bytes elsewhere. Its last 8 bytes are the epoch. The idea is NCCL's LL128 protocol.
#pragma once
#include "ucclep/device/signal.hpp"

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

// What a warp has in hand of a row in LINE form: up to line_batch_bytes of it, in registers, some 16-byte packets a
// lane. Bytes go from memory to lines and from lines to memory without another stop. `bytes`, a multiple of 8: how many
// there are; row, lines: where they begin.
struct LineBatch {
  static constexpr uint32_t lines = line_batch_bytes / line_payload, packets = lines * line_lanes;
  static constexpr uint32_t steps = (packets + wave_size - 1) / wave_size;
  Packet part[steps];  // {first 8 bytes, second 8 bytes or epoch}

  // The packet of this lane in a step.
  static UCCLEP_FN uint32_t packet(uint32_t step) { return step * wave_size + lane_id(); }

  // Warp verb: word(offset) gives 8 bytes.
  template <class Word>
  UCCLEP_FN void fill(uint32_t bytes, Word&& word) {
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t at = line_offset(packet(s));
      part[s].value = at < bytes ? word(at) : 0;
      part[s].epoch = at + 8 < bytes && !ends_line(packet(s)) ? word(at + 8) : 0;
    }
  }

  // Warp verb: from memory.
  UCCLEP_FN void read(const char* row, uint32_t bytes) {
    fill(bytes, [&](uint32_t at) { return *reinterpret_cast<const uint64_t*>(row + at); });
  }

  // Warp verb: to a peer's lines.
  UCCLEP_FN void send(char* lines_there, uint32_t bytes, uint64_t epoch) const {
    const uint32_t end = packets_of(bytes);
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      if (packet(s) >= end) continue;
      auto* to = reinterpret_cast<Packet*>(lines_there) + packet(s);
      store_packet(to, part[s].value, ends_line(packet(s)) ? epoch : part[s].epoch);
    }
  }

  // Warp verb: begins to read lines that may not be there yet.
  UCCLEP_FN void peek(const char* lines_here, uint32_t bytes) {
    const uint32_t end = packets_of(bytes);
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const auto* from = reinterpret_cast<const Packet*>(lines_here) + packet(s);
      part[s] = packet(s) < end ? load_packet(from) : Packet{};
    }
  }

  // Warp verb, after peek: waits until all of them are there. The whole warp looks again until every line has its
  // epoch: a line's lanes must have read it together.
  UCCLEP_FN bool receive(const Op& op, Phase phase, uint32_t peer, const char* lines_here, uint32_t bytes) {
    if (arrived(bytes, op.seq)) return true;
    return wait_peer_warp(op, phase, peer, [&] {
      peek(lines_here, bytes);
      return arrived(bytes, op.seq);
    });
  }

  // Lane verb: word(offset, value) for each 8 bytes that this lane holds.
  template <class Word>
  UCCLEP_FN void words(uint32_t bytes, Word&& word) const {
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t at = line_offset(packet(s));
      if (at < bytes) word(at, part[s].value);
      if (at + 8 < bytes && !ends_line(packet(s))) word(at + 8, part[s].epoch);
    }
  }

  // Warp verb: to memory.
  UCCLEP_FN void write(char* row, uint32_t bytes) const {
    words(bytes, [&](uint32_t at, uint64_t value) { *reinterpret_cast<uint64_t*>(row + at) = value; });
  }

 private:
  UCCLEP_FN bool arrived(uint32_t bytes, uint64_t seq) const {
    const uint32_t end = packets_of(bytes);
    bool late = false;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint64_t epoch = shfl(part[s].epoch, lane_id() | (line_lanes - 1));
      late = late || (packet(s) < end && epoch != seq);
    }
    return ballot(late) == 0;
  }
  static UCCLEP_FN uint32_t packets_of(uint32_t bytes) {
    return (bytes + line_payload - 1) / line_payload * line_lanes;
  }
};
static_assert(line_batch_bytes % line_payload == 0);

// Batches that a warp takes one after the other, once it has found out what they belong to: that takes as long as they.
constexpr uint32_t part_batches = 2;

UCCLEP_FN uint32_t line_batches(uint32_t bytes) {
  return (bytes + line_batch_bytes - 1) / line_batch_bytes;
}
UCCLEP_FN uint32_t line_parts(uint32_t batches) {
  return (batches + part_batches - 1) / part_batches;
}
// Bytes of batch `index` of a row.
UCCLEP_FN uint32_t batch_length(uint32_t bytes, uint32_t index) {
  const uint32_t left = bytes - index * line_batch_bytes;
  return left < line_batch_bytes ? left : line_batch_bytes;
}

// Warp verb: `bytes` (a multiple of 8) from shared memory to lines. What is left of the last line is zero.
UCCLEP_FN void line_store(char* lines, const char* smem, uint64_t bytes, uint64_t epoch) {
  const auto packets = static_cast<uint32_t>(ceil_div(bytes, line_payload)) * line_lanes;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = lane_id(); i < packets; i += wave_size) {
    const uint32_t part = i % line_lanes;
    const uint64_t offset = uint64_t{i / line_lanes} * line_payload + part * 16;
    const auto* data = reinterpret_cast<const uint64_t*>(smem + offset);
    const uint64_t low = offset < bytes ? data[0] : 0;
    const bool last = part == line_lanes - 1;
    const uint64_t high = last ? epoch : offset + 8 < bytes ? data[1] : 0;
    store_packet(reinterpret_cast<Packet*>(lines) + i, low, high);
  }
}

// Warp verb: waits for the lines and puts their data into shared memory, for all lanes to read.
UCCLEP_FN bool line_load(const Op& op, Phase phase, uint32_t peer, char* smem, const char* lines, uint64_t bytes) {
  const auto packets = static_cast<uint32_t>(ceil_div(bytes, line_payload)) * line_lanes;
  const uint32_t steps = static_cast<uint32_t>(ceil_div(packets, wave_size));
  UCCLEP_KEEP_LOOP
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t i = step * wave_size + lane_id();
    const bool used = i < packets;
    Packet seen{};
    // The whole warp looks again until every line of the step has its epoch: a line's lanes must have read it together.
    const bool ok = wait_peer_warp(op, phase, peer, [&] {
      if (used) seen = load_packet(reinterpret_cast<const Packet*>(lines) + i);
      const uint64_t epoch = shfl(seen.epoch, lane_id() | (line_lanes - 1));
      return ballot(used && epoch != op.seq) == 0;
    });
    if (!ok) return false;
    if (used) {
      const uint32_t part = i % line_lanes;
      const uint64_t offset = uint64_t{i / line_lanes} * line_payload + part * 16;
      auto* data = reinterpret_cast<uint64_t*>(smem + offset);
      if (offset < bytes) data[0] = seen.value;
      if (part != line_lanes - 1 && offset + 8 < bytes) data[1] = seen.epoch;
    }
  }
  sync_warp();
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
