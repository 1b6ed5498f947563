// SPDX-License-Identifier: Apache-2.0
// What a process may lack: standard descriptors, readers of its pipes, room in files, threads. Each case runs in a
// child, which says by its exit status that it has come to its end.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/attempt.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/node.hpp"
#include "base/sealed_memory.hpp"
#include "base/thread.hpp"

using namespace ucclep;

namespace {

// The exit status of a child that runs body, which says whether all is right; -1: it was killed.
int in_child(const std::function<bool()>& body) {
  std::fflush(
      nullptr);  // ThreadSanitizer's _exit would write what is left, beyond the child's limit of the size of files
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int temporary_file() {
  char name[] = "/tmp/ep-test-limits-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  return fd;
}

bool is_empty(int fd) {
  struct stat facts{};
  return fstat(fd, &facts) == 0 && facts.st_size == 0;
}

void limit(__rlimit_resource resource, rlim_t most) {
  const rlimit both{most, most};
  setrlimit(resource, &both);
}

}  // namespace

TEST_CASE("no descriptor of the library has the number of a standard one that is closed") {
  CHECK(in_child([] {
          for (int fd : {0, 1, 2}) close(fd);
          const Fd plain(open("/dev/null", O_RDWR | O_CLOEXEC));
          const Fd secret = Fd::process_private(open("/dev/null", O_RDWR | O_CLOEXEC));
          const bool above = plain.get() > 2 && secret.get() > 2 && (fcntl(plain.get(), F_GETFD) & FD_CLOEXEC) != 0;
          return above && fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
        }) == 0);
}

TEST_CASE("log lines go nowhere when standard error is closed, or its number is something else's") {
  for (const bool closed_before : {true, false}) {
    CHECK(in_child([closed_before] {
            const int file = temporary_file();
            if (closed_before) close(2);
            log::init(log::Level::warn, "");
            dup2(file, 2);
            log::warn("test", "a line");
            return is_empty(file);
          }) == 0);
  }
}

TEST_CASE("a pipe that nobody reads neither ends nor holds up whoever logs") {
  CHECK(in_child([] {  // standard error, its reader gone
          int ends[2];
          if (pipe(ends) != 0) return false;
          dup2(ends[1], 2);
          close(ends[0]);
          log::init(log::Level::warn, "");
          for (int i = 0; i < 3; ++i) log::warn("test", "a line");
          return true;
        }) == 0);
  CHECK(in_child([] {  // standard error, its reader asleep
          int ends[2];
          if (pipe(ends) != 0) return false;
          dup2(ends[1], 2);
          log::init(log::Level::warn, "");
          const auto begin = std::chrono::steady_clock::now();
          fcntl(ends[1], F_SETPIPE_SZ, 4096);
          for (int i = 0; i < 10; ++i) log::warn("test", "{}", std::string(1000, 'x'));
          return std::chrono::steady_clock::now() - begin < std::chrono::seconds(20);
        }) == 0);
  CHECK(in_child([] {  // UCCLEP_DEBUG_FILE, without a reader
          const std::string name = "/tmp/ep-test-fifo-" + std::to_string(getpid());
          if (mkfifo(name.c_str(), 0600) != 0) return false;
          const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
          dup2(null, 2);
          log::init(log::Level::warn, name);
          log::warn("test", "a line");
          unlink(name.c_str());
          return true;
        }) == 0);
}

TEST_CASE("a limit of the size of files ends neither the process nor what it does") {
  CHECK(in_child([] {
          const std::string name = "/tmp/ep-test-full-" + std::to_string(getpid());
          limit(RLIMIT_FSIZE, 100);
          log::init(log::Level::warn, name);
          for (int i = 0; i < 5; ++i) log::warn("test", "{}", std::string(80, 'x'));
          unlink(name.c_str());
          try {
            SealedMemory::create(1 << 20);
            return false;
          } catch (const Error& error) {
            return error.code() == ucclEpOutOfMemory &&
                   std::string(error.what()).find("RLIMIT_FSIZE") != std::string::npos;
          }
        }) == 0);
}

TEST_CASE("a thread that cannot be started is an error that names the limit") {
  CHECK(in_child([] {
          if (geteuid() == 0 && setuid(23456) != 0) return false;  // root has no such limit
          limit(RLIMIT_NPROC, 1);
          try {
            start_service_thread("test", -1, [] {}).join();
            return false;
          } catch (const Error& error) {
            return error.code() == ucclEpSystemError &&
                   std::string(error.what()).find("RLIMIT_NPROC, ulimit -u, is 1") != std::string::npos;
          }
        }) == 0);
}

TEST_CASE("a thread has the stack that the library needs, however small the program's are") {
  pthread_attr_t usual, small;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 * 1024);
  pthread_setattr_default_np(&small);
  size_t bytes = 0;
  start_service_thread("test", -1, [&bytes] {
    pthread_attr_t own;
    pthread_getattr_np(pthread_self(), &own);
    pthread_attr_getstacksize(&own, &bytes);
    pthread_attr_destroy(&own);
  }).join();
  pthread_setattr_default_np(&usual);
  CHECK(bytes >= 1 << 20);
}

TEST_CASE("a file that the library writes is this user's alone, and no link to another one") {
  const std::string name = "/tmp/ep-test-own-" + std::to_string(getpid()), link = name + "-link";
  const mode_t before = umask(0);
  CHECK(open_to_append(name));
  umask(before);
  struct stat facts{};
  REQUIRE(stat(name.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE(symlink(name.c_str(), link.c_str()) == 0);
  CHECK(!open_to_append(link));
  CHECK(why_not_opened(errno) == "it is a symbolic link, and symbolic links are not followed");
  unlink(link.c_str());
  unlink(name.c_str());
}

TEST_CASE("memory beyond that of the machine is refused before it is touched") {
  constexpr size_t petabyte = size_t{1} << 50;
  try {
    SealedMemory::create(petabyte);
    FAIL("it was allocated");
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpOutOfMemory);
    CHECK_THAT(error.what(), Catch::Contains("1125899906842624 bytes: the machine has"));
  }
}

TEST_CASE("an error of a limit names the limit and its value") {
  CHECK(in_child([] {
          limit(RLIMIT_NOFILE, 40);
          std::vector<Fd> all;
          while (all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC))) {
          }
          for (const auto& step : {std::function<void()>([] { SealedMemory::create(4096); }), {[] { this_node(); }}}) {
            const auto failed = attempt(step);
            if (!failed || failed->code() != ucclEpSystemError) return false;
            if (std::string(failed->what()).find("open files (RLIMIT_NOFILE, ulimit -n, is 40)") == std::string::npos)
              return false;
          }
          return true;
        }) == 0);
  CHECK_THAT(errno_text(ENOMEM), Catch::Contains("RLIMIT_AS, ulimit -v, is "));
}

TEST_CASE("a time limit of any length is a moment that does not wrap") {
  for (const int64_t ms : {int64_t{INT_MAX}, INT64_MAX}) {
    const Deadline deadline = Deadline::after_ms(ms);
    CHECK(!deadline.expired());
    CHECK(deadline.with_grace().at() > deadline.at());
    CHECK(deadline.leaving_ms(500).remaining_ms() > int64_t{INT_MAX} / 2);
    CHECK(deadline.poll_ms() == 1'000'000'000);
  }
  const Deadline short_one = Deadline::after_ms(400);
  CHECK(short_one.leaving_ms(500).remaining_ms() >= 250);  // a quarter goes at most
  CHECK(earlier(short_one, Deadline::after_ms(1000)).at() == short_one.at());
}
