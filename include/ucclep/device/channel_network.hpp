// SPDX-License-Identifier: Apache-2.0
// The channel between domains: messages by commands for the proxy threads (message.hpp), and the waits for them.
//
// No wait lies between taking a number and the command: a lane that gives up leaves no number that nobody sends, and no
// lane of its warp waits for it. The window bounds what is in a ring, so nobody waits there (rings_of, network.cpp).
#pragma once
#include "ucclep/device/network.hpp"

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

UCCLEP_FN void report_masked(DeviceErrors* errors) {
  ErrorRecord record = record_of(Phase::mask, -1, 0, 0);
  record.code = ucclEpNotSupported;
  report_data(errors, record);
}

UCCLEP_COLD_FN void report_late(DeviceErrors* errors, uint32_t* abort_word, ErrorRecord record, uint64_t start_ns) {
  record.code = ucclEpTimeout;
  record.waited_ns = clock_ns() - start_ns;
  report_fatal(errors, abort_word, record);
}

UCCLEP_FN bool by_network(const ucclEpDeviceGroup& group, uint32_t peer) {
  return group.network != nullptr && group.windows[peer] == nullptr;
}

// To one peer, in few words.
struct Route {
  NetworkView* network;
  MessageLine* line;
  Message* messages;
  DeviceErrors* errors;
  uint32_t* abort_word;
  uint64_t timeout_ns;
  uint32_t peer;
  uint32_t put_window;  // numbers after which a put's slots are another put's

  static UCCLEP_FN Route to(const ucclEpDeviceGroup& group, uint32_t peer) {
    char* const window = group.windows[group.shape.ranks + static_cast<uint32_t>(group.rank)];
    return {group.network,
            group.channel->lines(group.shape) + peer,
            reinterpret_cast<Message*>(window + group.layout.message_to(peer, 0)),
            group.errors,
            group.abort_word,
            group.timeout_ns,
            peer,
            group.shape.stages_puts != 0 ? staged_window : channel_window};
  }
};

// Lane verb, of a message and all before it. The bus is crossed only for what nobody here knows yet.
UCCLEP_FN bool is_placed(const Route& route, uint64_t number) {
  if (load_acquire<Scope::gpu>(&route.line->placed) >= number) return true;
  const uint64_t placed = load_acquire<Scope::system>(route.network->channel.placed + route.peer);
  if (placed < number) return false;
  store_release<Scope::gpu>(&route.line->placed, placed);  // it may go back: then somebody asks again
  return true;
}

template <class Predicate>
UCCLEP_FN bool wait_for_peer(const Route& route, uint64_t number, Predicate&& done) {
  const Wait wait = begin_wait(route.timeout_ns, route.abort_word);
  if (wait_until(wait, done)) return true;
  if (aborted(wait)) return false;
  const uint64_t placed = load_relaxed<Scope::system>(route.network->channel.placed + route.peer);
  ErrorRecord record = record_of(Phase::placed, static_cast<int>(route.peer), number, placed);
  report_late(route.errors, route.abort_word, record, wait.start_ns);
  return false;
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
  for (uint32_t peer = Coop::rank(); peer < group.shape.ranks && ok; peer += Coop::size()) {
    if (static_cast<int>(peer) == but || group.windows[peer] != nullptr) continue;
    ok = await_puts(Route::to(group, peer));
  }
  return ok;
}

}  // namespace channel
}  // namespace UCCLEP_SIMT_NAMESPACE
