// SPDX-License-Identifier: Apache-2.0
// Objects of the C API at their end and after it, and in forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/exchange.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using OwnedComm = Owned<ucclEpComm_t, ucclEpCommDestroy>;

struct Call {
  const char* name;
  std::function<ucclEpResult_t()> make;
  bool destroys = false;
};

// What callers give as objects. Everything else in a call is NULL, or of no effect: objects are looked at first.
struct Names {
  ucclEpComm_t comm;
  ucclEpGroup_t group;
  ucclEpHandle_t handle;
  ucclEpWindow_t window;
};

// Every function that takes an object.
std::vector<Call> calls_with(const Names& given) {
  const auto [c, g, h, w] = given;
  void* const some = const_cast<char*>("an address");
  return {
      {"CommCount", [=] { return ucclEpCommCount(c, nullptr); }},
      {"CommUserRank", [=] { return ucclEpCommUserRank(c, nullptr); }},
      {"CommGetInfo", [=] { return ucclEpCommGetInfo(c, nullptr); }},
      {"CommGetTopology", [=] { return ucclEpCommGetTopology(c, nullptr, nullptr); }},
      {"CommGetAsyncError", [=] { return ucclEpCommGetAsyncError(c, nullptr); }},
      {"CommClearAsyncError", [=] { return ucclEpCommClearAsyncError(c); }},
      {"CommGetStats", [=] { return ucclEpCommGetStats(c, nullptr); }},
      {"CommAbort", [=] { return ucclEpCommAbort(c); }},
      {"MemAlloc", [=] { return ucclEpMemAlloc(c, nullptr, 1); }},
      {"MemFree", [=] { return ucclEpMemFree(c, some); }, true},
      {"MemAllocHost", [=] { return ucclEpMemAllocHost(c, nullptr, 1); }},
      {"MemFreeHost", [=] { return ucclEpMemFreeHost(c, some); }, true},
      {"Memcpy", [=] { return ucclEpMemcpy(c, nullptr, nullptr, 1, nullptr); }},
      {"StreamCreate", [=] { return ucclEpStreamCreate(c, nullptr); }},
      {"StreamDestroy", [=] { return ucclEpStreamDestroy(c, some); }, true},
      {"StreamSynchronize", [=] { return ucclEpStreamSynchronize(c, nullptr); }},
      {"StreamWaitEvent", [=] { return ucclEpStreamWaitEvent(c, nullptr, nullptr); }},
      {"EventCreate", [=] { return ucclEpEventCreate(c, nullptr); }},
      {"EventDestroy", [=] { return ucclEpEventDestroy(c, some); }, true},
      {"EventRecord", [=] { return ucclEpEventRecord(c, nullptr, nullptr); }},
      {"EventSynchronize", [=] { return ucclEpEventSynchronize(c, nullptr); }},
      {"EventElapsed", [=] { return ucclEpEventElapsed(c, nullptr, nullptr, nullptr); }},
      {"StreamBeginCapture", [=] { return ucclEpStreamBeginCapture(c, nullptr); }},
      {"StreamEndCapture", [=] { return ucclEpStreamEndCapture(c, nullptr, nullptr); }},
      {"GraphLaunch", [=] { return ucclEpGraphLaunch(c, nullptr, nullptr); }},
      {"GraphDestroy", [=] { return ucclEpGraphDestroy(c, static_cast<ucclEpGraph_t>(some)); }, true},
      {"WindowRegister", [=] { return ucclEpWindowRegister(c, nullptr, 1, nullptr); }},
      {"WindowDeregister", [=] { return ucclEpWindowDeregister(c, static_cast<ucclEpWindow_t>(some)); }, true},
      {"GroupQuery", [=] { return ucclEpGroupQuery(c, nullptr, nullptr); }},
      {"GroupCreate", [=] { return ucclEpGroupCreate(nullptr, c, nullptr); }},
      {"GroupSetExpertMap", [=] { return ucclEpGroupSetExpertMap(g, nullptr, nullptr, nullptr); }},
      {"GetRoutingCounts", [=] { return ucclEpGetRoutingCounts(g, nullptr, nullptr, nullptr); }},
      {"MaskQuery", [=] { return ucclEpMaskQuery(g, nullptr, nullptr); }},
      {"MaskUpdate", [=] { return ucclEpMaskUpdate(g, nullptr, nullptr); }},
      {"MaskClear", [=] { return ucclEpMaskClear(g, nullptr); }},
      {"HandleMemSize", [=] { return ucclEpHandleMemSize(g, nullptr, nullptr); }},
      {"HandleCreate", [=] { return ucclEpHandleCreate(nullptr, g, nullptr); }},
      {"GroupGetDevice", [=] { return ucclEpGroupGetDevice(g, nullptr); }},
      {"HandleUpdate", [=] { return ucclEpHandleUpdate(h, nullptr, nullptr, nullptr); }},
      {"HandleWaitCounts", [=] { return ucclEpHandleWaitCounts(h, nullptr, nullptr); }},
      {"Dispatch", [=] { return ucclEpDispatch(h, nullptr, nullptr, nullptr, nullptr); }},
      {"Combine", [=] { return ucclEpCombine(h, nullptr, nullptr, nullptr, nullptr); }},
      {"Complete", [=] { return ucclEpComplete(h, nullptr); }},
      {"CompleteWave", [=] { return ucclEpCompleteWave(h, 0, nullptr); }},
      {"HandleGetTiles", [=] { return ucclEpHandleGetTiles(h, nullptr); }},
      {"WaveDone", [=] { return ucclEpWaveDone(h, 0, nullptr); }},
      {"CompleteDispatch", [=] { return ucclEpCompleteDispatch(h, nullptr, nullptr, nullptr); }},
      {"CompleteCombine", [=] { return ucclEpCompleteCombine(h, nullptr, nullptr, nullptr, nullptr); }},
      {"DispatchGetDevice", [=] { return ucclEpDispatchGetDevice(h, nullptr, nullptr, nullptr, nullptr); }},
      {"CombineGetDevice", [=] { return ucclEpCombineGetDevice(h, nullptr, nullptr, nullptr, nullptr); }},
      {"HandleGetDevice", [=] { return ucclEpHandleGetDevice(h, nullptr); }},
      {"WindowGetDevice", [=] { return ucclEpWindowGetDevice(w, nullptr); }},
      {"MemPoolOpen", [=] { return ucclEpMemPoolOpen(w); }},
      {"HandleDestroy", [=] { return ucclEpHandleDestroy(h); }, true},
      {"GroupDestroy", [=] { return ucclEpGroupDestroy(g); }, true},
      {"CommDestroy", [=] { return ucclEpCommDestroy(c); }, true},
  };
}

void all_refused(const Names& given, const std::string& words) {
  for (const Call& call : calls_with(given)) refused(call.make(), ucclEpInvalidArgument, call.name, {words});
}

// One rank's communicator, and one of each kind that is made from it.
struct Objects {
  explicit Objects(const Rank& rank, ucclEpCommConfig_t config, const Scenario& scenario) {
    ok(ucclEpCommInitRank(&names.comm, rank.count, rank.ids[0], rank.rank, &config), "ucclEpCommInitRank");
    names.group = make_group(names.comm, group_config({scenario})).release();
    names.handle = make_handle(names.group, handle_config(scenario)).release();
    ok(ucclEpMemAlloc(names.comm, &memory, 4096), "ucclEpMemAlloc");
    ok(ucclEpWindowRegister(names.comm, memory, 4096, &names.window), "ucclEpWindowRegister");
  }
  void exchange(const Rank& rank, const Scenario& scenario) const {
    Stream stream(names.comm);
    round_trip(rank, names.comm, names.handle, stream, scenario);
  }

  Names names{};
  void* memory = nullptr;
};

// A rank that is alone.
struct Alone {
  Alone() { ok(ucclEpGetUniqueId(&id), "ucclEpGetUniqueId"); }
  ucclEpUniqueId id;
  Board board;
  Rank rank{0, 1, board, &id};
};

Scenario small(int ranks) {
  return {.layout = Layout::ht_flat, .ranks = ranks, .experts = 2 * ranks, .max_tokens = 6, .hidden = 32};
}

// What went wrong in a child that is forked now and runs body; "" if nothing did.
std::string in_child(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::string why;
    try {
      body();
    } catch (const std::exception& error) {
      why = error.what();
    }
    [[maybe_unused]] const ssize_t written = write(ends[1], why.data(), why.size());
    _exit(0);
  }
  close(ends[1]);
  std::string why(4000, '\0');
  const ssize_t got = read(ends[0], why.data(), why.size());
  close(ends[0]);
  why.resize(got > 0 ? static_cast<size_t>(got) : 0);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? why : "the child ended with status " + std::to_string(status);
}

// Ranks that are threads of this process make a communicator, use it and destroy it.
void whole_life(int ranks, const char* transport) {
  ucclEpUniqueId id;
  ok(ucclEpGetUniqueId(&id), "ucclEpGetUniqueId");
  Board board;
  std::vector<std::string> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const Rank rank{r, ranks, board, &id};
        ucclEpCommConfig_t config = comm_config(rank);
        config.transport = transport;
        if (transport != nullptr) config.ranks_per_node = 1;
        const Objects objects(rank, config, small(ranks));
        objects.exchange(rank, small(ranks));
        ok(ucclEpCommDestroy(objects.names.comm), "ucclEpCommDestroy");
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) require(failure.empty(), failure);
}

TEST_CASE("whatever is no object is refused as an object", "[api]") {
  const Alone alone;
  const Objects real(alone.rank, comm_config(alone.rank), small(1));
  const auto name = [](uintptr_t bits) {
    return Names{reinterpret_cast<ucclEpComm_t>(bits), reinterpret_cast<ucclEpGroup_t>(bits),
                 reinterpret_cast<ucclEpHandle_t>(bits), reinterpret_cast<ucclEpWindow_t>(bits)};
  };
  const auto inside = reinterpret_cast<uintptr_t>(real.names.comm) + 1;
  for (const uintptr_t bits : {uintptr_t{1}, uintptr_t{0x1234}, ~uintptr_t{0}, uintptr_t{1} << 63, inside}) {
    all_refused(name(bits), "it was destroyed, or never created");
  }
  // Objects of other kinds.
  const Names& n = real.names;
  all_refused({reinterpret_cast<ucclEpComm_t>(n.group), reinterpret_cast<ucclEpGroup_t>(n.comm),
               reinterpret_cast<ucclEpHandle_t>(n.window), reinterpret_cast<ucclEpWindow_t>(n.handle)},
              "is an object of another kind");
  real.exchange(alone.rank, small(1));
  ok(ucclEpCommDestroy(n.comm), "ucclEpCommDestroy");
}

TEST_CASE("an object that was destroyed, by itself or with its owner, is refused", "[api]") {
  for (const bool one_by_one : {false, true}) {
    const Alone alone, another;
    const Objects objects(alone.rank, comm_config(alone.rank), small(1));
    const Names& n = objects.names;
    if (one_by_one) {
      ok(ucclEpWindowDeregister(n.comm, n.window), "ucclEpWindowDeregister");
      ok(ucclEpHandleDestroy(n.handle), "ucclEpHandleDestroy");
      ok(ucclEpGroupDestroy(n.group), "ucclEpGroupDestroy");
    }
    ok(ucclEpCommDestroy(n.comm), "ucclEpCommDestroy");
    // New objects do not answer for those that are gone.
    const Objects others(another.rank, comm_config(another.rank), small(1));
    all_refused(n, "it was destroyed");
    CHECK(std::string(ucclEpGetLastError(n.comm)).empty());
    others.exchange(another.rank, small(1));
    ok(ucclEpCommDestroy(others.names.comm), "ucclEpCommDestroy");
  }
}

TEST_CASE("a group takes its handles along, and a handle that was destroyed twice leaves the others alone", "[api]") {
  const Alone alone;
  const Objects objects(alone.rank, comm_config(alone.rank), small(1));
  const Names& n = objects.names;
  const ucclEpHandle_t gone = make_handle(n.group, handle_config(small(1))).release();
  ok(ucclEpHandleDestroy(gone), "ucclEpHandleDestroy");
  const Handle next = make_handle(n.group, handle_config(small(1)));
  CHECK(static_cast<ucclEpHandle_t>(next) != gone);
  refused(ucclEpHandleDestroy(gone), ucclEpInvalidArgument, "ucclEpHandleDestroy", {"it was destroyed"});
  objects.exchange(alone.rank, small(1));
  const ucclEpHandle_t with_group = make_handle(n.group, handle_config(small(1))).release();
  ok(ucclEpGroupDestroy(n.group), "ucclEpGroupDestroy");
  refused(ucclEpComplete(with_group, nullptr), ucclEpInvalidArgument, "ucclEpComplete", {"it was destroyed"});
  ok(ucclEpCommDestroy(n.comm), "ucclEpCommDestroy");
}

TEST_CASE("an object whose destruction is refused lives on", "[api]") {
  const Alone alone;
  const Objects objects(alone.rank, comm_config(alone.rank), small(1));
  const Names& n = objects.names;
  {
    Stream stream(n.comm);
    ok(ucclEpStreamBeginCapture(n.comm, stream), "ucclEpStreamBeginCapture");
    for (int i = 0; i < 2; ++i) {
      refused(ucclEpGroupDestroy(n.group), ucclEpInvalidUsage, "ucclEpGroupDestroy", {"is being captured"});
      refused(ucclEpCommDestroy(n.comm), ucclEpInvalidUsage, "ucclEpCommDestroy", {"is being captured"});
    }
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(n.comm, stream, &graph), "ucclEpStreamEndCapture");
    ok(ucclEpGraphDestroy(n.comm, graph), "ucclEpGraphDestroy");
    refused(ucclEpGraphDestroy(n.comm, graph), ucclEpInvalidArgument, "ucclEpGraphDestroy");
    refused(ucclEpGraphLaunch(n.comm, graph, stream), ucclEpInvalidArgument, "ucclEpGraphLaunch");
  }
  objects.exchange(alone.rank, small(1));
  ok(ucclEpCommDestroy(n.comm), "ucclEpCommDestroy");
}

TEST_CASE("one of several threads destroys a communicator", "[api]") {
  const Alone alone;
  const Objects objects(alone.rank, comm_config(alone.rank), small(1));
  std::atomic<int> destroyed = 0, refusals = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const ucclEpResult_t result = ucclEpCommDestroy(objects.names.comm);
      ++(result == ucclEpSuccess ? destroyed : refusals);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(destroyed == 1);
  CHECK(refusals == 3);
}

// CommAbort, CommGetAsyncError and CommGetStats are for any thread: at any moment they find it whole, or not at all.
TEST_CASE("calls of any thread beside a destruction", "[api]") {
  for (int round = 0; round < (reduced() ? 3 : 20); ++round) {
    const Alone alone;
    const Objects objects(alone.rank, comm_config(alone.rank), small(1));
    ucclEpComm_t const comm = objects.names.comm;
    std::atomic<bool> over = false;
    std::atomic<int> unexpected = 0;
    std::thread other([&] {
      while (!over) {
        ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
        ucclEpStats_t stats = UCCLEP_STATS_INIT;
        for (const ucclEpResult_t result : {ucclEpCommGetAsyncError(comm, &error), ucclEpCommGetStats(comm, &stats)}) {
          unexpected += result != ucclEpSuccess && result != ucclEpInvalidArgument;
        }
        ucclEpGetLastError(comm);
      }
    });
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
    over = true;
    other.join();
    CHECK(unexpected == 0);
  }
}

TEST_CASE("an abort ends a destruction that waits, and the peers hear of it as an abort", "[api]") {
  run_ranks(2, [](Rank& rank) {
    OwnedComm comm;
    {
      ucclEpComm_t made = nullptr;
      ucclEpCommConfig_t config = comm_config(rank);
      config.timeout_ms = 100000;
      ok(ucclEpCommInitRank(&made, 2, rank.ids[0], rank.rank, &config), "ucclEpCommInitRank");
      comm = OwnedComm(made);
    }
    if (rank.rank == 0) {
      ucclEpComm_t const name = comm;
      std::thread destroyer([&] { comm.reset(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ok(ucclEpCommAbort(name), "ucclEpCommAbort");
      destroyer.join();
      return;
    }
    ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
    for (int i = 0; i < 3000 && error.code == ucclEpSuccess; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      error = async_error(comm);
    }
    require(error.code == ucclEpRemoteError && std::string(error.text).find("rank 0 (pid") != std::string::npos &&
                std::string(error.text).find("aborted the communicator") != std::string::npos,
            "rank 1 heard: " + std::string(error.text));
  });
}

TEST_CASE("a forked child is refused its parent's objects at once, and destroys them without effect", "[fork][slow]") {
  for (const char* transport : {static_cast<const char*>(nullptr), "loopback"}) {
    run_ranks(2, [&](Rank& rank) {
      ucclEpCommConfig_t config = comm_config(rank);
      config.transport = transport;
      if (transport != nullptr) config.ranks_per_node = 1;
      const Objects objects(rank, config, small(2));
      objects.exchange(rank, small(2));
      if (rank.rank == 0) {
        const std::string why = in_child([&] {
          const auto begin = std::chrono::steady_clock::now();
          for (const Call& call : calls_with(objects.names)) {
            if (call.destroys) {
              ok(call.make(), call.name);
            } else {
              refused(call.make(), ucclEpInvalidUsage, call.name, {"belongs to the process that forked this one"});
            }
          }
          require(std::string(ucclEpGetLastError(objects.names.comm)).empty(), "the parent's errors");
          require(ucclEpMemPoolAlloc(16, 0, nullptr) == nullptr, "memory of the parent's pool");
          require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "the child had to wait");
        });
        require(why.empty(), why);
      }
      objects.exchange(rank, small(2));
      ok(ucclEpCommDestroy(objects.names.comm), "ucclEpCommDestroy");
    });
  }
}

TEST_CASE("a forked child has communicators of its own, and so has its child", "[fork][slow]") {
  for (const char* transport : {static_cast<const char*>(nullptr), "loopback", "ofi:tcp"}) {
    INFO("transport " << (transport == nullptr ? "none" : transport));
    const Alone alone;
    const Objects objects(alone.rank, comm_config(alone.rank), small(1));
    whole_life(2, transport);  // the process has used everything
    CHECK(in_child([&] {
            whole_life(2, transport);
            const std::string why = in_child([&] { whole_life(2, transport); });
            require(why.empty(), "its child: " + why);
            refused(ucclEpCommCount(objects.names.comm, nullptr), ucclEpInvalidUsage, "ucclEpCommCount");
          }) == "");
    objects.exchange(alone.rank, small(1));
    whole_life(2, transport);
    ok(ucclEpCommDestroy(objects.names.comm), "ucclEpCommDestroy");
  }
}

TEST_CASE("forks in the middle of everything that other threads do", "[fork][slow]") {
  const Environment level("UCCLEP_DEBUG", "TRACE"), file("UCCLEP_DEBUG_FILE", "/dev/null");
  std::atomic<bool> over = false;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, transport = i == 0 ? static_cast<const char*>(nullptr) : "loopback"] {
      while (!over) {
        try {
          whole_life(2, transport);
        } catch (const std::exception&) {
          ++failures;
        }
        ucclEpCommDestroy(reinterpret_cast<ucclEpComm_t>(1));  // keeps and logs an error
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    CHECK(in_child([&] { whole_life(1, i % 2 == 0 ? nullptr : "loopback"); }) == "");
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

}  // namespace
}  // namespace ucclep::test
