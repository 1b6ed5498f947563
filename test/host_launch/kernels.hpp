// SPDX-License-Identifier: Apache-2.0
// Kernels as users write them, compiled for the CPU: nothing here is of the library's sources.
#pragma once
#include <cstdint>
#include <ucclep/device.hpp>
#include <ucclep/host_launch.hpp>

struct RotateArgs {
  uint32_t* words;  // [blocks][threads]
  uint32_t add;
};

// Each thread takes the word of the next thread of its block, by shared memory.
UCCLEP_FN void rotate_words(const RotateArgs& args, bool joins) {
  auto* shared = static_cast<uint32_t*>(ucclep::shared_memory());
  const unsigned i = ucclep::block_id() * ucclep::block_size() + ucclep::thread_id();
  shared[ucclep::thread_id()] = args.words[i];
  if (joins) ucclep::sync_block();
  args.words[i] = shared[(ucclep::thread_id() + 1) % ucclep::block_size()] + args.add;
}

UCCLEP_KERNEL(rotate, RotateArgs) {
  rotate_words(args, true);
}
UCCLEP_KERNEL(rotate_unordered, RotateArgs) {
  rotate_words(args, false);
}

// Waits until the host opens a gate: what is behind it in the stream has not begun before.
struct GateArgs {
  const uint32_t* open;
};
UCCLEP_KERNEL(gate, GateArgs) {
  while (ucclep::load_acquire<ucclep::Scope::system>(args.open) == 0) ucclep::pause();
}

struct NoArgs {};
UCCLEP_KERNEL(barrier_left_out, NoArgs) {
  if (ucclep::thread_id() != 1) ucclep::sync_block();
}

struct WordArgs {
  uint32_t* word;
};
// A lane of a warp waits for another one of it: a GPU may run the one that waits for ever.
UCCLEP_KERNEL(waits_for_own_warp, WordArgs) {
  if (ucclep::lane_id() == 0) {
    while (ucclep::load_acquire<ucclep::Scope::gpu>(args.word) == 0) ucclep::pause();
  } else if (ucclep::lane_id() == 1) {
    ucclep::store_release<ucclep::Scope::gpu>(args.word, 1u);
  }
}

constexpr int experts = 8, top_k = 2, tokens = 8, hidden = 64;

struct SendArgs {
  ucclEpDeviceHandle handle;
  ucclep::RowShape shape;
  const float *rows, *weights;
  const int32_t* ids;
};
UCCLEP_KERNEL(send_tokens, SendArgs) {
  const auto op = ucclep::ll::dispatch_begin(args.handle, args.shape);
  for (unsigned token = ucclep::grid_warp(); token < tokens; token += ucclep::grid_warps()) {
    ucclep::ll::dispatch_send(ucclep::warp{}, op, token, args.rows + token * hidden, nullptr, args.ids + token * top_k,
                              args.weights + token * top_k);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, op, tokens);
}
