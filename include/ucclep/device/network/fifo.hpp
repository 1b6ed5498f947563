// SPDX-License-Identifier: Apache-2.0
// The command ring, a kernel's side: how lanes hand commands to the proxy threads of their rank (P10). The other side
// is src/proxy/ring_reader.hpp.
//
// A ring is slots in pinned host memory, one 16-byte store per command. Its head, the next position that nobody has
// taken, stays in device memory; positions are 64-bit and never go back. The reader publishes how far it has read, now
// and then; lanes look there only when the ring seems fuller than it should be.
//
// A lane reserves only what it can write. A push reserves, writes at once, and only then, if the ring is filled above
// its high-water mark, waits until it is not. So nobody has more than one push above the mark, and the room above it
// takes one push of every lane there may be (Fifo::high_water). No wait lies between a reservation and its store: a
// lane that gives up leaves no hole, and no command is missing that a later one would have to stand in for.
//
// clang-format off
// | who releases                      | who acquires                  | scope  | what is ordered                     |
// |-----------------------------------|-------------------------------|--------|-------------------------------------|
// | order_before_push: fence by every | RingReader::poll: both halves | system | what the warp wrote before the      |
// |   lane, then the commands' stores |   of a slot                   |        |   proxy, and whom it notifies       |
// | RingReader: store of its position | wait_read, and a push that    | system | what the proxy did for commands     |
// |                                   |   waits: load_acquire         |        |   below it before what follows      |
// | the same, through head            | the reservation of a slot     | (none) | the reader's loads of a slot before |
// |                                   |                               |        |   the next store to it              |
// clang-format on
// The last line needs no fence: position read, reservation and address of the store depend on each other, and both
// accesses are atomic.
#pragma once
#include <cstdint>

#include "ucclep/device/layout/arrivals.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/ucclep.h"

namespace UCCLEP_SIMT_NAMESPACE {

// ---- Lane verbs, of which a push consists.

struct Reservation {
  uint64_t begin;  // the first of its positions
  uint64_t seen;   // a position that the reader has reached, perhaps long ago
};

// Positions for `count` commands in a row. The caller writes all of them, at once, and then settles. Both words are
// asked for together, so that settling finds its own without another way through the cache.
UCCLEP_FN Reservation reserve_commands(const Fifo& fifo, uint32_t ring, uint32_t count) {
  uint64_t* head = fifo.heads + ring * fifo_stride;
  const uint64_t begin = fetch_add_relaxed<Scope::gpu>(head, uint64_t{count});
  return {begin, load_relaxed<Scope::gpu>(head + fifo_seen_word)};
}

UCCLEP_FN void write_command(const Fifo& fifo, uint32_t ring, uint64_t position, const Command& command) {
  const uint64_t capacity = uint64_t{1} << fifo.capacity_log2;
  const Packet packet = command.in_slot(lap_parity(position, fifo.capacity_log2));
  store_packet(fifo.slots + ring * capacity + (position & (capacity - 1)), packet.value, packet.epoch);
}

// The reader's position once it is `end` or beyond; 0 when the time is up or the abort word is set.
UCCLEP_FN uint64_t await_position(const Fifo& fifo, uint32_t ring, uint64_t end) {
  Wait wait{};
  // Without the pauses of wait_until: a load from host memory takes long enough.
  for (uint32_t polls = 0;; ++polls) {
    const uint64_t position = load_acquire<Scope::system>(fifo.positions + ring * fifo_stride);
    if (position >= end) return position;
    if (polls == 0) wait = begin_wait(fifo.timeout_ns, fifo.abort_word);
    if (polls > polls_when_late || (polls % 64 == 63 && aborted(wait))) return 0;
    if (polls % 64 == 63 && timed_out(wait)) polls = polls_when_late;
  }
}

// Waits until the reader has read all below `end`. What it did until then is seen afterwards.
UCCLEP_FN bool wait_read(const Fifo& fifo, uint32_t ring, uint64_t end) {
  return await_position(fifo, ring, end) >= end;
}

// After `count` commands were written: back once the ring is not filled above its mark. False when the time is up or
// the abort word is set; the caller pushes nothing more then.
UCCLEP_FN bool settle_ring(const Fifo& fifo, uint32_t ring, const Reservation& mine, uint32_t count) {
  const uint64_t end = mine.begin + count;
  if (mine.seen + fifo.high_water >= end) return true;
  uint64_t* known = fifo.positions + ring * fifo_stride;
  if (load_relaxed<Scope::system>(known) + fifo.high_water < end) {
    fetch_add_relaxed<Scope::gpu>(known + fifo_stalls_word, uint64_t{1});
  }
  const uint64_t position = await_position(fifo, ring, end - fifo.high_water);
  if (position == 0) return false;
  store_relaxed<Scope::gpu>(fifo.heads + ring * fifo_stride + fifo_seen_word, position);
  return true;
}

UCCLEP_FN bool push_lane(const Fifo& fifo, uint32_t ring, const Command& command) {
  const Reservation mine = reserve_commands(fifo, ring, 1);
  write_command(fifo, ring, mine.begin, command);
  return settle_ring(fifo, ring, mine, 1);
}

// One command from any number of lanes, which nobody has counted: kernels of users. It takes a position only where that
// is not above the mark, and waits before it does, so the room above the mark stays to those who have been counted.
UCCLEP_FN bool push_below_mark(const Fifo& fifo, uint32_t ring, const Command& command) {
  uint64_t* const head = fifo.heads + ring * fifo_stride;
  for (;;) {
    uint64_t position = load_relaxed<Scope::gpu>(head);
    const uint64_t seen = load_relaxed<Scope::gpu>(head + fifo_seen_word);
    if (seen + fifo.high_water < position + 1) {
      const uint64_t read = await_position(fifo, ring, position + 1 - fifo.high_water);
      if (read == 0) return false;
      store_relaxed<Scope::gpu>(head + fifo_seen_word, read);
    } else if (compare_exchange<Scope::gpu>(head, position, position + 1)) {
      write_command(fifo, ring, position, command);
      return true;
    }
  }
}

// ---- Warp verbs. They order nothing; all lanes get the same answer.

// Before a push: what the warp's lanes wrote, and what they have seen, comes before the commands.
UCCLEP_FN void order_before_push() {
  sync_warp();
  fence_acq_rel<Scope::system>();
}

// One command from each active lane, each to a ring of its own choice. Commands to the same ring are reserved together
// and lie in the order of the lanes.
UCCLEP_FN bool push(const Fifo& fifo, bool active, uint32_t ring, const Command& command) {
  const uint64_t together = match_any(active ? ring : ~0u);
  const unsigned leader = first_lane(together);
  const bool leads = active && lane_id() == leader;
  const uint32_t count = count_lanes(together);
  Reservation mine{};
  if (leads) mine = reserve_commands(fifo, ring, count);
  const uint64_t begin = shfl(mine.begin, leader);
  const uint64_t below = (uint64_t{1} << lane_id()) - 1;
  if (active) write_command(fifo, ring, begin + count_lanes(together & below), command);
  return ballot(leads && !settle_ring(fifo, ring, mine, count)) == 0;
}

// command(i) for 0 <= i < count to one ring, in this order, which all lanes name. Neighbouring lanes store neighbouring
// slots, so that they leave the device as whole lines.
template <class Make>
UCCLEP_FN bool push_run(const Fifo& fifo, uint32_t ring, uint32_t count, Make&& command) {
  Reservation mine{};
  if (lane_id() == 0) mine = reserve_commands(fifo, ring, count);
  const uint64_t begin = broadcast(mine.begin, 0);
  for (uint32_t i = lane_id(); i < count; i += wave_size) write_command(fifo, ring, begin + i, command(i));
  return ballot(lane_id() == 0 && !settle_ring(fifo, ring, mine, count)) == 0;
}

// ---- Arrivals (layout/arrivals.hpp) and the end of a connection.

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
  const uint64_t* const word = arrivals.consumed_of(source.kind, source.rank);
  const uint64_t last = load_relaxed<Scope::gpu>(progress), now = load_relaxed<Scope::system>(word);  // they come
  const uint64_t come = load_acquire<Scope::system>(arrivals.progress_of(source.kind, source.seq, source.rank));
  if (come != last) store_release<Scope::gpu>(progress, come);
  if (now != load_relaxed<Scope::gpu>(consumed)) {
    store_release<Scope::gpu>(consumed, load_acquire<Scope::system>(word));
  }
  store_release<Scope::gpu>(turn, uint32_t{0});
}

// Lane verb: nothing more goes to the rank, which is told that this one has masked it. Comes back when the NIC reads
// nothing more of what was put out for it, so that it may be written over; when the time is up, as a link that has
// stood for so long delivers nothing any more; or when *leave is 1.
UCCLEP_COLD_FN void detach_from(NetworkView* network, uint32_t rank, uint64_t timeout_ns, const uint32_t* leave) {
  CommandFields command;
  command.operation = CommandOp::detach;
  command.destination = static_cast<uint16_t>(rank);
  const Fifo& fifo = network->fifo;
  fence_acq_rel<Scope::system>();
  if (!push_below_mark(fifo, control_ring(fifo, rank), command)) return;
  const uint64_t* const detached = network->arrivals.detached + rank;
  const Wait wait = begin_wait(timeout_ns, leave);
  while (load_acquire<Scope::system>(detached) == 0 && load_relaxed<Scope::system>(leave) != 1 && !timed_out(wait))
    pause();
}

}  // namespace network

}  // namespace UCCLEP_SIMT_NAMESPACE
