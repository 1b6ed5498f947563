// SPDX-License-Identifier: Apache-2.0
#include "base/fork.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/node.hpp"

using namespace ucclep;

namespace {

// Whether good() is true in a child that is forked now, and ends in time.
template <class Good>
bool holds_in_child(Good&& good) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(good() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A thread that does something, stands still in the middle of it, and goes on when this ends.
class StandingThread {
 public:
  template <class Act>
  explicit StandingThread(Act&& act) : thread_([this, act] { act([this] { stand(); }); }) {
    while (!stands_) std::this_thread::yield();
  }
  ~StandingThread() {
    goes_on_ = true;
    thread_.join();
  }

 private:
  void stand() {
    stands_ = true;
    while (!goes_on_) std::this_thread::yield();
  }
  std::atomic<bool> stands_ = false, goes_on_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("each fork is counted, and a child has another name than its parent") {
  const uint32_t depth = fork_depth();
  const Token name = this_process();
  CHECK(holds_in_child([&] {
    return fork_depth() == depth + 1 && this_process() != name && this_process() == this_process() &&
           holds_in_child([&] { return fork_depth() == depth + 2; });
  }));
  CHECK(fork_depth() == depth);
  CHECK(this_process() == name);
}

TEST_CASE("state of a process is new in a forked child, even if another thread held its lock") {
  struct State {
    std::mutex mutex;
    int value = 1;
  };
  constinit static PerProcess<State> state;
  state.get().value = 2;
  const StandingThread holder([](auto stand) {
    const std::lock_guard lock(state.get().mutex);
    stand();
  });
  CHECK_FALSE(state.get().mutex.try_lock());
  CHECK(holds_in_child([] { return state.get().mutex.try_lock() && state.get().value == 1; }));
  CHECK(state.get().value == 2);
}

TEST_CASE("a child takes over what is made once, and makes again what another thread was making") {
  constinit static MadeOnce<int> made, in_the_making;
  CHECK(made.get([] { return 7; }) == 7);
  const StandingThread maker([](auto stand) {
    in_the_making.get([&] {
      stand();
      return 1;
    });
  });
  CHECK(holds_in_child([] { return made.get([] { return 8; }) == 7 && in_the_making.get([] { return 2; }) == 2; }));
}

TEST_CASE("what could not be made is tried again") {
  constinit static MadeOnce<int> value;
  CHECK_THROWS_AS(value.get([]() -> int { throw std::runtime_error("not yet"); }), std::runtime_error);
  CHECK(value.get([] { return 3; }) == 3);
  CHECK(value.get([] { return 4; }) == 3);
}
