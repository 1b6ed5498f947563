// SPDX-License-Identifier: Apache-2.0
// Where rows of a pending dispatch of tiles are received: on a stream of the library's, while the caller's goes on.
#pragma once
#include "device/device.hpp"

namespace ucclep {

// Of a handle, which has one dispatch pending at a time. In a capture all of it goes into the graph.
class TileService {
 public:
  explicit TileService(Device& device);
  ~TileService();
  TileService(const TileService&) = delete;
  TileService& operator=(const TileService&) = delete;

  // The stream, on which work now comes after what `from` has.
  ucclEpStream_t fork(ucclEpStream_t from);
  void ended();                    // all of the work is on the stream
  void join(ucclEpStream_t into);  // what `into` has from now on comes after it

 private:
  void release();

  Device& device_;
  ucclEpStream_t stream_ = nullptr;
  ucclEpEvent_t forked_ = nullptr, ended_ = nullptr;
};

}  // namespace ucclep
