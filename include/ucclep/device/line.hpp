// SPDX-License-Identifier: Apache-2.0
// The LINE form (protocol P15): rows as lines that carry their own epoch, so that no fence and no flag is needed. A
// line is the widest store that arrives whole on the device: 128 bytes written by 8 neighbouring lanes of a warp on
// NVIDIA, 16 bytes elsewhere. Its last 8 bytes are the epoch. The idea is NCCL's LL128 protocol.
#pragma once
#include "ucclep/device/signal.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr uint32_t line_bytes = 16 * line_lanes;
constexpr uint32_t line_payload = line_bytes - 8;
// Data in the lines that one warp writes in one step.
constexpr uint32_t line_step = wave_size / line_lanes * line_payload;

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
