// SPDX-License-Identifier: Apache-2.0
// For cases about windows: memory, registered by all ranks, and what shows that all ranks reach it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "support/ep.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {

inline constexpr size_t page = 4096;

using Bytes = std::vector<uint8_t>;

// A content that tells ranks and places apart.
inline Bytes content(int rank, int which, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7 + i / 251 + 31u * rank + 101u * which + 1);
  return data;
}

inline void write(ucclEpComm_t comm, void* to, const Bytes& data) {
  ok(ucclEpMemcpy(comm, to, data.data(), data.size(), nullptr), "ucclEpMemcpy");
  ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
}

template <class T>
std::vector<T> read(ucclEpComm_t comm, const void* from, size_t count) {
  std::vector<T> data(count);
  ok(ucclEpMemcpy(comm, data.data(), from, count * sizeof(T), nullptr), "ucclEpMemcpy");
  ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  return data;
}

// Memory of ucclEpMemAlloc.
class Block {
 public:
  Block(ucclEpComm_t comm, size_t bytes) : comm_(comm) {
    void* data = nullptr;
    ok(ucclEpMemAlloc(comm, &data, bytes), "ucclEpMemAlloc");
    data_ = static_cast<char*>(data);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { ucclEpMemFree(comm_, data_); }
  char* data() const { return data_; }
  void free() { ok(ucclEpMemFree(comm_, std::exchange(data_, nullptr)), "ucclEpMemFree"); }

 private:
  ucclEpComm_t comm_;
  char* data_;
};

inline ucclEpWindow_t registered(ucclEpComm_t comm, void* data, size_t bytes) {
  ucclEpWindow_t window = nullptr;
  ok(ucclEpWindowRegister(comm, data, bytes, &window), "ucclEpWindowRegister");
  return window;
}

inline void deregister(ucclEpComm_t comm, ucclEpWindow_t window) {
  ok(ucclEpWindowDeregister(comm, window), "ucclEpWindowDeregister");
}

inline ucclEpDeviceWindow on_device(ucclEpWindow_t window) {
  ucclEpDeviceWindow out;
  ok(ucclEpWindowGetDevice(window, &out), "ucclEpWindowGetDevice");
  return out;
}

// Where this rank reaches every rank's range.
inline std::vector<char*> addresses(ucclEpComm_t comm, ucclEpWindow_t window) {
  const ucclEpDeviceWindow out = on_device(window);
  return read<char*>(comm, static_cast<const void*>(out.peers), static_cast<size_t>(out.ranks));
}

// A point in time that all ranks reach.
class Meeting {
 public:
  explicit Meeting(Rank& rank) : rank_(rank) {}
  void operator()() {
    rank_.board.add(0);
    rank_.board.wait(0, static_cast<uint32_t>(++meetings_ * rank_.count));
  }

 private:
  Rank& rank_;
  int meetings_ = 0;
};

// Every rank writes into the range of every rank of its domain at a place of its own, and finds what these wrote to its
// own range.
inline void exchange_through(Rank& rank, Meeting& together, ucclEpComm_t comm, ucclEpWindow_t window, char* own) {
  constexpr size_t part = 100;
  const std::vector<char*> all = addresses(comm, window);
  require(all[static_cast<size_t>(rank.rank)] == own, "the own range is not where it was registered");
  const std::vector<int> nodes = nodes_of_environment(rank.count);
  const auto together_with = [&](int a, int b) {
    return nodes.empty() || nodes[static_cast<size_t>(a)] == nodes[static_cast<size_t>(b)];
  };
  for (int peer = 0; peer < rank.count; ++peer) {
    require((all[static_cast<size_t>(peer)] != nullptr) == together_with(rank.rank, peer),
            "who is reached, rank " + std::to_string(peer));
    if (!together_with(rank.rank, peer)) continue;
    write(comm, all[static_cast<size_t>(peer)] + part * static_cast<size_t>(rank.rank), content(rank.rank, peer, part));
  }
  together();
  for (int peer = 0; peer < rank.count; ++peer) {
    if (!together_with(rank.rank, peer)) continue;
    for (int from = 0; from < rank.count; ++from) {
      if (!together_with(rank.rank, from)) continue;
      const char* place = all[static_cast<size_t>(peer)] + part * static_cast<size_t>(from);
      require(read<uint8_t>(comm, place, part) == content(from, peer, part),
              "what rank " + std::to_string(from) + " wrote to rank " + std::to_string(peer));
    }
    const char* place = own + part * static_cast<size_t>(peer);
    require(read<uint8_t>(comm, place, part) == content(peer, rank.rank, part),
            "what rank " + std::to_string(peer) + " wrote is not in the own memory");
  }
  together();
}

}  // namespace ucclep::test
