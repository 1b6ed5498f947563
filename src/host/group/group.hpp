// SPDX-License-Identifier: Apache-2.0
// A group: one MoE shape on one communicator. It owns this rank's window, maps its peers', and holds the words that
// kernels advance.
#pragma once
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "host/context/communicator.hpp"
#include "host/group/work_in_flight.hpp"
#include "host/memory/peer_memory.hpp"
#include "host/memory/workspace.hpp"
#include "host/network/network.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep {

struct KnownRouting;

// In host memory that kernels write.
struct MaskWords {
  RecordSlot evicted;          // complete: a peer has masked this rank
  uint64_t ended[num_kinds];   // where MaskClear reads the group's numbers
  uint32_t masked[max_ranks];  // 1: this rank has masked it
};

}  // namespace ucclep

struct ucclEpGroup : ucclep::LiveObject {
  explicit ucclEpGroup(ucclEpComm& made_from) : comm(&made_from), work(*made_from.device) {}

  ucclEpComm* const comm;
  uint64_t number = 0;         // of the communicator's objects: the same on all ranks
  ucclEpGroupConfig_t config;  // as asked, defaults filled in
  ucclEpDeviceGroup device;    // what kernels get

  ucclep::PeerMemory windows;
  ucclep::PeerMemory network_windows;  // where not all ranks are in one domain
  std::unique_ptr<ucclep::GroupTrace> trace;
  ucclep::Workspace workspace;                    // WorkspaceLayout
  ucclep::Workspace copies;                       // CopyTables, once a user's kernel may want them
  std::unique_ptr<ucclep::GroupNetwork> network;  // with several domains; ends before the workspace goes
  ucclep::WorkInFlight work;                      // every launch of this group
  bool captured = false;                          // its last launch was
  std::shared_ptr<ucclep::MaskWords> mask_words;  // with enable_mask
  std::vector<ucclEpHandle_t> handles;
  struct Retired {
    ucclep::Workspace memory;
    std::shared_ptr<ucclep::KnownRouting> routing;
  };
  std::vector<Retired> retired;  // of handles that were destroyed while an operation was in flight

  // Memory of the caller's that handles were created on, and what it holds.
  struct HandleMemory {
    const char* data;
    uint64_t bytes;
    uint32_t stamp;  // of the handles
    std::shared_ptr<ucclep::KnownRouting> routing;
  };
  std::vector<HandleMemory> handle_memories;
  // Rounds of operations as they were called, as many as each may have; and those operations of which only the send
  // phase was, oldest first (P2). number: of the first round; kernels do not know it of one that is held: it gets the
  // next when it sends.
  struct PendingOperation {
    ucclep::Kind kind;
    uint64_t number;
    bool held;
  };
  uint64_t called[ucclep::num_kinds] = {};  // other threads may read them, relaxed
  std::vector<PendingOperation> pending_operations;
  uint64_t serial = 0;  // no other group of the process has it

  const ucclep::GroupShape& shape() const { return device.shape; }
  int64_t tokens_of_mode(int mode) const {
    return mode == UCCLEP_MODE_LL ? config.ll_max_tokens_per_rank : config.max_tokens_per_rank;
  }
};

namespace ucclep {

uint64_t window_bytes(const ucclEpGroup& group);

// Of a call on the group.
Deadline deadline_of(const ucclEpGroup& group);

// A group whose communicator has no fatal record.
ucclEpGroup& usable(ucclEpGroup_t group);

// Launches, and notes that the group has work in flight on the stream.
template <class Args>
void launch(ucclEpGroup& group, const Kernel& kernel, const LaunchShape& shape, const Args& args,
            ucclEpStream_t stream) {
  static_assert(std::is_trivially_copyable_v<Args>);
  Device& device = *group.comm->device;
  group.captured = device.is_capturing(stream);
  StreamCapture* const capture = group.captured ? device.stream_capture() : nullptr;
  // What a GPU's graph replays later, nobody can ask for here.
  const bool asked_for = !group.captured || capture != nullptr;
  const ucclEpEvent_t behind = asked_for ? group.work.event_of(stream, group.captured) : nullptr;
  device.launch(kernel, shape, &args, sizeof args, stream);
  if (!asked_for) return;
  capture != nullptr ? capture->record_at_replay(behind, stream) : device.event_record(behind, stream);
}

// An operation, or its receive phase. With masks it is repaired, and runs again if it has to (masks.hpp).
template <class Args>
void launch_repaired(ucclEpGroup& group, const Kernel& kernel, const Kernel& repair, const LaunchShape& shape,
                     Args args, ucclEpStream_t stream) {
  launch(group, kernel, shape, args, stream);
  if (!group.mask_words) return;
  args.group.again = 1;
  launch(group, repair, LaunchShape{1, shape.block, 0}, args, stream);
  launch(group, kernel, shape, args, stream);
}

}  // namespace ucclep
