// SPDX-License-Identifier: Apache-2.0
// Who does what in an LL operation. Sending fills the links from few SMs and then waits for them, receiving waits for
// the links anyway: so some blocks send while others receive what has arrived, and neither waits for the other.
//
// Blocks become resident in the order of their indices, and perhaps one at a time. So blocks that others wait for come
// first: those that send rows, those that send headers, those that receive. Where each block does everything, it takes
// what it sends by turns (protocol/turns.hpp).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Neighbouring blocks that do something together. Their warps share out work by index, neighbours on different SMs.
struct Job {
  WarpUniform first, blocks;

  UCCLEP_FN bool mine() const { return block_id() - first < blocks; }
  UCCLEP_FN uint32_t block() const { return block_id() - first; }
  UCCLEP_FN uint32_t warp() const { return warp_id() * blocks + block(); }
  UCCLEP_FN uint32_t warps() const { return blocks * (block_size() / wave_size); }
  // So many of them, and those behind these: all where there are no more.
  UCCLEP_FN Job head(uint32_t count) const { return {first, blocks < count ? uint32_t{blocks} : count}; }
  UCCLEP_FN Job rest(uint32_t count) const { return blocks > count ? Job{first + count, blocks - count} : *this; }
  // The same, as a block of that index sees it. Numbers wrap.
  UCCLEP_FN Job as(uint32_t block) const { return {first + block_id() - block, blocks}; }
};

// Blocks that put rows together for the network. They fill a NIC, or a bus to the host, and the chunks that are first
// in order leave while others are read; from more blocks all chunks would be complete at the same time, late.
constexpr uint32_t network_blocks = 4;

// How an operation reaches the ranks: all of them by their windows. The other way is protocol/by_network.hpp.
struct ByWindows {
  static constexpr bool network = false;
  static constexpr bool masks = true;  // there may be some
  using Consumed = ConsumedMasked;

  // Where the header for a peer is put together.
  static UCCLEP_FN Packet* header_for(const Op& op, uint32_t peer) { return header_packets(op, peer, op.me()); }
  // Lane verb, for the header: rows that the peer relays, as far as the sets have them.
  template <class Sets>
  static UCCLEP_FN uint32_t count_relayed(const Op&, const HandleMemory&, const Sets&, uint32_t) {
    return 0;
  }
  // Block verb, when this block has stored those of a dispatch: for rotated(first), rotated(first + step) and so on.
  static UCCLEP_FN bool counts_stored(const Op&, const HandleMemory&, bool, uint32_t, uint32_t, uint32_t = 0) {
    return true;
  }
  // Block verb: before headers are read. by: this block has the time for it, and none that waits for them comes first.
  static UCCLEP_FN bool headers_in(const Op&, bool, const View&) { return true; }
  // Lane verb: a part of a partial row in BULK form; word: its epoch.
  static UCCLEP_FN bool wait_part(const Op& op, uint32_t rank, uint32_t, const char* word) {
    return wait_word(op, Phase::rows, rank, word);
  }
  // Where partial rows of a rank land.
  static UCCLEP_FN const char* landed_back(const Op& op, uint32_t rank) {
    return op.mine() + op.group.layout.back_rows_of(op.slot, rank);
  }
  static UCCLEP_FN void end(const Op& op, bool ok) { end_operation(op, ok); }
};

// The same in kernels of groups without masks.
struct ByWindowsOfAll : ByWindows {
  static constexpr bool masks = false;
  using Consumed = ConsumedWord;
  static UCCLEP_FN void end(const Op& op, bool ok) { end_share(op, ok); }
};

// The forms in which rows of a group may travel. Where B rows fit as lines there is no other, and a kernel that knows
// it has half the code: most of it runs once, so it is fetched from memory as it runs. by_token: they may lie by token.
struct AnyForm {
  static constexpr bool bulk = true, by_token = true, in_waves = false;
  using Wire = ByWindows;
};
struct LinesOnly {
  static constexpr bool bulk = false, by_token = true, in_waves = false;
  using Wire = ByWindowsOfAll;
};
struct LinesMasked : LinesOnly {
  using Wire = ByWindows;
};

// In kernels of phases, of which a handle may have several for an operation: a wave each (WaveRange).
template <class Forms>
struct InWaves : Forms {
  static constexpr bool in_waves = true;
};

// A warp that sends waits for nothing but its own row and its slot: with masks slots are for a block to ask about.
template <class Forms>
constexpr bool warps_alone = !Forms::bulk && !Forms::Wire::masks;

// In a small grid one block sends and counts.
UCCLEP_FN bool jobs_are_apart() {
  return grid_size() >= 4;
}
// Blocks for what is little work.
UCCLEP_FN uint32_t few_blocks() {
  return 1 + grid_size() / 16;
}
struct Jobs {
  Job send, receive, count;

  // Everybody does everything.
  static UCCLEP_FN Jobs of_one() {
    const Job all{0, grid_size()};
    return {all, all, all};
  }
  // percent: of the blocks that do not count, that send. counts: there is something to count.
  static UCCLEP_FN Jobs of(uint32_t percent, bool counts = true) {
    const uint32_t grid = grid_size();
    if (!jobs_are_apart()) return {{0, 1}, grid == 1 ? Job{0, 1} : Job{1, grid - 1}, {0, 1}};
    const uint32_t count = counts ? few_blocks() : 0, movers = grid - count, share = movers * percent / 100;
    const uint32_t send = share == 0 ? 1 : share;
    return {{0, send}, {send + count, movers - send}, {send, count}};
  }
  // The same, as a block of that index sees it.
  UCCLEP_FN Jobs as(uint32_t block) const { return {send.as(block), receive.as(block), count.as(block)}; }
  // The block that counts what arrives, the last of those that count: its own headers have left when it waits.
  UCCLEP_FN bool counts_here() const { return block_id() == count.first + count.blocks - 1; }
};

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
