// SPDX-License-Identifier: Apache-2.0
// Groups with enable_mask: a rank that is late, stops or dies is masked, and the others go on without it, with the
// results of a world that does not have it; a rank that lives comes back with ucclEpMaskClear.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/masked.hpp"
#include "ucclep/device/objects.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

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
    if (stops && sends) {
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_untouched();
      has_heard(rank, at, exchange);
    } else if (stops) {
      hears(rank, at, scenario);
    }
    comes_back(rank, at, scenario);
  });
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

// Not so late that it misses the deadline.
TEST_CASE("a rank that comes in time is not masked", "[reduced][masks]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    const Scenario scenario = lines(layout);
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      Exchange exchange(rank, at.comm, scenario);
      const auto wait = [&] {
        if (rank.rank == missing) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      };
      wait();
      update_and_dispatch(exchange, at);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      wait();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_masked(at, false);
      no_async_error(at.comm);
    });
  }
}

// Ranks 2 and 3 do not come, both to the same operation.
void two_lost(const Scenario& scenario, Stops when) {
  const std::vector<int> lost = {2, 3};
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Stops::before_combine, stops = rank.rank >= 2;
    const auto leave_out = [&](bool rows_came) {
      for (const int peer : lost) exchange.leave_out(peer, rows_came);
    };
    if (!sends && !stops) leave_out(false);
    meet(rank, 0);
    if (sends || !stops) {
      update_and_dispatch(exchange, at);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
    }
    if (!stops) {
      if (sends) leave_out(true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_record(at, lost);
      require_mask(at, {1, 1, 0, 0});
      round_without(rank, at, scenario, 3, lost);
    }
    meet(rank, 1);
    if (stops) hears(rank, at, scenario);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("LL goes on without two ranks that do not come to a dispatch", "[reduced][masks]") {
  two_lost(lines(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("LL goes on without two ranks that do not come to a combine", "[masks]") {
  two_lost(bulk(Layout::ll_rank_major), Stops::before_combine);
}

TEST_CASE("ranks are lost one after the other until one is left", "[masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 1000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    std::vector<int> lost;
    for (int last = ranks - 1; last > 0; --last) {
      meet(rank, 2 + last);
      lost.push_back(last);
      if (rank.rank >= last) continue;
      Exchange exchange(rank, at.comm, scenario, 2);
      for (const int peer : lost) exchange.leave_out(peer);
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      exchange.check_combine();
      require_record(at, {last});
    }
    if (rank.rank == 0) require_mask(at, {1, 0, 0, 0});
    comes_back(rank, at, scenario);
  });
}

// Rank 3 does not come, and rank 2 neither if two are late: then the mend still waits when the abort comes.
void aborted(int late, int timeout_ms, int after_ms) {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, timeout_ms);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank < ranks - late) {
      Exchange exchange(rank, at.comm, scenario, 2);
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      Clock::time_point begin;
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
        begin = Clock::now();
        ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
      });
      const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
      other.join();
      const double took = seconds_since(begin);
      answered(result, ucclEpAborted, at.comm, "ucclEpStreamSynchronize");
      require(took < (timeout_ms - after_ms % timeout_ms) / 2000.0, "it took " + std::to_string(took) + " s");
      require(async_error(at.comm).code == ucclEpAborted, "the record is another");
      require(exchange.try_dispatch(at.handle, at.stream) == ucclEpAborted, "a later dispatch was not refused");
      const int mask[ranks] = {1, 1, 1, 1};
      require(ucclEpMaskUpdate(at.group, mask, at.stream) == ucclEpAborted, "MaskUpdate was not refused");
      require(ucclEpMaskClear(at.group, at.stream) == ucclEpAborted, "MaskClear was not refused");
    }
    meet(rank, 1);
  });
}

TEST_CASE("abort from another thread ends an operation that waits for a rank to mask", "[reduced][masks]") {
  aborted(1, 20000, 100);
}
TEST_CASE("abort from another thread ends a mend", "[masks]") {
  aborted(2, 4000, 4500);
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
