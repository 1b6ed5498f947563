// SPDX-License-Identifier: Apache-2.0
// Rounds of a user's kernel. It looks at no answer but that of the barrier: when an operation has failed, the verbs
// that follow do nothing, and all blocks come to the barrier all the same.
#pragma once
#include "ceiling/kernels/lines.hpp"
#include "rounds/kernels/shares.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN const RoundInput& input_of(const RoundsArgs& args, uint32_t round) {
  return args.inputs[(args.rounds - 1 - round) % 2];
}

// Block verb, between two operations: what the one has received is there for the other.
UCCLEP_FN bool all_blocks(const RoundsArgs& args) {
  return grid_sync(args.barrier, begin_wait_for_blocks(args.handle.group));
}

// Verb of the scope: it keeps how many rows a zone has, if it is the first with a share of them.
template <class Coop>
UCCLEP_FN void keep_count(const RoundsArgs& args, const ZoneShares<Coop>& shares, uint32_t zone, uint32_t rows) {
  if (shares.index == 0 && Coop::rank() == 0) args.counts[zone] = rows;
}

// Verb of the scope: rows of the output go back as they are.
template <class Coop, class Open>
UCCLEP_FN void send_back(const RoundsArgs& args, const Open& op, uint32_t first, uint32_t last) {
  const auto* const rows = static_cast<const char*>(args.rows.tokens);
  for (uint32_t row = first; row < last; ++row) {
    combine_send(Coop{}, op, row, rows + size_t{row} * args.shape.token_bytes());
  }
}

// Verb of every block: the scope's tokens have their results.
template <class Coop, class Open>
UCCLEP_FN void receive_results(const RoundsArgs& args, const Open& op) {
  combine_end(block{}, op);
  const RowRange part = my_part<Coop>(args.tokens);
  if (part.first < part.last) combine_recv(Coop{}, op, CombineRows{args.results}, part.first, part.last);
}

// Verb of every block: tokens leave; rows of the experts are received, and go back; results are received. Who received
// a row sends it back, so nothing but the operations themselves is waited for. False: the group has failed.
template <class Coop>
UCCLEP_FN bool round_ll(const RoundsArgs& args, const RoundInput& input) {
  const uint32_t bytes = args.shape.token_bytes();
  const TopkRouting<int64_t> routing{input.experts, input.weights, args.tokens};
  const auto there = ll::dispatch_begin(args.handle, args.shape, routing);
  const auto back = ll::combine_begin(args.handle, args.shape, there);
  for (uint32_t token = Scopes<Coop>::mine(); token < args.tokens; token += Scopes<Coop>::count()) {
    ll::dispatch_send(Coop{}, there, token, input.tokens + size_t{token} * bytes, nullptr);
  }
  ll::dispatch_end(block{}, there);
  const ZoneShares<Coop> shares(args.zones);
  for (uint32_t zone = shares.first; zone < args.zones; zone += shares.step) {
    uint32_t rows = 0;
    ll::dispatch_rows(Coop{}, there, zone, rows);
    keep_count(args, shares, zone, rows);
    const RowRange part = shares.part(args.counted ? rows : args.zone_rows);
    if (part.first == part.last) continue;
    const uint32_t base = zone * args.zone_rows;
    ll::dispatch_recv(Coop{}, there, args.rows, base + part.first, base + part.last);
    send_back<Coop>(args, back, base + part.first, base + part.last);
  }
  receive_results<Coop>(args, back);
  return await_end(block{}, back, Kind::combine);
}

// Rows that the routing has for this rank, or that the output has room for.
UCCLEP_FN uint32_t routed_rows(const RoundsArgs& args) {
  if (!args.counted) return args.zone_rows;
  int64_t rows = 0;
  for (uint32_t zone = 0; zone < args.zones; ++zone) rows += args.counts[zone];
  return static_cast<uint32_t>(rows);
}

// The same two in HT. Where there is no row, some call has to find that out.
template <class Coop>
UCCLEP_FN void dispatch_ht(const RoundsArgs& args, const RoundInput& input) {
  const uint32_t bytes = args.shape.token_bytes(), top_k = args.shape.top_k;
  const auto op = ht::dispatch_begin(args.handle, args.shape);
  for (uint32_t token = Scopes<Coop>::mine(); token < args.tokens; token += Scopes<Coop>::count()) {
    ht::dispatch_send(Coop{}, op, token, input.tokens + size_t{token} * bytes, nullptr,
                      input.weights + size_t{token} * top_k);
  }
  ht::dispatch_end(block{}, op, args.tokens);
  const RowRange part = my_part<Coop>(routed_rows(args));
  if (part.first < part.last || Scopes<Coop>::mine() == 0) {
    ht::dispatch_recv(Coop{}, op, args.rows, part.first, part.last);
  }
}

template <class Coop>
UCCLEP_FN void combine_ht(const RoundsArgs& args) {
  const auto op = ht::combine_begin(args.handle, args.shape);
  const RowRange part = my_part<Coop>(routed_rows(args));
  send_back<Coop>(args, op, part.first, part.last);
  receive_results<Coop>(args, op);
}

template <class Coop>
UCCLEP_FN void rounds_ll(const RoundsArgs& args) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    if (!round_ll<Coop>(args, input_of(args, round))) return;
  }
}

template <class Coop>
UCCLEP_FN void rounds_ht(const RoundsArgs& args) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    dispatch_ht<Coop>(args, input_of(args, round));
    if (!all_blocks(args)) return;
    combine_ht<Coop>(args);
    if (!all_blocks(args)) return;
  }
}

// Rounds of whole operations of bf16 in one domain, which end in all blocks before the next begins.
template <class Dispatch, class Combine>
UCCLEP_FN void whole_rounds(const WholeRoundsArgs& args, Dispatch&& dispatch, Combine&& combine) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    const uint32_t i = (args.rounds - 1 - round) % 2;
    if (!dispatch(args.dispatch[i]) || !combine(args.combine[i])) return;
  }
}
template <class Forms>
UCCLEP_FN void whole_rounds_ll(const WholeRoundsArgs& args) {
  whole_rounds(
      args, [](const ucclEpDeviceDispatch& call) { return ll::dispatch<ll::Forward, Forms>(grid{}, call); },
      [](const ucclEpDeviceCombine& call) { return ll::combine<Bf16, Forms>(grid{}, call); });
}
UCCLEP_FN void whole_rounds_ht(const WholeRoundsArgs& args) {
  whole_rounds(
      args, [](const ucclEpDeviceDispatch& call) { return ht::dispatch(grid{}, call); },
      [](const ucclEpDeviceCombine& call) { return ht::combine<Bf16>(grid{}, call); });
}

// The kernels of ceiling_perf, there and back. A lane returns what it has received itself. Who begins a round has what
// peers sent him in the last one, and they sent it after all of their blocks had read the one before: so two landings
// are enough.
UCCLEP_FN void bare_rounds(const BareRoundsArgs& args) {
  for (uint32_t i = 0; i < args.there.rounds; ++i) {
    const LineRound there(args.there, i), back(args.back, i);
    send_tokens(there);
    bool ok = receive_rows(there);
    if (ok) return_rows(back);
    ok = ok && sum_rows(back);
    if (!ok) there.give_up();
    if (!grid_sync(args.barrier, there.wait)) return;
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
