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
#include "bootstrap/handshake.hpp"
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

wire::Greeting greeting_of(int rank, int nranks) {
  wire::Greeting greeting;
  greeting.nonce = Token::random();
  greeting.rank = rank;
  greeting.nranks = nranks;
  return greeting;
}

// Answers the next connection with these bytes, and returns what came there first.
std::string answer_once(const Fd& listener, std::string_view bytes) {
  SocketAddress peer;
  const Deadline deadline = Deadline::after_ms(20000);
  if (!wait_readable(listener.get(), deadline)) return {};
  const Fd socket = accept_from(listener.get(), &peer);
  std::string came(sizeof(wire::Greeting), '\0');
  if (receive_all(socket.get(), came.data(), came.size(), deadline) != IoStatus::done) return {};
  send_all(socket.get(), bytes.data(), bytes.size(), deadline);
  wait_readable(socket.get(), Deadline::after_ms(2000));
  char rest[64];
  size_t have = 0;
  receive_some(socket.get(), rest, sizeof rest, &have);
  return came + std::string(rest, have);
}

// What a rank says that joins by a listener which answers so, and what the listener heard.
Outcome join_by(const wire::Challenge& answer, std::string* heard) {
  UniqueId id;
  const Fd listener = listen_on(local_address("lo"), &id.address);
  id.secret = Token::random();
  std::thread other([&] { *heard = answer_once(listener, {reinterpret_cast<const char*>(&answer), sizeof answer}); });
  Outcome outcome = run_body(
      [&](int rank) {
        join(encode(id), rank, 2, 20000);
        return std::string("joined");
      },
      1);
  other.join();
  const auto* secret = reinterpret_cast<const char*>(id.secret.bytes.data());
  CHECK(heard->find(std::string(secret, id.secret.bytes.size())) == std::string::npos);
  return outcome;
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
  CHECK_THAT(message, Contains("nothing listens there"));
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
  wire::Greeting greeting = greeting_of(0, 2);
  wire::Challenge challenge;
  CHECK(send_all(liar.get(), &greeting, sizeof(greeting), Deadline::after_ms(1000)) == IoStatus::done);
  REQUIRE(receive_all(liar.get(), &challenge, sizeof(challenge), Deadline::after_ms(10000)) == IoStatus::done);
  const wire::Proof wrong = proof_of(greeting, challenge, Token::random());
  CHECK(send_all(liar.get(), &wrong, sizeof(wrong), Deadline::after_ms(1000)) == IoStatus::done);
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

TEST_CASE("a rank proves itself only to who knows the secret, which it never sends") {
  std::string heard;
  wire::Challenge challenge;
  challenge.nonce = Token::random();
  Outcome outcome = join_by(challenge, &heard);
  CHECK(outcome.code == ucclEpRemoteError);
  CHECK_THAT(outcome.text, Contains("does not know the secret"));
  CHECK(heard.size() == sizeof(wire::Greeting));  // and no proof
  challenge.version = 7;
  outcome = join_by(challenge, &heard);
  CHECK(outcome.code == ucclEpInvalidArgument);
  CHECK_THAT(outcome.text, Contains("version 7") && Contains("rank 1 uses version 2"));
  challenge.magic = 0;
  outcome = join_by(challenge, &heard);
  CHECK(outcome.code == ucclEpRemoteError);
  CHECK_THAT(outcome.text, Contains("another program"));
}

TEST_CASE("a proof is good for one connection, and nobody's own proof is good for it") {
  const ucclEpUniqueId id = local_rendezvous();
  const Token secret = decode(id).secret;
  const wire::Greeting greeting = greeting_of(1, 2);
  wire::Challenge first, second;
  Fd one = call(id), two = call(id), three = call(id);
  const Deadline deadline = Deadline::after_ms(10000);
  send_all(one.get(), &greeting, sizeof greeting, deadline);
  REQUIRE(receive_all(one.get(), &first, sizeof first, deadline) == IoStatus::done);
  const wire::Proof proof = proof_of(greeting, first, secret);
  send_all(two.get(), &greeting, sizeof greeting, deadline);
  REQUIRE(receive_all(two.get(), &second, sizeof second, deadline) == IoStatus::done);
  CHECK_FALSE(first.nonce == second.nonce);
  send_all(two.get(), &proof, sizeof proof, deadline);  // another connection's
  CHECK(is_refused(two.get()));
  send_all(three.get(), &greeting, sizeof greeting, deadline);
  REQUIRE(receive_all(three.get(), &second, sizeof second, deadline) == IoStatus::done);
  wire::Proof reflected;
  reflected.proof = second.proof;
  send_all(three.get(), &reflected, sizeof reflected, deadline);
  CHECK(is_refused(three.get()));
  send_all(one.get(), &proof, sizeof proof, deadline);
  auto outcomes = run_threads(1, [&](int) {
    join(id, 0, 2, 1000);
    return std::string("joined");
  });
  check_all(outcomes, ucclEpTimeout, "within 1000 ms");  // rank 1 has come, to the hub it does not
  CHECK_THAT(outcomes[0].text, !Contains("did not join"));
}

TEST_CASE("another version of the wire format is refused by name, and the others meet") {
  const ucclEpUniqueId id = local_rendezvous();
  for (uint32_t version : {1U, 3U}) {
    Fd socket = call(id);
    wire::Greeting greeting = greeting_of(1, 2);
    greeting.version = version;
    wire::Verdict verdict;
    const Deadline deadline = Deadline::after_ms(10000);
    send_all(socket.get(), &greeting, sizeof greeting, deadline);
    REQUIRE(receive_all(socket.get(), &verdict, sizeof verdict, deadline) == IoStatus::done);
    CHECK(verdict.code == ucclEpInvalidArgument);
    CHECK_THAT(verdict.text, Contains(fmt::format("rank 1 (pid 0 on host ) uses version {}", version)));
    CHECK_THAT(verdict.text, Contains("version 2: all ranks need the same version"));
  }
  auto outcomes = run_threads(2, [&](int rank) {
    join(id, rank, 2)->barrier(Deadline::after_ms(10000));
    return std::string("met");
  });
  check_all(outcomes, ucclEpSuccess, "met");
}

TEST_CASE("a rank that is hung up on calls again until its time is up") {
  UniqueId id;
  const Fd listener = listen_on(local_address("lo"), &id.address);
  int calls = 0;
  std::thread other([&] {
    SocketAddress peer;
    const Deadline deadline = Deadline::after_ms(700);
    while (wait_readable(listener.get(), deadline)) calls += accept_from(listener.get(), &peer) ? 1 : 0;
  });
  auto outcomes = run_threads(1, [&](int rank) {
    join(encode(id), rank, 1, 1000);
    return std::string("joined");
  });
  other.join();
  CHECK(calls > 2);
  check_all(outcomes, ucclEpTimeout, "did not answer within 1000 ms");
}

TEST_CASE("more ranks than the limit are refused at once, with its name") {
  const int64_t before = steady_ms();
  for (int nranks : {4097, 65536, INT32_MAX}) {
    const ucclEpUniqueId id = local_rendezvous();
    auto outcomes = run_threads(1, [&](int) {
      join(id, 0, nranks);
      return std::string("joined");
    });
    check_all(outcomes, ucclEpInvalidArgument, fmt::format("gave nranks = {}: expected at most 4096", nranks));
  }
  CHECK(steady_ms() - before < 10000);
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
  check_all(outcomes, ucclEpInvalidArgument, "rank 1 joined twice");
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
  CHECK_THAT(outcome.text, Contains("rank 1 (pid") && Contains("closed its connection before all ranks had joined"));
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
  check_all(run_threads(1, join_alone), ucclEpRemoteError, "nothing listens there");
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
