// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/fd_exchange.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <fstream>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/agreement.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/shared_objects.hpp"
#include "ranks.hpp"

using namespace ucclep;
using namespace ucclep::test;
using Catch::Matchers::Contains;

namespace {

constexpr size_t window_bytes = 4096;

Fd make_window(int rank) {
  Fd fd(memfd_create("window", MFD_CLOEXEC));
  std::string content = fmt::format("window of rank {}", rank);
  content.resize(window_bytes);
  if (write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) return Fd();
  return fd;
}

std::string content(const Fd& fd) {
  char text[64] = {};
  return pread(fd.get(), text, sizeof(text) - 1, 0) > 0 ? text : "unreadable";
}

// Takes all descriptors of this process but so many, for good.
void leave_room(size_t descriptors) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<int> taken;
  for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(fd);
  for (size_t i = 0; i < descriptors && i < taken.size(); ++i) close(taken[i]);
}

// Every entry that came, in rank order.
std::string exchange(Bootstrap& bootstrap, bool offers = true) {
  Fd window = offers ? make_window(bootstrap.rank()) : Fd();
  auto fds = exchange_fds(bootstrap, window.get(), bootstrap.node_ranks(), Deadline::after_ms(20000));
  std::string all;
  for (size_t rank = 0; rank < fds.size(); ++rank) {
    if (!fds[rank]) continue;
    bool closed_on_exec = (fcntl(fds[rank].get(), F_GETFD) & FD_CLOEXEC) != 0;
    all += fmt::format("{}:{}{};", rank, content(fds[rank]), closed_on_exec ? "" : " (inheritable)");
  }
  return all;
}

std::string expected(int nranks, const std::vector<int>& without) {
  std::string all;
  for (int rank = 0; rank < nranks; ++rank) {
    if (std::find(without.begin(), without.end(), rank) == without.end())
      all += fmt::format("{}:window of rank {};", rank, rank);
  }
  return all;
}

// The abstract sockets of the library, as any process finds them.
std::vector<std::string> doors() {
  std::vector<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    size_t at = line.find("@ucclep-");
    if (at != std::string::npos) names.push_back(line.substr(at));
  }
  return names;
}

Fd knock(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof(address.sun_path) - 1);
  address.sun_path[0] = '\0';
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 ? std::move(fd) : Fd();
}

// Sends noise to every door that it can find.
void disturb() {
  for (const std::string& name : doors()) {
    const Fd fd = knock(name);
    char noise[100] = "noise";
    if (fd && send(fd.get(), noise, sizeof(noise), MSG_NOSIGNAL) < 0) continue;
  }
}

// Holds connections to every door, and says nothing; as another user, if that is possible.
std::string squat(bool as_another) {
  rlimit limit{4096, 4096};
  setrlimit(RLIMIT_NOFILE, &limit);
  if (as_another && setuid(65534) != 0) return "another user";
  std::map<std::string, std::vector<Fd>> held;
  for (;;) {
    for (const std::string& name : doors()) {
      std::vector<Fd>& own = held[name];
      while (own.size() < 40) {
        Fd fd = knock(name);
        if (!fd) break;
        own.push_back(std::move(fd));
      }
    }
    if (held.size() > 60) held.clear();
  }
}

}  // namespace

TEST_CASE("processes of one machine receive each other's memory") {
  constexpr int nranks = 4;
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(nranks, [&](int rank) {
    auto bootstrap = join(id, rank, nranks);
    std::string first = exchange(*bootstrap);
    return first == exchange(*bootstrap) ? first : "two exchanges differ";
  });
  for (int rank = 0; rank < nranks; ++rank) {
    CHECK(outcomes[static_cast<size_t>(rank)].text == expected(nranks, {rank}));
  }
}

TEST_CASE("a rank that offers no descriptor receives those of the others") {
  constexpr int nranks = 4;
  for (const std::vector<int>& silent : {std::vector<int>{0}, {2, 3}, {0, 1, 2, 3}}) {
    ucclEpUniqueId id = local_rendezvous();
    const auto is_silent = [&](int rank) { return std::find(silent.begin(), silent.end(), rank) != silent.end(); };
    auto outcomes = run_processes(nranks, [&](int rank) {
      auto bootstrap = join(id, rank, nranks);
      return exchange(*bootstrap, !is_silent(rank));
    });
    for (int rank = 0; rank < nranks; ++rank) {
      std::vector<int> without = silent;
      without.push_back(rank);
      CHECK(outcomes[static_cast<size_t>(rank)].text == expected(nranks, without));
    }
  }
}

TEST_CASE("threads share pointers and exchange descriptors with other processes only") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(2, [&](int process) {
    auto inner = run_threads(2, [&](int thread) {
      int rank = 2 * process + thread;
      auto bootstrap = join(id, rank, 4);
      std::string all = exchange(*bootstrap);
      auto publication = publish({bootstrap->comm_id(), rank, 0}, std::make_shared<int>(rank));
      bootstrap->barrier(Deadline::after_ms(10000));
      for (int peer = 0; peer < 4; ++peer) {
        auto object = std::static_pointer_cast<int>(lookup({bootstrap->comm_id(), peer, 0}));
        bool good = bootstrap->same_process(peer) ? object && *object == peer : !object;
        if (!good) return std::string("wrong object");
      }
      bootstrap->barrier(Deadline::after_ms(10000));
      return all;
    });
    return inner[0].text + inner[1].text;
  });
  CHECK(outcomes[0].text == expected(4, {0, 1}) + expected(4, {0, 1}));
  CHECK(outcomes[1].text == expected(4, {2, 3}) + expected(4, {2, 3}));
}

TEST_CASE("strangers at the doors do not disturb an exchange") {
  constexpr int nranks = 3;
  std::atomic<bool> stop{false};
  ucclEpUniqueId id = local_rendezvous();
  std::vector<RankProcess> processes;
  for (int r = 0; r < nranks; ++r) {
    processes.emplace_back(r, [&](int rank) {
      auto bootstrap = join(id, rank, nranks);
      leave_room(40);  // a rank that is late finds many strangers in its backlog: they must not take all of it
      std::string all;
      for (int i = 0; i < 30; ++i) {
        all = exchange(*bootstrap);
        if (all != expected(nranks, {rank})) break;
      }
      return all;
    });
  }
  std::thread stranger([&] {
    while (!stop) disturb();
  });
  for (int rank = 0; rank < nranks; ++rank) {
    CHECK(processes[static_cast<size_t>(rank)].outcome().text == expected(nranks, {rank}));
  }
  stop = true;
  stranger.join();
}

TEST_CASE("silent connections to a door hold nobody up") {
  for (const bool as_another : {false, true}) {
    if (as_another && geteuid() != 0) continue;
    ucclEpUniqueId id = local_rendezvous();
    RankProcess stranger(0, [&](int) { return squat(as_another); });
    const int64_t before = steady_ms();
    auto outcomes = run_processes(3, [&](int rank) {
      auto bootstrap = join(id, rank, 3);
      std::string all;
      for (int i = 0; i < 20; ++i) {
        all = exchange(*bootstrap);
        if (all != expected(3, {rank})) break;
      }
      return all;
    });
    for (int rank = 0; rank < 3; ++rank) CHECK(outcomes[static_cast<size_t>(rank)].text == expected(3, {rank}));
    CHECK(steady_ms() - before < 20000);
  }
}

TEST_CASE("a shut door is told") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    if (rank != 1) return exchange(*bootstrap);
    struct {
      Token name;
      uint32_t open = 0, offers = 0;
    } none;
    bootstrap->allgather(none, Deadline::after_ms(20000));
    Agreement("exchange of descriptors").settle(*bootstrap, Deadline::after_ms(20000));
    return std::string("said nothing");
  });
  for (size_t rank : {0, 2}) {
    CHECK(outcomes[rank].code == ucclEpRemoteError);
    CHECK_THAT(outcomes[rank].text, Contains("rank 1 did not open a socket"));
  }
}

TEST_CASE("an exchange with a rank that dies, has no room, or brings a bad descriptor, fails on all ranks") {
  ucclEpUniqueId id = local_rendezvous();
  auto outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    bootstrap->barrier(Deadline::after_ms(10000));
    if (rank == 1) raise(SIGKILL);
    return exchange(*bootstrap);
  });
  for (size_t rank : {0, 2}) {
    CHECK(outcomes[rank].code == ucclEpRemoteError);
    CHECK_THAT(outcomes[rank].text, Contains("rank 1"));
  }
  id = local_rendezvous();
  outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    if (rank == 2) leave_room(4);  // its window, its door, a connection to each lower rank: none for what they send
    return exchange(*bootstrap);
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == ucclEpSystemError);
    CHECK_THAT(outcome.text, Contains("rank 2 cannot receive"));
  }
  id = local_rendezvous();
  outcomes = run_processes(3, [&](int rank) {
    auto bootstrap = join(id, rank, 3);
    Fd window = make_window(rank);
    const int offered = rank == 2 ? 1 << 30 : window.get();
    exchange_fds(*bootstrap, offered, bootstrap->node_ranks(), Deadline::after_ms(5000));
    return std::string("exchanged");
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == ucclEpSystemError);
    CHECK_THAT(outcome.text, Contains("rank 2: cannot send the descriptor 1073741824"));
  }
}
