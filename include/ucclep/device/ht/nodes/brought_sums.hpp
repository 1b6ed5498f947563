// SPDX-License-Identifier: Apache-2.0
// Sums of nodes in groups whose windows lie in host memory (GroupShape::brings): they land at home in a ring of few
// chunks, like rows at a relay (ht_ring_relay.hpp), and home brings them into its GPU's memory, where there is room for
// all of them. So the bus carries a sum once, in order, what NICs write stays in a cache of the host, and whoever adds
// up may ask for sums in any order.
//
// Who brings waits for nothing but sums, in order of place; these wait for stagers alone. So no ring of two chunks or
// more is a deadlock (ht_ring.hpp), whoever waits for what was brought.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | who brings: publish of a sum's word, after     | wait_word, then                 | the sum before it is added   |
// |   bulk_wait_written, or sync_warp              |   acquire_then_bulk             |                              |
// | the same                                       | free_chunks: load_acquire (gpu) | the read where it landed     |
// clang-format on
//
// Floor: sums from other nodes * row bytes / bus bandwidth, beside the network's.
#pragma once
#include "ucclep/device/ht/nodes/node_sums.hpp"
#include "ucclep/device/ht/nodes/ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace brought {

// What is brought of another node.
UCCLEP_FN char* sums_from(const Op& op, uint32_t node) {
  return op.mine() + op.group.layout.brought_sums_from(op.group.shape, op.slot, node, relay::own_node(op));
}
UCCLEP_FN uint64_t* word_of(const Op& op, uint32_t node, uint32_t place) {
  return reinterpret_cast<uint64_t*>(sums_from(op, node) + op.group.layout.brought_sums_words) + place;
}

// Where sums of nodes are added from, for relay::sum_own_node: where they were brought to, or in a group that brings
// none where they have landed, with room for all of them.
struct Sums {
  // Lane verb.
  static UCCLEP_FN bool wait_alone(const Op& op, uint32_t node, uint32_t place) {
    const uint32_t from = relay::nodes_of(op).relay(op.me(), node);
    if (!relay::lands_in_rings(op)) return network::wait_row(op, from, place, between_nodes_flag);
    return wait_word(op, Phase::rows, from, reinterpret_cast<const char*>(word_of(op, node, place)));
  }
  static UCCLEP_FN bool wait(const Op& op, const HandleMemory&, bool active, uint32_t node, uint32_t place) {
    return !active || wait_alone(op, node, place);
  }
  static UCCLEP_FN const char* row(const Op& op, uint32_t partial_bytes, uint32_t node, uint32_t place) {
    if (!relay::lands_in_rings(op)) return relay::sum_in(op, partial_bytes, node, place);
    return sums_from(op, node) + uint64_t{place} * partial_bytes;
  }
};

UCCLEP_FN uint32_t sum_bytes(const HtCombineArgs& args) {
  return args.partial_bytes;
}

// Warp verb: sums [first, end) of a node, at most rows_at_once, once they have landed. copy(to, from, bytes): warp
// verb; written(): after it a publish of any lane covers what was copied.
template <class Args, class Copy, class Written>
UCCLEP_FN bool bring_run(const Args& args, const Op& op, const Parked& node, const Parked& first, const Parked& end,
                         Copy&& copy, Written&& written) {
  const auto free = [&](const Op& now) {
    const auto is_brought = [&](uint32_t place) {
      return load_acquire<Scope::gpu>(word_of(now, node, place)) == now.seq;
    };
    return ring::free_sums(now, memory_of(args), node, is_brought);
  };
  if (!ring::wait_landed(op, relay::nodes_of(op).relay(op.me(), node), end - 1, free)) return false;
  acquire_then_bulk();
  for (Parked place = first; place < end; place += 1) {
    const Args& now = read_again(args);
    const Op here = op.with(now.group);
    const uint32_t bytes = uniform(sum_bytes(now)), at = place;
    copy(sums_from(here, node) + uint64_t{at} * bytes,
         relay::sum_in(here, bytes, node, ring::shape_of(here).position_of(at)), bytes);
  }
  written();
  const uint32_t place = first + lane_id();
  if (place < end) publish(word_of(op, node, place), op.seq);
  sync_warp();
  return true;
}

// The same through shared memory.
UCCLEP_FN bool bring_staged(const HtCombineArgs& args, const Op& op, Stage& stage, const Parked& node,
                            const Parked& first, const Parked& end) {
  const auto copy = [&](char* to, const char* from, uint32_t bytes) {
    stage.fetch(from, bytes);
    stage.drain(from, bytes, [&](const char* piece, uint64_t at, uint32_t count) {
      bulk_store(lane_id() == 0, to + at, piece, count);
    });
  };
  return bring_run(args, op, node, first, end, copy, [] { bulk_wait_written(); });
}

// Verb of the bringing warps of the grid: other nodes in turn, low places first, as they come. Nothing in a group that
// brings none. run(args, op, node, first, end) as bring_run.
template <class Args, class Run>
UCCLEP_FN bool bring_sums(const Args& args, const Op& op, const Worker& worker, Run&& run) {
  if (!relay::lands_in_rings(op)) return true;
  const uint32_t nodes = op.group.shape.nodes.nodes;
  const auto rows_of = [](const Args& now, const Op& here, uint32_t node) {
    return node == relay::own_node(here) ? 0 : uniform(memory_of(now).rows_to_nodes()[node]);
  };
  return relay::in_runs(args, op, worker, nodes, relay::rows_together(op), rows_of, run);
}

}  // namespace brought
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
