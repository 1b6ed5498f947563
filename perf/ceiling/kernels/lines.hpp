// SPDX-License-Identifier: Apache-2.0
// LL at its simplest, over rows as lines that carry their epoch (line.hpp): there is no other flag, and no routing.
// Work is cut into units, the packets of a row that one warp moves in one step; a warp has several under way.
#pragma once
#include "ceiling/kernels/push.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr uint32_t line_batch = 4;  // units of a warp that are under way together

struct LineShape {
  uint32_t row_bytes, packets, units;
  UCCLEP_FN LineShape(uint32_t bytes)
      : row_bytes(bytes),
        packets((bytes + line_payload - 1) / line_payload * line_lanes),
        units((packets + wave_size - 1) / wave_size) {}
  UCCLEP_FN size_t line_row_bytes() const { return size_t{packets} * sizeof(Packet); }
};

// A lane's packet of a unit.
struct LinePart {
  uint32_t index;   // of the packet in its row
  uint32_t offset;  // of its data in the row
  bool used, last;  // last: of its line, its second word is the epoch

  UCCLEP_FN LinePart(const LineShape& shape, uint32_t unit) {
    index = unit % shape.units * wave_size + lane_id();
    offset = index / line_lanes * line_payload + index % line_lanes * 16;
    last = index % line_lanes == line_lanes - 1;
    used = index < shape.packets;
  }

  UCCLEP_FN Packet read(const LineShape& shape, const unsigned char* row, uint64_t epoch) const {
    Packet packet{0, epoch};
    const auto* words = reinterpret_cast<const uint64_t*>(row + offset);
    if (used && offset < shape.row_bytes) packet.value = words[0];
    if (used && !last) packet.epoch = offset + 8 < shape.row_bytes ? words[1] : 0;
    return packet;
  }
  UCCLEP_FN void write(const LineShape& shape, unsigned char* row, const Packet& packet) const {
    auto* words = reinterpret_cast<uint64_t*>(row + offset);
    if (used && offset < shape.row_bytes) words[0] = packet.value;
    if (used && !last && offset + 8 < shape.row_bytes) words[1] = packet.epoch;
  }
};

// Warp verb: until look(), a warp verb, says that all is there.
template <class Look>
UCCLEP_FN bool wait_lines(Look&& look, const Wait& wait) {
  for (uint32_t polls = 1;; ++polls) {
    if (look()) return true;
    if (polls % 32 == 0 && ballot(aborted(wait) || timed_out(wait)) != 0) return false;
    pause();
  }
}

// Warp verb: the packets at lines[0 .. N), those that are not null, when all of their lines have the epoch.
template <uint32_t N>
UCCLEP_FN bool receive_packets(const Packet* const (&lines)[N], uint64_t epoch, Packet (&seen)[N], const Wait& wait) {
  const auto look = [&] {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < N; ++i) {
      if (lines[i] != nullptr) seen[i] = load_packet(lines[i]);
    }
    bool missing = false;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < N; ++i) {
      const uint64_t there = shfl(seen[i].epoch, lane_id() | (line_lanes - 1));
      missing |= lines[i] != nullptr && there != epoch;
    }
    return ballot(missing) == 0;
  };
  return wait_lines(look, wait);
}

struct LineRound {
  const CeilingCopyArgs& args;
  const LineShape shape;
  const uint64_t epoch;
  const unsigned char* input;
  const size_t landing;  // offset in a window
  const Wait wait;

  UCCLEP_FN LineRound(const CeilingCopyArgs& a, uint32_t round)
      : args(a),
        shape(a.row_bytes),
        epoch(a.epoch + round),
        input(a.input + (a.first_input + round) % a.inputs * a.input_stride),
        landing((a.first_landing + round) % a.landings * a.landing_stride),
        wait(begin_wait(a.limit.ns, a.limit.abort_word)) {}

  UCCLEP_FN Packet* packet_at(uint32_t rank, size_t row, const LinePart& part) const {
    return reinterpret_cast<Packet*>(args.windows[rank] + landing + row * shape.line_row_bytes()) + part.index;
  }
  UCCLEP_FN void give_up() const {
    if (lane_id() == 0) fetch_add_relaxed<Scope::gpu>(args.limit.late, 1u);
  }
};

// Each token to every rank that wants it.
UCCLEP_FN void send_tokens(const LineRound& r) {
  const uint32_t units = r.args.tokens * r.shape.units, ranks = r.args.ranks;
  for (uint32_t first = grid_warp(); first < units; first += line_batch * grid_warps()) {
    Packet packets[line_batch] = {};
    int32_t places[line_batch];
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const uint32_t unit = first + i * grid_warps();
      const size_t token = unit / r.shape.units;
      places[i] = unit < units && lane_id() < ranks ? r.args.places[token * ranks + lane_id()] : -1;
      if (unit < units)
        packets[i] = LinePart(r.shape, unit).read(r.shape, r.input + token * r.shape.row_bytes, r.epoch);
    }
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const LinePart part(r.shape, first + i * grid_warps());
      for (uint32_t k = 0; k < ranks; ++k) {
        const uint32_t peer = (r.args.rank + 1 + k) % ranks;
        const int32_t place = broadcast(places[i], peer);
        if (place >= 0 && part.used) store_packet(r.packet_at(peer, place, part), packets[i].value, packets[i].epoch);
      }
    }
  }
}

// Lane k: copy k of a row.
UCCLEP_FN int32_t copy_of(const CeilingCopyArgs& args, uint32_t row) {
  if (args.slots == 0) return lane_id() == 0 ? static_cast<int32_t>(row) : -1;
  return lane_id() < args.slots ? args.copies[size_t{row} * args.slots + lane_id()] : -1;
}

// What arrives to the output, row by row.
UCCLEP_FN bool receive_rows(const LineRound& r) {
  const uint32_t units = r.args.received * r.shape.units;
  for (uint32_t first = grid_warp(); first < units; first += line_batch * grid_warps()) {
    const Packet* lines[line_batch];
    Packet seen[line_batch] = {};
    int32_t copies[line_batch];
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const uint32_t unit = first + i * grid_warps();
      const LinePart part(r.shape, unit);
      lines[i] = unit < units && part.used ? r.packet_at(r.args.rank, unit / r.shape.units, part) : nullptr;
      copies[i] = unit < units ? copy_of(r.args, unit / r.shape.units) : -1;
    }
    if (!receive_packets(lines, r.epoch, seen, r.wait)) return false;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const LinePart part(r.shape, first + i * grid_warps());
      for (uint64_t left = ballot(copies[i] >= 0); left != 0; left &= left - 1) {
        const size_t row = broadcast(copies[i], first_lane(left));
        if (lines[i] != nullptr) part.write(r.shape, r.args.output + row * r.shape.row_bytes, seen[i]);
      }
    }
  }
  return true;
}

// Each row back to the rank of its token, to the landing of (token, this rank).
UCCLEP_FN void return_rows(const LineRound& r) {
  const uint32_t units = r.args.received * r.shape.units;
  for (uint32_t first = grid_warp(); first < units; first += line_batch * grid_warps()) {
    Packet packets[line_batch] = {};
    int32_t origins[line_batch] = {};
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const uint32_t unit = first + i * grid_warps();
      const size_t row = unit / r.shape.units;
      if (unit >= units) continue;
      origins[i] = r.args.origins[row];
      packets[i] = LinePart(r.shape, unit).read(r.shape, r.input + row * r.shape.row_bytes, r.epoch);
    }
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < line_batch; ++i) {
      const uint32_t unit = first + i * grid_warps();
      const LinePart part(r.shape, unit);
      if (unit >= units || !part.used) continue;
      const uint32_t peer = origins[i] / r.args.tokens, token = origins[i] % r.args.tokens;
      store_packet(r.packet_at(peer, size_t{token} * r.args.ranks + r.args.rank, part), packets[i].value,
                   packets[i].epoch);
    }
  }
}

// Up to line_batch ranks' rows of a token are under way together.
UCCLEP_FN bool sum_rows(const LineRound& r) {
  const uint32_t units = r.args.tokens * r.shape.units, ranks = r.args.ranks;
  for (uint32_t unit = grid_warp(); unit < units; unit += grid_warps()) {
    const LinePart part(r.shape, unit);
    const size_t token = unit / r.shape.units;
    const bool wanted = lane_id() < ranks && r.args.places[token * ranks + lane_id()] >= 0;
    const uint64_t sources = ballot(wanted);
    Vector<Bf16> total{};
    for (uint32_t base = 0; base < ranks; base += line_batch) {
      const Packet* lines[line_batch];
      Packet seen[line_batch] = {};
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < line_batch; ++i) {
        const uint32_t rank = base + i;
        const bool there = rank < ranks && part.used && (sources >> rank & 1) != 0;
        lines[i] = there ? r.packet_at(r.args.rank, token * ranks + rank, part) : nullptr;
      }
      if (!receive_packets(lines, r.epoch, seen, r.wait)) return false;
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < line_batch; ++i) {
        const Packet& p = seen[i];
        const uint64_t high = part.last ? 0 : p.epoch;
        if (lines[i] != nullptr) {
          total.add(Vector<Bf16>::unpack({static_cast<uint32_t>(p.value), static_cast<uint32_t>(p.value >> 32),
                                          static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}));
        }
      }
    }
    const vec16 sum = total.pack();
    part.write(r.shape, r.args.output + token * r.shape.row_bytes,
               {uint64_t{sum.y} << 32 | sum.x, uint64_t{sum.w} << 32 | sum.z});
  }
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
