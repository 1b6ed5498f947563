// SPDX-License-Identifier: Apache-2.0
// Pools over windows: what frameworks' allocators call.
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/windows.hpp"

namespace ucclep::test {
namespace {

int device_of(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  return info.device_index;
}

// A window with a pool.
class Pool {
 public:
  Pool(ucclEpComm_t comm, size_t bytes) : comm_(comm), device_(device_of(comm)), block_(comm, bytes) {
    window_ = registered(comm, block_.data(), bytes);
    ok(ucclEpMemPoolOpen(window_), "ucclEpMemPoolOpen");
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Collective: not where a rank has failed.
  ~Pool() {
    if (std::uncaught_exceptions() == 0) end();
  }

  void end() {
    if (window_ != nullptr) deregister(comm_, std::exchange(window_, nullptr));
  }
  char* take(size_t bytes) { return static_cast<char*>(ucclEpMemPoolAlloc(bytes, device_, nullptr)); }
  void give(void* part) { ucclEpMemPoolFree(part, 0, device_, nullptr); }
  bool holds(const char* part, size_t bytes) const {
    const ucclEpDeviceWindow out = on_device(window_);
    return part >= out.data && part + bytes <= out.data + out.bytes;
  }
  ucclEpWindow_t window() const { return window_; }
  int device() const { return device_; }

 private:
  ucclEpComm_t comm_;
  int device_;
  Block block_;
  ucclEpWindow_t window_ = nullptr;
};

TEST_CASE("memory pools: parts are the caller's alone, and join again when they are free",
          "[process][driver][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    constexpr size_t part = 3 * 512, parts = 5;
    Pool pool(comm, part * parts);
    std::vector<char*> taken;
    for (size_t i = 0; i < parts; ++i) taken.push_back(pool.take(part - i));  // sizes are rounded up
    std::set<char*> places(taken.begin(), taken.end());
    require(places.size() == parts, "two parts at one place");
    for (char* one : taken) {
      require(one != nullptr && pool.holds(one, part), "a part that does not lie in the window");
      require(reinterpret_cast<uintptr_t>(one) % 512 == 0, "a part that is not aligned");
      const auto next = places.upper_bound(one);
      require(next == places.end() || *next - one >= static_cast<ptrdiff_t>(part), "parts that overlap");
    }
    require(pool.take(1) == nullptr, "more than there is");
    for (const size_t i : {1, 3, 2}) pool.give(taken[i]);  // the last one joins both sides
    char* const joined = pool.take(3 * part);
    require(joined == *std::next(places.begin()), "free neighbours did not join");
    pool.give(taken[0]);
    char* const small = pool.take(512);
    require(small == *places.begin(), "the smallest part that is large enough was not taken");
    for (char* one : {joined, small, taken[4]}) pool.give(one);
    require(pool.take(part * parts) == *places.begin(), "not all of it came back");
  });
}

TEST_CASE("memory pools: rows go to and from parts of a window", "[process][driver][reduced][nodes]") {
  const Scenario scenario = {.layout = Layout::ht_flat, .experts = 16, .top_k = 3, .max_tokens = 41, .hidden = 72};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Pool pool(at.comm, size_t{1} << 20);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    const auto bytes_of = [](const ucclEpTensor_t& tensor) {
      return static_cast<size_t>(tensor.sizes[0] * tensor.sizes[1]) * reference::element_bytes(tensor.dtype);
    };
    const auto copy = [&](void* to, const void* from, size_t bytes) {
      ok(ucclEpMemcpy(at.comm, to, from, bytes, at.stream), "ucclEpMemcpy");
      at.stream.synchronize();
    };
    const ucclEpTensor_t* const rows = exchange.dispatch_out.tokens;
    const ucclEpTensor_t* const back = exchange.combine_in.tokens;
    ucclEpTensor_t dispatched = *rows, combined = *back;
    dispatched.data = pool.take(bytes_of(*rows));
    combined.data = pool.take(bytes_of(*back));
    require(pool.holds(static_cast<char*>(dispatched.data), bytes_of(*rows)), "the rows do not lie in the window");
    copy(dispatched.data, rows->data, bytes_of(*rows));
    copy(combined.data, back->data, bytes_of(*back));
    exchange.dispatch_out.tokens = &dispatched;
    exchange.combine_in.tokens = &combined;
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    copy(rows->data, dispatched.data, bytes_of(*rows));
    exchange.check_dispatch();
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
  });
}

TEST_CASE("memory pools: a pool serves its device, and ends with its window", "[process][driver][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    refused(ucclEpMemPoolOpen(nullptr), ucclEpInvalidArgument, "ucclEpMemPoolOpen", {"window is NULL"});
    Pool older(comm, page), pool(comm, page);
    refused(ucclEpMemPoolOpen(pool.window()), ucclEpInvalidUsage, "ucclEpMemPoolOpen", {"already has a pool"});
    require(ucclEpMemPoolAlloc(512, 1000, nullptr) == nullptr, "a pool of another device");
    require(pool.take(0) == nullptr && pool.take(SIZE_MAX) == nullptr, "sizes that there are not");
    char* const first = pool.take(page);
    require(pool.holds(first, page), "the newest pool comes first");
    char* const second = pool.take(page);
    require(older.holds(second, page), "a full pool does not stand before the others");
    pool.end();
    pool.give(first);  // went with its window
    require(older.take(512) == nullptr, "what another pool had was freed");
    older.give(second);
    require(older.take(page) == second, "the older pool did not get its part back");
    older.give(nullptr);
  });
}

TEST_CASE("memory pools: threads take and give at once", "[reduced]") {
  run_ranks(1, [](Rank& rank) {
    Comm comm(rank);
    constexpr size_t part = 512, threads = 4;
    Pool pool(comm, part * threads);
    std::vector<std::thread> users;
    std::vector<int> wrong(threads, 0);
    for (size_t i = 0; i < threads; ++i) {
      users.emplace_back([&, i] {
        for (int turn = 0; turn < 500; ++turn) {
          char* const mine = pool.take(part);
          wrong[i] += mine == nullptr || !pool.holds(mine, part);
          if (mine != nullptr) pool.give(mine);
        }
      });
    }
    for (std::thread& user : users) user.join();
    for (const int count : wrong) require(count == 0, "a part was missing");
    require(pool.take(part * threads) != nullptr, "not all of it came back");
  });
}

}  // namespace
}  // namespace ucclep::test
