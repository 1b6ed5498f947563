// SPDX-License-Identifier: Apache-2.0
// What a masked rank may still store (protocol P13): a case stores it in its place, through the windows of the host
// device.
#pragma once
#include <string>
#include <vector>

#include "conformance/masked.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {

// Bytes [begin, end) of a window.
struct WindowPart {
  uint64_t begin, end;
};

// All that `source` may store in a peer's window for an operation; the header comes first.
inline std::vector<WindowPart> parts_written_by(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, int source) {
  const WindowLayout& at = group.layout;
  const uint32_t slot = group.shape.slot_of(seq), from = static_cast<uint32_t>(source);
  const uint64_t header = at.header(group.shape, kind, slot, from);
  std::vector<WindowPart> parts{{header, header + at.header_bytes}};
  if (kind == Kind::dispatch) {
    parts.push_back({at.ll_meta_of(slot, from), at.ll_meta_of(slot, from) + at.ll_source});
    parts.push_back({at.ht_meta_of(slot, from), at.ht_meta_of(slot, from) + at.ht_source});
  }
  if (kind == Kind::combine) {
    parts.push_back({at.ll_weights_of(slot, from), at.ll_meta_of(slot, from) + at.ll_source});
    parts.push_back({at.back_epochs_of(slot, from), at.back_epochs_of(slot, from) + at.back_words});
  }
  return parts;
}

inline uint64_t* words_at(const ucclEpDeviceGroup& group, int peer, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(group.windows[peer] + offset);
}

inline ucclEpDeviceGroup device_group(ucclEpGroup_t group) {
  ucclEpDeviceGroup device{};
  ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
  return device;
}

// Stores a header at all peers, with the settings of the rank's operation `before` and the epoch of `seq`, which counts
// one row for each expert; and rows, with that epoch wherever one may be.
inline void store_late(const ucclEpDeviceGroup& group, Kind kind, uint64_t before, uint64_t seq, int source,
                       bool with_rows = true) {
  constexpr uint64_t one_row = uint64_t{1} | uint64_t{1} << 32;
  const WindowPart settings = parts_written_by(group, kind, before, source).front();
  std::vector<WindowPart> parts = parts_written_by(group, kind, seq, source);
  if (!with_rows) parts.resize(1);
  for (int peer = 0; peer < static_cast<int>(group.shape.ranks); ++peer) {
    if (peer == source) continue;
    for (const WindowPart& part : parts) {
      for (uint64_t at = 0; at < part.end - part.begin; at += sizeof(Packet)) {
        const bool header = part.begin == parts.front().begin, fixed = header && at < 2 * sizeof(Packet);
        const uint64_t value = fixed ? *words_at(group, peer, settings.begin + at) : header ? one_row : seq;
        __atomic_store_n(words_at(group, peer, part.begin + at), value, __ATOMIC_RELAXED);
        __atomic_store_n(words_at(group, peer, part.begin + at + 8), seq, __ATOMIC_RELEASE);
      }
    }
  }
}

// The rank that stores late: not the last one, so that rows of others lie behind its own.
constexpr int late = 1;

// Verb of the others.
inline void mask_late(auto& at) {
  const int mask[masked::ranks] = {1, 0, 1, 1};
  ok(ucclEpMaskUpdate(at.group, mask, at.stream), "ucclEpMaskUpdate");
  at.stream.synchronize();
}

inline std::vector<Kind> kinds_of(const Scenario& scenario) {
  if (scenario.ll()) return {Kind::dispatch, Kind::combine};
  return {Kind::update, Kind::dispatch, Kind::combine};
}

// When one operation of each kind has been: for two more, one for each slot.
inline void store_late_rounds(auto& at, const Scenario& scenario) {
  for (const Kind kind : kinds_of(scenario)) {
    for (const uint64_t seq : {2, 3}) store_late(device_group(at.group), kind, 1, seq, late);
  }
}

// After one operation of each kind a rank is masked, and stores late for the next one of each slot. The others then run
// round(rank, at, seed) for each of these.
template <class Round>
void run_beside_late(const Scenario& scenario, Round&& round) {
  run_ranks(masked::ranks, [&](Rank& rank) {
    masked::Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    masked::meet(rank, 0);
    if (rank.rank != late) mask_late(at);
    masked::meet(rank, 1);
    if (rank.rank == late) store_late_rounds(at, scenario);
    masked::meet(rank, 2);
    for (uint32_t seed = 2; rank.rank != late && seed < 4; ++seed) round(rank, at, seed);
    masked::meet(rank, 3);
  });
}

// What is there now.
inline std::string stored_by(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, int source, int peer) {
  std::string bytes;
  for (const WindowPart& part : parts_written_by(group, kind, seq, source)) {
    bytes.append(group.windows[peer] + part.begin, part.end - part.begin);
  }
  return bytes;
}

}  // namespace ucclep::test
