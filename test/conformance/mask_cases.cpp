// SPDX-License-Identifier: Apache-2.0
// Groups with enable_mask: a rank that is late, stops or dies is masked, and the others go on without it, with the
// results of a world that does not have it; a rank that lives comes back with ucclEpMaskClear.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/exchange.hpp"
#include "ucclep/device/objects.hpp"

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int ranks = 4, missing = 3;
// Of groups in which a rank does not come. What the others do has to fit into it on a busy machine.
constexpr int short_ms = 2000;

struct Masked {
  Masked(const Rank& rank, const Scenario& scenario, int timeout_ms = short_ms) : comm(rank), stream(comm) {
    ucclEpGroupConfig_t config = group_config({scenario});
    config.enable_mask = 1;
    config.timeout_ms = timeout_ms;
    group = make_group(comm, config);
    handle = make_handle(group, handle_config(scenario));
  }
  std::vector<int64_t> mask() {
    Tensor mask(comm, "mask", ucclEpInt32, {ranks});
    ok(ucclEpMaskQuery(group, static_cast<int*>(mask.get()->data), stream), "ucclEpMaskQuery");
    stream.synchronize();
    return mask.integers();
  }
  Comm comm;
  Group group;
  Handle handle;
  Stream stream;
};

void require_masked(Masked& at, bool masked) {
  const std::vector<int64_t> expected{1, 1, 1, masked ? 0 : 1};
  require(at.mask() == expected, masked ? "MaskQuery does not show the masked rank alone" : "a rank is masked");
}

// The record of a peer that was masked: one of data, which the caller may clear.
void require_record(Masked& at) {
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpTimeout && error.peer == missing, "the record is another: " + std::string(error.text));
  require(std::string(error.text).find("rank 3") != std::string::npos, "it does not name rank 3");
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
  no_async_error(at.comm);
}

void meet(const Rank& rank, int word) {
  rank.board.add(word);
  rank.board.wait(word, ranks, 60);
}

// Another round of the survivors', in which nobody waits for the masked rank.
void round_without(const Rank& rank, Masked& at, const Scenario& scenario, uint64_t seed) {
  Exchange exchange(rank, at.comm, scenario, seed);
  exchange.leave_out(missing);
  exchange.update(at.handle, at.stream);
  exchange.dispatch(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_combine();
  no_async_error(at.comm);  // a wait that had lasted to its end would be on record
}

// The rank that was masked hears of it at its next operation, writes nothing, and everything later is refused.
void hears(const Rank& rank, Masked& at, const Scenario& scenario) {
  Exchange exchange(rank, at.comm, scenario);
  exchange.update(at.handle, at.stream);
  exchange.dispatch(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_untouched();
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpRemoteError && error.rank == missing,
          "the record is another: " + std::string(error.text));
  refused(exchange.try_dispatch(at.handle, at.stream), ucclEpRemoteError, "ucclEpDispatch", {"masked rank 3"});
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
  require(async_error(at.comm).code == ucclEpRemoteError, "the record went before ucclEpMaskClear");
}

void comes_back(const Rank& rank, Masked& at, const Scenario& scenario) {
  meet(rank, 2);
  ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
  require_masked(at, false);
  no_async_error(at.comm);
  round_trip(rank, at.comm, at.handle, at.stream, scenario, 7);
  round_trip(rank, at.comm, at.handle, at.stream, scenario, 8);
}

enum class Stops { before_dispatch, before_combine };

void late_rank(const Scenario& scenario, Stops when) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Stops::before_combine, stops = rank.rank == missing;
    if (!sends && !stops) exchange.leave_out(missing);
    meet(rank, 0);
    if (sends || !stops) {
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      if (sends) no_async_error(at.comm);
    }
    if (!stops) {
      if (sends) exchange.leave_out(missing, true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_record(at);
      require_masked(at, true);
      round_without(rank, at, scenario, 3);
      round_without(rank, at, scenario, 4);
    }
    meet(rank, 1);
    if (stops) hears(rank, at, scenario);
    comes_back(rank, at, scenario);
  });
}

Scenario lines(Layout layout) {
  return {
      .layout = layout, .ranks = ranks, .max_tokens = 8, .tokens = {8, 3, 0, 6}, .hidden = 256, .rule = uniform(10)};
}

// Too many bytes for lines.
Scenario bulk(Layout layout) {
  return {.layout = layout,
          .ranks = ranks,
          .max_tokens = 16,
          .tokens = {16, 9, 0, 13},
          .hidden = 1024,
          .rule = uniform(10)};
}

TEST_CASE("LL goes on without a rank that does not come to a dispatch", "[process][reduced][driver][masks]") {
  late_rank(lines(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("LL RANK_MAJOR goes on without a rank that does not come to a dispatch", "[masks]") {
  late_rank(lines(Layout::ll_rank_major), Stops::before_dispatch);
}
TEST_CASE("LL goes on without a rank that does not come to a combine", "[process][masks]") {
  late_rank(lines(Layout::ll_expert_major), Stops::before_combine);
}
TEST_CASE("LL RANK_MAJOR goes on without a rank that does not come to a combine", "[reduced][masks]") {
  late_rank(lines(Layout::ll_rank_major), Stops::before_combine);
}
TEST_CASE("LL in BULK form goes on without a rank that does not come to a dispatch", "[masks]") {
  late_rank(bulk(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("LL in BULK form goes on without a rank that does not come to a combine", "[masks]") {
  late_rank(bulk(Layout::ll_rank_major), Stops::before_combine);
}
TEST_CASE("LL with quantised rows goes on without a rank", "[masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.quant = UCCLEP_QUANT_FP8_128;
  scenario.scales = Scales{};
  late_rank(scenario, Stops::before_dispatch);
}
TEST_CASE("LL with weights of the combine goes on without a rank", "[masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.weights = Weights::with_combine;
  scenario.combine_dtype = ucclEpFloat32;
  late_rank(scenario, Stops::before_combine);
}

TEST_CASE("a rank that the others mask is left out at once, and hears of it", "[process][reduced][driver][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank != missing) {
      const int mask[ranks] = {1, 1, 1, 0};
      ok(ucclEpMaskUpdate(at.group, mask, at.stream), "ucclEpMaskUpdate");
      require_masked(at, true);
      const int all[ranks] = {1, 1, 1, 1};
      refused(ucclEpMaskUpdate(at.group, all, at.stream), ucclEpInvalidUsage, "ucclEpMaskUpdate", {"rank 3"});
    }
    meet(rank, 1);
    if (rank.rank != missing) {
      round_without(rank, at, scenario, 2);
    } else {
      hears(rank, at, scenario);
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("a rank that is masked between dispatch and combine gives nothing back", "[masks]") {
  const Scenario scenario = lines(Layout::ll_rank_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_dispatch();
    meet(rank, 0);
    if (rank.rank != missing) {
      const int mask[ranks] = {1, 1, 1, 0};
      ok(ucclEpMaskUpdate(at.group, mask, at.stream), "ucclEpMaskUpdate");
      exchange.leave_out(missing, true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      no_async_error(at.comm);
    }
    meet(rank, 1);
    comes_back(rank, at, scenario);
  });
}

// Rank 3 dies. How soon the others hear of it is the system's business; none of them waits for its time limit.
void dies(const Scenario& scenario, Stops when) {
  run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Stops::before_combine;
    if (!sends && rank.rank != missing) exchange.leave_out(missing);
    meet(rank, 0);
    if (!sends && rank.rank == missing) kill(getpid(), SIGKILL);
    const auto begin = Clock::now();
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_counters();
    exchange.check_dispatch();
    if (sends) meet(rank, 1);
    if (sends && rank.rank == missing) kill(getpid(), SIGKILL);
    if (sends) exchange.leave_out(missing, true);
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
    require(seconds_since(begin) < 15, "it took " + std::to_string(seconds_since(begin)) + " s");
    require_record(at);
    require_masked(at, true);
    ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    require_masked(at, true);  // it does not live
    Exchange next(rank, at.comm, scenario, 3);
    next.leave_out(missing);
    next.update(at.handle, at.stream);
    next.dispatch(at.handle, at.stream);
    next.combine(at.handle, at.stream);
    at.stream.synchronize();
    next.check_dispatch();
    next.check_combine();
    no_async_error(at.comm);
    at.handle.reset();
    ok(ucclEpGroupDestroy(at.group.release()), "ucclEpGroupDestroy");
  });
}

TEST_CASE("kill -9 before a dispatch: the others go on", "[process][driver][masks]") {
  dies(lines(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("kill -9 before a combine: the others go on", "[process][masks]") {
  dies(bulk(Layout::ll_rank_major), Stops::before_combine);
}

// What came of rank 3, seen in the counts and in its first row.
enum class Came { nothing, header, everything };

Came what_came(Exchange& exchange, const Rank& rank) {
  const Scenario& scenario = exchange.scenario();
  const auto* counts = static_cast<const int32_t*>(exchange.counters().tokens_per_rank->data);
  if (counts[missing] == 0) return Came::nothing;
  for (const reference::Slot& slot :
       reference::placement(exchange.contents().world(), scenario.shape(), rank.rank).slots) {
    if (slot.source != missing) continue;
    const auto* row = static_cast<const uint16_t*>(exchange.tokens_out().get()->data) + slot.row * scenario.hidden;
    return std::all_of(row, row + scenario.hidden, [](uint16_t x) { return x == 0; }) ? Came::header : Came::everything;
  }
  return Came::nothing;
}

// Rank 3 is killed at any moment of dispatches and combines without end. Each of its rows counts whole or not at all.
void dies_at_any_moment(const Scenario& scenario, int after_us) {
  run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario);
    meet(rank, 0);
    std::thread killer;
    if (rank.rank == missing) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(after_us));
        kill(getpid(), SIGKILL);
      });
    }
    bool masked = false;
    for (int round = 0; round < 20; ++round) {  // all of the living do as many
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      const bool at_dispatch = masked || at.mask()[missing] == 0;
      const Came came = masked ? Came::nothing : at_dispatch ? what_came(exchange, rank) : Came::everything;
      if (came == Came::header) exchange.expect_blank(missing);
      if (came == Came::nothing) exchange.leave_out(missing);
      exchange.check_dispatch();
      if (at_dispatch && came != Came::nothing) exchange.leave_out(missing, true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      masked = at.mask()[missing] == 0;
      try {
        exchange.check_combine();
      } catch (const Failure&) {  // unless it died behind its last row, its experts give nothing back
        if (!masked || at_dispatch) throw;
        exchange.leave_out(missing, true);
        exchange.check_combine();
      }
      exchange.expect_blank(-1);
      exchange.refresh(static_cast<uint64_t>(round));
    }
    if (killer.joinable()) killer.join();
    Exchange last(rank, at.comm, scenario, 2);
    last.leave_out(missing);
    last.update(at.handle, at.stream);
    last.dispatch(at.handle, at.stream);
    last.combine(at.handle, at.stream);
    at.stream.synchronize();
    last.check_dispatch();
    last.check_combine();
    require_record(at);
    require_masked(at, true);
  });
}

TEST_CASE("kill -9 at any moment: rows count whole or not at all", "[process][masks][long]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    for (int i = 0; i < 10; ++i) {
      dies_at_any_moment(lines(layout), 200 * i);
      dies_at_any_moment(bulk(layout), 1500 * i);
    }
  }
}

TEST_CASE("arguments of masks that make no sense are refused", "[process][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    refused(ucclEpMaskQuery(at.group, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpMaskQuery", {"device_mask"});
    refused(ucclEpMaskUpdate(at.group, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"host_mask"});
    int mask[ranks] = {1, 1, 1, 1};
    mask[1] = 2;
    refused(ucclEpMaskUpdate(at.group, mask, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"host_mask[1]"});
    mask[1] = 1;
    mask[rank.rank] = 0;
    refused(ucclEpMaskUpdate(at.group, mask, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"itself"});
    Scenario ht = scenario;
    ht.layout = Layout::ht_flat;
    const ucclEpHandleConfig_t config = handle_config(ht);
    ucclEpHandle_t handle = nullptr;
    refused(ucclEpHandleCreate(&handle, at.group, &config), ucclEpNotSupported, "ucclEpHandleCreate", {"enable_mask"});
    ucclEpDeviceGroup on_device;
    refused(ucclEpGroupGetDevice(at.group, &on_device), ucclEpNotSupported, "ucclEpGroupGetDevice", {"enable_mask"});
    Exchange half(rank, at.comm, scenario, 3);
    half.update(at.handle, at.stream);
    half.dispatch_config.send_only = 1;
    refused(half.try_dispatch(at.handle, at.stream), ucclEpNotSupported, "ucclEpDispatch", {"enable_mask"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    Exchange exchange(rank, at.comm, scenario, 1);
    refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpCombine", {"dispatched nothing"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
  });
}

}  // namespace
}  // namespace ucclep::test
