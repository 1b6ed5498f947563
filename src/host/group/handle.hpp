// SPDX-License-Identifier: Apache-2.0
// A handle: one routing decision of a group, and what the host knows of it.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "host/group/group.hpp"
#include "host/group/tile_service.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/views.hpp"

namespace ucclep {

// What ucclEpComplete launches, and ucclEpCompleteWave and ucclEpWaveDone a part of it.
struct PendingReceive {
  using Launch = std::function<void(ucclEpStream_t, const WaveRange&)>;
  Kind kind;
  uint64_t number;  // of the group's operations of that kind, as they were called
  bool captured;    // the send phase was
  Launch launch;
  Launch send;             // of a combine whose rows leave wave by wave, or nothing
  uint32_t next_wave = 0;  // all waves below were asked for, or are done
};

// What the host knows of the routing in a handle's memory. Handles on the same memory of the caller's share it.
struct KnownRouting {
  std::shared_ptr<HostCounts> counts;  // written by HT updates

  // Of the last Update.
  bool updated = false;
  int64_t tokens = 0;               // T
  int top_k = 0;                    // K
  int64_t updates_called = 0;       // HT, those that were not captured
  bool captured = false;            // a graph holds an HT update: the counts may change without a call
  uint64_t awaited_sequence = 0;    // of counts, if the last call was captured: its first replay has ended then
  int64_t known_rows = -1;          // HandleWaitCounts returned them
  CounterViews pending_counters{};  // LL: filled by the next dispatch

  // Of the last dispatch.
  bool dispatched = false;
  bool weights_given = false;
  int64_t output_rows = 0;  // HT: of the output tensors

  // By kind; with waves or tiles a combine may be pending beside the dispatch.
  std::optional<PendingReceive> pending[num_kinds];

  // Operations of it were captured: the graphs in which they are, and whether one is a framework's, which may replay
  // for as long as the group lives.
  std::vector<std::weak_ptr<const void>> graphs;
  bool in_unknown_graph = false;
};

}  // namespace ucclep

struct ucclEpHandle : ucclep::LiveObject {
  explicit ucclEpHandle(ucclEpGroup& made_from) : group(&made_from) {}

  ucclEpGroup* const group;
  ucclep::HandleView device{};  // what kernels get
  ucclep::Workspace memory;     // empty: the caller's
  std::shared_ptr<ucclep::KnownRouting> routing;
  std::shared_ptr<ucclep::TileService> services[ucclep::num_kinds];  // of one with tiles: for dispatch and combine
  std::shared_ptr<ucclep::HostCounts> new_counts;  // on the caller's memory, until it is filled through this handle

  static constexpr int64_t tokens_unknown = -1;  // the dispatch was device-initiated

  bool low_latency() const { return device.mode == UCCLEP_MODE_LL; }
  int64_t max_tokens() const { return device.tokens; }
};

namespace ucclep {

// A word that kernels write.
template <class T>
T load(T& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

// What the memory held is about to be replaced: an Update, or a dispatch with ids of its own.
void begin_routing(ucclEpHandle& handle);

// An HT update was enqueued, or captured.
void note_call(ucclEpHandle& handle, bool captured);

// After a launch for the handle: a graph that it came into keeps the handle's memory.
void note_capture(ucclEpHandle& handle, ucclEpStream_t stream);

// Frees what handles destroyed earlier left, if no operation is in flight.
void release_retired(ucclEpGroup& group);

// A handle whose communicator has no fatal record.
ucclEpHandle& usable(ucclEpHandle_t handle);

}  // namespace ucclep
