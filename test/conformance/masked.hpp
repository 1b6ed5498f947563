// SPDX-License-Identifier: Apache-2.0
// Four ranks of a group with enable_mask, of which some are lost: what the others see, and how the lost come back.
#pragma once
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test::masked {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int ranks = 4, missing = 3;
// Of groups in which a rank does not come. What the others do has to fit into it on a busy machine.
inline const int short_ms = reduced() ? 4000 : 1200;

struct Masked {
  Masked(const Rank& rank, const Scenario& scenario, int timeout_ms = short_ms)
      : Masked(rank, comm_config(rank), scenario, timeout_ms) {}
  Masked(const Rank& rank, const ucclEpCommConfig_t& of_comm, const Scenario& scenario, int timeout_ms)
      : comm(rank, of_comm), stream(comm) {
    ucclEpGroupConfig_t config = group_config({scenario});
    config.enable_mask = 1;
    config.timeout_ms = timeout_ms;
    group = make_group(comm, config);
    handle = make_handle(group, handle_config(scenario));
  }
  Comm comm;
  Group group;
  Handle handle;
  Stream stream;
};

// Here and below `at` has a group with its communicator, handle and stream.
inline std::vector<int64_t> mask_of(auto& at) {
  Tensor mask(at.comm, "mask", ucclEpInt32, {ranks});
  ok(ucclEpMaskQuery(at.group, static_cast<int*>(mask.get()->data), at.stream), "ucclEpMaskQuery");
  at.stream.synchronize();
  return mask.integers();
}
inline void require_mask(auto& at, const std::vector<int64_t>& expected) {
  const std::vector<int64_t> mask = mask_of(at);
  std::string seen;
  for (const int64_t entry : mask) seen += " " + std::to_string(entry);
  require(mask == expected, "MaskQuery shows" + seen);
}

inline bool among(const std::vector<int>& some, int rank) {
  return std::find(some.begin(), some.end(), rank) != some.end();
}

inline std::vector<int64_t> mask_without(const std::vector<int>& lost) {
  std::vector<int64_t> mask(ranks, 1);
  for (const int rank : lost) mask[static_cast<size_t>(rank)] = 0;
  return mask;
}

inline void require_masked(auto& at, bool masked) {
  require_mask(at, masked ? mask_without({missing}) : mask_without({}));
}

inline void mask_missing(auto& at) {
  const int mask[ranks] = {1, 1, 1, 0};
  ok(ucclEpMaskUpdate(at.group, mask, at.stream), "ucclEpMaskUpdate");
}

// The record of a peer that was masked: one of data, which the caller may clear. peers: one of these is named.
inline void require_record(auto& at, const std::vector<int>& peers = {missing}) {
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpTimeout && among(peers, error.peer), "the record is another: " + std::string(error.text));
  require(std::string(error.text).find("rank " + std::to_string(error.peer)) != std::string::npos,
          "it does not name its peer: " + std::string(error.text));
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
  no_async_error(at.comm);
}

inline void meet(const Rank& rank, int word) {
  rank.board.add(word);
  rank.board.wait(word, static_cast<uint32_t>(rank.count), 60);
}

// A dispatch that carries its routing needs no Update.
inline void update_routing(Exchange& exchange, auto& at) {
  if (!exchange.scenario().carried) exchange.update(at.handle, at.stream);
}
inline void update_and_dispatch(Exchange& exchange, auto& at) {
  update_routing(exchange, at);
  exchange.dispatch(at.handle, at.stream);
}

// Another round of the survivors', in which nobody waits for the masked ranks.
inline void round_without(const Rank& rank, auto& at, const Scenario& scenario, uint64_t seed,
                          const std::vector<int>& lost = {missing}) {
  Exchange exchange(rank, at.comm, scenario, seed);
  for (const int peer : lost) exchange.leave_out(peer);
  update_and_dispatch(exchange, at);
  at.stream.synchronize();
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_combine();
  no_async_error(at.comm);  // a wait that had lasted to its end would be on record
}

// A rank that was masked: whatever it calls next of the group is refused, and the record stays.
inline void has_heard(const Rank& rank, auto& at, Exchange& exchange) {
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpRemoteError && error.rank == rank.rank,
          "the record is another: " + std::string(error.text));
  refused(exchange.try_dispatch(at.handle, at.stream), ucclEpRemoteError, "ucclEpDispatch",
          {"masked rank " + std::to_string(rank.rank)});
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
  require(async_error(at.comm).code == ucclEpRemoteError, "the record went before ucclEpMaskClear");
}

// It hears of it at its next operation, which writes nothing. In HT that is the Update.
inline void hears(const Rank& rank, auto& at, const Scenario& scenario) {
  Exchange exchange(rank, at.comm, scenario);
  update_routing(exchange, at);
  if (scenario.ll() || scenario.carried) exchange.dispatch(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_untouched();
  has_heard(rank, at, exchange);
}

// Another thread aborts, after a while, what waits for a rank with a time limit of 20 s.
inline void is_aborted(auto& at, Exchange& exchange, std::chrono::milliseconds after) {
  Clock::time_point begin;
  ucclEpResult_t abort = ucclEpSuccess;
  std::thread other([&] {
    std::this_thread::sleep_for(after);
    begin = Clock::now();
    abort = ucclEpCommAbort(at.comm);
  });
  const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
  other.join();
  const double took = seconds_since(begin);
  ok(abort, "ucclEpCommAbort");
  answered(result, ucclEpAborted, at.comm, "ucclEpStreamSynchronize");
  require(took < 10, "it took " + std::to_string(took) + " s");
  require(async_error(at.comm).code == ucclEpAborted, "the record is another");
  require(exchange.try_dispatch(at.handle, at.stream) == ucclEpAborted, "a later dispatch was not refused");
  const int mask[ranks] = {1, 1, 1, 1};
  require(ucclEpMaskUpdate(at.group, mask, at.stream) == ucclEpAborted, "MaskUpdate was not refused");
  require(ucclEpMaskClear(at.group, at.stream) == ucclEpAborted, "MaskClear was not refused");
}

inline void comes_back(const Rank& rank, auto& at, const Scenario& scenario) {
  meet(rank, 2);
  ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
  require_masked(at, false);
  no_async_error(at.comm);
  round_trip(rank, at.comm, at.handle, at.stream, scenario, 7);
  round_trip(rank, at.comm, at.handle, at.stream, scenario, 8);
}

// Sums of groups with masks are those of one node, wherever the ranks are.
inline Scenario lines(Layout layout) {
  return {.layout = layout,
          .ranks = ranks,
          .max_tokens = 8,
          .tokens = {8, 3, 0, 6},
          .hidden = 256,
          .rule = uniform(10),
          .nodes = {ranks}};
}

// Too many bytes for lines.
inline Scenario bulk(Layout layout) {
  return {.layout = layout,
          .ranks = ranks,
          .max_tokens = 16,
          .tokens = {16, 9, 0, 13},
          .hidden = 1024,
          .rule = uniform(10),
          .nodes = {ranks}};
}

}  // namespace ucclep::test::masked
