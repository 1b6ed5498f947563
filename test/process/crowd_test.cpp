// SPDX-License-Identifier: Apache-2.0
// Many ranks, and many strangers, at the doors of one process.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <fstream>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"
#include "init/crowd.hpp"
#include "ranks.hpp"

using namespace ucclep;
using namespace ucclep::test;
using Catch::Matchers::Contains;

namespace {

// As a program starts it: 1024 soft, whatever is allowed hard.
void set_files_limit(rlim_t soft) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, soft);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What a crowd of ranks 1 to nranks - 1 counts, and how rank 0 of the library fares among them.
std::string meet_crowd(int nranks, int pace_us) {
  RankProcess host(0, [&](int) {
    set_files_limit(1024);
    const ucclEpUniqueId id = local_rendezvous();
    RankProcess crowd(1, [&](int) {
      set_files_limit(20000);
      perf::Crowd ranks(id, nranks);
      ranks.join(pace_us, Deadline::after_ms(90000));
      const perf::CrowdCounts& counts = ranks.counts();
      return fmt::format("{} joined{}", counts.finished, counts.finished == nranks - 1 ? "" : ", " + counts.text);
    });
    std::unique_ptr<Bootstrap> bootstrap;  // stays until the others have read what its hub sends
    const Outcome own = run_body(
        [&](int) {
          bootstrap = join(id, 0, nranks, 90000);
          return std::string("rank 0 joined");
        },
        0);
    return crowd.outcome(100000).text + ", " + own.text;
  });
  return host.outcome(200000).text;
}

// Connects as often as it can and hangs up at once.
void knock_and_go(const SocketAddress& address) {
  const Fd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const linger none{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  if (connect(socket.get(), address.raw(), address.length) != 0 && errno != EINPROGRESS) return;
}

// Holds so many connections on which it says so many bytes of a greeting, and opens those anew that were closed.
void hold(const SocketAddress& address, size_t connections, size_t bytes) {
  std::vector<Fd> sockets(connections);
  const wire::Greeting greeting;
  for (;;) {
    for (Fd& socket : sockets) {
      char byte = 0;
      if (socket && (recv(socket.get(), &byte, 1, MSG_DONTWAIT) > 0 || errno == EAGAIN)) continue;
      socket = Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (connect(socket.get(), address.raw(), address.length) != 0 && errno != EINPROGRESS) socket.reset();
      if (socket && bytes > 0 && send(socket.get(), &greeting, bytes, MSG_NOSIGNAL) < 0) errno = EAGAIN;
    }
    usleep(1000);
  }
}

enum class Strangers { go, silent, half, whole };

std::string disturb(const SocketAddress& address, Strangers how) {
  set_files_limit(4096);
  while (how == Strangers::go) knock_and_go(address);
  const size_t bytes = how == Strangers::silent ? 0 : how == Strangers::half ? 8 : sizeof(wire::Greeting);
  hold(address, 1200, bytes);
  return {};
}

size_t lines_of(const std::string& file) {
  std::ifstream log(file);
  size_t lines = 0;
  for (std::string line; std::getline(log, line);) ++lines;
  return lines;
}

// What four ranks, threads of a process with 1024 descriptors in all, say while strangers are at the door.
std::string meet_among(Strangers how, const std::string& log_file) {
  RankProcess host(0, [&](int) {
    log::init(log::Level::warn, log_file);
    const ucclEpUniqueId id = local_rendezvous();
    RankProcess strangers(1, [&](int) { return disturb(decode(id).address, how); });
    const rlimit limit{1024, 1024};
    setrlimit(RLIMIT_NOFILE, &limit);
    usleep(1'500'000);  // they are many when the ranks come
    const Fd newest(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!newest || newest.get() > 300) return fmt::format("the program's own file is number {}", newest.get());
    std::string all;
    for (const Outcome& one : run_threads(4, [&](int rank) {
           auto bootstrap = join(id, rank, 4, 60000);
           bootstrap->barrier(Deadline::after_ms(20000));
           return std::string("met ");
         })) {
      all += one.text;
    }
    return all;
  });
  return host.outcome(120000).text;
}

}  // namespace

TEST_CASE("strangers by the thousand change nothing but a few lines of the log") {
  for (Strangers how : {Strangers::go, Strangers::silent, Strangers::half, Strangers::whole}) {
    INFO("how " << static_cast<int>(how));
    const std::string log_file = fmt::format("strangers-{}-{}.log", getpid(), static_cast<int>(how));
    CHECK(meet_among(how, log_file) == "met met met met ");
    const size_t lines = lines_of(log_file);
    CHECK(lines > 0);
    CHECK(lines < 100);
    unlink(log_file.c_str());
  }
}

TEST_CASE("a rendezvous whose process has no descriptor left says so to all") {
  SharedCount waiting, eaten;
  RankProcess host(0, [&](int) {
    const ucclEpUniqueId id = local_rendezvous();
    const auto body = [&](int rank) {
      if (rank == 0) waiting.add();
      if (rank == 1 && !eaten.reaches(1)) return std::string("the host did not eat");
      join(id, rank, 2, 20000);
      return std::string("joined");
    };
    RankProcess early(0, body), late(1, body);
    if (!waiting.reaches(1)) return std::string("rank 0 did not begin");
    usleep(500'000);  // it waits at the rendezvous, or hears the same
    set_files_limit(256);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
    }
    eaten.add();
    const Outcome first = late.outcome(), second = early.outcome();
    return fmt::format("{} {} | {} {}", static_cast<int>(first.code), first.text, static_cast<int>(second.code),
                       second.text);
  });
  const std::string said = host.outcome().text;
  CHECK_THAT(said, Catch::StartsWith("2 ") && Contains(" | 2 the rendezvous: process"));
  CHECK_THAT(said, Contains("refused the connection: process") &&
                       Contains("has too many open files: RLIMIT_NOFILE (ulimit -n) is 256"));
}

TEST_CASE("how long ranks take to join, against their number", "[.measured]") {
  for (const int nranks : {64, 128, 256, 512, 1024, 2048, 4096}) {
    const int64_t begin = steady_ms();
    const std::string said = meet_crowd(nranks, 0);
    WARN(nranks << " ranks: " << steady_ms() - begin << " ms, " << said);
  }
}

TEST_CASE("ranks that come by the thousand all join") {
  for (int pace_us : {0, 200}) {
    const int nranks = 1500;
    INFO("pace " << pace_us << " us");
    CHECK(meet_crowd(nranks, pace_us) == fmt::format("{} joined, rank 0 joined", nranks - 1));
  }
}

TEST_CASE("4096 ranks join", "[long]") {
  for (int pace_us : {0, 200}) {
    INFO("pace " << pace_us << " us");
    CHECK(meet_crowd(4096, pace_us) == "4095 joined, rank 0 joined");
  }
}
