// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/deadline.hpp"
#include "base/token.hpp"

using namespace ucclep;

namespace {

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

int open_null() {
  return open("/dev/null", O_RDWR | O_CLOEXEC);
}

}  // namespace

TEST_CASE("a descriptor is closed once, by its last owner") {
  int number = -1;
  {
    Fd a(open_null());
    number = a.get();
    Fd b(std::move(a));
    CHECK_FALSE(a);
    a = std::move(b);
    CHECK(a.get() == number);
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
  Fd c(open_null());
  number = c.release();
  CHECK(is_open(number));
  close(number);
}

TEST_CASE("a forked child loses the private descriptors and keeps the others") {
  Fd shared(open_null());
  Fd kept = Fd::process_private(open_null());
  pid_t child = fork();
  if (child == 0) {
    bool good = is_open(shared.get()) && !is_open(kept.get());
    // The number is free in the child: whoever takes it must not lose it to the old owner.
    int reused = dup2(shared.get(), kept.get());
    kept.reset();
    good = good && is_open(reused);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(is_open(kept.get()));
}

TEST_CASE("a deadline counts down to zero and stays there") {
  Deadline soon = Deadline::after_ms(0);
  CHECK(soon.expired());
  CHECK(soon.remaining_ms() == 0);
  Deadline later = Deadline::after_ms(60000);
  CHECK_FALSE(later.expired());
  CHECK(later.remaining_ms() > 50000);
  CHECK(later.remaining_ms() <= 60000);
  CHECK(Deadline::after_ms(INT64_C(10'000'000'000)).poll_ms() == 1'000'000'000);
}

TEST_CASE("tokens are random and compare as secrets do") {
  Token a = Token::random();
  Token b = a;
  CHECK(same_secret(a, b));
  CHECK(a.hex().size() == 32);
  b.bytes[15] ^= 1;
  CHECK_FALSE(same_secret(a, b));
  CHECK(a != Token::random());
}
