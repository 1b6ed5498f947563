// SPDX-License-Identifier: Apache-2.0
// Windows of the user: memory that all ranks reach, under ids that are the same on all of them.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/windows.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("windows: peers read and write ranges of one allocation", "[process][driver][reduced][nodes][modes]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block block(comm, 3 * page);
    // Any place, any length, one over the other, and not the same on all ranks.
    char* const places[] = {block.data(), block.data() + page + 48 * rank.rank, block.data() + 7};
    const size_t lengths[] = {3 * page, page, 1000u + 16u * static_cast<unsigned>(rank.rank)};
    std::vector<ucclEpWindow_t> windows;
    for (size_t i = 0; i < 3; ++i) windows.push_back(registered(comm, places[i], lengths[i]));
    for (uint32_t i = 0; i < 3; ++i) {
      const ucclEpDeviceWindow out = on_device(windows[i]);
      require(out.id == i && out.rank == rank.rank && out.ranks == 4,
              "id, rank or ranks of window " + std::to_string(i));
      require(out.data == places[i] && out.bytes == lengths[i], "the range of window " + std::to_string(i));
      exchange_through(rank, together, comm, windows[i], places[i]);
    }
    for (ucclEpWindow_t window : windows) deregister(comm, window);
  });
}

TEST_CASE("windows: an id is used again, the same one on all ranks", "[process][driver][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block first(comm, page), second(comm, page);
    const ucclEpWindow_t zero = registered(comm, first.data(), page), one = registered(comm, second.data(), page);
    require(on_device(zero).id == 0 && on_device(one).id == 1, "the first ids");
    deregister(comm, zero);
    exchange_through(rank, together, comm, one, second.data());
    const ucclEpWindow_t again = registered(comm, second.data() + 16, page - 16);
    require(on_device(again).id == 0, "the id was not used again");
    exchange_through(rank, together, comm, again, second.data() + 16);
    exchange_through(rank, together, comm, one, second.data());
    deregister(comm, one);
    deregister(comm, again);
  });
}

// Processes, since threads of one need no descriptors. The host reads and writes the memory.
TEST_CASE("windows: 256 of them and 4096 allocations need few descriptors", "[host][process]") {
  for (const bool networked : {false, true}) {
    run_ranks(4, {.processes = true}, [&](Rank& rank) {
      const rlimit usual{1024, 1024};
      setrlimit(RLIMIT_NOFILE, &usual);
      ucclEpCommConfig_t config = comm_config(rank);
      if (networked) config.ranks_per_node = 2;
      if (networked) config.transport = "loopback";
      Comm comm(rank, config);
      const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .hidden = 32};
      Group group = make_group(comm, group_config({scenario}));
      std::vector<char*> allocations;
      for (int i = 0; i < 4096; ++i) {
        void* memory = nullptr;
        ok(ucclEpMemAlloc(comm, &memory, 64), "ucclEpMemAlloc");
        allocations.push_back(static_cast<char*>(memory));
        require(*allocations.back() == 0, "new memory is not zeroed");
        *allocations.back() = 1;
      }
      std::vector<ucclEpWindow_t> windows;
      for (size_t i = 0; i < 256; ++i) windows.push_back(registered(comm, allocations[16 * i], 64));
      const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
      require(open < 200, std::to_string(open) + " descriptors are open");
      Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      round_trip(rank, comm, handle, stream, scenario);
      ucclEpWindow_t none = nullptr;
      refused(ucclEpWindowRegister(comm, allocations[1], 8192, &none), ucclEpInvalidUsage, "ucclEpWindowRegister");
      for (ucclEpWindow_t window : windows) deregister(comm, window);
      refused(ucclEpWindowRegister(comm, allocations[1], 8192, &none), ucclEpNotSupported, "ucclEpWindowRegister",
              {"one ucclEpMemAlloc"});
      for (char* memory : allocations) ok(ucclEpMemFree(comm, memory), "ucclEpMemFree");
    });
  }
}

TEST_CASE("windows: as many as fit, and one more is refused", "[process][reduced]") {
  constexpr size_t most = 256;
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block block(comm, most * 256);
    std::vector<ucclEpWindow_t> windows;
    for (size_t i = 0; i < most; ++i) windows.push_back(registered(comm, block.data() + 256 * i, 256));
    ucclEpWindow_t none = nullptr;
    refused(ucclEpWindowRegister(comm, block.data(), 256, &none), ucclEpInvalidUsage, "ucclEpWindowRegister",
            {"256 windows"});
    require(none == nullptr, "a refused call wrote its out-parameter");
    exchange_through(rank, together, comm, windows.back(), block.data() + 256 * (most - 1));
    deregister(comm, windows[77]);
    windows[77] = registered(comm, block.data(), 256);
    require(on_device(windows[77]).id == 77, "the only free id was not used");
    for (ucclEpWindow_t window : windows) deregister(comm, window);
  });
}

// ---- Arguments ----

TEST_CASE("windows: a range that is bad on one rank is refused on all", "[process][driver][reduced]") {
  run_ranks(3, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block block(comm, page);
    const bool bad = rank.rank == 1;
    ucclEpWindow_t window = nullptr;
    refused(ucclEpWindowRegister(comm, bad ? nullptr : block.data(), page, &window), ucclEpInvalidArgument,
            "ucclEpWindowRegister", {"rank 1", "ptr is NULL"});
    refused(ucclEpWindowRegister(comm, block.data(), bad ? 0 : page, &window), ucclEpInvalidArgument,
            "ucclEpWindowRegister", {"rank 1", "bytes is 0"});
    refused(ucclEpWindowRegister(comm, block.data(), bad ? SIZE_MAX : page, &window), ucclEpInvalidArgument,
            "ucclEpWindowRegister", {"rank 1", "bytes is 18446744073709551615"});
    require(window == nullptr, "a refused call wrote its out-parameter");
    window = registered(comm, block.data(), page);
    require(on_device(window).id == 0, "a refused call took an id");
    exchange_through(rank, together, comm, window, block.data());
    deregister(comm, window);
  });
}

TEST_CASE("windows: objects that are NULL or of another communicator", "[process]") {
  run_ranks(2, {.communicators = 2}, [](Rank& rank) {
    Comm comm(rank), other(rank, comm_config(rank), 1);
    const Block block(comm, page);
    ucclEpWindow_t window = nullptr;
    refused(ucclEpWindowRegister(nullptr, block.data(), page, &window), ucclEpInvalidArgument, "ucclEpWindowRegister",
            {"comm is NULL"});
    refused(ucclEpWindowRegister(comm, block.data(), page, nullptr), ucclEpInvalidArgument, "ucclEpWindowRegister",
            {"window is NULL"});
    window = registered(comm, block.data(), page);
    refused(ucclEpWindowDeregister(nullptr, window), ucclEpInvalidArgument, "ucclEpWindowDeregister", {"comm is NULL"});
    refused(ucclEpWindowDeregister(other, window), ucclEpInvalidArgument, "ucclEpWindowDeregister",
            {"not registered on this communicator"});
    ok(ucclEpWindowDeregister(comm, nullptr), "ucclEpWindowDeregister of NULL");
    ucclEpDeviceWindow out;
    refused(ucclEpWindowGetDevice(nullptr, &out), ucclEpInvalidArgument, "ucclEpWindowGetDevice", {"window is NULL"});
    refused(ucclEpWindowGetDevice(window, nullptr), ucclEpInvalidArgument, "ucclEpWindowGetDevice", {"out is NULL"});
    for (unsigned ucclEpDeviceWindow::* field :
         {&ucclEpDeviceWindow::size, &ucclEpDeviceWindow::magic, &ucclEpDeviceWindow::abi}) {
      ucclEpDeviceWindow wrong;
      wrong.*field += 1;
      refused(ucclEpWindowGetDevice(window, &wrong), ucclEpInvalidArgument, "ucclEpWindowGetDevice",
              {"another version"});
      require(wrong.data == nullptr, "a refused call wrote");
    }
    deregister(comm, window);
  });
}

TEST_CASE("windows: ranks that deregister different ones keep both", "[process][driver]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block block(comm, 2 * page);
    const ucclEpWindow_t windows[] = {registered(comm, block.data(), page),
                                      registered(comm, block.data() + page, page)};
    refused(ucclEpWindowDeregister(comm, windows[rank.rank]), ucclEpInvalidArgument, "ucclEpWindowDeregister",
            {"differs between ranks"});
    for (int i = 0; i < 2; ++i) {
      exchange_through(rank, together, comm, windows[i], block.data() + static_cast<size_t>(i) * page);
      deregister(comm, windows[i]);
    }
  });
}

// ---- Memory that is not of ucclEpMemAlloc ----

TEST_CASE("windows: plain memory among threads of the host device, else what can be shared",
          "[process][driver][reduced]") {
  run_ranks(3, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    std::vector<char> plain(page);
    const Block block(comm, page);
    char* const mine = rank.rank == 2 ? plain.data() : block.data();
    ucclEpWindow_t window = nullptr;
    if (test_gpus() == 0 && !ranks_are_processes()) {
      window = registered(comm, mine, page);
      exchange_through(rank, together, comm, window, mine);
    } else {
      refused(ucclEpWindowRegister(comm, mine, page, &window), ucclEpNotSupported, "ucclEpWindowRegister",
              {"rank 2", "cannot be shared"});
      const size_t too_much = rank.rank == 1 ? size_t{1} << 40 : page;
      refused(ucclEpWindowRegister(comm, block.data(), too_much, &window), ucclEpNotSupported, "ucclEpWindowRegister",
              {"rank 1", "1099511627776 bytes", "cannot be shared"});
      require(window == nullptr, "a refused call wrote its out-parameter");
      window = registered(comm, block.data(), page);
      exchange_through(rank, together, comm, window, block.data());
    }
    deregister(comm, window);
  });
}

// ---- What is left ----

TEST_CASE("windows: registering again and again leaves no descriptor behind", "[process][driver][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const auto use = [&](int rounds) {
      for (int round = 0; round < rounds; ++round) {
        const Block block(comm, page);
        deregister(comm, registered(comm, block.data(), page));
      }
    };
    use(3);
    together();
    // Ranks that are threads share one table of descriptors: one of them counts, while the others wait.
    const int files = rank.rank == 0 ? open_files() : 0;
    together();
    use(reduced() ? 20 : 200);
    together();
    int more = 0;
    for (int tries = 0; rank.rank == 0 && tries < 100; ++tries) {
      more = open_files() - files;
      if (more <= 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    require(more <= 0, std::to_string(more) + " more descriptors are open");
    together();
  });
}

TEST_CASE("windows: memory that is freed under one stays until it goes", "[process][driver][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    Block block(comm, page);
    char* const data = block.data();
    const ucclEpWindow_t one = registered(comm, data, page), other = registered(comm, data, page / 2);
    block.free();
    const Block next(comm, page);
    require(next.data() != data, "an address that a window holds was given away");
    exchange_through(rank, together, comm, one, data);
    deregister(comm, one);
    exchange_through(rank, together, comm, other, data);
    refused(ucclEpMemFree(comm, data), ucclEpInvalidArgument, "ucclEpMemFree", {"ucclEpMemAlloc"});
    deregister(comm, other);
  });
}

TEST_CASE("windows: a communicator is destroyed with windows registered", "[process][driver][reduced]") {
  run_ranks(3, [](Rank& rank) {
    const ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    ok(ucclEpCommInitRank(&comm, rank.count, rank.ids[0], rank.rank, &config), "ucclEpCommInitRank");
    note_comm(comm);
    void* memory = nullptr;
    ok(ucclEpMemAlloc(comm, &memory, 2 * page), "ucclEpMemAlloc");
    registered(comm, memory, page);
    registered(comm, static_cast<char*>(memory) + page, page);
    forget_comm(comm);
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
  });
}

TEST_CASE("windows: after the death of a peer they are deregistered alone", "[process][driver][killed]") {
  run_ranks(3, {.processes = true, .killed = {2}}, [](Rank& rank) {
    Comm comm(rank);
    const Block block(comm, page);
    const ucclEpWindow_t window = registered(comm, block.data(), page);
    rank.board.add(0);
    rank.board.wait(0, 3);
    if (rank.rank == 2) kill(getpid(), SIGKILL);
    // The death is noticed by the connection, on a thread of the library.
    ucclEpAsyncError_t error = async_error(comm);
    for (int tries = 0; error.code == ucclEpSuccess && tries < 1000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      error = async_error(comm);
    }
    require(error.code == ucclEpRemoteError && error.peer == 2, "the record is " + std::string(error.text));
    ucclEpWindow_t none = nullptr;
    refused(ucclEpWindowRegister(comm, block.data(), page, &none), ucclEpRemoteError, "ucclEpWindowRegister",
            {"rank 2"});
    deregister(comm, window);
  });
}

}  // namespace
}  // namespace ucclep::test
