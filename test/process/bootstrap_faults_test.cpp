// SPDX-License-Identifier: Apache-2.0
// What the survivors see when a rank dies, stops, aborts or leaves.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/bootstrap.hpp"
#include "ranks.hpp"

using namespace ucclep;
using namespace ucclep::test;
using Catch::Matchers::Contains;

namespace {

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Remembers the losses that a bootstrap reports.
class Losses {
 public:
  explicit Losses(Bootstrap& bootstrap) {
    bootstrap.on_peer_loss([this](int rank, const std::string& message) {
      std::lock_guard lock(mutex_);
      text_ += fmt::format("[{} {}]", rank, message);
    });
  }
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }
  // The handler runs some time after a call has failed.
  std::string awaited_text() const {
    const Deadline deadline = Deadline::after_ms(20000);
    while (text().empty() && !deadline.expired()) sleep_ms(1);
    return text();
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace

TEST_CASE("a killed rank is named by every survivor long before its time is up, rank 0 included") {
  constexpr int nranks = 4;
  for (int victim = 0; victim < nranks; ++victim) {
    ucclEpUniqueId id = local_rendezvous();
    SharedCount met;
    std::vector<RankProcess> processes;
    for (int r = 0; r < nranks; ++r) {
      processes.emplace_back(r, [&](int rank) {
        auto bootstrap = join(id, rank, nranks);
        Losses losses(*bootstrap);
        bootstrap->barrier(Deadline::after_ms(20000));
        met.add();
        if (rank == victim) sleep_ms(60000);
        std::string message = "no error";
        try {
          bootstrap->barrier(Deadline::after_ms(50000));
        } catch (const Error& error) {
          message = fmt::format("{} {} ", static_cast<int>(error.code()), error.what());
        }
        return message + losses.awaited_text() + (bootstrap->alive(victim) ? " alive" : "");
      });
    }
    REQUIRE(met.reaches(nranks));
    int64_t killed = steady_ms();
    processes[static_cast<size_t>(victim)].signal(SIGKILL);
    for (int r = 0; r < nranks; ++r) {
      if (r == victim) continue;
      Outcome outcome = processes[static_cast<size_t>(r)].outcome();
      INFO("victim " << victim << ", rank " << r << ": " << outcome.text);
      CHECK(outcome.code == ucclEpSuccess);
      std::string message = fmt::format("rank {} (pid ", victim);
      CHECK_THAT(outcome.text, Catch::StartsWith("6 " + message) && Contains(") has died"));
      CHECK_THAT(outcome.text, Contains(fmt::format("[{} {}", victim, message)) && Catch::EndsWith("]"));
      CHECK(outcome.ended_ms - killed < 10000);
    }
  }
}

TEST_CASE("a killed rank whose forked child lives on is noticed all the same") {
  ucclEpUniqueId id = local_rendezvous();
  SharedCount met, noticed;
  RankProcess victim(1, [&](int rank) {
    auto bootstrap = join(id, rank, 2);
    pid_t child = fork();
    if (child == 0) _exit(noticed.reaches(1) ? 0 : 1);
    bootstrap->barrier(Deadline::after_ms(20000));
    met.add();
    sleep_ms(60000);
    return std::string();
  });
  RankProcess witness(0, [&](int rank) {
    auto bootstrap = join(id, rank, 2);
    bootstrap->barrier(Deadline::after_ms(20000));
    met.add();
    bootstrap->barrier(Deadline::after_ms(20000));
    return std::string();
  });
  REQUIRE(met.reaches(2));
  victim.signal(SIGKILL);
  Outcome outcome = witness.outcome();
  noticed.add();
  CHECK(outcome.code == ucclEpRemoteError);
}

TEST_CASE("a rank that does not come is named in time by all that wait, and told when it comes") {
  ucclEpUniqueId id = local_rendezvous();
  SharedCount told;
  auto outcomes = run_threads(4, [&](int rank) {
    auto bootstrap = join(id, rank, 4);
    if (rank == 2 && !told.reaches(3)) return std::string("the others still wait");
    std::string message = "no error";
    try {
      bootstrap->barrier(Deadline::after_ms(rank == 1 ? 300 : 20000));
    } catch (const Error& error) {
      message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    }
    told.add();
    bootstrap->barrier(Deadline::after_ms(20000));  // the next round is sound
    return message;
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == ucclEpSuccess);
    CHECK(outcome.text == "8 rank 2 did not arrive within 300 ms, then rank 1 gave up");
  }
}

TEST_CASE("a stopped rank 0 costs the others their timeout, not more") {
  ucclEpUniqueId id = local_rendezvous();
  SharedCount met, stopped;
  std::vector<RankProcess> processes;
  for (int r = 0; r < 3; ++r) {
    processes.emplace_back(r, [&](int rank) {
      auto bootstrap = join(id, rank, 3);
      bootstrap->barrier(Deadline::after_ms(20000));
      met.add();
      if (!stopped.reaches(1)) return std::string("rank 0 was not stopped");
      if (rank == 0) sleep_ms(60000);
      int64_t before = steady_ms();
      try {
        bootstrap->barrier(Deadline::after_ms(500));
      } catch (const Error& error) {
        return fmt::format("{} {} {}", static_cast<int>(error.code()), error.what(),
                           steady_ms() - before < 20000 ? "in time" : "too late");
      }
      return std::string("no error");
    });
  }
  REQUIRE(met.reaches(3));
  processes[0].signal(SIGSTOP);
  sleep_ms(200);  // a signal takes a moment to stop a process
  stopped.add();
  for (size_t rank : {1, 2}) {
    Outcome outcome = processes[rank].outcome();
    INFO(outcome.text);
    CHECK_THAT(outcome.text,
               Catch::StartsWith("8 rank 0 (pid ") && Contains("did not answer rank") && Contains("in time"));
  }
}

TEST_CASE("the living meet without the dead") {
  ucclEpUniqueId id = local_rendezvous();
  auto body = [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    bootstrap->barrier(Deadline::after_ms(20000));
    if (rank == 2) raise(SIGKILL);
    bootstrap->barrier_living(Deadline::after_ms(20000));
    bool alone = !bootstrap->alive(2) && bootstrap->alive(0) && bootstrap->alive(1);
    bootstrap->barrier_living(Deadline::after_ms(20000));  // nobody leaves before all have looked
    return std::string(alone ? "two live" : "miscounted");
  };
  auto outcomes = run_processes(3, body);
  CHECK(outcomes[0].text == "two live");
  CHECK(outcomes[1].text == "two live");
}

TEST_CASE("a goodbye is not a loss") {
  ucclEpUniqueId id = local_rendezvous();
  for (int leaver : {0, 1}) {
    id = local_rendezvous();
    auto outcomes = run_threads(2, [&](int rank) {
      auto bootstrap = join(id, rank, 2);
      Losses losses(*bootstrap);
      bootstrap->barrier(Deadline::after_ms(10000));
      if (rank == leaver) {
        for (int times = 0; times < 2; ++times) bootstrap->close(Deadline::after_ms(1000));
        return losses.text();
      }
      Deadline deadline = Deadline::after_ms(5000);
      while (bootstrap->alive(leaver) && !deadline.expired()) sleep_ms(5);
      std::string message = "no error";
      try {
        bootstrap->barrier(Deadline::after_ms(10000));
      } catch (const Error& error) {
        message = error.what();
      }
      return losses.text() + message;
    });
    CHECK(outcomes[static_cast<size_t>(leaver)].text.empty());
    CHECK_THAT(outcomes[static_cast<size_t>(1 - leaver)].text,
               Catch::StartsWith(fmt::format("rank {} (pid ", leaver)) && Contains("has left the communicator"));
  }
}

TEST_CASE("a late rank hears of the death for which rank 0 has left") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    bootstrap->barrier(Deadline::after_ms(20000));
    if (rank == 1) raise(SIGKILL);
    Deadline deadline = Deadline::after_ms(20000);
    while (rank == 2 && bootstrap->alive(0) && !deadline.expired()) sleep_ms(5);
    bootstrap->barrier(Deadline::after_ms(20000));
    return std::string("no error");
  });
  for (size_t rank : {0, 2}) {
    CHECK(outcomes[rank].code == ucclEpRemoteError);
    CHECK_THAT(outcomes[rank].text, Contains("rank 1 (pid ") && Contains("has died"));
  }
}

TEST_CASE("an abort wakes the rank itself and is reported to the others, with its reason") {
  for (int aborter : {0, 1}) {
    const std::string why = aborter == 0 ? "" : "its NIC is gone";
    const std::string said = aborter == 0 ? "aborted" : "aborted the communicator: its NIC is gone";
    ucclEpUniqueId id = local_rendezvous();
    auto outcomes = run_threads(3, [&](int rank) {
      auto bootstrap = join(id, rank, 3);
      Losses losses(*bootstrap);
      bootstrap->barrier(Deadline::after_ms(10000));
      if (rank == 2) {
        Deadline deadline = Deadline::after_ms(10000);
        while (bootstrap->alive(aborter) && !deadline.expired()) sleep_ms(5);
        return losses.awaited_text();
      }
      std::thread other;
      if (rank == aborter) {
        other = std::thread([&] {
          sleep_ms(100);
          bootstrap->abort(why);
          bootstrap->abort("what comes later");
        });
      }
      std::string message = "no error";
      try {
        bootstrap->barrier(Deadline::after_ms(20000));
      } catch (const Error& error) {
        message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
      }
      if (other.joinable()) other.join();
      return message;
    });
    std::string news = fmt::format("rank {} (pid ", aborter);
    CHECK_THAT(outcomes[static_cast<size_t>(aborter)].text, Catch::StartsWith("9 ") && Contains(said));
    CHECK_THAT(outcomes[static_cast<size_t>(1 - aborter)].text, Catch::StartsWith("6 " + news) && Contains(said));
    CHECK_THAT(outcomes[2].text, Contains(fmt::format("[{} {}", aborter, news)) && Contains(said));
  }
}

TEST_CASE("a rank tells another one something, and whoever has gone hears nothing") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    std::mutex mutex;
    std::string told;
    bootstrap->on_notification([&](int from, const std::string& text) {
      const std::lock_guard lock(mutex);
      told += fmt::format("[{} {}]", from, text);
    });
    const auto heard = [&] {
      const std::lock_guard lock(mutex);
      return told;
    };
    bootstrap->barrier(Deadline::after_ms(10000));
    if (rank == 1) raise(SIGKILL);
    Deadline deadline = Deadline::after_ms(10000);
    while (bootstrap->alive(1) && !deadline.expired()) sleep_ms(5);
    bootstrap->notify(1, "who is there?");
    bootstrap->notify(2 - rank, "");
    bootstrap->notify(2 - rank, std::string(100'000, 'a'));
    const std::string all = fmt::format("[{} ][{} {}]", 2 - rank, 2 - rank, std::string(100'000, 'a'));
    while (heard().size() < all.size() && !deadline.expired()) sleep_ms(5);
    bootstrap->barrier_living(Deadline::after_ms(10000));
    bootstrap->on_notification(nullptr);
    return std::string(heard() == all ? "all" : "something else");
  });
  for (size_t rank : {0, 2}) CHECK(outcomes[rank].text == "all");
}

TEST_CASE("a handler that comes late hears of earlier losses, and a removed one of nothing") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    std::string removed;
    bootstrap->on_peer_loss([&](int, const std::string& message) { removed = message; });
    bootstrap->on_peer_loss(nullptr);
    bootstrap->barrier(Deadline::after_ms(10000));
    if (rank == 1) raise(SIGKILL);
    Deadline deadline = Deadline::after_ms(10000);
    while (bootstrap->alive(1) && !deadline.expired()) sleep_ms(5);
    Losses losses(*bootstrap);
    return removed + losses.text();
  });
  for (size_t rank : {0, 2}) CHECK_THAT(outcomes[rank].text, Catch::StartsWith("[1 rank 1 (pid "));
}

TEST_CASE("a forked child cannot use its parent's communicator, and may drop it without harm") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(2, [&](int rank) {
    auto bootstrap = join(id, rank, 2);
    std::string said = "not forked";
    for (int i = 0; i < 5 && rank == 0; ++i) {
      RankProcess child(0, [&](int) {
        std::string message = "no error";
        try {
          bootstrap->barrier(Deadline::after_ms(5000));
        } catch (const Error& error) {
          message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
        }
        bootstrap->abort();
        bootstrap.reset();
        return message;
      });
      said = child.outcome().text;
    }
    bootstrap->barrier(Deadline::after_ms(5000));
    return said;
  });
  CHECK(outcomes[0].code == ucclEpSuccess);
  CHECK_THAT(outcomes[0].text, Catch::StartsWith("5 the communicator of process"));
  CHECK(outcomes[1].text == "not forked");
}
