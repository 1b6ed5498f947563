// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/kept.hpp"
#include "host/context/communicator.hpp"
#include "host/memory/window_table.hpp"

namespace ucclep {
namespace {

// A row for each window, an entry for each rank.
template <class Entry>
DeviceMemory table_of(Device& device, uint32_t ranks) {
  const size_t bytes = size_t{max_windows} * ranks * sizeof(Entry);
  return {device, device.alloc(bytes), bytes};
}

}  // namespace

WindowTable::WindowTable(Device& device, uint32_t ranks)
    : device_(device),
      ranks_(ranks),
      addresses_(table_of<char*>(device, ranks)),
      sizes_(table_of<uint64_t>(device, ranks)),
      stream_(device.stream_create()) {}

WindowTable::~WindowTable() {
  best_effort("window", "a stream was not destroyed", [this] { device_.stream_destroy(stream_); });
}

uint32_t WindowTable::free_id() const {
  const auto free = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.window; });
  return static_cast<uint32_t>(free - entries_.begin());
}

void WindowTable::write(const ucclEpWindow& window, Deadline deadline) {
  struct Row {
    std::vector<char*> begins;
    std::vector<uint64_t> bytes;
  };
  const auto row = std::make_shared<Row>();
  row->bytes = window.memory.bytes;
  row->begins.reserve(window.memory.of.size());
  for (const auto& memory : window.memory.of) {
    row->begins.push_back(memory ? static_cast<char*>(memory->data()) : nullptr);
  }
  const auto copy = [this](const void* to, const auto& from) {
    device_.memcpy_async(const_cast<void*>(to), static_cast<const void*>(from.data()), from.size() * sizeof from[0],
                         stream_);
  };
  copy(static_cast<const void*>(addresses(window.id)), row->begins);
  copy(sizes(window.id), row->bytes);
  if (device_.stream_synchronize(stream_, deadline.remaining_ms()) == ucclEpSuccess) return;
  keep_for_ever(row);  // the copies may still read it
  fail(ucclEpTimeout, "cannot write the addresses of a window within {} ms", deadline.total_ms());
}

ucclEpWindow_t WindowTable::insert(std::unique_ptr<ucclEpWindow> window) {
  window->enlist(ObjectKind::window, window->comm);
  if (window->id == entries_.size()) entries_.emplace_back();
  const SharedMemory& own = *window->memory.of[static_cast<size_t>(window->rank)];
  Entry& entry = entries_[window->id];
  entry.begin = reinterpret_cast<uintptr_t>(own.data());
  entry.bytes = own.bytes();
  entry.window = std::move(window);
  return entry.window.get();
}

std::unique_ptr<ucclEpWindow> WindowTable::take(uint32_t id) {
  return std::exchange(entries_[id], {}).window;
}

bool WindowTable::has(const ucclEpWindow* window) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [window](const Entry& entry) { return entry.window.get() == window; });
}

std::optional<WindowPlace> WindowTable::find(const void* data, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    const Entry& entry = entries_[id];
    const uint64_t offset = at - entry.begin;  // wraps below the range: too large then
    if (offset < entry.bytes && bytes <= entry.bytes - offset) return WindowPlace{id, offset};
  }
  return std::nullopt;
}

std::optional<WindowPlace> find_window(const ucclEpComm& comm, const void* data, uint64_t bytes) {
  return comm.windows->find(data, bytes);
}

}  // namespace ucclep
