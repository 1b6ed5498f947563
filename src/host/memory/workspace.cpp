// SPDX-License-Identifier: Apache-2.0
#include "host/memory/workspace.hpp"

#include <memory>
#include <utility>

#include "base/best_effort.hpp"
#include "base/error.hpp"
#include "base/kept.hpp"
#include "base/log.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {
namespace {

constexpr size_t workspace_alignment = 128;

}  // namespace

Workspace::Workspace(Device& device, const ucclEpGroupConfig_t& config, size_t bytes) : device_(&device) {
  const size_t padded = bytes + workspace_alignment;  // a caller's allocator may align less
  if (config.alloc_fn != nullptr) {
    const int failed = config.alloc_fn(&allocated_, padded, config.alloc_ctx);
    if (failed != 0 || allocated_ == nullptr) {
      allocated_ = nullptr;
      fail(ucclEpOutOfMemory, "config.alloc_fn failed with code {} for {} bytes", failed, padded);
    }
    free_ = config.free_fn;
    context_ = config.alloc_ctx;
  } else {
    allocated_ = device.alloc(padded);
  }
  data_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(allocated_), workspace_alignment));
}

// The copy is ordered by a stream, since the memory may be a GPU's. Until it has ended it uses both.
Workspace::Workspace(Device& device, const ucclEpGroupConfig_t& config, size_t bytes, std::vector<char> image,
                     Deadline deadline)
    : Workspace(device, config, bytes) {
  device.memcpy_async(data_, image.data(), image.size(), nullptr);
  if (device.stream_synchronize(nullptr, deadline.remaining_ms()) == ucclEpSuccess) return;
  log::warn("group", "{} bytes are never freed: a copy to them waits on the device's default stream",
            bytes + workspace_alignment);
  keep_for_ever(std::make_shared<std::vector<char>>(std::move(image)));
  allocated_ = nullptr;
  fail(ucclEpTimeout, "the work on the device's default stream did not end within {} ms", deadline.total_ms());
}

Workspace::~Workspace() {
  if (allocated_ == nullptr) return;
  if (free_ == nullptr) {
    best_effort("group", "the workspace was not freed", [this] { device_->free(allocated_); });
  } else if (const int failed = free_(allocated_, context_); failed != 0) {
    log::warn("group", "config.free_fn failed with code {}", failed);
  }
}

void Workspace::swap(Workspace& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(free_, other.free_);
  std::swap(context_, other.context_);
  std::swap(allocated_, other.allocated_);
  std::swap(data_, other.data_);
}

}  // namespace ucclep
