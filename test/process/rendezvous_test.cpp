// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/stream_io.hpp"
#include "ranks.hpp"

using namespace ucclep;
using namespace ucclep::test;
using Catch::Matchers::Contains;

namespace {

// True when the rendezvous hangs up.
bool is_refused(int socket) {
  char byte = 0;
  return receive_all(socket, &byte, 1, Deadline::after_ms(10000)) == IoStatus::closed;
}

Fd call(const ucclEpUniqueId& id) {
  return connect_to(decode(id).address, Deadline::after_ms(5000), "the test");
}

// A rendezvous closes a moment after its ranks have met.
void closes(const ucclEpUniqueId& id) {
  const Deadline deadline = Deadline::after_ms(20000);
  std::string message;
  while (message.empty() && !deadline.expired()) {
    try {
      call(id);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const Error& error) {
      message = error.what();
    }
  }
  CHECK_THAT(message, Contains("nobody listens"));
}

}  // namespace

TEST_CASE("threads of one process meet through a unique id") {
  for (int nranks : {1, 2, 5}) {
    ucclEpUniqueId id = local_rendezvous();
    auto outcomes = run_threads(nranks, [&](int rank) {
      auto bootstrap = join(id, rank, nranks);
      bool good = bootstrap->rank() == rank && bootstrap->nranks() == nranks;
      for (int peer = 0; peer < nranks; ++peer) {
        good = good && bootstrap->same_process(peer) && bootstrap->same_node(peer) && bootstrap->pid(peer) == getpid();
      }
      bootstrap->barrier(Deadline::after_ms(10000));
      return good ? bootstrap->comm_id().hex() : "wrong";
    });
    check_all(outcomes, ucclEpSuccess, outcomes.front().text);
    CHECK(outcomes.front().text.size() == 32);
  }
}

TEST_CASE("processes meet through a unique id, and the process that made it may fork") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(4, [&](int rank) {
    auto bootstrap = join(id, rank, 4);
    std::vector<int> pids = bootstrap->allgather(getpid(), Deadline::after_ms(10000));
    std::set<int> different(pids.begin(), pids.end());
    bool good = different.size() == 4 && bootstrap->node_ranks() == std::vector<int>{0, 1, 2, 3};
    for (int peer = 0; peer < 4; ++peer) {
      good = good && bootstrap->pid(peer) == pids[static_cast<size_t>(peer)];
      good = good && bootstrap->same_process(peer) == (peer == rank);
    }
    return good ? bootstrap->comm_id().hex() : "wrong";
  });
  check_all(outcomes, ucclEpSuccess, outcomes.front().text);
  CHECK(outcomes.front().text.size() == 32);
}

TEST_CASE("threads and processes meet in one communicator") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(2, [&](int process) {
    auto inner = run_threads(2, [&](int thread) {
      auto bootstrap = join(id, 2 * process + thread, 4);
      bool good = true;
      for (int peer = 0; peer < 4; ++peer) good = good && bootstrap->same_process(peer) == (peer / 2 == process);
      bootstrap->barrier(Deadline::after_ms(10000));
      return std::string(good ? "good" : "wrong");
    });
    return inner[0].text + " " + inner[1].text;
  });
  check_all(outcomes, ucclEpSuccess, "good good");
}

TEST_CASE("strangers are refused and the rendezvous goes on for the others") {
  ucclEpUniqueId id = local_rendezvous();
  Fd silent = call(id);
  Fd garbage = call(id);
  std::string noise = "GET / HTTP/1.1\r\n\r\n";
  CHECK(send_all(garbage.get(), noise.data(), noise.size(), Deadline::after_ms(1000)) == IoStatus::done);
  CHECK(is_refused(garbage.get()));
  Fd liar = call(id);
  wire::Greeting greeting;
  greeting.secret = Token::random();
  greeting.rank = 0;
  greeting.nranks = 2;
  CHECK(send_all(liar.get(), &greeting, sizeof(greeting), Deadline::after_ms(1000)) == IoStatus::done);
  CHECK(is_refused(liar.get()));
  Fd brief = call(id);
  CHECK(send_all(brief.get(), &greeting, 20, Deadline::after_ms(1000)) == IoStatus::done);
  brief.reset();
  auto outcomes = run_threads(2, [&](int rank) {
    join(id, rank, 2)->barrier(Deadline::after_ms(10000));
    return std::string("met");
  });
  check_all(outcomes, ucclEpSuccess, "met");
  CHECK(is_refused(silent.get()));
}

TEST_CASE("a silent stranger is hung up on after a while") {
  ucclEpUniqueId id = local_rendezvous();
  Fd silent = call(id);
  int64_t before = steady_ms();
  CHECK(is_refused(silent.get()));
  CHECK(steady_ms() - before < 8000);
  check_all(run_threads(1, [&](int rank) { return join(id, rank, 1)->host_name(0); }), ucclEpSuccess, "");
}

TEST_CASE("two ranks of one number are both told, and so are the others") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(3, [&](int thread) {
    join(id, thread == 2 ? 1 : thread, 4);
    return std::string("joined");
  });
  check_all(outcomes, ucclEpInvalidArgument, "rank 1 came twice");
}

TEST_CASE("a differing nranks and a rank out of range are told to every rank") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_threads(3, [&](int rank) {
    join(id, rank, rank == 2 ? 4 : 3);
    return std::string("joined");
  });
  check_all(outcomes, ucclEpInvalidArgument, "nranks differs between ranks");
  for (int wrong : {-1, 2, 77}) {
    id = local_rendezvous();
    outcomes = run_threads(2, [&](int thread) {
      join(id, thread == 1 ? wrong : 0, 2);
      return std::string("joined");
    });
    check_all(outcomes, ucclEpInvalidArgument, "rank " + std::to_string(wrong) + " (pid");
    check_all(outcomes, ucclEpInvalidArgument, "expected 0 to 1");
  }
}

TEST_CASE("a missing rank is named when time is up, and hears the same when it comes late") {
  ucclEpUniqueId id = local_rendezvous();
  int64_t before = steady_ms();
  auto outcomes = run_threads(2, [&](int rank) {
    join(id, 2 * rank, 4, 2000);
    return std::string("joined");
  });
  check_all(outcomes, ucclEpTimeout, "ranks 1 and 3 did not join within 2000 ms");
  CHECK(outcomes[0].text == outcomes[1].text);
  CHECK(steady_ms() - before >= 2000);
  CHECK(steady_ms() - before < 20000);
  auto late = run_threads(1, [&](int) {
    join(id, 3, 4);
    return std::string("joined");
  });
  CHECK(late[0].code == ucclEpTimeout);
  CHECK(late[0].text == outcomes[0].text);
}

TEST_CASE("a rank that is killed before all have joined fails the others at once") {
  ucclEpUniqueId id = local_rendezvous();
  RankProcess victim(1, [&](int rank) {
    join(id, rank, 3);
    return std::string("joined");
  });
  RankProcess witness(0, [&](int rank) {
    join(id, rank, 3);
    return std::string("joined");
  });
  std::this_thread::sleep_for(std::chrono::seconds(2));  // nothing tells that a rank waits for the rest
  int64_t killed = steady_ms();
  victim.signal(SIGKILL);
  Outcome outcome = witness.outcome();
  CHECK(outcome.code == ucclEpRemoteError);
  CHECK_THAT(outcome.text, Contains("rank 1 (pid") && Contains("went away"));
  CHECK(outcome.ended_ms - killed < 10000);
}

TEST_CASE("an id whose process is gone, or that was used, is refused at once") {
  ucclEpUniqueId id{};
  {
    RankProcess maker(0, [&](int) {
      ucclEpUniqueId made = local_rendezvous();
      return std::string(made.internal, sizeof(made.internal));
    });
    Outcome outcome = maker.outcome();
    REQUIRE(outcome.text.size() == sizeof(id.internal));
    outcome.text.copy(id.internal, sizeof(id.internal));
  }
  auto join_alone = [&](int rank) {
    join(id, rank, 1);
    return std::string("joined");
  };
  check_all(run_threads(1, join_alone), ucclEpRemoteError, "nobody listens");
  id = local_rendezvous();
  check_all(run_threads(1, join_alone), ucclEpSuccess, "joined");
  closes(id);
  check_all(run_threads(1, join_alone), ucclEpRemoteError, "rendezvous");
}

TEST_CASE("a child that forks without exec neither serves nor keeps open what its parent opened") {
  ucclEpUniqueId id = local_rendezvous();
  RankProcess child(0, [](int) {
    std::this_thread::sleep_for(std::chrono::seconds(30));
    return std::string("slept");
  });
  auto outcomes = run_threads(2, [&](int rank) {
    join(id, rank, 2)->barrier(Deadline::after_ms(10000));
    return std::string("met");
  });
  check_all(outcomes, ucclEpSuccess, "met");
  closes(id);
}

// [slow]: in the forked child LeakSanitizer takes for lost what threads of the parent held.
TEST_CASE("an open rendezvous does not keep its process from ending", "[slow]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    // Handlers and destructors of the whole program run, but nothing is written twice.
    int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    local_rendezvous();
    exit(7);
  }
  close(ends[1]);
  CHECK(wait_readable(ends[0], Deadline::after_ms(10000)));  // closed by the end of the child
  int status = 0;
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  close(ends[0]);
}
