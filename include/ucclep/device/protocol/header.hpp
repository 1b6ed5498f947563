// SPDX-License-Identifier: Apache-2.0
// What ranks exchange when an operation begins (protocol P14): its settings, how many rows come, and in which
// form. A header is a run of packets. Each arrives whole, and by its epoch; store_packet and load_packet order nothing
// else.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// How the rows of one source travel (P15). Said in its header. placed: as BULK, but by token.
enum class Form : uint32_t { bulk = 0, line = 1, placed = 2 };

// Rows that left before they were counted lie by token.
UCCLEP_FN bool by_token(Form form) {
  return form != Form::bulk;
}

UCCLEP_FN Packet* header_packets(const Op& op, uint32_t receiver, uint32_t source) {
  return reinterpret_cast<Packet*>(op.window(receiver) +
                                   op.group.layout.header(op.group.shape, op.kind, op.slot, source));
}

// Packet i of the fixed ones of a header. tokens: that packet's, whole.
UCCLEP_FN uint64_t fixed_packet(uint32_t i, const Settings& settings, uint32_t rows, Form form, uint64_t tokens) {
  return i == HeaderLayout::settings_low    ? settings.low()
         : i == HeaderLayout::settings_high ? settings.high()
         : i == HeaderLayout::rows          ? rows | uint64_t{static_cast<uint32_t>(form)} << 32
                                            : tokens;
}

// Warp verb: the header of this rank for one peer, stored by all lanes before any of them goes on: it may go on to wait
// for the peer, which waits for this. counts: this rank's rows for each expert of the peer, or that many words of
// another kind, or NULL.
UCCLEP_FN void store_header(const Op& op, Packet* header, const Settings& settings, uint32_t rows, Form form,
                            uint32_t tokens, const uint32_t* counts, uint32_t words = 0) {
  const uint32_t local = words != 0 ? words : counts ? op.group.shape.local_experts() : 0;
  const uint32_t packets = counts ? HeaderLayout::packets(local) : HeaderLayout::counts;
  for (uint32_t i = lane_id(); i < packets; i += wave_size) {
    uint64_t value = 0;
    if (i < HeaderLayout::counts) {
      value = fixed_packet(i, settings, rows, form, tokens);
    } else {
      const uint32_t expert = 2 * (i - HeaderLayout::counts);
      value = counts[expert];
      if (expert + 1 < local) value |= uint64_t{counts[expert + 1]} << 32;
    }
    store_packet(header + i, value, op.seq);
  }
  sync_warp();
}

// To a peer whose window is mapped here.
UCCLEP_FN void send_header(const Op& op, uint32_t peer, const Settings& settings, uint32_t rows, Form form,
                           uint32_t tokens, const uint32_t* counts, uint32_t words = 0) {
  store_header(op, header_packets(op, peer, op.me()), settings, rows, form, tokens, counts, words);
}

struct HeaderFacts {
  uint32_t rows, tokens;
  Form form;
};

// Packets that a source stores here for an operation: all who receive read them by this. A source that is absent may
// still store (P13), so nobody relies on what the memory holds: each of its packets is here, and is 0.
struct SentBy {
  const Op& op;
  const uint32_t source;
  const bool absent;

  UCCLEP_FN SentBy(const Op& op, uint32_t source)
      : op(op), source(source), absent(is_absent(op.group, op.kind, op.seq, source)) {}

  // Lane verbs: the packet as it is now; its value, of one that has been waited for; and that, waited for.
  UCCLEP_FN Packet look(const Packet* packet) const { return absent ? Packet{0, op.seq} : load_packet(packet); }
  UCCLEP_FN uint64_t value(const Packet* packet) const { return look(packet).value; }
  UCCLEP_FN bool wait(Phase phase, const Packet* packet, uint64_t& value) const {
    return wait_peer(op, phase, source, [&] {
      const Packet seen = look(packet);
      value = seen.value;
      return seen.epoch == op.seq;
    });
  }
};

// Lane verb: one of them.
UCCLEP_FN bool wait_packet(const Op& op, Phase phase, uint32_t source, const Packet* packet, uint64_t& value) {
  return SentBy(op, source).wait(phase, packet, value);
}

// What is known after reading a header.
enum class HeaderResult { good, differs, lost };

// Lane verb: a source whose packed settings are others leaves a data record.
UCCLEP_FN void report_difference(const Op& op, uint32_t source, const Settings& settings, uint64_t low, uint64_t high) {
  const SettingsDifference found = difference(settings.low(), settings.high(), low, high);
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::settings, static_cast<int32_t>(source));
  record.field = found.field;
  record.expected = found.mine;
  record.got = found.theirs;
  report_data(op.group.errors, record);
}

// Of a rank, the most tokens of what a header announces, and so the most rows for another rank or expert. READY of HT
// announces rows to relay.
UCCLEP_FN uint32_t most_rows(const GroupShape& shape, const Settings& settings) {
  if (settings.scale_bytes == Settings::no_row) return settings.hidden;
  return settings.mode == UCCLEP_MODE_LL ? shape.ll_tokens : shape.ht_tokens;
}

// The larger of the two counts of a packet.
UCCLEP_FN uint32_t larger_count(uint64_t counts) {
  const auto first = static_cast<uint32_t>(counts), second = static_cast<uint32_t>(counts >> 32);
  return first < second ? second : first;
}

// Lane verb: a header with a count that no rank can have. Its sender is broken, and so may be all that it stores.
UCCLEP_COLD_FN void report_count(DeviceErrors* errors, uint32_t* abort_word, Waiter reader, uint64_t got,
                                 uint64_t most) {
  ErrorRecord record{};
  record.code = ucclEpRemoteError;
  record.operation = reader.name;
  record.phase = reader.phase;
  record.peer = static_cast<int32_t>(reader.peer);
  record.epoch = number_of(reader.state, static_cast<Kind>(kind_of(reader.name)), reader.slot);
  record.expected = most;
  record.got = got;
  report_fatal(errors, abort_word, record);
}
UCCLEP_FN void report_count(const Op& op, uint32_t source, uint64_t got, uint64_t most) {
  report_count(op.group.errors, op.group.abort_word, Waiter::of(op, Phase::header, source, 0), got, most);
}

// Warp verb: the facts of a header whose fixed packets have come, lane i's the i-th, if its settings are this rank's.
// A difference is a data record: the operation ends without writing a row, on every rank, since each sees it somewhere.
// All else that reads these facts relies on their limits.
UCCLEP_FN HeaderResult check_header(const Op& op, uint32_t source, const Settings& settings, uint64_t packet,
                                    HeaderFacts& facts) {
  const uint64_t low = broadcast(packet, HeaderLayout::settings_low),
                 high = broadcast(packet, HeaderLayout::settings_high);
  const uint64_t rows = broadcast(packet, HeaderLayout::rows), tokens = broadcast(packet, HeaderLayout::tokens);
  if (low != settings.low() || high != settings.high()) {
    if (lane_id() == 0) report_difference(op, source, settings, low, high);
    return HeaderResult::differs;
  }
  facts = {static_cast<uint32_t>(rows), static_cast<uint32_t>(tokens), static_cast<Form>(rows >> 32)};
  const uint32_t most = most_rows(op.group.shape, settings);
  if (facts.rows <= most && facts.tokens <= most && facts.form <= Form::placed) return HeaderResult::good;
  // Of a form that there is not: all of the packet, in whose upper half it is.
  const uint64_t wrong = facts.tokens > most ? facts.tokens : facts.rows > most ? facts.rows : rows;
  if (lane_id() == 0) report_count(op, source, wrong, most);
  return HeaderResult::lost;
}

// Warp verb: waits for the header of one source, compares the settings, and stores its counts, or words (if wanted),
// and facts.
UCCLEP_FN HeaderResult receive_header(const Op& op, uint32_t source, const Settings& settings, HeaderFacts& facts,
                                      uint32_t* counts, uint32_t words = 0) {
  const Packet* header = header_packets(op, op.me(), source);
  const uint32_t local = words != 0 ? words : op.group.shape.local_experts();
  const SentBy sent(op, source);
  if (sent.absent) {
    facts = {};
    for (uint32_t i = lane_id(); counts && i < local; i += wave_size) counts[i] = 0;
    return HeaderResult::good;
  }
  // The fixed packets: lanes 0-3 read one each, all learn all four.
  uint64_t value = 0;
  bool ok = true;
  if (lane_id() < HeaderLayout::counts) ok = sent.wait(Phase::header, header + lane_id(), value);
  if (!every_lane(ok)) return HeaderResult::lost;
  const HeaderResult result = check_header(op, source, settings, value, facts);
  if (result != HeaderResult::good || counts == nullptr) return result;
  const uint32_t most = words != 0 ? ~0u : most_rows(op.group.shape, settings);
  uint32_t largest = 0;
  for (uint32_t i = lane_id(); 2 * i < local; i += wave_size) {
    ok = ok && sent.wait(Phase::header, header + HeaderLayout::counts + i, value);
    const uint32_t larger = larger_count(value);
    largest = largest < larger ? larger : largest;
    counts[2 * i] = static_cast<uint32_t>(value);
    if (2 * i + 1 < local) counts[2 * i + 1] = static_cast<uint32_t>(value >> 32);
  }
  if (every_lane(ok && largest <= most)) return HeaderResult::good;
  if (largest > most) report_count(op, source, largest, most);
  return HeaderResult::lost;
}

// Verb of `step` warps: the first thing of an operation that needs no counts (P14's READY): I am here, with these
// settings. first: which of them this is.
UCCLEP_FN void ready_out(const Op& op, const Settings& settings, uint32_t first, uint32_t step) {
  for (uint32_t i = first; i < op.ranks(); i += step) {
    if (is_masked(op.group, op.rotated(i))) continue;
    send_header(op, op.rotated(i), settings, 0, Form::bulk, 0, nullptr);
  }
}

// Block verb: every block reads every rank's header itself, so all blocks decide alike without a barrier between them.
// wait_ns: gets the time, of a block that is given it. all: in shared memory, gets what each of them says; or NULL.
UCCLEP_FN HeaderResult ready_in(const Op& op, const Settings& settings, const View& wait_ns,
                                HeaderFacts* all = nullptr) {
  bool lost = false, differs = false;
  for (uint32_t i = warp_id(); i < op.ranks() && !lost; i += block::warps()) {
    const uint32_t source = op.rotated(i);
    HeaderFacts facts{};
    const uint64_t start = wait_ns.data ? clock_ns() : 0;
    const HeaderResult result = receive_header(op, source, settings, facts, nullptr);
    if (is_blank(op.group, op.seq, source)) facts.rows = facts.tokens = 0;  // counted, but not received
    lost = result == HeaderResult::lost;
    differs = differs || result == HeaderResult::differs;
    if (all && lane_id() == 0) all[source] = facts;
    if (wait_ns.data && lane_id() == 0) {
      *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
    }
  }
  if (!every_thread(!lost)) return HeaderResult::lost;
  if (thread_id() == 0) mark(op, Mark::headers_in);
  return every_thread(!differs) ? HeaderResult::good : HeaderResult::differs;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
