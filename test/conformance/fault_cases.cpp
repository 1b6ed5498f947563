// SPDX-License-Identifier: Apache-2.0
// Peers that do not come, die, or are aborted: every rank gets an answer in time, with an error message that names the
// peer, and nothing is left behind.
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// An operation of some layout, for ranks that use it again and again.
Scenario any(Layout layout, int ranks = 4) {
  return {.layout = layout, .ranks = ranks, .experts = 2 * ranks, .max_tokens = 8, .hidden = 256};
}

void require_names(const std::string& message, int peer) {
  require(message.find("rank " + std::to_string(peer)) != std::string::npos,
          message + " does not name rank " + std::to_string(peer));
}

// Of a group in which a rank does not come. What all ranks do has to fit into it.
constexpr int short_ms = 2000;

// Rank 3 never comes to the operation; the others' time limit is short.
void missing_peer(Layout layout, const std::function<void(Exchange&, ucclEpHandle_t, ucclEpStream_t)>& before,
                  const std::function<void(Exchange&, ucclEpHandle_t, ucclEpStream_t)>& operation, const char* name) {
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = any(layout);
    Session at(rank, scenario, short_ms);
    Exchange exchange(rank, at.comm, scenario);
    before(exchange, at.handle, at.stream);
    at.stream.synchronize();
    rank.board.add(0);
    rank.board.wait(0, 4);
    if (rank.rank != 3) {
      const auto begin = Clock::now();
      operation(exchange, at.handle, at.stream);
      const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
      answered(result, ucclEpTimeout, at.comm, "ucclEpStreamSynchronize");
      require(seconds_since(begin) < comm_config(rank).timeout_ms / 1000.0 * 0.75,
              "it took " + std::to_string(seconds_since(begin)) + " s");
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpTimeout, "the record is " + std::to_string(error.code));
      require(error.peer == 3 && error.rank == rank.rank, "rank or peer of the record: " + std::string(error.text));
      require_names(error.text, 3);
      require(strcasestr(error.op, name) != nullptr, "the record's op is " + std::string(error.op));
      require(error.waited_ms > 0, "the record has no waiting time");
      // Fatal: everything later is refused with the same code, but queries and destruction work.
      require(exchange.try_update(at.handle, at.stream) == ucclEpTimeout,
              "a later update was not refused with ucclEpTimeout");
      refused(ucclEpCommClearAsyncError(at.comm), ucclEpInvalidUsage, "ucclEpCommClearAsyncError");
    }
    rank.board.add(1);
    rank.board.wait(1, 4);
  });
}

const auto nothing = [](Exchange&, ucclEpHandle_t, ucclEpStream_t) {};
const auto update = [](Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.update(handle, stream);
};
const auto dispatch = [](Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.dispatch(handle, stream);
};
const auto combine = [](Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.combine(handle, stream);
};
const auto both = [](Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.update(handle, stream);
  exchange.dispatch(handle, stream);
};

TEST_CASE("LL dispatch times out and names the missing peer", "[process][reduced][driver][nodes]") {
  missing_peer(Layout::ll_expert_major, update, dispatch, "dispatch");
}
TEST_CASE("LL combine times out and names the missing peer", "[process][nodes]") {
  missing_peer(Layout::ll_rank_major, both, combine, "combine");
}
TEST_CASE("HT update times out and names the missing peer", "[process]") {
  missing_peer(Layout::ht_flat, nothing, update, "update");
}
TEST_CASE("HT dispatch times out and names the missing peer", "[process][reduced][nodes]") {
  missing_peer(Layout::ht_expert_major, update, dispatch, "dispatch");
}
TEST_CASE("HT combine times out and names the missing peer", "[process]") {
  missing_peer(Layout::ht_flat, both, combine, "combine");
}

TEST_CASE("ucclEpHandleWaitCounts times out", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario = any(Layout::ht_flat, 2);
    Session at(rank, scenario, short_ms);
    if (rank.rank == 0) {
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      int64_t total = 0;
      const ucclEpResult_t result = ucclEpHandleWaitCounts(at.handle, &total, nullptr);
      answered(result, ucclEpTimeout, at.comm, "ucclEpHandleWaitCounts");
      ucclEpStreamSynchronize(at.comm, at.stream);
    }
    rank.board.add(0);
    rank.board.wait(0, 2);
  });
}

TEST_CASE("a rank that never joins a collective create is named", "[process]") {
  run_ranks(3, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.timeout_ms = 3000;  // also of the communicator's own creation
    Comm comm(rank, config);
    if (rank.rank != 1) {
      const ucclEpGroupConfig_t shape = group_config({any(Layout::ht_flat, 3)});
      ucclEpGroup_t group = nullptr;
      const ucclEpResult_t result = ucclEpGroupCreate(&group, comm, &shape);
      require(result == ucclEpTimeout || result == ucclEpRemoteError,
              "ucclEpGroupCreate answered " + std::to_string(result));
      require(group == nullptr, "the out-parameter was written");
    }
    rank.board.add(0);
    rank.board.wait(0, 3);
  });
}

TEST_CASE("a communicator whose ranks never come times out", "[process]") {
  run_ranks(1, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.timeout_ms = 400;
    ucclEpComm_t comm = nullptr;
    const auto begin = Clock::now();
    refused(ucclEpCommInitRank(&comm, 3, rank.ids[0], 0, &config), ucclEpTimeout, "ucclEpCommInitRank");
    require(seconds_since(begin) < 20, "it took too long");
    require(comm == nullptr, "the out-parameter was written");
  });
}

TEST_CASE("abort from another thread ends an operation long before its time is up", "[process][reduced][driver]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    run_ranks(2, [&](Rank& rank) {
      const Scenario scenario = any(layout, 2);
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      if (rank.rank == 0) {
        exchange.update(at.handle, at.stream);
        if (layout == Layout::ll_expert_major) exchange.dispatch(at.handle, at.stream);
        Clock::time_point aborted;
        std::thread other([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          aborted = Clock::now();
          ucclEpCommAbort(at.comm);
        });
        const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
        other.join();
        answered(result, ucclEpAborted, at.comm, "ucclEpStreamSynchronize");
        require(seconds_since(aborted) < 10, "it took " + std::to_string(seconds_since(aborted)) + " s");
        require(async_error(at.comm).code == ucclEpAborted, "the record is another");
        require(exchange.try_dispatch(at.handle, at.stream) == ucclEpAborted, "a later dispatch was not refused");
      }
      rank.board.add(0);
      rank.board.wait(0, 2);
    });
  }
}

TEST_CASE("abort ends routing counts of a billion tokens", "[host][process]") {
  run_ranks(1, [&](Rank& rank) {
    constexpr int64_t tokens = int64_t{1} << 30;
    Scenario scenario = any(Layout::ht_flat, 1);
    Session at(rank, scenario);
    // Never written: all of its pages are the one of zeroes.
    void* const ids =
        mmap(nullptr, tokens * sizeof(int32_t), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(ids != MAP_FAILED, "no addresses for the ids");
    ucclEpTensor_t topk_idx = UCCLEP_TENSOR_INIT;
    topk_idx.data = ids;
    topk_idx.dtype = ucclEpInt32;
    topk_idx.ndim = 2;
    topk_idx.sizes[0] = tokens;
    topk_idx.sizes[1] = 1;
    Tensor counts(at.comm, "tokens_per_expert", ucclEpInt32, {scenario.experts});
    ucclEpRoutingCounts_t out = UCCLEP_ROUTING_COUNTS_INIT;
    out.tokens_per_expert = counts.get();
    ok(ucclEpGetRoutingCounts(at.group, &topk_idx, &out, at.stream), "ucclEpGetRoutingCounts");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto aborted = Clock::now();
    ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
    answered(ucclEpStreamSynchronize(at.comm, at.stream), ucclEpAborted, at.comm, "ucclEpStreamSynchronize");
    require(seconds_since(aborted) < 5, "it took " + std::to_string(seconds_since(aborted)) + " s");
    munmap(ids, tokens * sizeof(int32_t));
  });
}

TEST_CASE("a host without memory for the lanes of a kernel says so, instead of a timeout", "[host][process]") {
  run_ranks(1, {.processes = true}, [&](Rank& rank) {
    Scenario scenario = any(Layout::ht_flat, 1);
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    const rlimit little{pages * 4096 + (size_t{2} << 20), before.rlim_max};
    setrlimit(RLIMIT_AS, &little);
    const ucclEpResult_t updated = exchange.try_update(at.handle, at.stream);
    const ucclEpResult_t result = updated != ucclEpSuccess ? updated : ucclEpStreamSynchronize(at.comm, at.stream);
    setrlimit(RLIMIT_AS, &before);
    answered(result, ucclEpOutOfMemory, at.comm, "ucclEpStreamSynchronize");
    const std::string text = async_error(at.comm).text;
    require(text.find("ulimit -v") != std::string::npos, text + " does not name the limit");
  });
}

TEST_CASE("abort with nothing in flight refuses what comes later", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario = any(Layout::ll_expert_major, 2);
    Session at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario);
    rank.board.add(0);
    rank.board.wait(0, 2);
    if (rank.rank == 0) {
      ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
      require(exchange.try_update(at.handle, at.stream) == ucclEpAborted, "update after abort");
      ucclEpGroup_t group = nullptr;
      const ucclEpGroupConfig_t config = group_config({scenario});
      require(ucclEpGroupCreate(&group, at.comm, &config) == ucclEpAborted, "group after abort");
      ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort for the second time");
    }
    rank.board.add(1);
    rank.board.wait(1, 2);
  });
}

TEST_CASE("an argument error on one rank launches nothing there, and the others name it", "[process]") {
  run_ranks(3, [&](Rank& rank) {
    const Scenario scenario = any(Layout::ll_expert_major, 3);
    Session at(rank, scenario, short_ms);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    if (rank.rank == 1) exchange.dispatch_in.tokens = nullptr;
    const ucclEpResult_t result = exchange.try_dispatch(at.handle, at.stream);
    require(result == (rank.rank == 1 ? ucclEpInvalidArgument : ucclEpSuccess),
            "ucclEpDispatch answered " + std::to_string(result));
    if (rank.rank != 1) {
      answered(ucclEpStreamSynchronize(at.comm, at.stream), ucclEpTimeout, at.comm, "ucclEpStreamSynchronize");
      require_names(async_error(at.comm).text, 1);
    } else {
      at.stream.synchronize();
    }
    rank.board.add(0);
    rank.board.wait(0, 3);
  });
}

TEST_CASE("the group's time limit counts before the communicator's", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario = any(Layout::ll_rank_major, 2);
    Comm comm(rank);
    Stream stream(comm);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.timeout_ms = 300 + rank.rank;  // it may differ between ranks
    Group group = make_group(comm, config);
    Handle handle = make_handle(group, handle_config(scenario));
    Exchange exchange(rank, comm, scenario);
    if (rank.rank == 0) {
      const auto begin = Clock::now();
      exchange.update(handle, stream);
      exchange.dispatch(handle, stream);
      answered(ucclEpStreamSynchronize(comm, stream), ucclEpTimeout, comm, "ucclEpStreamSynchronize");
      require(seconds_since(begin) < comm_config(rank).timeout_ms / 1000.0 * 0.75,
              "the communicator's time limit was used");
    }
    rank.board.add(0);
    rank.board.wait(0, 2);
  });
}

// ---- Death ----

// Files of this library's under a directory that would outlive the process. Those of tests, which may run beside this
// one, are called ep-test-*.
std::set<std::string> left_behind() {
  std::set<std::string> names;
  for (const char* directory : {"/dev/shm", "/tmp"}) {
    DIR* entries = opendir(directory);
    if (entries == nullptr) continue;
    while (const dirent* entry = readdir(entries)) {
      if (strcasestr(entry->d_name, "ucclep") != nullptr) names.insert(std::string(directory) + '/' + entry->d_name);
    }
    closedir(entries);
  }
  return names;
}

// Open descriptors that are files under /dev/shm or /tmp: whatever their name, they would be left behind.
std::set<std::string> open_paths() {
  std::set<std::string> files;
  DIR* entries = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(entries)) {
    char target[PATH_MAX] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(link.c_str(), target, sizeof(target) - 1) <= 0) continue;
    const std::string path = target;
    if (path.rfind("/dev/shm/", 0) == 0 || path.rfind("/tmp/", 0) == 0) files.insert(path);
  }
  closedir(entries);
  return files;
}

// before: those of whoever started the test, its report for one.
void require_no_files_but(const std::set<std::string>& before) {
  for (const std::string& path : open_paths()) {
    if (before.count(path) == 0) throw Failure("an open file lies at " + path);
  }
}

// Rank 2 is killed while all ranks run pairs of dispatch and combine without end.
void kill_one(Layout layout) {
  const std::set<std::string> before = left_behind();
  run_ranks(4, {.processes = true, .killed = {2}}, [&](Rank& rank) {
    const Scenario scenario = any(layout);
    const std::set<std::string> files = open_paths();
    Session at(rank, scenario, 3000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    require_no_files_but(files);
    Exchange exchange(rank, at.comm, scenario);
    rank.board.add(0);
    rank.board.wait(0, 4);  // nobody dies before all have their tensors
    std::thread killer;
    if (rank.rank == 2) {
      killer = std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        kill(getpid(), SIGKILL);
      });
    }
    const auto begin = Clock::now();
    ucclEpResult_t result = ucclEpSuccess;
    while (result == ucclEpSuccess && seconds_since(begin) < 40) {
      result = exchange.try_update(at.handle, at.stream);
      if (result == ucclEpSuccess) result = exchange.try_dispatch(at.handle, at.stream);
      if (result == ucclEpSuccess) result = exchange.try_combine(at.handle, at.stream);
      if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(at.comm, at.stream);
    }
    require(result == ucclEpTimeout || result == ucclEpRemoteError, "the answer was " + std::to_string(result));
    require(seconds_since(begin) < 15, "it took " + std::to_string(seconds_since(begin)) + " s");
    const std::string message = async_error(at.comm).text;
    // A rank may learn of the death from a survivor that gave up before: it names the dead rank all the same.
    require_names(message, 2);
    require(std::string(ucclEpGetLastError(at.comm)).size() > 0, "there is no last error");
  });
  // Other programs of the same library may run on this machine: what they delete meanwhile is no fault of ours.
  for (const std::string& name : left_behind()) CHECK(before.count(name) == 1);
}

TEST_CASE("kill -9 in LL: the others name the dead rank in time, and nothing is left",
          "[process][driver][nodes][killed]") {
  kill_one(Layout::ll_expert_major);
}

TEST_CASE("kill -9 in HT: the others name the dead rank in time, and nothing is left", "[process][nodes][killed]") {
  kill_one(Layout::ht_flat);
}

TEST_CASE("after a fatal error destruction is local, complete and successful", "[process][reduced][driver]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario = any(Layout::ht_expert_major, 2);
    const ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    ok(ucclEpCommInitRank(&comm, 2, rank.ids[0], rank.rank, &config), "ucclEpCommInitRank");
    note_comm(comm);
    ucclEpGroupConfig_t shape = group_config({scenario});
    shape.timeout_ms = 400;
    ucclEpGroup_t group = nullptr;
    ok(ucclEpGroupCreate(&group, comm, &shape), "ucclEpGroupCreate");
    const ucclEpHandleConfig_t routing = handle_config(scenario);
    ucclEpHandle_t handle = nullptr;
    ok(ucclEpHandleCreate(&handle, group, &routing), "ucclEpHandleCreate");
    if (rank.rank == 0) {
      Exchange exchange(rank, comm, scenario);
      exchange.update(handle, nullptr);
      const ucclEpResult_t result = ucclEpStreamSynchronize(comm, nullptr);
      answered(result, ucclEpTimeout, comm, "ucclEpStreamSynchronize");
    }
    rank.board.add(0);
    if (rank.rank == 0) {
      // Rank 1 does not destroy anything before this has returned.
      const auto begin = Clock::now();
      ok(ucclEpHandleDestroy(handle), "ucclEpHandleDestroy");
      ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy");
      forget_comm(comm);
      ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
      require(seconds_since(begin) < 10, "destruction waited for the peer");
      rank.board.post(1);
      return;
    }
    rank.board.wait(1, 1);
    forget_comm(comm);
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
  });
}

}  // namespace
}  // namespace ucclep::test
