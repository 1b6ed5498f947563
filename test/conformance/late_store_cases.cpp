// SPDX-License-Identifier: Apache-2.0
// A masked rank that goes on to store (protocol P13): nobody reads it, and where it looks in time, it stores nothing.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "conformance/late_stores.hpp"
#include "conformance/masked.hpp"
#include "ucclep/device/layout/masks.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

// More than the 2048 experts whose rows a block counts in shared memory, so that it looks into headers for each row.
Scenario with_experts(Scenario scenario, int experts) {
  scenario.experts = experts;
  scenario.tokens = scenario.max_tokens == 8 ? std::vector<int64_t>{8, 3, 7, 6} : std::vector<int64_t>{16, 9, 12, 13};
  return scenario;
}

void run_late(const Scenario& scenario) {
  run_beside_late(scenario,
                  [&](Rank& rank, Masked& at, uint32_t seed) { round_without(rank, at, scenario, seed, {late}); });
}

TEST_CASE("late stores: nobody reads what a masked rank stores for later operations",
          "[reduced][masks][host][modes][schedules]") {
  for (const Layout layout : all_layouts) {
    run_late(with_experts(lines(layout), 8));
    run_late(with_experts(bulk(layout), 8));
  }
}
TEST_CASE("late stores: nor where headers are too large for tables", "[reduced][masks][host][modes][schedules]") {
  run_late(with_experts(bulk(Layout::ll_expert_major), 4096));
  run_late(with_experts(lines(Layout::ll_expert_major), 4096));
}

// The late header of the operation in which the rank was lost.
TEST_CASE("late stores: the header of the operation that has lost the rank", "[masks][host][schedules]") {
  for (const Scenario& scenario :
       {with_experts(bulk(Layout::ll_expert_major), 4096), with_experts(lines(Layout::ll_expert_major), 8),
        with_experts(lines(Layout::ht_flat), 8)}) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario);
      round_trip(rank, at.comm, at.handle, at.stream, scenario);
      meet(rank, 0);
      if (rank.rank != late) {
        Exchange exchange(rank, at.comm, scenario, 2);
        exchange.leave_out(late);
        update_and_dispatch(exchange, at);
        exchange.combine(at.handle, at.stream);
        at.stream.synchronize();
        exchange.check_dispatch();
        exchange.check_combine();
        require_record(at, {late});
      }
      meet(rank, 1);
      if (rank.rank == late) {
        for (const Kind kind : kinds_of(scenario)) store_late(device_group(at.group), kind, 1, 2, late);
      }
      meet(rank, 2);
      if (rank.rank != late) {
        round_without(rank, at, scenario, 3, {late});
        round_without(rank, at, scenario, 4, {late});
      }
      meet(rank, 3);
    });
  }
}

// A rank waits for its slot at rank 0 while the others mask it.
void evicted_in_wait(const Scenario& scenario, Kind kind) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
    const ucclEpDeviceGroup group = device_group(at.group);
    Exchange exchange(rank, at.comm, scenario, 3);
    uint64_t* const consumed = words_at(group, late, group.layout.consumed_word(group.shape, kind, 0));
    std::vector<std::string> before;
    for (int peer = 0; peer < ranks; ++peer) before.push_back(stored_by(group, kind, 3, late, peer));
    meet(rank, 0);
    if (rank.rank == late) {
      const uint64_t last = __atomic_exchange_n(consumed, uint64_t{0}, __ATOMIC_ACQ_REL);
      if (kind == Kind::update) exchange.update(at.handle, at.stream);
      if (kind == Kind::dispatch) exchange.dispatch(at.handle, at.stream);
      const uint64_t* const begun = &group.masks->begun[static_cast<uint32_t>(kind)];
      wait_until("the operation to begin", [&] { return __atomic_load_n(begun, __ATOMIC_ACQUIRE) == 3; });
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has looked for the word, and waits
      meet(rank, 1);
      meet(rank, 2);
      __atomic_store_n(consumed, last, __ATOMIC_RELEASE);
      at.stream.synchronize();
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == late) continue;
        require(stored_by(group, kind, 3, late, peer) == before[static_cast<size_t>(peer)],
                "it has stored at rank " + std::to_string(peer));
      }
      has_heard(rank, at, exchange);
    } else {
      meet(rank, 1);
      mask_late(at);
      meet(rank, 2);
    }
    meet(rank, 3);
  });
}

TEST_CASE("late stores: a rank that is masked while it waits for a slot stores nothing",
          "[reduced][masks][host][schedules]") {
  evicted_in_wait(with_experts(lines(Layout::ll_expert_major), 8), Kind::dispatch);
  evicted_in_wait(with_experts(bulk(Layout::ll_rank_major), 8), Kind::dispatch);
  evicted_in_wait(with_experts(lines(Layout::ht_flat), 8), Kind::update);
}

// Another rank does not come at all. So rank 0 waits in its repair for rows of one whose header it has, and masks it
// then. Meanwhile that rank masks rank 0, and may write over what rank 0 would go on with.
TEST_CASE("late stores: a rank that has masked another leaves where that one has masked it meanwhile",
          "[masks][host]") {
  const Scenario scenario = with_experts(lines(Layout::ll_expert_major), 8);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 4000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    const ucclEpDeviceGroup group = device_group(at.group);
    if (rank.rank == late) store_late(group, Kind::dispatch, 1, 2, late, false);
    meet(rank, 0);
    if (rank.rank != late && rank.rank != missing) {
      Exchange exchange(rank, at.comm, scenario, 2);
      exchange.dispatch(at.handle, at.stream);
      const uint64_t* const missed = &group.masks->missed[static_cast<uint32_t>(Kind::dispatch)];
      if (rank.rank == 0) {
        wait_until("a missed deadline", [&] { return __atomic_load_n(missed, __ATOMIC_ACQUIRE) == 2; });
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the repair has begun: it waits for two seconds
        __atomic_store_n(words_at(group, 0, group.layout.evicted_word(late)), uint64_t{1}, __ATOMIC_RELEASE);
      }
      at.stream.synchronize();
      if (rank.rank != 0) require_record(at, {late, missing});
      if (rank.rank == 0) has_heard(rank, at, exchange);
    }
    meet(rank, 1);
  });
}

}  // namespace
}  // namespace ucclep::test
