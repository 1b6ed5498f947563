// SPDX-License-Identifier: Apache-2.0
// What a group's kernels have of the network in memory: the rings into which they put commands, and the words in which
// the proxy threads tell what has come; how lanes look at those, and how they part from a rank (network.hpp has the
// table of what is ordered).
#pragma once
#include "ucclep/device/layout/arrivals.hpp"
#include "ucclep/device/network/fifo.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep {

// NetworkTables follow it in memory.
struct NetworkView {
  Fifo fifo;
  Arrivals arrivals;                       // by the proxy threads
  uint32_t rows_per_chunk[3 * num_kinds];  // rows that arrive together; behind those from rank to rank, from node to
                                           // node (between_nodes_flag), and by rings (by_ring_flag)
  RingShape rings[num_kinds];              // of a group that has them
  ChannelWords channel;                    // by the proxy threads
  char* channel_window;                    // this rank's, in host memory
};

// Offsets.
struct NetworkTables {
  uint64_t seen;   // u64 [kind][slot][source]: progress words that lanes have seen. Consumed words: in the window
  uint64_t turns;  // u32 [kind][source]: 1 while a lane looks at the source's words
  uint64_t nodes;  // what the group's NodeTable is a view of
  uint64_t bytes;

  static UCCLEP_HD constexpr NetworkTables of(const GroupShape& shape) {
    NetworkTables at{};
    at.turns = at.seen + sizeof(uint64_t) * Arrivals::progress_words(shape.ranks, shape.in_flight);
    at.nodes = at.turns + sizeof(uint32_t) * num_kinds * shape.ranks;
    at.bytes = at.nodes + sizeof(uint32_t) * NodeTable::word_count(shape.ranks, shape.nodes.nodes);
    return at;
  }
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace network {

// Whose words of which operation.
struct Source {
  NetworkView* network;
  uint64_t* window;  // consumed words of this rank's window
  uint64_t seq;
  Kind kind;
  uint32_t rank;

  static UCCLEP_FN Source of(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, uint32_t rank) {
    return {group.network, reinterpret_cast<uint64_t*>(group.mine + group.layout.consumed), seq, kind, rank};
  }
  // As lanes of this device have seen them.
  UCCLEP_FN Arrivals seen() const {
    const Arrivals& arrivals = network->arrivals;
    return {reinterpret_cast<uint64_t*>(network + 1), window, nullptr, nullptr, arrivals.ranks, arrivals.in_flight};
  }
};
static_assert(NetworkTables::of({}).seen == 0);

// Passes on what the proxies say, unless another lane is about to.
UCCLEP_COLD_FN void look(Source source) {
  const Arrivals &arrivals = source.network->arrivals, seen = source.seen();
  auto* const turn =
      reinterpret_cast<uint32_t*>(seen.progress + Arrivals::progress_words(arrivals.ranks, arrivals.in_flight)) +
      static_cast<uint32_t>(source.kind) * arrivals.ranks + source.rank;
  uint32_t nobody = 0;
  if (load_relaxed<Scope::gpu>(turn) != 0 || !compare_exchange<Scope::gpu>(turn, nobody, uint32_t{1})) return;
  uint64_t* const progress = seen.progress_of(source.kind, source.seq, source.rank);
  uint64_t* const consumed = seen.consumed_of(source.kind, source.rank);
  const uint64_t* const told = arrivals.consumed_of(source.kind, source.rank);
  const uint64_t last = load_relaxed<Scope::gpu>(progress), now = load_relaxed<Scope::system>(told);  // they come
  const uint64_t come = load_acquire<Scope::system>(arrivals.progress_of(source.kind, source.seq, source.rank));
  if (come != last) store_release<Scope::gpu>(progress, come);
  if (now != load_relaxed<Scope::gpu>(consumed)) {
    store_release<Scope::gpu>(consumed, load_acquire<Scope::system>(told));
  }
  store_release<Scope::gpu>(turn, uint32_t{0});
}

// Lane verb: nothing more goes to the rank, which is told that this one has masked it. Comes back when the NIC reads
// nothing more of what was put out for it, so that it may be written over; when the time is up, as a link that has
// stood for so long brings it nothing any more; or when *leave is 1.
UCCLEP_COLD_FN void part_from(NetworkView* network, uint32_t rank, uint64_t timeout_ns, const uint32_t* leave) {
  CommandFields command;
  command.operation = CommandOp::part;
  command.destination = static_cast<uint16_t>(rank);
  const Fifo& fifo = network->fifo;
  fence_acq_rel<Scope::system>();
  if (!push_below_mark(fifo, control_ring(fifo, rank), command)) return;
  const uint64_t* const parted = network->arrivals.parted + rank;
  const Wait wait = begin_wait(timeout_ns, leave);
  while (load_acquire<Scope::system>(parted) == 0 && load_relaxed<Scope::system>(leave) != 1 && !timed_out(wait))
    pause();
}

}  // namespace network
}  // namespace UCCLEP_SIMT_NAMESPACE
