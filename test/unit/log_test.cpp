// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/error.hpp"

using namespace ucclep;

namespace {

// A directory that goes away with its files; the log is silent again afterwards.
struct LogDirectory {
  std::string path;
  LogDirectory() {
    char name[] = "/tmp/ep-test-log-XXXXXX";
    path = mkdtemp(name);
  }
  ~LogDirectory() {
    log::init(log::Level::off, "");
    log::set_rank(-1);
    std::filesystem::remove_all(path);
  }
  std::vector<std::string> lines(const std::string& file) const {
    std::ifstream in(path + "/" + file);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
};

}  // namespace

TEST_CASE("a log line names process, rank, level and subsystem") {
  LogDirectory directory;
  log::init(log::Level::info, directory.path + "/log.%r");
  log::set_rank(3);
  log::warn("boot", "peer {} is late", 7);
  log::info("boot", "joined");
  log::trace("boot", "too fine");
  auto lines = directory.lines("log.3");
  REQUIRE(lines.size() == 2);
  std::string head = fmt::format("[ucclep {}:3 ", getpid());
  CHECK(lines[0] == head + "WARN boot] peer 7 is late");
  CHECK(lines[1] == head + "INFO boot] joined");
  log::set_rank(-1);
  log::warn("boot", "nobody");
  CHECK(directory.lines("log.-") == std::vector<std::string>{fmt::format("[ucclep {}:- WARN boot] nobody", getpid())});
}

TEST_CASE("the log is silent unless asked, and refuses a level that it does not know") {
  LogDirectory directory;
  log::init(log::Level::off, directory.path + "/log");
  log::warn("boot", "unheard");
  CHECK(directory.lines("log").empty());
  unsetenv("UCCLEP_DEBUG");
  setenv("UCCLEP_DEBUG_FILE", (directory.path + "/log").c_str(), 1);
  log::init_from_environment();
  log::warn("boot", "nobody asked");
  CHECK(directory.lines("log").empty());
  setenv("UCCLEP_DEBUG", "LOUD", 1);
  CHECK_THROWS_WITH(log::init_from_environment(),
                    Catch::Contains("UCCLEP_DEBUG") && Catch::Contains("WARN|INFO|TRACE"));
  setenv("UCCLEP_DEBUG", "TRACE", 1);
  log::init_from_environment();
  unsetenv("UCCLEP_DEBUG");
  unsetenv("UCCLEP_DEBUG_FILE");
  log::trace("boot", "heard");
  CHECK(directory.lines("log").size() == 1);
}

TEST_CASE("log lines of many threads never mix") {
  LogDirectory directory;
  log::init(log::Level::info, directory.path + "/all");
  constexpr int per_thread = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      log::set_rank(t);
      for (int i = 0; i < per_thread; ++i) log::info("mix", "{} {} {}", t, i, std::string(200, 'x'));
    });
  }
  for (auto& thread : threads) thread.join();
  auto lines = directory.lines("all");
  CHECK(lines.size() == 8 * per_thread);
  std::set<std::string> expected;
  for (int t = 0; t < 8; ++t) {
    for (int i = 0; i < per_thread; ++i) {
      expected.insert(fmt::format("[ucclep {}:{} INFO mix] {} {} {}", getpid(), t, t, i, std::string(200, 'x')));
    }
  }
  CHECK(std::set<std::string>(lines.begin(), lines.end()) == expected);
}

TEST_CASE("a process that is forked while others log can log itself") {
  LogDirectory directory;
  log::init(log::Level::info, directory.path + "/%p");
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) log::info("fork", "parent");
    });
  }
  for (int i = 0; i < 50; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      log::info("fork", "child");
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(directory.lines(std::to_string(child)).size() == 1);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST_CASE("file patterns know rank, process and a plain percent sign") {
  CHECK(log::expand_file_name("a.%r.%p.json", 5) == fmt::format("a.5.{}.json", getpid()));
  CHECK(log::expand_file_name("%%r%x%", 5) == "%r%x%");
}
