// SPDX-License-Identifier: Apache-2.0
// A ring all-gather by put and signal alone: each rank passes on to the next one what it got from the one before. On
// the host device also between domains, as with UCCLEP_NODES=2,2.
//   nvcc -std=c++20 -arch=sm_90a ring_all_gather.cu -lucclep
#include <ucclep/device.hpp>

#include <vector>

#include "example.hpp"

constexpr int blocks = 4, piece = 4096, part = blocks * piece;  // bytes; a rank's part is shared out to the blocks
constexpr int turns = 10;

struct Ring {
  ucclEpDeviceGroup group;
  ucclEpDeviceWindow window;  // [ranks] parts
  int turn;
};

// Signals of block b: b, a piece has come; blocks + b, the next rank wants another turn. Nothing else orders the
// ranks.
UCCLEP_KERNEL(all_gather, Ring) {
  const int ranks = static_cast<int>(args.group.shape.ranks), me = args.group.rank,
            b = static_cast<int>(ucclep::block_id());
  const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks, steps = ranks - 1;
  constexpr ucclep::block all{};
  // What this rank got in the turn before was passed on, and read by what came before the kernel in the stream.
  if (args.turn > 0) ucclep::signal(all, args.group, before, blocks + b);
  if (!ucclep::wait_signal(all, args.group, blocks + b, static_cast<uint64_t>(args.turn))) return;
  for (int step = 0; step < steps; ++step) {
    const int whose = (me + ranks - step) % ranks;
    const auto at = static_cast<uint64_t>(whose * part + b * piece);
    ucclep::put_signal(all, args.group, next, args.window, at, args.window, at, piece, b);
    if (!ucclep::wait_signal(all, args.group, b, static_cast<uint64_t>(args.turn * steps + step + 1))) return;
  }
  ucclep::flush(all, args.group);  // what was put is written again in the next turn
}

uint8_t byte_of(int rank, int turn, int i) {
  return static_cast<uint8_t>(rank * 37 + turn * 11 + i % 251);
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = ranks, shape.top_k = 1, shape.max_tokens_per_rank = 1, shape.max_token_bytes = 16;
  shape.num_signals = 2 * blocks;
  ucclEpGroup_t group;
  CHECK(ucclEpGroupCreate(&group, comm, &shape));
  const auto bytes = static_cast<size_t>(ranks * part);
  void* memory;
  ucclEpWindow_t window;
  CHECK(ucclEpMemAlloc(comm, &memory, bytes));
  CHECK(ucclEpWindowRegister(comm, memory, bytes, &window));
  Ring ring{};
  CHECK(ucclEpGroupGetDevice(group, &ring.group));
  CHECK(ucclEpWindowGetDevice(window, &ring.window));

  int wrong = 0;
  std::vector<uint8_t> mine(part), gathered(bytes);
  for (ring.turn = 0; ring.turn < turns; ++ring.turn) {
    for (int i = 0; i < part; ++i) mine[static_cast<size_t>(i)] = byte_of(rank, ring.turn, i);
    CHECK(ucclEpMemcpy(comm, static_cast<char*>(memory) + rank * part, mine.data(), part, nullptr));
    LAUNCH(comm, all_gather, blocks, 256, ring);
    CHECK(ucclEpMemcpy(comm, gathered.data(), memory, bytes, nullptr));
    CHECK(ucclEpStreamSynchronize(comm, nullptr));
    for (int i = 0; i < ranks * part; ++i) {
      wrong += gathered[static_cast<size_t>(i)] != byte_of(i / part, ring.turn, i % part);
    }
  }
  CHECK(ucclEpWindowDeregister(comm, window));
  return example::report(rank, wrong, turns * ranks * part);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
