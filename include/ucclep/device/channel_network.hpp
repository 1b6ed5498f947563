// SPDX-License-Identifier: Apache-2.0
// The channel between domains: messages by commands for the proxy threads (message.hpp), and the waits for them.
//
// No wait lies between taking a number and the command: a lane that gives up leaves no number that nobody sends, and no
// lane of its warp waits for it. The window bounds what is in a ring, so nobody waits there (rings_of, network.cpp).
#pragma once
#include "ucclep/device/protocol/by_network.hpp"

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

UCCLEP_FN bool send_letter(const ucclEpDeviceGroup& group, uint32_t peer, uint32_t row, uint64_t value) {
  Message message{};
  message.letter = {row, value};
  return send(Route::to(group, peer), CommandOp::letter, message);
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
