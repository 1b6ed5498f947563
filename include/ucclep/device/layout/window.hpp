// SPDX-License-Identifier: Apache-2.0
// Where every byte of the windows lives (the memory of a rank that its peers, or NICs, write and read); of a handle's
// memory layout/handle.hpp says it. Plain arithmetic on the group's shape, so the host, every kernel and the tests
// compute the same offsets.
//
// A window is made of rings. Slot `seq % in_flight` of a ring belongs to operation `seq` of its kind (protocol rule P1:
// it is written again only after every reader said, in its consumed word, that it has finished with seq - in_flight).
//
// clang-format off
//   consumed        [kind][rank]          one 64-bit word: the last seq of that kind that the rank finished reading here
//   evicted         [rank]                one 64-bit word: not 0 once the rank has masked this one
//   headers         [kind][slot][rank]    flag-in-data packets: settings, rows, counts per expert, tokens that come
//   LL dispatch     [slot][rank]          meta[B], rows[B] (BULK form), lines (LINE form), weights[B] (P7)
//   HT staging      [slot]                rows[B] of the rank's own tokens; peers read it
//   HT landing      [slot][rank]          meta[B] of rows that are pulled; lines of the metas of rows that are pushed
//   return landing  [slot][rank]          rows[B]: partial sums on their way home, LL and HT; those of HT are one pool if
//                                         the group has a limit of rows received
//                   [slot][rank]          epochs, HT's places in the pool, lines
//   own sums        [slot]                rows[B]: HT between nodes, what the ranks of the own node add up to for a token
//   relay words     [slot][block][member] HT between nodes: epochs of runs that a relay of the home adds up, and places in
//                                         the pool
//   relay staged    [slot][block]         HT between nodes, where the network's window is in host memory and ranks have a
//                                         relay in common: rows that have landed there, as there
//   signals         [signal][rank]        one 64-bit word: how often the rank has signalled; then its last barriers
//
// A networked group has a second window a rank, which NICs read and write: in a GPU's memory if they reach that, else in
// pinned host memory, over the bus (P11).
//   headers         [kind][slot][rank]    out, and in
//   LL rows         [slot][rank]          {meta line, row}[B] out, and in, by place
//   partial rows    [slot][rank]          rows[B] out, and in
//   relay           [slot][node] [block]  rows for a node, of HT, and of LL where it sends such: where they are sent
//                                         from and where its relay takes them in, from where in HT its node's ranks
//                                         read them; in HT sums of a node for a home, where its relay sends them from
//                                         and, by [node], where they land
// Of it peers read what is at a relay. Headers that come by the network are copied to where those of peers land
// (protocol/by_network.hpp). What the proxies read and write themselves lies in a third one, in host memory in any case:
//   channel         [rank][message]       what waits to be sent, signals that came, and puts that are copied (layout/message.hpp)
// clang-format on
//
// B is here that of LL, and in HT the tokens of a round (ht/rounds.hpp), which has a number and so a slot of its own.
//
// Epoch positions of packets, lines and words never hold anything else, whatever the rows of earlier operations were:
// an old value is smaller than the epoch that is waited for, never equal (P4).
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/message.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/simt/divisor.hpp"

namespace ucclep {

// Sequence numbers, slots and headers are per kind of operation.
enum class Kind : uint32_t { update = 0, dispatch = 1, combine = 2 };
constexpr uint32_t num_kinds = 3;
constexpr uint32_t num_teams = 2;  // of the channel's barriers

constexpr uint32_t max_top_k = 32;       // a token's selections fit the lanes of one warp
constexpr uint32_t max_experts = 65535;  // expert ids travel as 16 bits; 0xffff is "none"
constexpr uint32_t max_windows = 256;    // of ucclEpWindowRegister, of a communicator at a time
constexpr uint32_t max_ranks = 4096;     // P8
constexpr uint32_t max_in_flight = 8;    // slots of a ring
constexpr uint32_t max_rounds = 65535;   // of an operation of HT
constexpr uint16_t no_expert = 0xffff;
constexpr uint32_t no_place = 0xffffffffu;

// An HT block routes no fewer tokens: the handle has counts for that many blocks.
constexpr uint32_t chunk_tokens = 32;
constexpr uint32_t max_routing_blocks = 1024;

UCCLEP_HD constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
UCCLEP_HD constexpr uint64_t ceil_div(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit;
}

// LL combine sends a row in BULK form in parts of this size.
constexpr uint32_t ll_part_bytes = 3840;
// A warp has this much of a row in LINE form in hand at a time. A multiple of what a line carries on any device.
constexpr uint32_t line_batch_bytes = 960;
// Of a row that is quantised on its way it carries this many elements, whole groups of 128, and behind them their
// scales.
constexpr uint32_t line_batch_quantised = 896;

// LL rows are found by headers in groups that are no larger.
constexpr uint32_t max_header_ranks = 8, max_header_tokens = 64 * 32, max_header_experts = 2048;
// Waves of a handle: local expert l is in wave l * waves / L of its rank.
constexpr uint32_t max_waves = 32;
UCCLEP_HD constexpr uint32_t wave_of(uint32_t local_expert, uint32_t waves, uint32_t local_experts) {
  return local_expert * waves / local_experts;
}
UCCLEP_HD constexpr uint32_t first_of_wave(uint32_t wave, uint32_t waves, uint32_t local_experts) {
  return (wave * local_experts + waves - 1) / waves;
}

// Rows that a rank can receive: they have numbers below it. What an HT Update counts beyond is dropped.
constexpr uint32_t max_rows = 0xffffffffu;
UCCLEP_HD constexpr uint32_t row_number(uint64_t row) {
  return row < max_rows ? static_cast<uint32_t>(row) : max_rows;
}

// What every offset follows from. Equal on all ranks of the group.
struct GroupShape {
  uint32_t ranks, experts;
  Divisor local;                  // experts / ranks
  uint32_t top_k, in_flight;      // in_flight: a power of two
  uint32_t ht_tokens, ll_tokens;  // of each rank in a slot: of a round of HT; B of LL
  uint32_t recv_rows;             // what lies at or past it in an HT dispatch's output is dropped; max_rows: nothing
  // Where that is less than all ranks can send: rows of the one pool in which a rank stages partial rows of HT for all
  // homes. 0: each home has rows of its own.
  uint32_t pool_rows;
  // P15: bytes of a store that arrive whole between all ranks; and bytes of a line. That is the device's line where it
  // arrives whole, else a packet, and no row travels as LINE.
  uint32_t whole_bytes, line_bytes;
  uint64_t token_bytes;     // the largest row on the wire, scales included, a multiple of 16
  uint64_t line_capacity;   // bytes of LINE landing per source: what fits travels as LINE, the rest as BULK
  uint32_t ll_bulk_tokens;  // rows of the BULK landing per source: B of LL, or 0 where all that can come fits as LINE
  uint32_t signals;         // of the channel, for kernels of users
  uint32_t masked;          // 1: a peer that misses its deadline is masked
  uint32_t networked;       // 1: some ranks are reached by the network only; nothing travels as LINE then
  uint32_t stages_puts;     // 1: NICs do not reach the user's windows, and puts go by host memory (layout/message.hpp)
  uint32_t node_copies;     // 1: a row of an LL dispatch goes to a node once, not to each of its ranks (ll/relay.hpp)
  uint32_t relay_stages;    // 1: relays of HT stage rows in their GPU's memory (ht/nodes/relay.hpp)
  NodeShape nodes;          // of a networked group

  UCCLEP_HD constexpr uint32_t local_experts() const { return local.value; }
  UCCLEP_HD constexpr uint32_t rank_of(uint32_t expert) const { return local.quotient(expert); }
  UCCLEP_HD constexpr uint32_t slot_of(uint64_t seq) const { return static_cast<uint32_t>(seq) & (in_flight - 1); }
  UCCLEP_HD constexpr uint32_t line_payload() const { return line_bytes - 8; }
  UCCLEP_HD constexpr bool lines_only() const { return ll_bulk_tokens == 0; }  // rows of LL
  // Where these come from few ranks, a warp finds its row in its source's header (ll/headers.hpp).
  UCCLEP_HD constexpr bool rows_by_headers() const {
    return lines_only() && ranks <= max_header_ranks && ll_tokens <= max_header_tokens && experts <= max_header_experts;
  }
};

// Rounds of an operation of HT in which no rank has more tokens; one at least.
UCCLEP_HD constexpr uint32_t rounds_of(const GroupShape& shape, uint64_t tokens) {
  return tokens <= shape.ht_tokens ? 1 : static_cast<uint32_t>(ceil_div(tokens, shape.ht_tokens));
}

// The meta line of a row (P4), written by its source, the same for all destinations:
// {u32 source token, u32 0} {f32 weight [K]} {u32 position among the source's rows of that expert [K]} {u16 expert [K]}
// and in the last 8 bytes the epoch, stored last.
struct MetaLayout {
  uint32_t weights, positions, experts, epoch, bytes;

  static UCCLEP_HD constexpr MetaLayout of(uint32_t top_k) {
    MetaLayout m{};
    m.weights = 8;
    m.positions = m.weights + 4 * top_k;
    m.experts = m.positions + 4 * top_k;
    m.bytes = static_cast<uint32_t>(round_up(round_up(m.experts + 2 * top_k, 16) + 16, 64));
    m.epoch = m.bytes - 8;
    return m;
  }
  // In HT, of a send phase of which peers may receive some waves: an epoch that says that the meta is there, though its
  // row may be not.
  UCCLEP_HD constexpr uint32_t known() const { return epoch - 8; }
  // What is copied ahead of the epoch: everything but the last 16 bytes.
  UCCLEP_HD constexpr uint32_t body_bytes() const { return bytes - 16; }
};

// Lines that carry `bytes` of data (LINE form).
UCCLEP_HD constexpr uint64_t lines_of(const GroupShape& shape, uint64_t bytes) {
  return ceil_div(bytes, shape.line_payload());
}

// The meta of a row as lines.
UCCLEP_HD constexpr uint64_t meta_line_bytes(const GroupShape& shape) {
  return lines_of(shape, MetaLayout::of(shape.top_k).body_bytes()) * shape.line_bytes;
}

// Lines that no row of an LL operation exceeds: its meta, its tokens, its scales, each from the start of a line; or its
// meta and the batches of a row that is quantised.
UCCLEP_HD constexpr uint64_t max_lines_per_row(const GroupShape& shape) {
  const uint64_t forwarded = lines_of(shape, shape.token_bytes) + 1;
  const uint64_t quantised = ceil_div(shape.token_bytes, line_batch_quantised) * lines_of(shape, line_batch_bytes);
  return lines_of(shape, MetaLayout::of(shape.top_k).body_bytes()) + (forwarded > quantised ? forwarded : quantised);
}

// A row of an LL dispatch on the network: its meta line, then what it has in BULK form.
UCCLEP_HD constexpr uint64_t network_row_bytes(const GroupShape& shape, uint64_t row_bytes) {
  return MetaLayout::of(shape.top_k).bytes + row_bytes;
}

// A row for all ranks of a node: its meta line, the place that it has at the rank of each of its selections, and
// what it has in BULK form.
UCCLEP_HD constexpr uint32_t relayed_head_bytes(const GroupShape& shape) {
  return MetaLayout::of(shape.top_k).bytes + static_cast<uint32_t>(round_up(4 * shape.top_k, 16));
}
UCCLEP_HD constexpr uint64_t relayed_row_bytes(const GroupShape& shape, uint64_t row_bytes) {
  return relayed_head_bytes(shape) + row_bytes;
}

// Such rows from one rank to one node, at most.
UCCLEP_HD constexpr uint32_t relayed_rows(const GroupShape& shape) {
  return shape.node_copies != 0 && shape.ll_tokens > shape.ht_tokens ? shape.ll_tokens : shape.ht_tokens;
}

// In the backward pass partial rows of HT have their weights behind them, f32 [K].
UCCLEP_HD constexpr uint32_t weight_row_bytes(const GroupShape& shape) {
  return static_cast<uint32_t>(round_up(4 * shape.top_k, 16));
}

// Partial rows of HT combine that are announced together: a fence costs as much as a row.
constexpr uint32_t run_rows = 4;

// Bytes of the words that announce them, one for each run; and, u32 for each place, of the rows of the pool that they
// take.
UCCLEP_HD constexpr uint64_t run_word_bytes(const GroupShape& shape) {
  return 8 * ceil_div(shape.ht_tokens, run_rows);
}
UCCLEP_HD constexpr uint64_t pool_place_bytes(const GroupShape& shape) {
  return shape.pool_rows == 0 ? 0 : 4 * uint64_t{shape.ht_tokens};
}

// Rows on their way home: of LL in BULK form, with a word for each part, and of HT, with their weights behind them.
struct BackLayout {
  uint64_t rows, all_rows, words;  // bytes: rows of one rank, of all ranks, and words of one rank

  static UCCLEP_HD constexpr BackLayout of(const GroupShape& s) {
    constexpr uint64_t unit = 128;
    const uint64_t partial_bytes = s.token_bytes + weight_row_bytes(s);
    const uint64_t ll = s.token_bytes * s.ll_bulk_tokens, ht = s.pool_rows == 0 ? partial_bytes * s.ht_tokens : 0;
    const uint64_t rows = round_up(ll > ht ? ll : ht, unit);
    const uint64_t all = rows * s.ranks, pool = round_up(partial_bytes * s.pool_rows, unit);
    const uint64_t ll_words = 8 * s.ll_bulk_tokens * ceil_div(s.token_bytes, ll_part_bytes);
    const uint64_t ht_words = run_word_bytes(s);
    return {rows, all > pool ? all : pool, round_up(ll_words > ht_words ? ll_words : ht_words, unit)};
  }
};

// Packets of a header, in order.
struct HeaderLayout {
  static constexpr uint32_t settings_low = 0, settings_high = 1;
  static constexpr uint32_t rows = 2;    // rows for the receiver | form of the rows << 32
  static constexpr uint32_t tokens = 3;  // T of the sender | rows that it has for the receiver to relay (LL) << 32
  // There, within a domain: a user's kernel has sent an index of its rows (user/routing.hpp).
  static constexpr uint64_t has_index = uint64_t{1} << 62;
  static constexpr uint32_t counts = 4;  // two u32 per packet: the sender's rows for each local expert of the receiver
  static UCCLEP_HD constexpr uint32_t packets(uint32_t counts_or_words) { return counts + (counts_or_words + 1) / 2; }
  static constexpr uint32_t min_packets = 12;  // what a rank says in HT's READY, instead of counts
  // There, and of a later round alone: which places come in the round, the first and the one behind the last. And of a
  // later round on the network: rows for the receiver to relay.
  static constexpr uint32_t round = min_packets - 2, relayed = min_packets - 1;
  // Behind the counts, of LL rows in LINE form: which of the sender's tokens come, a bit for each.
  static UCCLEP_HD constexpr uint32_t present(uint32_t local_experts) { return packets(local_experts); }
  static UCCLEP_HD constexpr uint32_t present_packets(uint32_t tokens) { return (tokens + 63) / 64; }
  // There, of LL rows in BULK form on a handle with waves: rows of each wave and of those below it, as the counts.
  static UCCLEP_HD constexpr uint32_t wave_packets(uint32_t waves) { return (waves + 1) / 2; }
  // On the network, weights that come with combine (P7) follow READY, by place: so many packets a row.
  static UCCLEP_HD constexpr uint32_t weight_packets(uint32_t top_k) { return (top_k + 1) / 2; }
  // And there, of a device-initiated dispatch, behind the tokens that come, by place: so many packets a row,
  // of u32: which of this source's rows it is in the order of sending, and the positions of its selections.
  static UCCLEP_HD constexpr uint32_t place_packets(uint32_t top_k) { return (top_k + 2) / 2; }
  static UCCLEP_HD constexpr uint32_t places(uint32_t local_experts, uint32_t tokens) {
    return present(local_experts) + present_packets(tokens);
  }
  static UCCLEP_HD constexpr uint32_t max_packets(const GroupShape& s) {
    const uint32_t by_row = s.networked != 0 ? s.ll_tokens * place_packets(s.top_k) : 0;  // no fewer than weights take
    const uint32_t most = places(s.local_experts(), s.ll_tokens) + by_row;
    const uint32_t least = present(s.local_experts()) + wave_packets(max_waves);
    return most > least ? most : least;
  }
};

static_assert(HeaderLayout::counts + HeaderLayout::wave_packets(max_waves) >= HeaderLayout::min_packets);

struct WindowLayout {
  uint64_t consumed, evicted;
  uint64_t headers, header_bytes;                                            // one header
  uint64_t ll, ll_slot, ll_source, ll_rows, ll_lines, ll_weights, ll_index;  // offsets inside a source's part
  uint64_t ht, ht_slot, ht_meta, ht_source, ht_lines;  // offsets inside a slot; inside a source's part
  uint64_t back, back_slot, back_rows;                 // back_rows: bytes of a source's
  uint64_t back_epochs, back_words;                    // offset inside a slot; bytes of a source's
  uint64_t back_places, back_lines;                    // offsets inside those
  uint64_t own_sums, sums_rows;                        // sums_rows: bytes of a node's, of a block's
  uint64_t relay_words, relay_places, relay_words_of_member;
  uint64_t relay_staged, relay_staged_rows;  // relay_staged_rows: bytes of a block's; 0: there are none
  uint64_t signals;
  uint64_t bytes;

  // Of the network's window.
  uint64_t out_headers, in_headers;
  uint64_t out_rows, in_rows, net_rows_of_rank;
  uint64_t out_back, in_back, net_back_of_rank;
  uint64_t relay_out, relay_in, relay_rows;  // relay_rows: as sums_rows
  uint64_t sums_out, sums_in;
  uint64_t network_bytes;  // 0: there is none

  // Of the channel's.
  uint64_t messages, signal_messages;
  uint64_t staged_out, staged_in;
  uint64_t channel_bytes;  // 0: there is none

  static UCCLEP_HD constexpr uint64_t block_of(const GroupShape& s, uint32_t slot, uint32_t rank) {
    return uint64_t{slot} * s.ranks + rank;
  }
  static UCCLEP_HD constexpr WindowLayout of(const GroupShape& s) {
    constexpr uint64_t page = 4096, unit = 128;
    const uint64_t meta = MetaLayout::of(s.top_k).bytes;
    const uint64_t weight_packets = HeaderLayout::weight_packets(s.top_k);
    WindowLayout w{};
    w.consumed = 0;
    w.evicted = w.consumed + 8ull * num_kinds * s.ranks;
    w.headers = round_up(w.evicted + 8ull * s.ranks, page);
    w.header_bytes = round_up(16ull * HeaderLayout::max_packets(s), unit);

    w.ll = round_up(w.headers + w.header_bytes * num_kinds * s.in_flight * s.ranks, page);
    w.ll_rows = round_up(meta * s.ll_bulk_tokens, unit);
    w.ll_lines = round_up(w.ll_rows + s.token_bytes * s.ll_bulk_tokens, unit);
    w.ll_weights = w.ll_lines + s.line_capacity;
    w.ll_index = round_up(w.ll_weights + 16 * weight_packets * s.ll_tokens, unit);
    w.ll_source = round_up(w.ll_index + 16ull * s.local_experts() * s.ll_tokens, unit);
    w.ll_slot = w.ll_source * s.ranks;

    w.ht = round_up(w.ll + w.ll_slot * s.in_flight, page);
    w.ht_meta = round_up(s.token_bytes * s.ht_tokens, unit);
    w.ht_lines = round_up(meta * s.ht_tokens, unit);
    w.ht_source = w.ht_lines + round_up(meta_line_bytes(s) * s.ht_tokens, unit);
    w.ht_slot = w.ht_meta + w.ht_source * s.ranks;

    w.back = round_up(w.ht + w.ht_slot * s.in_flight, page);
    const BackLayout back = BackLayout::of(s);
    w.back_rows = back.rows;
    w.back_epochs = back.all_rows;
    w.back_places = back.words;
    w.back_lines = w.back_places + round_up(pool_place_bytes(s), unit);
    w.back_words = w.back_lines + s.line_capacity;
    w.back_slot = w.back_epochs + w.back_words * s.ranks;

    const uint64_t nodes = uint64_t{s.in_flight} * s.nodes.nodes, blocks_in = uint64_t{s.in_flight} * s.nodes.blocks();
    w.sums_rows = round_up((s.token_bytes + weight_row_bytes(s)) * s.ht_tokens, unit);
    w.own_sums = round_up(w.back + w.back_slot * s.in_flight, page);
    w.relay_places = run_word_bytes(s);
    w.relay_words_of_member = round_up(w.relay_places + pool_place_bytes(s), unit);
    w.relay_words = w.own_sums + s.networked * w.sums_rows * s.in_flight;
    w.relay_staged = round_up(w.relay_words + w.relay_words_of_member * s.nodes.most * blocks_in, unit);
    w.relay_staged_rows = s.relay_stages * round_up(relayed_row_bytes(s, s.token_bytes) * s.ht_tokens, unit);
    w.signals = round_up(w.relay_staged + w.relay_staged_rows * blocks_in, page);
    w.bytes = round_up(w.signals + 8ull * (s.signals + num_teams) * s.ranks, page);
    if (s.networked == 0) return w;

    const uint64_t blocks = uint64_t{s.in_flight} * s.ranks, headers = w.header_bytes * num_kinds * blocks;
    w.net_rows_of_rank = round_up(network_row_bytes(s, s.token_bytes) * s.ll_tokens, unit);
    w.net_back_of_rank = round_up(s.token_bytes * s.ll_tokens, unit);
    w.relay_rows = round_up(relayed_row_bytes(s, s.token_bytes) * relayed_rows(s), unit);
    w.out_headers = 0;
    w.in_headers = w.out_headers + headers;
    w.out_rows = round_up(w.in_headers + headers, page);
    w.in_rows = w.out_rows + w.net_rows_of_rank * blocks;
    w.out_back = round_up(w.in_rows + w.net_rows_of_rank * blocks, page);
    w.in_back = w.out_back + w.net_back_of_rank * blocks;
    w.relay_out = round_up(w.in_back + w.net_back_of_rank * blocks, page);
    w.relay_in = w.relay_out + w.relay_rows * nodes;
    w.sums_out = w.relay_in + w.relay_rows * blocks_in;
    w.sums_in = w.sums_out + w.sums_rows * blocks_in;
    w.network_bytes = round_up(w.sums_in + w.sums_rows * nodes, page);
    w.messages = 0;
    w.signal_messages = w.messages + sizeof(Message) * channel_window * s.ranks;
    w.staged_out = round_up(w.signal_messages + sizeof(SignalMessage) * channel_window * s.ranks, page);
    w.staged_in = w.staged_out + s.stages_puts * staged_slot * staged_window * s.ranks;
    w.channel_bytes = round_up(w.staged_in + s.stages_puts * staged_slot * staged_window * s.ranks, page);
    return w;
  }

  UCCLEP_HD constexpr uint64_t consumed_word(const GroupShape& s, Kind kind, uint32_t rank) const {
    return consumed + 8ull * (static_cast<uint32_t>(kind) * s.ranks + rank);
  }
  UCCLEP_HD constexpr uint64_t evicted_word(uint32_t rank) const { return evicted + 8ull * rank; }
  // Behind the signals, barriers of each team.
  UCCLEP_HD constexpr uint64_t signal_word(const GroupShape& s, uint32_t signal, uint32_t source) const {
    return signals + 8 * (uint64_t{signal} * s.ranks + source);
  }
  UCCLEP_HD constexpr uint64_t header(const GroupShape& s, Kind kind, uint32_t slot, uint32_t source) const {
    return headers + header_bytes * block_of(s, static_cast<uint32_t>(kind) * s.in_flight + slot, source);
  }

  // LL dispatch: what `source` put here. BULK rows are dense: place * the row bytes of the operation. LINE rows leave
  // before their places are counted, so they lie by token.
  UCCLEP_HD constexpr uint64_t ll_meta_of(uint32_t slot, uint32_t source) const {
    return ll + ll_slot * slot + ll_source * source;
  }
  UCCLEP_HD constexpr uint64_t ll_rows_of(uint32_t slot, uint32_t source) const {
    return ll_meta_of(slot, source) + ll_rows;
  }
  UCCLEP_HD constexpr uint64_t ll_lines_of(uint32_t slot, uint32_t source) const {
    return ll_meta_of(slot, source) + ll_lines;
  }
  UCCLEP_HD constexpr uint64_t ll_weights_of(uint32_t slot, uint32_t source) const {
    return ll_meta_of(slot, source) + ll_weights;
  }
  UCCLEP_HD constexpr uint64_t ll_index_of(uint32_t slot, uint32_t source) const {
    return ll_meta_of(slot, source) + ll_index;
  }

  // HT staging of the window's owner, by token; and the metas that `source` put here, by place, in two forms.
  UCCLEP_HD constexpr uint64_t ht_rows_of(uint32_t slot) const { return ht + ht_slot * slot; }
  UCCLEP_HD constexpr uint64_t ht_meta_of(uint32_t slot, uint32_t source) const {
    return ht_rows_of(slot) + ht_meta + ht_source * source;
  }
  UCCLEP_HD constexpr uint64_t ht_lines_of(uint32_t slot, uint32_t source) const {
    return ht_meta_of(slot, source) + ht_lines;
  }

  // Return landing: what the rank that holds the experts (`source` of the row) sent back here. In HT rows are those
  // that this rank has staged for `source`.
  UCCLEP_HD constexpr uint64_t back_rows_of(uint32_t slot, uint32_t source) const {
    return back + back_slot * slot + back_rows * source;
  }
  UCCLEP_HD constexpr uint64_t back_epochs_of(uint32_t slot, uint32_t source) const {
    return back + back_slot * slot + back_epochs + back_words * source;
  }
  UCCLEP_HD constexpr uint64_t back_lines_of(uint32_t slot, uint32_t source) const {
    return back_epochs_of(slot, source) + back_lines;
  }
  // HT's staging where it is one pool, and what `source` said of its own here: which rows its places have there.
  UCCLEP_HD constexpr uint64_t pool_of(uint32_t slot) const { return back + back_slot * slot; }
  UCCLEP_HD constexpr uint64_t back_places_of(uint32_t slot, uint32_t source) const {
    return back_epochs_of(slot, source) + back_places;
  }

  // In the network's window: what waits for a NIC to take it to `rank`, and what came from there.
  UCCLEP_HD constexpr uint64_t out_header(const GroupShape& s, Kind kind, uint32_t slot, uint32_t rank) const {
    return out_headers + header_bytes * block_of(s, static_cast<uint32_t>(kind) * s.in_flight + slot, rank);
  }
  UCCLEP_HD constexpr uint64_t in_header(const GroupShape& s, Kind kind, uint32_t slot, uint32_t rank) const {
    return out_header(s, kind, slot, rank) + (in_headers - out_headers);
  }
  UCCLEP_HD constexpr uint64_t out_rows_for(const GroupShape& s, uint32_t slot, uint32_t rank) const {
    return out_rows + net_rows_of_rank * block_of(s, slot, rank);
  }
  UCCLEP_HD constexpr uint64_t in_rows_of(const GroupShape& s, uint32_t slot, uint32_t rank) const {
    return in_rows + net_rows_of_rank * block_of(s, slot, rank);
  }
  UCCLEP_HD constexpr uint64_t out_back_for(const GroupShape& s, uint32_t slot, uint32_t rank) const {
    return out_back + net_back_of_rank * block_of(s, slot, rank);
  }
  UCCLEP_HD constexpr uint64_t in_back_of(const GroupShape& s, uint32_t slot, uint32_t rank) const {
    return in_back + net_back_of_rank * block_of(s, slot, rank);
  }

  // There too: rows for a node, and where its relay takes them in; of HT sums of a node, where its relay sends them
  // from and where they land.
  UCCLEP_HD constexpr uint64_t relay_out_for(const GroupShape& s, uint32_t slot, uint32_t node) const {
    return relay_out + relay_rows * (uint64_t{slot} * s.nodes.nodes + node);
  }
  UCCLEP_HD constexpr uint64_t relay_in_of(const GroupShape& s, uint32_t slot, uint32_t block) const {
    return relay_in + relay_rows * (uint64_t{slot} * s.nodes.blocks() + block);
  }
  UCCLEP_HD constexpr uint64_t sums_out_for(const GroupShape& s, uint32_t slot, uint32_t block) const {
    return sums_out + sums_rows * (uint64_t{slot} * s.nodes.blocks() + block);
  }
  UCCLEP_HD constexpr uint64_t sums_in_of(const GroupShape& s, uint32_t slot, uint32_t node) const {
    return sums_in + sums_rows * (uint64_t{slot} * s.nodes.nodes + node);
  }
  // In the channel's window: this rank's message of that number to `rank`, and the signal of that number that `rank`
  // has sent.
  UCCLEP_HD constexpr uint64_t message_to(uint32_t rank, uint64_t number) const {
    return messages + sizeof(Message) * (uint64_t{rank} * channel_window + number % channel_window);
  }
  UCCLEP_HD constexpr uint64_t signal_message_of(uint32_t rank, uint64_t number) const {
    return signal_messages + sizeof(SignalMessage) * (uint64_t{rank} * channel_window + number % channel_window);
  }
  // In the first window: sums of the own node, by token; what members of the node say of their partial rows; and rows
  // that a relay has staged.
  UCCLEP_HD constexpr uint64_t own_sums_of(uint32_t slot) const { return own_sums + sums_rows * slot; }
  UCCLEP_HD constexpr uint64_t relay_words_of(const GroupShape& s, uint32_t slot, uint32_t block,
                                              uint32_t member) const {
    const uint64_t index = uint64_t{slot} * s.nodes.blocks() + block;
    return relay_words + relay_words_of_member * (index * s.nodes.most + member);
  }
  UCCLEP_HD constexpr uint64_t relay_staged_of(const GroupShape& s, uint32_t slot, uint32_t block) const {
    return relay_staged + relay_staged_rows * (uint64_t{slot} * s.nodes.blocks() + block);
  }
};

}  // namespace ucclep
