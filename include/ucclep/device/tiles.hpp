// SPDX-License-Identifier: Apache-2.0
// Tiles in a user's kernel (UCCLEP_LAYOUT_TILES, LL): rows leave as soon as their experts are known, tiles of received
// rows are handed out as they become ready, and results go home as they are made, all at the same time. Nothing waits
// for counts.
//
//   const auto op = tiles::begin(handle, shapes);                        every thread of the grid
//   some warps:   tiles::send(warp{}, op, token, row, scales, experts, weights) for their tokens, then tiles::close
//   R warps:      tiles::serve(warp{}, op, source)                        one for each rank, or several that share it
//   other scopes: while (tiles::next(coop, op, tile) == tiles::Next::tile) {
//                   .. tiles::row(op, tile, i), tiles::entry(op, tile, i) of i < tile.rows ..
//                   tiles::send_back(coop, op, tile, i, result)
//                 }
//   tiles::close_back(block{}, op);                                       every block, when its warps have joined
//   tiles::results(coop, op, out, first_token, last_token);               then tiles::await_end before the next begin
//
// All blocks are resident at once. No scope asks for tiles before its own sends and its close, unless other warps of
// the grid do these; threads and lanes<N> not before those of their whole warp, so sync_warp stands between. All ranks
// exchange rows in this way, or none of them. A handle that has begun so goes through close_back and results, also
// where next() says that the operation has failed.
//
// Or the host dispatches, and kernels take the tiles:
//
//   ucclEpDispatch with send_only; then any number of kernels, each on a stream after it, ended before ucclEpComplete:
//   const auto op = tiles::join(handle, shapes), and next, wait, row, entry; send_back and done go with a combine of
//   the host's
//
// clang-format off
// | who releases                               | who acquires                  | what is ordered                            |
// |--------------------------------------------|-------------------------------|--------------------------------------------|
// | begin: the grid's barrier                  | the same                      | all words as they begin                    |
// | send: lines; publish of the meta's epoch   | serve of the peer: load_packet| a row before it is copied                  |
// |   (system)                                 |   or load_acquire (system)    |                                            |
// | close: the last closer's ticket (acq_rel,  | the last closer; who looks at | counts of all sends before they are        |
// |   gpu), then device_initiated              |   the routing (all_sent)      |   announced; the routing                   |
// | serve: the source's ticket (acq_rel, gpu)  | the last server               | what all have copied and counted           |
// | tiles to who takes them                    |                               | user/tiles.hpp                             |
// | send_back: the row's ticket (acq_rel, gpu) | the send_back of the last row | rows that wait for it                      |
// | done: fetch_add_acq_rel (gpu), then        | close_back: load_acquire      | a tile's results before they leave         |
// |   store_release of the list                |                               |                                            |
// | close_back: fetch_add_acq_rel (gpu)        | the same                      | the list, in the last block                |
// | serve: rows of the source that are taken   | those who share the source    | nothing else (relaxed): the ticket orders  |
// |                                            |                               |   rows                                     |
// clang-format on
//
// Floor: as of ll_dispatch.hpp and ll_combine.hpp, and a poll of the tokens that have not come.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/ll/tile_rows.hpp"
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/ll_combine_recv.hpp"
#include "ucclep/device/ll_dispatch.hpp"
#include "ucclep/device/ll_dispatch_recv.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/tiles.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/copies.hpp"
#include "ucclep/device/user/landed_rows.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/routing.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/tiles.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace tiles {

// Block verb of every block: takes part in a dispatch that ucclEpDispatch(send_only) began, as it is received. The
// combine, if any, is one of the host's.
UCCLEP_FN OpenTiles join(const ucclEpDeviceHandle& handle, const Shapes& shapes) {
  const HandleMemory memory{handle.view, handle.group.shape};
  const uint64_t seq = memory.state()->sent[static_cast<uint32_t>(Kind::dispatch)];
  const bool ok = every_thread(load_relaxed<Scope::system>(handle.group.abort_word) == 0);
  const ll::OpenDispatch dispatch{
      {handle, shapes.out, Settings{}, seq, handle.group.shape.slot_of(seq), ok && handle.view.tile_rows != 0},
      WireShape{},
      Form::line};
  if (handle.view.tile_rows == 0) {
    refuse(dispatch.op(), Field::layout, UCCLEP_LAYOUT_TILES, static_cast<uint64_t>(handle.view.layout));
  }
  return {no_combine(dispatch, shapes), shapes, true};
}

// Grid verb: nothing has been sent, has come or waits to leave. Tokens of by_rows have places by their number, so that
// either side counts with as many rows as there may be.
UCCLEP_FN void clear_routing(const HandleMemory& memory) {
  const Tiles tiles{memory};
  const uint32_t first = block_id() * block_size() + thread_id(), step = grid_size() * block_size();
  for (uint64_t t = first; t < tiles.count(); t += step) tiles.waiting()[t] = 0;
  for (uint32_t e = first; e < memory.shape.experts; e += step) memory.counts_to()[e] = 0;
  for (uint32_t r = first; r < memory.shape.ranks; r += step) {
    tiles.sent()[r] = tiles.served()[r] = 0;
    memory.rows_to()[r] = memory.rows_from()[r] = memory.handle.tokens;
  }
}

// Verb of the warps of the grid: the settings, ahead of the rows. The rest of the header follows when all have closed.
UCCLEP_FN void announce_settings(const Op& op, const Settings& settings) {
  for (uint32_t i = grid_warp(); i < op.ranks(); i += grid_warps()) {
    Packet* const header = header_packets(op, op.rotated(i), op.me());
    if (lane_id() < HeaderLayout::rows)
      store_packet(header + lane_id(), fixed_packet(lane_id(), settings, 0, Form::line, 0), op.seq);
  }
}

// Block verb of every block: the handle's group begins a dispatch, and with shapes.back a combine. Waits until peers
// have finished with the slots, and for all blocks.
UCCLEP_FN OpenTiles begin(const ucclEpDeviceHandle& handle, const Shapes& shapes) {
  Settings settings = ll::dispatch_settings(handle, shapes.out);
  settings.by_rows = 1;
  const ll::OpenDispatch dispatch = ll::begin_dispatch(handle, shapes.out, settings);
  const bool returns = dispatch.ok && shapes.back.hidden != 0;
  OpenTiles open{returns ? ll::combine_begin(handle, shapes.back, dispatch) : no_combine(dispatch, shapes), shapes,
                 false};
  if (!dispatch.ok) return open;
  open_tiles(open.memory());
  clear_routing(open.memory());
  const Op op = open.dispatch_op();
  announce_settings(op, settings);
  open.back.dispatch.ok = sync_grid(op, op.group.abort_word) && (!returns || open.back.ok);
  open.back.ok = open.back.ok && open.back.dispatch.ok;
  return open;
}

// Verb of the scope: what the header will announce of a token, and where its partial rows come back.
template <class Coop, class TopkOfToken>
UCCLEP_FN void note_sent(const HandleMemory& memory, uint32_t token, const TopkOfToken& topk, uint32_t ranks) {
  const Tiles tiles{memory};
  uint32_t* const places = memory.at<uint32_t>(memory.handle.offsets.places) + uint64_t{token} * memory.shape.top_k;
  topk.template each<Coop>([&](uint32_t k, int32_t expert) {
    const bool first = (ranks >> k & 1) != 0;  // of its rank
    places[k] = first ? token : no_place;
    if (expert < 0) return;
    const auto id = static_cast<uint32_t>(expert);
    fetch_add_relaxed<Scope::gpu>(memory.counts_to() + id, 1u);
    if (first) fetch_add_relaxed<Scope::gpu>(tiles.sent() + memory.shape.rank_of(id), 1u);
  });
  if (Coop::rank() == 0) fetch_add_relaxed<Scope::gpu>(&tiles.state()->tokens, 1u);
}

// Verb of the scope: one token, as ll::dispatch_send; peers may have it in a tile at once. Tokens are 0 .. T - 1, each
// once, in any order. lanes<N>: all groups of a warp call it together; token >= B sends nothing.
template <class Coop, class Index>
UCCLEP_FN void send(Coop, const OpenTiles& open, uint32_t token, const void* row, const void* scales,
                    const Index* experts, const float* weights) {
  const ll::OpenDispatch& dispatch = open.back.dispatch;
  if (!dispatch.ok) return;
  const bool sends = token < dispatch.handle.view.tokens;
  const ll::Topk<Coop, Index> topk{experts, dispatch.handle.group, token, sends};
  const uint32_t ranks = sends ? topk.ranks() : 0;
  if (sends) note_sent<Coop>(open.memory(), token, topk, ranks);
  ll::send_token<Coop, true>(dispatch, open.dispatch_op(), token, row, scales, experts, weights, sends);
}

// Verb of the scope that closes last: headers to all peers.
template <class Coop>
UCCLEP_FN void announce_counts(const OpenTiles& open, const Op& op) {
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const ll::OpenDispatch& dispatch = open.back.dispatch;
  const uint32_t local = memory.shape.local_experts(), tokens = load_relaxed<Scope::gpu>(&tiles.state()->tokens);
  const auto count = [&](uint32_t expert) { return load_relaxed<Scope::gpu>(memory.counts_to() + expert); };
  const uint32_t begin = HeaderLayout::rows, packets = HeaderLayout::packets(local) - begin;
  for (uint32_t i = Coop::rank(); i < op.ranks() * packets; i += Coop::size()) {
    const uint32_t peer = op.rotated(i / packets), packet = begin + i % packets;
    uint64_t value = 0;
    if (packet < HeaderLayout::counts) {
      const uint32_t rows = load_relaxed<Scope::gpu>(tiles.sent() + peer);
      value = fixed_packet(packet, dispatch.settings, rows, dispatch.form, tokens);
    } else {
      const uint32_t l = 2 * (packet - HeaderLayout::counts), expert = peer * local + l;
      value = count(expert) | (l + 1 < local ? uint64_t{count(expert + 1)} << 32 : 0);
    }
    store_packet(header_packets(op, peer, op.me()) + packet, value, op.seq);
  }
}

// Verb of the scope, after its last send: it sends no more. shapes.closers scopes do so, each once; the last one
// announces to the peers how many rows come. lanes<N>: all groups of a warp call it together, and each closes.
template <class Coop>
UCCLEP_FN void close(Coop, const OpenTiles& open) {
  if (!open.ok()) return;
  const HandleMemory memory = open.memory();
  TileState* const state = Tiles{memory}.state();
  Coop::sync();
  bool last = false;
  if (Coop::rank() == 0) last = fetch_add_acq_rel<Scope::gpu>(&state->closers, 1u) + 1 == open.shapes.closers;
  last = Coop::any(last);
  Coop::sync();  // what the first has acquired, all have
  if (last) announce_counts<Coop>(open, open.dispatch_op());
  Coop::sync();
  if (!last || Coop::rank() != 0) return;
  note_routing(memory, load_relaxed<Scope::gpu>(&state->tokens), memory.shape.top_k);
  constexpr auto kind = static_cast<uint32_t>(Kind::dispatch);
  store_release<Scope::gpu>(&memory.state()->device_initiated[kind], open.back.dispatch.seq);
}

// Verbs of the warp that serves a source.
class ServedSource {
 public:
  UCCLEP_FN ServedSource(const OpenTiles& open, const Op& op, uint32_t source, uint32_t share, uint32_t shares)
      : open_(open), op_(op), memory_(open.memory()), source_(source), share_(share), shares_(shares) {}

  // The rows of its share, until those of all shares are in tiles. None where the source's settings are others.
  UCCLEP_FN HeaderResult serve() {
    const HeaderResult settings = compare_settings();
    if (settings != HeaderResult::good) return settings;
    for (Tally seen = tally(); seen.served < seen.all; seen = tally()) {
      uint32_t token = nowhere;  // the lane's
      uint64_t here = 0;
      bool closed = false, news = false;
      const uint32_t peer = source_;
      const bool ok = wait_peer_warp(op_, Phase::rows, peer, [&] {
        token = look();
        here = ballot(token != nowhere);
        closed = share_ == 0 && seen.all == not_closed && ballot(header_came()) != 0;
        const Tally now = tally();
        news = now.served != seen.served || now.all != seen.all;
        return here != 0 || closed || news;
      });
      if (!ok || (closed && !take_header())) return HeaderResult::lost;
      for (; here != 0; here &= here - 1) {
        if (!take(broadcast(token, first_lane(here)))) return HeaderResult::lost;
      }
    }
    return HeaderResult::good;
  }

 private:
  static constexpr uint32_t nowhere = ~0u;

  // Rows of the source that are in tiles, and rows that it sends, not_closed while nobody knows.
  struct Tally {
    uint32_t served, all;
  };
  UCCLEP_FN Tally tally() const {
    const Tiles tiles{memory_};
    Tally now{0, 0};
    if (lane_id() == 0) {
      now = {load_relaxed<Scope::gpu>(tiles.served() + source_), load_relaxed<Scope::gpu>(tiles.from() + source_)};
    }
    return {broadcast(now.served, 0), broadcast(now.all, 0)};
  }

  // The first thing that comes of a source. It decides how its rows lie.
  UCCLEP_FN HeaderResult compare_settings() const {
    const Settings& mine = open_.back.dispatch.settings;
    uint64_t word = 0;
    bool ok = true;
    if (lane_id() < HeaderLayout::rows) {
      ok = wait_packet(op_, Phase::header, source_, header_packets(op_, op_.me(), source_) + lane_id(), word);
    }
    if (!every_lane(ok)) return HeaderResult::lost;
    const uint64_t low = broadcast(word, HeaderLayout::settings_low),
                   high = broadcast(word, HeaderLayout::settings_high);
    if (low == mine.low() && high == mine.high()) return HeaderResult::good;
    if (lane_id() == 0 && share_ == 0) report_difference(op_, source_, mine, low, high);
    return HeaderResult::differs;
  }
  UCCLEP_FN bool header_came() const {
    const Packet* const header = header_packets(op_, op_.me(), source_);
    return load_packet(header + HeaderLayout::rows).epoch == op_.seq;
  }
  UCCLEP_FN bool take_header() {
    HeaderFacts facts{};
    const HeaderResult result = receive_header(op_, source_, open_.back.dispatch.settings, facts, nullptr);
    return result == HeaderResult::good && ll::expect_rows(op_, memory_, source_, facts.rows);
  }
  // Lane verb: a token of the lane's share that is here, and has not been taken.
  UCCLEP_FN uint32_t look() const {
    const ll::OpenDispatch& dispatch = open_.back.dispatch;
    const uint32_t step = wave_size * shares_;
    for (uint32_t token = share_ + lane_id() * shares_; token < memory_.handle.tokens; token += step) {
      if (memory_.noted(source_)[token] == op_.seq) continue;
      uint32_t seen = 0;
      if (ll::row_arrived(op_, dispatch.wire, source_, dispatch.form, token, seen)) return token;
    }
    return nowhere;
  }

  // A row to the places that it gets.
  UCCLEP_FN bool take(uint32_t token) {
    const ll::OpenDispatch& dispatch = open_.back.dispatch;
    const Tiles tiles{memory_};
    const ll::LandedRow landed(dispatch, op_, source_, {0, 0, dispatch.form}, token);
    ReceivedSelection selection;
    uint32_t said = token, expert = 0;
    if (!ll::receive_selection(landed, selection, said)) return false;
    if (dispatch.settings.weights_at_dispatch == 0) selection.weight = 1.0f;
    const bool mine = is_mine(op_, selection, expert);
    const uint32_t place = mine ? fetch_add_relaxed<Scope::gpu>(tiles.taken() + expert, 1u) : 0;
    const bool fits = mine && place < tiles.at().slab;
    keep_entries(memory_, source_, token, selection, {fits, 0, place}, expert, dispatch.shape.top_k);
    if (fits) memory_.row_homes(expert)[place] = source_ * memory_.handle.tokens + token;
    const uint64_t row = fits ? tiles.row(expert, place) : 0;
    if (!copy(landed, fits, row)) return false;
    sync_warp();  // what all lanes have written is released
    if (lane_id() == 0) note_arrived(memory_, source_, token, op_.seq);
    if (fits) note(tiles, {source_, token, selection.weight, nullptr, nullptr}, expert, place, row);
    sync_warp();
    if (lane_id() == 0) fetch_add_relaxed<Scope::gpu>(tiles.served() + source_, 1u);
    return true;
  }
  // Lane verb.
  UCCLEP_FN void note(const Tiles& tiles, TileRow what, uint32_t expert, uint32_t place, uint64_t row) const {
    const ll::OpenDispatch& dispatch = open_.back.dispatch;
    if (open_.shapes.rows) what.row = static_cast<char*>(open_.shapes.rows) + row * dispatch.wire.token_bytes;
    if (open_.shapes.scales) what.scales = static_cast<char*>(open_.shapes.scales) + row * dispatch.shape.scale_bytes;
    note_tile_row(tiles, expert, place, what);
  }
  // To row `row` of the lanes that have a copy.
  UCCLEP_FN bool copy(const ll::LandedRow& landed, bool mine, uint64_t row) const {
    const ll::OpenDispatch& dispatch = open_.back.dispatch;
    const WireShape& wire = dispatch.wire;
    char* const to = static_cast<char*>(open_.shapes.rows) + row * wire.token_bytes;
    const ll::Addresses rows{mine && open_.shapes.rows != nullptr, to};
    if (!landed.lines) rows.each([&](char* at) { copy_vectors<warp>(at, landed.tokens, wire.token_bytes); });
    const RowParts parts = RowParts::of_size(wire.batches, ll::received_batches);
    for (WarpUniform part = 0; landed.lines && part < parts.count; part += 1) {
      const BatchRange range = parts.range(part);
      const char* const lines = landed.tokens + range.begin * LineBatch::lines * line_bytes;
      ll::LineSpan<false, ll::received_batches> span;
      span.cover(wire, range);
      span.peek(wire, lines);
      const auto write = [&](uint32_t i) { rows.each([&](char* at) { span.write(wire, at, i); }); };
      if (!span.receive(op_, source_, wire, lines, write)) return false;
    }
    for (uint64_t left = ballot(mine); left != 0; left &= left - 1) {
      const auto index = static_cast<uint32_t>(broadcast(row, first_lane(left)));
      if (!every_lane(ll::take_scales<warp>(dispatch, {nullptr, open_.shapes.scales}, landed, index))) return false;
    }
    return true;
  }

  const OpenTiles& open_;
  const Op& op_;
  const HandleMemory memory_;
  const uint32_t source_, share_, shares_;
};

// Warp verb, after begin: takes the rows of a source, the own rank too, and returns when it has closed and they are in
// tiles. `shares` warps of the grid, as many for each source, serve one together: each is called with a share of its
// own, below `shares`, and takes rows of some of the tokens. They wait for no consumer.
// False: the source did not send, or close, in the group's timeout, or the operation has failed; all who ask for tiles
// hear of it.
UCCLEP_FN bool serve(warp, const OpenTiles& open, uint32_t source, uint32_t share = 0, uint32_t shares = 1) {
  if (!open.ok()) return false;
  const Op op = open.dispatch_op();
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const HeaderResult result = ServedSource(open, op, source, share, shares).serve();
  bool ok = result != HeaderResult::lost, last = false;
  sync_warp();
  if (ok && lane_id() == 0) last = fetch_add_acq_rel<Scope::gpu>(&tiles.state()->left, 1u) + 1 == op.ranks() * shares;
  last = ballot(last) != 0;
  sync_warp();  // what lane 0 has acquired, all have
  if (result != HeaderResult::good) give_up_tiles<warp>(tiles);
  if (last && load_relaxed<Scope::gpu>(&tiles.state()->closed) == op.ranks()) ok = totals_agree<warp>(op, tiles);
  if (last && ok) ok = ballot(lane_id() == 0 && end_received(open.back.dispatch, op)) != 0;
  if (!ok) give_up_tiles<warp>(tiles);
  return ok && result == HeaderResult::good;
}

UCCLEP_FN char* back_row(const OpenTiles& open, uint64_t row) {
  return static_cast<char*>(open.shapes.back_rows) + row * open.shapes.back.token_bytes();
}

// Lane verb: whose a row of a tile is.
UCCLEP_FN Home home_of(const HandleMemory& memory, uint32_t expert, uint32_t place) {
  const uint32_t home = memory.row_homes(expert)[place];
  return {home / memory.handle.tokens, home % memory.handle.tokens, expert, true};
}

// Verb of the scope: the result of a tile's i-th row, `back.hidden` elements, 16-byte aligned, in any memory that the
// scope can read, and only until the call returns. It goes home with the last result of its token on this rank, and
// until then lies in back_rows. After join it goes to back_rows, and leaves by the host's combine. lanes<N>: all groups
// of a warp call it together; i >= tile.rows sends nothing.
template <class Coop>
UCCLEP_FN void send_back(Coop, const OpenTiles& open, const Tile& tile, uint32_t i, const void* row) {
  if (!open.joined && !open.back.ok) return;
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const bool any = i < tile.rows;
  const uint32_t place = tile.index * tiles.rows_of_tile() + i;
  const Home home = any && !open.joined ? home_of(memory, tile.expert, place) : Home{};
  const bool waits = open.joined || (home.valid && memory.recv_count(home.rank)[home.place] > 1);
  if (any && waits) {
    char* const kept = back_row(open, tiles.row(tile.expert, place));
    if (kept != row) copy_vectors<Coop>(kept, static_cast<const char*>(row), open.shapes.back.token_bytes());
    row = kept;
  }
  if (open.joined) return Coop::sync();
  ll::send_copy<Coop>(open.back, open.combine_op(), home, row);
}

// Lane verb, instead of send_back: a part of a tile's results lies in back_rows, where other threads have stored it, by
// a sync with them (bulk copies: completed, and the proxy fenced). When all parts are (those of next(); after join as
// many as the host's combine says), they leave: in close_back, at the latest when the last block comes there.
UCCLEP_FN void done(thread, const OpenTiles& open, const Tile& tile) {
  if (!open.ok()) return;
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  TileState* const state = tiles.state();
  const uint32_t number = tiles.tile(tile.expert, tile.index);
  const uint32_t parts = fetch_add_acq_rel<Scope::gpu>(tiles.done() + number, 1u) + 1;
  const uint32_t all = load_relaxed<Scope::gpu>(&state->parts);  // 0: none was handed out by next()
  if (open.joined || parts != (all != 0 ? all : 1)) return;
  const uint32_t at = fetch_add_relaxed<Scope::gpu>(&state->waiting, 1u);
  store_release<Scope::gpu>(tiles.waiting() + at, number + 1);
}

// Lane verb: a tile whose results have yet to leave, or none: nobody waits for one.
UCCLEP_FN uint32_t take_waiting(const Tiles& tiles) {
  TileState* const state = tiles.state();
  uint32_t at = load_relaxed<Scope::gpu>(&state->leaving);
  for (;;) {
    const uint32_t tile = at < tiles.count() ? load_acquire<Scope::gpu>(tiles.waiting() + at) : 0;
    if (tile == 0) return no_more;
    if (compare_exchange<Scope::gpu>(&state->leaving, at, at + 1)) return tile - 1;
  }
}

// Verb of a block's warps: its results.
UCCLEP_FN void send_waiting(const OpenTiles& open, uint32_t number) {
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const auto expert = static_cast<uint32_t>(tiles.experts()[number]);
  const uint32_t index = number - tiles.tile(expert, 0);
  const Tile tile{expert, index, rows_of(tiles, expert, index), 0};
  for (uint32_t i = warp_id(); i < tile.rows; i += block::warps()) {
    send_back(warp{}, open, tile, i, back_row(open, tiles.row(expert, index * tiles.rows_of_tile() + i)));
  }
}

// Verb of every block, last, after its roles have joined: it sends no more results. False: the operation has failed.
UCCLEP_FN bool close_back(block, const OpenTiles& open) {
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  if (!open.back.ok) return false;
  sync_block();
  if (thread_id() == 0)
    fetch_add_acq_rel<Scope::gpu>(&tiles.state()->blocks, 1u);  // the last one sees all that is done
  sync_block();
  for (;;) {
    const uint32_t number = block::first(thread_id() == 0 ? take_waiting(tiles) : 0);
    if (number == no_more) break;
    send_waiting(open, number);
  }
  return ll::combine_end(block{}, open.back);
}

// Verb of the scope: all tokens of this rank have left, and everybody has sent rows of the same kind.
template <class Coop>
UCCLEP_FN HeaderResult all_agree(const OpenTiles& open) {
  const Op op = open.dispatch_op();
  const bool sent = Coop::rank() != 0 || all_sent(open.back.dispatch, op);
  Coop::sync();
  return Coop::any(!sent) ? HeaderResult::lost : agree<Coop>(open.back.dispatch, op, [] { return true; });
}

// Verb of the scope, after close_back in the same block: the results of tokens [first, last) to `out`, as
// ll::combine_recv. Every token is asked for exactly once.
template <class Coop>
UCCLEP_FN bool results(Coop, const OpenTiles& open, const CombineRows& out, uint32_t first, uint32_t last) {
  if (!open.back.ok) return false;
  const HeaderResult come = all_agree<Coop>(open);
  if (come == HeaderResult::lost) return false;
  const Op op = open.combine_op();
  return receive_tokens<Coop>(open.back, op, first, last, come == HeaderResult::good,
                              [&](uint32_t begin, uint32_t end) {
                                return with_element(open.shapes.back.dtype, [&](auto element) {
                                  return ll::sum_tokens<decltype(element), Coop>(open.back, op, out, begin, end);
                                });
                              });
}

// Block verb of every block: both operations have ended here, and the next begin() may follow. A combine ends when all
// blocks have closed it; a dispatch alone while blocks still ask for tiles.
UCCLEP_FN bool await_end(block scope, const OpenTiles& open) {
  if (!ucclep::await_end(scope, open.back.dispatch, Kind::dispatch)) return false;
  if (open.shapes.back.hidden != 0) return ucclep::await_end(scope, open.back, Kind::combine);
  const Op op = open.dispatch_op();
  return sync_grid(op, op.group.abort_word);
}

}  // namespace tiles
}  // namespace UCCLEP_SIMT_NAMESPACE
