// SPDX-License-Identifier: Apache-2.0
// Groups with enable_mask of which a rank's process dies or stops: before an operation, or in the middle of one.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "conformance/masked.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

enum class Dies { before_dispatch, before_combine };

// Rank 3 dies. How soon the others hear of it is the system's business; none of them waits for its time limit.
void dies(const Scenario& scenario, Dies when) {
  run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Dies::before_combine;
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

TEST_CASE("kill -9 before a dispatch: the others go on", "[process][driver][nodes][killed][masks]") {
  dies(lines(Layout::ll_expert_major), Dies::before_dispatch);
}
TEST_CASE("kill -9 before a combine: the others go on", "[process][nodes][killed][masks]") {
  dies(bulk(Layout::ll_rank_major), Dies::before_combine);
}
TEST_CASE("kill -9 before an Update of HT: the others go on", "[process][driver][killed][masks]") {
  dies(lines(Layout::ht_flat), Dies::before_dispatch);
}
TEST_CASE("kill -9 before a combine of HT: the others go on", "[process][nodes][killed][masks]") {
  dies(bulk(Layout::ht_expert_major), Dies::before_combine);
}

// What came of rank 3, seen in the counts and in its first row.
enum class Came { nothing, header, everything };

// `count` elements from there on, which may lie in a GPU's memory.
template <class T>
std::vector<T> read_from(Masked& at, const void* from, size_t count) {
  std::vector<T> there(count);
  ok(ucclEpMemcpy(at.comm, there.data(), from, count * sizeof(T), at.stream), "ucclEpMemcpy");
  at.stream.synchronize();
  return there;
}

Came what_came(Exchange& exchange, const Rank& rank, Masked& at) {
  const Scenario& scenario = exchange.scenario();
  if (read_from<int32_t>(at, exchange.counters().tokens_per_rank->data, ranks)[missing] == 0) return Came::nothing;
  for (const reference::Slot& slot :
       reference::placement(exchange.contents().world(), scenario.shape(), rank.rank).slots) {
    if (slot.source != missing) continue;
    const auto* rows = static_cast<const uint16_t*>(exchange.tokens_out().get()->data);
    const auto hidden = static_cast<size_t>(scenario.hidden);
    const std::vector<uint16_t> row = read_from<uint16_t>(at, rows + slot.row * scenario.hidden, hidden);
    return std::ranges::all_of(row, [](uint16_t x) { return x == 0; }) ? Came::header : Came::everything;
  }
  return Came::nothing;
}

// What rank 3 gave to operations in which it is lost, of which each of its rows counts whole or not at all.
class Losing {
 public:
  Losing(const Rank& rank, Masked& at, Exchange& exchange) : rank_(rank), at_(at), exchange_(exchange) {}

  void dispatch() {
    update_and_dispatch(exchange_, at_);
    at_.stream.synchronize();
    const bool lost = !masked_ && mask_of(at_)[missing] == 0;
    came_ = masked_ ? Came::nothing : lost ? what_came(exchange_, rank_, at_) : Came::everything;
    if (came_ == Came::header) exchange_.expect_blank(missing);
    if (came_ == Came::nothing) exchange_.leave_out(missing);
    exchange_.check_dispatch();
  }

  void combine() {
    // Rows of a combine may have come before it was lost, even if that was known before the combine began.
    const bool open = came_ == Came::everything;
    if (came_ == Came::header) exchange_.leave_out(missing, true);
    exchange_.combine(at_.handle, at_.stream);
    at_.stream.synchronize();
    masked_ = mask_of(at_)[missing] == 0;
    try {
      exchange_.check_combine();
    } catch (const Failure&) {
      if (!masked_ || !open) throw;
      exchange_.leave_out(missing, true);
      exchange_.check_combine();
    }
    exchange_.expect_blank(-1);
  }

 private:
  const Rank& rank_;
  Masked& at_;
  Exchange& exchange_;
  bool masked_ = false;
  Came came_ = Came::everything;
};

// By now it is masked, and the record says so.
void go_on_without(const Rank& rank, Masked& at, const Scenario& scenario) {
  Exchange last(rank, at.comm, scenario, 2);
  last.leave_out(missing);
  update_and_dispatch(last, at);
  last.combine(at.handle, at.stream);
  at.stream.synchronize();
  last.check_dispatch();
  last.check_combine();
  require_record(at);
  require_masked(at, true);
}

// Rank 3 is killed at any moment of dispatches and combines without end.
void dies_at_any_moment(const Scenario& scenario, int after_us) {
  run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario);
    Losing losing(rank, at, exchange);
    meet(rank, 0);
    std::thread killer;
    if (rank.rank == missing) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(after_us));
        kill(getpid(), SIGKILL);
      });
    }
    for (int round = 0; round < 20; ++round) {  // all of the living do as many
      losing.dispatch();
      losing.combine();
      exchange.refresh(static_cast<uint64_t>(round));
    }
    if (killer.joinable()) killer.join();
    go_on_without(rank, at, scenario);
  });
}

TEST_CASE("kill -9 at some moments: rows count whole or not at all", "[process][nodes][killed][masks]") {
  for (int i = 0; i < 3; ++i) {
    dies_at_any_moment(lines(Layout::ll_expert_major), 300 * i);
    if (!crosses_nodes(ranks)) dies_at_any_moment(lines(Layout::ht_flat), 400 * i);
  }
}
TEST_CASE("kill -9 at any moment: rows count whole or not at all", "[process][killed][masks][long]") {
  for (const Layout layout : all_layouts) {
    for (int i = 0; i < 10; ++i) {
      dies_at_any_moment(lines(layout), 200 * i);
      dies_at_any_moment(bulk(layout), 1500 * i);
    }
  }
}

// Ranks 2 and 3 are killed one shortly after the other, the second perhaps while the others repair what the first has
// left.
void two_die(const Scenario& scenario, int after_us, int apart_us) {
  const std::vector<int> lost{2, missing};
  run_ranks(ranks, {.processes = true, .killed = {lost.begin(), lost.end()}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario);
    meet(rank, 0);
    std::thread killer;
    if (among(lost, rank.rank)) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(after_us + (rank.rank == missing ? 0 : apart_us)));
        kill(getpid(), SIGKILL);
      });
    }
    for (int round = 0; round < 20; ++round) {
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
    }
    if (killer.joinable()) killer.join();
    const auto begin = Clock::now();
    while (mask_of(at) != mask_without(lost)) require(seconds_since(begin) < 15, "somebody has not been noticed");
    Exchange last(rank, at.comm, scenario, 2);
    for (const int peer : lost) last.leave_out(peer);
    update_and_dispatch(last, at);
    last.combine(at.handle, at.stream);
    at.stream.synchronize();
    last.check_dispatch();
    last.check_combine();
    require_record(at, lost);
  });
}

TEST_CASE("kill -9 of two ranks, one shortly after the other: the others go on", "[process][nodes][killed][masks]") {
  for (int i = 0; i < 3; ++i) {
    two_die(lines(Layout::ll_expert_major), 300 * i, 50 * i);
    two_die(lines(Layout::ht_flat), 400 * i, 50 * i);
  }
}

// The death ends what waits for rows, and the repair waits for those of rank 2, which is late.
TEST_CASE("abort from another thread ends a repair", "[process][killed][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank == missing) kill(getpid(), SIGKILL);
    if (rank.rank < 2) {
      Exchange exchange(rank, at.comm, scenario, 2);
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      is_aborted(at, exchange, std::chrono::milliseconds(500));
    }
    rank.board.add(1);
    rank.board.wait(1, ranks - 1, 60);
  });
}

// Says in a group's words what is said of a rank that dies, as soon as the repair of a dispatch has asked for it again.
class DiesMeanwhile {
 public:
  DiesMeanwhile(GroupMasks& masks, uint32_t rank)
      : masks_(masks), rank_(rank), watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

 private:
  void watch(const std::stop_token& stop) {
    std::atomic_ref<uint64_t> again(masks_.again[static_cast<uint32_t>(Kind::dispatch)]);
    const uint64_t before = again;
    while (again == before) {
      if (stop.stop_requested()) return;
    }
    std::atomic_ref(masks_.of(rank_).lost) = lost_bit;
    std::atomic_ref(masks_.leave) = leave_now;
  }
  GroupMasks& masks_;
  uint32_t rank_;
  std::jthread watcher_;
};

TEST_CASE("HT: who runs again has all that it reads, whoever is lost meanwhile", "[masks]") {
  if (test_gpus() > 0) return skip_case("a group's words lie in a GPU's memory");
  const Scenario scenario = lines(Layout::ht_flat);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    meet(rank, 0);
    if (rank.rank != missing) {
      ucclEpDeviceHandle on_device;
      ok(ucclEpHandleGetDevice(at.handle, &on_device), "ucclEpHandleGetDevice");
      std::optional<DiesMeanwhile> dies;
      if (rank.rank == 0) dies.emplace(*on_device.group.masks, 2);
      exchange.expect_blank(missing);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      require_record(at);
    }
    comes_back(rank, at, scenario);
  });
}

// ---- Processes that stop, and go on when the others have masked them ----

// Rank 3 stops before a dispatch, or between a dispatch and its combine.
void stops(const Scenario& scenario, Dies when) {
  run_ranks(ranks, {.processes = true}, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Dies::before_combine;
    if (!sends && rank.rank != missing) exchange.leave_out(missing);
    meet(rank, 0);
    if (!sends && rank.rank == missing) kill(getpid(), SIGSTOP);
    if (sends || rank.rank != missing) {
      update_and_dispatch(exchange, at);
      at.stream.synchronize();
      exchange.check_dispatch();
    }
    if (sends && rank.rank == missing) kill(getpid(), SIGSTOP);
    if (rank.rank != missing) {
      if (sends) exchange.leave_out(missing, true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_record(at);
      require_masked(at, true);
      round_without(rank, at, scenario, 3);
    }
    if (rank.rank == 0) kill(await_stopped(), SIGCONT);
    meet(rank, 1);
    if (rank.rank == missing) hears(rank, at, scenario);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("a process that stops before a dispatch is masked, and comes back", "[process][nodes][killed][masks]") {
  stops(lines(Layout::ll_expert_major), Dies::before_dispatch);
}
TEST_CASE("a process that stops between dispatch and combine is masked, and comes back", "[process][killed][masks]") {
  stops(lines(Layout::ll_rank_major), Dies::before_combine);
}

// ---- In the middle of an operation ----

enum class Ends { killed, stopped };
enum class Within { dispatch, combine };

constexpr int under_way = 8;  // word of the board

// Rank 3 waits for rank 0 in the operation, and then no more.
void ends_within(const Scenario& scenario, Within within, Ends how) {
  RunOptions options{.processes = true};
  if (how == Ends::killed) options.killed = {missing};
  run_ranks(ranks, options, [&](Rank& rank) {
    Masked at(rank, scenario, how == Ends::killed ? 20000 : short_ms);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    Losing losing(rank, at, exchange);
    meet(rank, 0);
    if (within == Within::combine) {
      update_and_dispatch(exchange, at);
      at.stream.synchronize();
      exchange.check_dispatch();
      meet(rank, 3);
    }
    if (rank.rank == missing) {
      if (within == Within::dispatch) {
        update_and_dispatch(exchange, at);
      } else {
        exchange.combine(at.handle, at.stream);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for what it sends to leave, all or a part
      rank.board.post(under_way);
      kill(getpid(), how == Ends::killed ? SIGKILL : SIGSTOP);
      at.stream.synchronize();
    } else {
      if (rank.rank == 0) {
        rank.board.wait(under_way, 1, 60);
        if (how == Ends::stopped) await_stopped();
      }
      if (within == Within::dispatch) losing.dispatch();
      losing.combine();
      go_on_without(rank, at, scenario);
    }
    if (how == Ends::killed) return;
    if (rank.rank == 0) kill(await_stopped(), SIGCONT);
    meet(rank, 1);
    if (rank.rank == missing && async_error(at.comm).code == ucclEpRemoteError) {
      has_heard(rank, at, exchange);  // in the operation itself
    } else if (rank.rank == missing) {
      hears(rank, at, scenario);
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("kill -9 in the middle of a dispatch: the others go on", "[process][nodes][killed][masks]") {
  ends_within(bulk(Layout::ll_expert_major), Within::dispatch, Ends::killed);
}
TEST_CASE("kill -9 in the middle of a combine: the others go on", "[process][nodes][killed][masks]") {
  ends_within(lines(Layout::ll_rank_major), Within::combine, Ends::killed);
}
// Between its READY, which brings weights, and its rows.
TEST_CASE("kill -9 in the middle of a combine with its weights: the others go on", "[process][nodes][killed][masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.weights = Weights::with_combine;
  ends_within(scenario, Within::combine, Ends::killed);
}
TEST_CASE("kill -9 in the middle of a dispatch of HT: the others go on", "[process][nodes][killed][masks]") {
  ends_within(bulk(Layout::ht_flat), Within::dispatch, Ends::killed);
}
TEST_CASE("kill -9 in the middle of a combine of HT: the others go on", "[process][nodes][killed][masks]") {
  ends_within(lines(Layout::ht_expert_major), Within::combine, Ends::killed);
}
TEST_CASE("a process that stops in the middle of an Update of HT is masked, and comes back",
          "[process][nodes][killed][masks]") {
  ends_within(lines(Layout::ht_expert_major), Within::dispatch, Ends::stopped);
}
TEST_CASE("a process that stops in the middle of a combine of HT is masked, and comes back",
          "[process][killed][masks]") {
  ends_within(bulk(Layout::ht_flat), Within::combine, Ends::stopped);
}
TEST_CASE("a process that stops in the middle of a dispatch is masked, and comes back",
          "[process][nodes][killed][masks]") {
  ends_within(lines(Layout::ll_rank_major), Within::dispatch, Ends::stopped);
}
TEST_CASE("a process that stops in the middle of a combine is masked, and comes back",
          "[process][nodes][killed][masks]") {
  ends_within(bulk(Layout::ll_expert_major), Within::combine, Ends::stopped);
}

}  // namespace
}  // namespace ucclep::test
