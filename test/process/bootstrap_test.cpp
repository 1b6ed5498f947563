// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/agreement.hpp"
#include "ranks.hpp"
#include "support/test_env.hpp"

using namespace ucclep;
using namespace ucclep::test;
using Catch::Matchers::Contains;

namespace {

constexpr size_t sizes[] = {0, 1, 7, 64, 4096, 100000, 1 << 20};

uint8_t pattern(int rank, size_t bytes, size_t i) {
  return static_cast<uint8_t>(31U * static_cast<unsigned>(rank) + bytes + i * 7U);
}

std::string gather_all_sizes(Bootstrap& bootstrap) {
  auto rank = static_cast<size_t>(bootstrap.rank());
  auto nranks = static_cast<size_t>(bootstrap.nranks());
  for (size_t bytes : sizes) {
    std::vector<uint8_t> buffer(bytes * nranks, 0xee);
    for (size_t i = 0; i < bytes; ++i) buffer[rank * bytes + i] = pattern(bootstrap.rank(), bytes, i);
    bootstrap.allgather(buffer.data(), bytes, Deadline::after_ms(30000));
    for (size_t r = 0; r < nranks; ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        if (buffer[r * bytes + i] != pattern(static_cast<int>(r), bytes, i)) return "wrong byte";
      }
    }
  }
  return "equal";
}

// An allgather among threads, as a caller's framework would bring it.
struct ThreadAllgather {
  explicit ThreadAllgather(int nranks) : world(static_cast<size_t>(nranks)), parts(world) {}
  struct Rank {
    ThreadAllgather* all;
    size_t rank;
    int calls = 0;
    std::thread::id thread;
  };
  static int call(void* ctx, void* buf, size_t bytes) {
    auto* me = static_cast<Rank*>(ctx);
    ++me->calls;
    me->thread = std::this_thread::get_id();
    ThreadAllgather& all = *me->all;
    std::unique_lock lock(all.mutex);
    all.parts[me->rank].assign(static_cast<char*>(buf) + me->rank * bytes, bytes);
    size_t generation = all.generation;
    if (++all.arrived == all.world) {
      all.arrived = 0;
      ++all.generation;
      all.changed.notify_all();
    } else if (!all.changed.wait_for(lock, std::chrono::seconds(20), [&] { return all.generation != generation; })) {
      return 9;
    }
    for (size_t r = 0; r < all.world; ++r) std::memcpy(static_cast<char*>(buf) + r * bytes, all.parts[r].data(), bytes);
    return 0;
  }
  size_t world;
  std::vector<std::string> parts;
  std::mutex mutex;
  std::condition_variable changed;
  size_t arrived = 0;
  size_t generation = 0;
};

using Allgather = int (*)(void* ctx, void* buf, size_t bytes);

// And agrees on what went wrong in the allgather, as a communicator's creation does.
std::unique_ptr<Bootstrap> join_by_callback(const ucclEpBootstrap_t& callback, int rank, int nranks,
                                            int64_t timeout_ms = 20000) {
  Deadline deadline = Deadline::after_ms(timeout_ms);
  Agreement agreement("join");
  auto bootstrap = Bootstrap::join(callback, rank, nranks, "lo", deadline, agreement);
  agreement.settle(*bootstrap, deadline);
  return bootstrap;
}

std::unique_ptr<Bootstrap> join_by_callback(ThreadAllgather::Rank& me, int rank, int nranks,
                                            Allgather allgather = ThreadAllgather::call, int64_t timeout_ms = 20000) {
  ucclEpBootstrap_t callback{};
  callback.ctx = &me;
  callback.allgather = allgather;
  return join_by_callback(callback, rank, nranks, timeout_ms);
}

// All ranks meet by it, except that those in `odd` have an allgather of their own.
std::vector<Outcome> meet_with_odd_one(int nranks, int odd, Allgather allgather, int64_t timeout_ms = 20000) {
  ThreadAllgather all(nranks);
  return run_threads(nranks, [&](int rank) {
    ThreadAllgather::Rank me{&all, static_cast<size_t>(rank), 0, {}};
    join_by_callback(me, rank, nranks, rank == odd ? allgather : ThreadAllgather::call, timeout_ms);
    return std::string("joined");
  });
}

size_t open_descriptors() {
  auto fds = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

}  // namespace

TEST_CASE("allgather brings every part to every rank, whatever its size") {
  ucclEpUniqueId id = local_rendezvous();
  auto body = [&](int rank) { return gather_all_sizes(*join(id, rank, 4)); };
  check_all(run_threads(4, body), ucclEpSuccess, "equal");
  id = local_rendezvous();
  check_all(run_processes(4, body), ucclEpSuccess, "equal");
}

TEST_CASE("collect brings texts of any length to every rank") {
  const auto text_of = [](int rank, int round) {
    std::string text(static_cast<size_t>(rank * 50000), static_cast<char>('a' + rank));
    return rank == round ? std::string() : text + std::to_string(round);
  };
  ucclEpUniqueId id = local_rendezvous();
  auto body = [&](int rank) {
    auto bootstrap = join(id, rank, 4);
    for (int round = 0; round < 5; ++round) {
      const std::vector<std::string> texts = bootstrap->collect(text_of(rank, round), Deadline::after_ms(30000));
      for (int peer = 0; peer < 4; ++peer) {
        if (texts.size() != 4 || texts[static_cast<size_t>(peer)] != text_of(peer, round)) return "wrong text";
      }
    }
    return "equal";
  };
  check_all(run_threads(4, body), ucclEpSuccess, "equal");
  id = local_rendezvous();
  check_all(run_processes(4, body), ucclEpSuccess, "equal");
}

TEST_CASE("an exchange brings each rank what every rank has for it") {
  const auto text_of = [](int from, int to) {
    return std::string(static_cast<size_t>(1000 * from), 'x') + fmt::format("{} for {}", from, to);
  };
  ucclEpUniqueId id = local_rendezvous();
  auto body = [&](int rank) {
    auto bootstrap = join(id, rank, 4);
    for (const bool living : {false, true}) {
      std::vector<std::string> mine;
      for (int to = 0; to < 4; ++to) mine.push_back(text_of(rank, to));
      const std::vector<std::string> texts = bootstrap->exchange(mine, living, Deadline::after_ms(30000));
      for (int from = 0; from < 4; ++from) {
        if (texts.at(static_cast<size_t>(from)) != text_of(from, rank)) return "wrong text";
      }
    }
    return "equal";
  };
  check_all(run_processes(4, body), ucclEpSuccess, "equal");
}

TEST_CASE("many ranks stay in step over many rounds") {
  bool reduced = std::getenv("UCCLEP_TEST_REDUCED") != nullptr;
  int nranks = reduced ? 16 : 64;
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(nranks, [&](int rank) {
    auto bootstrap = join(id, rank, nranks);
    for (int round = 0; round < 20; ++round) {
      auto values = bootstrap->allgather(1000 * round + rank, Deadline::after_ms(30000));
      for (int peer = 0; peer < nranks; ++peer) {
        if (values[static_cast<size_t>(peer)] != 1000 * round + peer) return std::string("wrong value");
      }
      bootstrap->barrier(Deadline::after_ms(30000));
    }
    return std::string("in step");
  });
  check_all(outcomes, ucclEpSuccess, "in step");
}

TEST_CASE("ranks meet through the caller's allgather, called by the calling thread only") {
  constexpr int nranks = 4;
  ThreadAllgather allgather(nranks);
  auto outcomes = run_threads(nranks, [&](int rank) {
    ThreadAllgather::Rank me{&allgather, static_cast<size_t>(rank), 0, {}};
    auto bootstrap = join_by_callback(me, rank, nranks);
    int calls = me.calls;
    std::string result = gather_all_sizes(*bootstrap);
    bool good = calls >= 1 && me.calls == calls && me.thread == std::this_thread::get_id();
    return good ? result + bootstrap->comm_id().hex() : "called at a wrong time";
  });
  check_all(outcomes, ucclEpSuccess, outcomes[0].text);
  check_all(outcomes, ucclEpSuccess, "equal");
}

TEST_CASE("a callback that fails or mixes up the parts is an error with a message") {
  ucclEpBootstrap_t callback{};
  callback.allgather = [](void*, void*, size_t) { return 3; };
  auto join_alone = [&](int rank, int nranks) {
    return run_threads(1, [&](int) {
      join_by_callback(callback, rank, nranks, 1000);
      return std::string("joined");
    });
  };
  check_all(join_alone(1, 2), ucclEpSystemError, "the caller's allgather returned 3 on rank 1");
  callback.allgather = [](void*, void*, size_t) { return 0; };  // leaves the other part empty
  check_all(join_alone(1, 2), ucclEpInvalidArgument, "the part of rank 0 is not at the index of rank 0");
  check_all(join_alone(2, 2), ucclEpInvalidArgument, "rank 2 is out of range: expected 0 to 1");
  check_all(join_alone(0, 0), ucclEpInvalidArgument, "nranks is 0");
  callback.allgather = nullptr;
  check_all(join_alone(0, 1), ucclEpInvalidArgument, "allgather is NULL");
}

TEST_CASE("every rank hears of a callback that fails on one of them, or throws") {
  for (const int odd : {0, 2}) {
    const std::string on_rank = " on rank " + std::to_string(odd);
    const auto returned = meet_with_odd_one(3, odd, [](void* ctx, void* buf, size_t bytes) {
      ThreadAllgather::call(ctx, buf, bytes);
      return 5;
    });
    check_all(returned, ucclEpSystemError, "the caller's allgather returned 5" + on_rank);
    const auto threw = meet_with_odd_one(3, odd, [](void* ctx, void* buf, size_t bytes) -> int {
      ThreadAllgather::call(ctx, buf, bytes);
      throw std::runtime_error("the store is gone");
    });
    check_all(threw, ucclEpSystemError, "the caller's allgather threw an exception" + on_rank + ": the store is gone");
  }
}

TEST_CASE("the time of the caller's allgather is the caller's, and who comes back late is named") {
  const auto slow = meet_with_odd_one(
      3, 1,
      [](void* ctx, void* buf, size_t bytes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3000));
        return ThreadAllgather::call(ctx, buf, bytes);
      },
      2000);
  check_all(slow, ucclEpSuccess, "joined");
  const auto late = meet_with_odd_one(
      3, 1,
      [](void* ctx, void* buf, size_t bytes) {
        const int code = ThreadAllgather::call(ctx, buf, bytes);
        std::this_thread::sleep_for(std::chrono::milliseconds(4000));
        return code;
      },
      1500);
  for (const int other : {0, 2}) {
    CHECK(late[static_cast<size_t>(other)].code == ucclEpTimeout);
    CHECK_THAT(late[static_cast<size_t>(other)].text, Contains("rank 1 did not arrive within 1500 ms"));
  }
  CHECK(late[1].code != ucclEpSuccess);
  CHECK_THAT(late[1].text, Contains("the caller's allgather took") && Contains("on rank 1"));
}

TEST_CASE("a setting that differs on one rank is reported to all, and the bootstrap stays usable") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    Agreement good("ucclEpGroupCreate");
    good.field("top_k", 8).settle(*bootstrap, Deadline::after_ms(10000));
    std::string message = "agreed";
    try {
      Agreement bad("ucclEpGroupCreate");
      bad.field("num_experts", 64).field("top_k", rank == 1 ? 4 : 8);
      bad.settle(*bootstrap, Deadline::after_ms(10000));
    } catch (const Error& error) {
      message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    }
    bootstrap->barrier(Deadline::after_ms(10000));
    return message;
  });
  check_all(outcomes, ucclEpSuccess, "4 top_k differs between ranks: rank 1 gave 4, ranks 0 and 2 gave 8");
}

TEST_CASE("an error on one rank is every rank's error") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    Agreement agreement("ucclEpCommInitRank");
    agreement.attempt([&] {
      if (rank == 2) fail(ucclEpInvalidArgument, "UCCLEP_TIMEOUT_MS=abc");
    });
    agreement.settle(*bootstrap, Deadline::after_ms(10000));
    return std::string("agreed");
  });
  check_all(outcomes, ucclEpInvalidArgument, "rank 2: UCCLEP_TIMEOUT_MS=abc");
}

TEST_CASE("ranks that make different calls get an error") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(2, [&](int rank) {
    auto bootstrap = join(id, rank, 2);
    std::vector<char> buffer(64);
    bootstrap->allgather(buffer.data(), rank == 0 ? 4 : 8, Deadline::after_ms(10000));
    return std::string("gathered");
  });
  check_all(outcomes, ucclEpInvalidUsage, "same calls in the same order");
}

TEST_CASE("communicators come and go without leaving descriptors behind") {
  auto once = [] {
    ucclEpUniqueId id = local_rendezvous();
    check_all(run_threads(4,
                          [&](int rank) {
                            auto bootstrap = join(id, rank, 4);
                            bootstrap->barrier(Deadline::after_ms(10000));
                            return std::string("done");
                          }),
              ucclEpSuccess, "done");
  };
  once();
  size_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) once();
  // The threads of used rendezvous end on their own.
  Deadline deadline = Deadline::after_ms(5000);
  while (open_descriptors() > before && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(open_descriptors() <= before);
}
