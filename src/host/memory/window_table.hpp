// SPDX-License-Identifier: Apache-2.0
// Windows: memory of the user's that all ranks reach. They are registered by all ranks in one order, so a window has
// the same id on all of them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "host/context/device_memory.hpp"
#include "host/context/live_objects.hpp"
#include "host/memory/mem_pool.hpp"
#include "host/memory/peer_memory.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/ucclep.h"

struct ucclEpWindow : ucclep::LiveObject {
  explicit ucclEpWindow(ucclEpComm* made_from) : comm(made_from) {}

  ucclEpComm* const comm;
  int rank = 0;
  uint32_t id = 0;
  ucclep::PeerMemory memory;
  std::shared_ptr<ucclep::DeviceMemory> allocation;  // of ucclEpMemAlloc, if it lies there: freed after the window
  std::unique_ptr<ucclep::MemPool> pool;             // of ucclEpMemPoolOpen
};

namespace ucclep {

struct WindowPlace {
  uint32_t id;
  uint64_t offset;
};

// The windows of a communicator, and the table in which kernels find them.
class WindowTable {
 public:
  WindowTable(Device& device, uint32_t ranks);
  ~WindowTable();

  // Device memory: [id * ranks + peer] is where the range that `peer` registered as window `id` begins for this rank.
  char* const* addresses() const { return static_cast<char* const*>(addresses_.data()); }
  char* const* addresses(uint32_t id) const { return addresses() + size_t{id} * ranks_; }
  const uint64_t* sizes(uint32_t id) const { return static_cast<const uint64_t*>(sizes_.data()) + size_t{id} * ranks_; }
  uint32_t free_id() const;  // the lowest one, so that ranks agree; max_windows when all are taken

  // Kernels that are launched from now on find the ranges.
  void write(const ucclEpWindow& window, Deadline deadline);
  ucclEpWindow_t insert(std::unique_ptr<ucclEpWindow> window);
  std::unique_ptr<ucclEpWindow> take(uint32_t id);
  bool has(const ucclEpWindow* window) const;
  void clear() { entries_.clear(); }

  std::optional<WindowPlace> find(const void* data, uint64_t bytes) const;
  // each(id, this rank's memory), in the order of ids.
  template <class Each>
  void for_each(Each&& each) const {
    for (const Entry& entry : entries_) {
      if (entry.window) each(entry.window->id, *entry.window->memory.of[static_cast<size_t>(entry.window->rank)]);
    }
  }

 private:
  // Ranges stand beside the windows: find reads nothing else, on the path of every operation.
  struct Entry {
    uintptr_t begin = 0;
    uint64_t bytes = 0;
    std::unique_ptr<ucclEpWindow> window;  // null: the id is free
  };

  Device& device_;
  uint32_t ranks_;
  DeviceMemory addresses_, sizes_;
  ucclEpStream_t stream_;
  std::vector<Entry> entries_;  // by id
};

// The window of this rank that holds the bytes: the one with the lowest id, if several do. No driver call.
std::optional<WindowPlace> find_window(const ucclEpComm& comm, const void* data, uint64_t bytes);

}  // namespace ucclep
