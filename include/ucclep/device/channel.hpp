// SPDX-License-Identifier: Apache-2.0
// The channel of a group: a kernel puts bytes into windows (ucclEpWindowRegister) of its peers, and notifies them by
// signals (num_signals of the group's config). Every rank's kernel may do so at any time, beside the operations of the
// group.
//
// Each function takes a scope: thread{}, lanes<N>{}, warp{} or block{}; all members call it with the same arguments,
// and what one member did is done by the scope. All groups of lanes<N> in a warp call it together; one that has nothing
// to do names no_peer. What can fail ends in a record and changes nothing: a peer, a signal or a range that does not
// exist is ucclEpInvalidArgument, and later calls go on. A wait that times out or is aborted returns false. A timeout
// is ucclEpTimeout and is fatal to the communicator.
//
// In a group with enable_mask a wait that reaches the timeout ends with the same record, and nothing else does: if the
// record names a peer, as that of a signal does not, it is lost, and the group's next operation masks it. To one that
// is lost or masked, or has masked this rank, puts and signals do nothing; barriers and flushes do not wait for it, and
// what it had signalled stays counted. A barrier is false where a peer that is active here has masked this rank. What a
// rank has put before it hears that it is masked may still come. ucclEpMaskClear, while no kernel of any rank uses the
// channel, begins all counts and barriers anew.
//
// To peers of this rank's domain a put and a signal are stores by the members, to others messages for the proxy threads
// (layout/message.hpp). The caller need not know which, but for these:
//   - A put to another domain may read its source until the put is flushed, as said below.
//   - Before a signal or a barrier announces anything, this rank waits until its puts to all other peers in other
//     domains lie there: one way through the network and back. So put to all first, and then signal all.
//   - NICs reach windows in host memory. Where windows lie in a GPU's memory the proxies copy what is put into host
//     memory, and from there at the other end: two copies over the buses more.
//
// A signal counts: each call adds one to the count that the caller's rank has with the peer, and wait_signal looks at
// the sum over all ranks. Counts never go back and begin at 0 with the group (and with ucclEpMaskClear).
//
// What orders what. "Seen by" a rank: after it has come back from the call on the right with true.
// clang-format off
// | what the scope did before                | the call            | is seen by the peer that came back from        |
// |------------------------------------------|---------------------|------------------------------------------------|
// | puts to any peer, and stores by members; | signal, put_signal  | wait_signal of this signal, at_least counting  |
// |   all that they had seen                 |                     |   this call (release and acquire, system)      |
// | the same                                 | barrier             | its barrier of the same number on that team    |
// | the same                                 | flush               | whatever tells it that flush has returned      |
// | puts and stores by members               | nothing             | nothing: puts are not ordered with each other  |
// | signals                                  | other signals       | nothing: counts of two signals are not ordered |
// |                                          |                     |   (what came before the first is seen with the |
// |                                          |                     |   second all the same)                         |
// clang-format on
// A thread does not wait for what another lane of its warp has yet to signal: the lanes may run one after the other.
//
// A source may be written again after flush, after barrier, or when its reader has signalled that it is there.
// What is seen by a member is seen by the whole scope. Other scopes of the rank are ordered by what orders them
// otherwise, such as sync_block.
#pragma once
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/message.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/eviction.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/simt/simt.hpp"

// The channel between domains: messages by commands for the proxy threads (layout/message.hpp), and the waits for them.
//
// No wait lies between taking a number and the command: a lane that gives up leaves no number that nobody sends, and no
// lane of its warp waits for it. The window bounds what is in a ring, so nobody waits there (rings_of, network.cpp).
namespace UCCLEP_SIMT_NAMESPACE {
namespace channel {

UCCLEP_FN ErrorRecord record_of(Phase phase, int peer, uint64_t expected, uint64_t got) {
  ErrorRecord record{};
  record.code = ucclEpInvalidArgument;
  record.operation = Operation::channel;
  record.phase = phase;
  record.peer = peer;
  record.expected = expected;
  record.got = got;
  return record;
}

// Has the communicator failed. What waits of operations leave for, a lost peer, ends no wait of the channel.
UCCLEP_FN bool has_failed(const uint32_t* abort_word) {
  return load_relaxed<Scope::system>(abort_word) == 1;
}

// Lane verb, after a wait that lasted to its end. Without masks the communicator is lost; with them the peer, if the
// record names one.
UCCLEP_COLD_FN void report_late(DeviceErrors* errors, uint32_t* abort_word, GroupMasks* masks, ErrorRecord record) {
  record.code = ucclEpTimeout;
  if (masks == nullptr) return report_fatal(errors, abort_word, record);
  report_data(errors, record);
  if (record.peer >= 0) lose(masks, static_cast<uint32_t>(record.peer));
}

// What a wait goes by.
struct Bounds {
  DeviceErrors* errors;
  uint32_t* abort_word;
  GroupMasks* masks;
  uint64_t limit_ns;
  uint64_t start_ns;  // of several waits that share the time; 0: when it is seen that there is something to wait for

  static UCCLEP_FN Bounds of(const ucclEpDeviceGroup& group) {
    return {group.errors, group.abort_word, group.masks, group.timeout_ns, 0};
  }
};

// Lane verb: waits until done(), or the time is up. late(): what is on record then.
template <class Done, class Late>
UCCLEP_FN bool await(const Bounds& bounds, Done&& done, Late&& late) {
  uint64_t start = bounds.start_ns;
  for (unsigned polls = 1; !done(); ++polls) {
    if (start == 0) start = clock_ns();
    pause();
    if (polls % polls_per_check != 0) continue;
    if (has_failed(bounds.abort_word)) return false;
    const uint64_t waited = clock_ns() - start;
    if (waited < bounds.limit_ns) continue;
    ErrorRecord record = late();
    record.waited_ns = waited;
    report_late(bounds.errors, bounds.abort_word, bounds.masks, record);
    return false;
  }
  return true;
}

UCCLEP_FN bool by_network(const ucclEpDeviceGroup& group, uint32_t peer) {
  return group.network != nullptr && group.windows[peer] == nullptr;
}

// Lane verb, with masks: nothing goes to the peer, and nobody waits for it, as it is masked, or will be, or has masked
// this rank. evicted: where it says so.
UCCLEP_FN bool is_gone(GroupMasks* masks, const uint64_t* evicted, uint32_t peer) {
  return masks != nullptr &&
         (is_masked(masks, peer) || is_lost(masks, peer) || load_relaxed<Scope::system>(evicted) != 0);
}
UCCLEP_FN bool is_gone(const ucclEpDeviceGroup& group, uint32_t peer) {
  return group.masks != nullptr && is_gone(group.masks, word_of_eviction(group, peer), peer);
}

// To one peer, in few words.
struct Route {
  Bounds bounds;
  NetworkView* network;
  MessageLine* line;
  Message* messages;
  uint32_t peer;
  uint32_t put_window;  // numbers after which a put's slots are another put's

  static UCCLEP_FN Route to(const ucclEpDeviceGroup& group, uint32_t peer) {
    return {Bounds::of(group),
            group.network,
            group.channel->lines(group.shape) + peer,
            reinterpret_cast<Message*>(group.network->channel_window + group.layout.message_to(peer, 0)),
            peer,
            group.shape.stages_puts != 0 ? staged_window : channel_window};
  }
  UCCLEP_FN bool is_gone() const { return channel::is_gone(bounds.masks, network->arrivals.evicted + peer, peer); }
};

// Lane verb, of a message and all before it. The bus is crossed only for what nobody here knows yet.
UCCLEP_FN bool is_placed(const Route& route, uint64_t number) {
  if (load_acquire<Scope::gpu>(&route.line->placed) >= number) return true;
  const uint64_t placed = load_acquire<Scope::system>(route.network->channel.placed + route.peer);
  if (placed < number) return false;
  store_release<Scope::gpu>(&route.line->placed, placed);  // it may go back: then somebody asks again
  return true;
}

// Lane verb: nothing is left to wait for where the peer is gone.
template <class Predicate>
UCCLEP_FN bool wait_for_peer(const Route& route, uint64_t number, Predicate&& done) {
  return await(
      route.bounds, [&] { return route.is_gone() || done(); },
      [&] {
        const uint64_t placed = load_relaxed<Scope::system>(route.network->channel.placed + route.peer);
        return record_of(Phase::placed, static_cast<int>(route.peer), number, placed);
      });
}

// Lane verb: all puts to the peer lie there that this rank has sent and the lane knows of.
UCCLEP_COLD_FN bool await_puts(Route route) {
  const uint64_t last = load_relaxed<Scope::gpu>(&route.line->puts);
  if (last == 0 || is_placed(route, last)) return true;
  return wait_for_peer(route, last, [&] { return is_placed(route, last); });
}

UCCLEP_FN bool try_send(const Route& route, CommandOp what, const Message& message) {
  uint64_t last = load_relaxed<Scope::gpu>(&route.line->sent);
  const uint64_t number = last + 1;
  const uint32_t window = what == CommandOp::channel_put ? route.put_window : channel_window;
  if (number > window && !is_placed(route, number - window)) return false;
  if (!compare_exchange<Scope::gpu>(&route.line->sent, last, number)) return false;
  route.messages[number % channel_window] = message;
  if (what == CommandOp::channel_put) {
    uint64_t known = load_relaxed<Scope::gpu>(&route.line->puts);
    while (known < number && !compare_exchange<Scope::gpu>(&route.line->puts, known, number)) {
    }
  }
  fence_acq_rel<Scope::system>();
  CommandFields command;
  command.operation = what;
  command.epoch = static_cast<uint32_t>(number);
  command.destination = static_cast<uint16_t>(route.peer);
  const Fifo& fifo = route.network->fifo;
  const uint32_t ring = bulk_ring(fifo, route.peer);
  write_command(fifo, ring, reserve_commands(fifo, ring, 1).begin, command);
  return true;
}

// Lane verb, after all that its scope did: what the command says of it is fenced.
UCCLEP_COLD_FN bool send(Route route, CommandOp what, Message message) {
  return wait_for_peer(route, load_relaxed<Scope::gpu>(&route.line->sent) + 1,
                       [&] { return try_send(route, what, message); });
}

UCCLEP_FN bool send_signal_message(const ucclEpDeviceGroup& group, uint32_t peer, uint32_t row, uint64_t value) {
  Message message{};
  message.signal = {row, value};
  return send(Route::to(group, peer), CommandOp::signal, message);
}

// Lane verb.
UCCLEP_FN void put_by_network(const ucclEpDeviceGroup& group, int peer, const ucclEpDeviceWindow& dst,
                              uint64_t dst_offset, const ucclEpDeviceWindow& src, uint64_t src_offset, uint64_t bytes) {
  const uint64_t piece = group.shape.stages_puts != 0 ? staged_piece : channel_piece;
  Message message{};
  message.to_window = dst.id, message.from_window = src.id;
  for (uint64_t at = 0; at < bytes; at += piece) {
    message.to_offset = dst_offset + at, message.from_offset = src_offset + at;
    message.bytes = bytes - at < piece ? bytes - at : piece;
    if (!send(Route::to(group, static_cast<uint32_t>(peer)), CommandOp::channel_put, message)) break;
  }
}

// Scope verb, after its sync: puts to all peers of other domains but one have come to lie there. Each member asks for
// some.
template <class Coop>
UCCLEP_FN bool await_puts_to_all(const ucclEpDeviceGroup& group, int but) {
  bool ok = true;
  for (uint32_t peer = Coop::rank(); peer < group.shape.ranks; peer += Coop::size()) {
    if (static_cast<int>(peer) == but || group.windows[peer] != nullptr) continue;
    ok = await_puts(Route::to(group, peer)) && ok;
  }
  return ok;
}

}  // namespace channel
}  // namespace UCCLEP_SIMT_NAMESPACE

namespace ucclep {

inline constexpr int no_peer = -1;  // instead of a peer: this scope has nothing to put or to signal

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace channel {

// index is below count. If not, one member leaves a record.
template <class Coop>
UCCLEP_FN bool exists(const ucclEpDeviceGroup& group, Field field, int index, uint32_t count) {
  if (index >= 0 && static_cast<uint32_t>(index) < count) return true;
  if (Coop::rank() == 0) {
    ErrorRecord record = record_of(Phase::argument, -1, count, static_cast<uint64_t>(int64_t{index}));
    record.field = field;
    report_data(group.errors, record);
  }
  return false;
}

template <class Coop>
UCCLEP_FN bool inside(const ucclEpDeviceGroup& group, int rank, uint64_t size, uint64_t offset, uint64_t bytes) {
  if (offset <= size && bytes <= size - offset) return true;
  if (Coop::rank() == 0) report_data(group.errors, record_of(Phase::window, rank, size, offset + bytes));
  return false;
}

// 16 bytes at a time where all addresses allow it.
template <class Coop>
UCCLEP_FN void copy(char* to, const char* from, uint64_t bytes) {
  constexpr uint32_t unit = sizeof(vec16);
  const bool aligned = (reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % unit == 0;
  const uint64_t vectors = aligned ? bytes / unit * unit : 0;
  copy_vectors<Coop>(to, from, vectors);
  for (uint64_t at = vectors + Coop::rank(); at < bytes; at += Coop::size()) to[at] = from[at];
}

// True: the bytes are on their way. To a peer that is gone none are.
template <class Coop>
UCCLEP_FN bool try_put(const ucclEpDeviceGroup& group, int peer, const ucclEpDeviceWindow& dst, uint64_t dst_offset,
                       const ucclEpDeviceWindow& src, uint64_t src_offset, uint64_t bytes) {
  if (peer == no_peer || !exists<Coop>(group, Field::peer, peer, group.shape.ranks) ||
      !inside<Coop>(group, group.rank, src.bytes, src_offset, bytes) ||
      !inside<Coop>(group, peer, dst.peer_bytes[peer], dst_offset, bytes) ||
      is_gone(group, static_cast<uint32_t>(peer))) {
    return false;
  }
  if (by_network(group, static_cast<uint32_t>(peer))) {
    if (Coop::rank() == 0) put_by_network(group, peer, dst, dst_offset, src, src_offset, bytes);
    return true;
  }
  copy<Coop>(dst.peers[peer] + dst_offset, src.data + src_offset, bytes);
  return true;
}

// Lane verb: the word of this rank at the peer. False: the group has failed.
UCCLEP_FN bool publish_word(const ucclEpDeviceGroup& group, uint32_t peer, uint32_t row, uint64_t value) {
  if (by_network(group, peer)) return send_signal_message(group, peer, row, value);
  const uint64_t word = group.layout.signal_word(group.shape, row, static_cast<uint32_t>(group.rank));
  publish(reinterpret_cast<uint64_t*>(group.windows[peer] + word), value);
  return true;
}
// The word of a peer here.
UCCLEP_FN const uint64_t* word_of(const ucclEpDeviceGroup& group, uint32_t row, uint32_t source) {
  if (by_network(group, source)) return group.network->channel.moved + uint64_t{row} * group.shape.ranks + source;
  return reinterpret_cast<const uint64_t*>(group.mine + group.layout.signal_word(group.shape, row, source));
}

// Lane verb. Of several lanes that signal at once, one sends for all, so that a word only grows and no other waits.
UCCLEP_FN void count_up(const ucclEpDeviceGroup& group, int peer, int id) {
  const auto row = static_cast<uint32_t>(id);
  SignalCount& count = group.channel->counts()[row * group.shape.ranks + static_cast<uint32_t>(peer)];
  if (fetch_add_acq_rel<Scope::gpu>(&count.pending, uint64_t{1}) != 0) return;
  for (uint64_t taken = 1; taken != 0;) {
    count.sent += taken;
    if (!publish_word(group, static_cast<uint32_t>(peer), row, count.sent)) return;
    taken = fetch_add_acq_rel<Scope::gpu>(&count.pending, uint64_t{0} - taken) - taken;
  }
}

// Lane verb: the sum over all senders, each acquired.
UCCLEP_FN uint64_t signal_sum(const ucclEpDeviceGroup& group, int id) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < group.shape.ranks; ++r) {
    sum += load_acquire<Scope::system>(word_of(group, static_cast<uint32_t>(id), r));
  }
  return sum;
}

UCCLEP_FN bool await_signal(const ucclEpDeviceGroup& group, int id, uint64_t at_least) {
  uint64_t sum = 0;
  return await(
      Bounds::of(group), [&] { return (sum = signal_sum(group, id)) >= at_least; },
      [&] {
        ErrorRecord record = record_of(Phase::signal, -1, at_least, sum);
        record.epoch = static_cast<uint64_t>(id);
        return record;
      });
}

// Of one that is gone nothing is awaited.
UCCLEP_FN bool await_peer(const ucclEpDeviceGroup& group, const Bounds& bounds, uint32_t row, uint32_t peer,
                          uint64_t number) {
  const uint64_t* word = word_of(group, row, peer);
  return await(
      bounds, [&] { return load_acquire<Scope::system>(word) >= number || is_gone(group, peer); },
      [&] {
        ErrorRecord record = record_of(Phase::barrier, static_cast<int>(peer), number, 0);
        record.epoch = number;
        return record;
      });
}

// What the waits of a barrier go by that begins now. With masks a peer may have spent the time of another wait before
// it comes, and comes all the same.
UCCLEP_FN Bounds bounds_of_barrier(const ucclEpDeviceGroup& group) {
  Bounds bounds = Bounds::of(group);
  bounds.start_ns = clock_ns();
  if (group.masks != nullptr && group.network != nullptr) bounds.limit_ns *= 2;
  return bounds;
}

// Does the scope go on to notify others, though it may have lost a peer: these wait for it.
UCCLEP_FN bool goes_on(const ucclEpDeviceGroup& group, bool ok) {
  return ok || (group.masks != nullptr && !has_failed(group.abort_word));
}

// What one member has seen, all have; and they agree.
template <class Coop>
UCCLEP_FN bool all_of(bool ok) {
  Coop::sync();
  return !Coop::any(!ok);
}

}  // namespace channel

// Copies bytes of this rank's range of the window src into that of the peer of the window dst. The peer may be this
// rank.
// Registers: 44 (sm_90a), 32 (gfx942).
template <class Coop>
UCCLEP_FN void put(Coop, const ucclEpDeviceGroup& group, int peer, const ucclEpDeviceWindow& dst, uint64_t dst_offset,
                   const ucclEpDeviceWindow& src, uint64_t src_offset, uint64_t bytes) {
  if (group.network != nullptr) Coop::sync();  // one member sends what all have written
  channel::try_put<Coop>(group, peer, dst, dst_offset, src, src_offset, bytes);
}

// Notifies the peer, which may be this rank, by one count of the signal `id` (0 .. num_signals - 1): all that the scope
// did before has been done.
// Registers: 47 (sm_90a), 20 (gfx942).
template <class Coop>
UCCLEP_FN void signal(Coop, const ucclEpDeviceGroup& group, int peer, int id) {
  Coop::sync();
  const bool good = peer != no_peer && channel::exists<Coop>(group, Field::peer, peer, group.shape.ranks) &&
                    channel::exists<Coop>(group, Field::signal, id, group.shape.signals) &&
                    !channel::is_gone(group, static_cast<uint32_t>(peer));
  bool ok = good;
  if (group.network != nullptr) {
    if (good) ok = channel::goes_on(group, channel::await_puts_to_all<Coop>(group, peer));
    ok = channel::all_of<Coop>(ok);
  }
  if (ok && Coop::rank() == 0) channel::count_up(group, peer, id);
  Coop::sync();  // a lane of the warp may wait next, and others run only when it has ended
}

// put, then signal; neither where the other cannot be.
// Registers: 58 (sm_90a), 34 (gfx942).
template <class Coop>
UCCLEP_FN void put_signal(Coop coop, const ucclEpDeviceGroup& group, int peer, const ucclEpDeviceWindow& dst,
                          uint64_t dst_offset, const ucclEpDeviceWindow& src, uint64_t src_offset, uint64_t bytes,
                          int id) {
  if (group.network != nullptr) Coop::sync();
  const bool sent = (peer == no_peer || channel::exists<Coop>(group, Field::signal, id, group.shape.signals)) &&
                    channel::try_put<Coop>(group, peer, dst, dst_offset, src, src_offset, bytes);
  signal(coop, group, sent ? peer : no_peer, id);
}

// Waits until this rank's count of the signal is so large, by whomever.
// Registers: 38 (sm_90a), 16 (gfx942).
template <class Coop>
UCCLEP_FN bool wait_signal(Coop, const ucclEpDeviceGroup& group, int id, uint64_t at_least) {
  bool ok = channel::exists<Coop>(group, Field::signal, id, group.shape.signals);
  if (ok && Coop::rank() == 0) ok = channel::await_signal(group, id, at_least);
  return channel::all_of<Coop>(ok);
}

// The sources of this scope's puts may be written again, their bytes are there. False: the group has failed, or with
// masks this wait has lost a peer to which some had been put.
// Registers: 30 (sm_90a), 20 (gfx942).
template <class Coop>
UCCLEP_FN bool flush(Coop, const ucclEpDeviceGroup& group) {
  fence_acq_rel<Scope::system>();
  bool ok = !channel::has_failed(group.abort_word);
  if (group.network != nullptr) {
    Coop::sync();
    ok = ok && channel::await_puts_to_all<Coop>(group, no_peer);
  }
  return channel::all_of<Coop>(ok);
}

// One scope of every rank of the team calls it, and for each team one at a time. Groups of lanes<N> come as one, their
// warp.
// Registers: 45 (sm_90a), 30 (gfx942).
template <class Coop>
UCCLEP_FN bool barrier(Coop, const ucclEpDeviceGroup& group, Team team) {
  uint64_t* last = &group.channel->barriers[team];
  const uint64_t number = load_relaxed<Scope::gpu>(last) + 1;
  const uint32_t ranks = group.shape.ranks, row = group.shape.signals + team;
  const auto meets = [&](uint32_t peer) { return team == world || !channel::by_network(group, peer); };
  Coop::sync();
  if (Coop::rank() == 0) store_relaxed<Scope::gpu>(last, number);
  bool ok = true;
  if (group.network != nullptr) {
    ok = channel::all_of<Coop>(channel::await_puts_to_all<Coop>(group, no_peer));
    if (!channel::all_of<Coop>(channel::goes_on(group, ok))) return false;
  }
  for (uint32_t peer = Coop::rank(); peer < ranks; peer += Coop::size()) {
    if (meets(peer)) ok = channel::publish_word(group, peer, row, number) && ok;
  }
  Coop::sync();  // no member waits before all have published
  const channel::Bounds bounds = channel::bounds_of_barrier(group);
  for (uint32_t peer = Coop::rank(); peer < ranks; peer += Coop::size()) {
    if (meets(peer)) ok = channel::await_peer(group, bounds, row, peer, number) && ok;
  }
  if (group.masks != nullptr) ok = !was_evicted<true, Coop>(group) && ok;
  return channel::all_of<Coop>(ok);
}
// The barrier of a warp, whose groups come as one.
template <unsigned N>
UCCLEP_FN bool barrier(lanes<N>, const ucclEpDeviceGroup& group, Team team) {
  return barrier(warp{}, group, team);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
