// SPDX-License-Identifier: Apache-2.0
#include "host/group/tile_service.hpp"

#include "base/best_effort.hpp"

namespace ucclep {

TileService::TileService(Device& device) : device_(device) {
  try {
    stream_ = device_.service_stream_create();
    forked_ = device_.marker_create();
    ended_ = device_.marker_create();
  } catch (...) {
    release();
    throw;
  }
}

TileService::~TileService() {
  release();
}

void TileService::release() {
  for (const ucclEpEvent_t event : {forked_, ended_}) {
    if (event == nullptr) continue;
    best_effort("handle", "an event was not destroyed", [&] { device_.event_destroy(event); });
  }
  if (stream_ == nullptr) return;
  best_effort("handle", "a stream was not destroyed", [&] { device_.stream_destroy(stream_); });
}

ucclEpStream_t TileService::fork(ucclEpStream_t from) {
  device_.event_record(forked_, from);
  device_.stream_wait_event(stream_, forked_);
  return stream_;
}

void TileService::ended() {
  device_.event_record(ended_, stream_);
}

void TileService::join(ucclEpStream_t into) {
  device_.stream_wait_event(into, ended_);
}

}  // namespace ucclep
