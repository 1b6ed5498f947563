// SPDX-License-Identifier: Apache-2.0
#include "host/context/live_objects.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"
#include "host/context/communicator.hpp"
#include "host/memory/window_table.hpp"

using namespace ucclep;

namespace {

// The code of a call with the object, and its message.
ucclEpResult_t call_with(GivenObject given) {
  return guarded("ucclEpTest", given, [] {});
}
std::string last_message() {
  return ucclEpGetLastError(nullptr);
}

std::unique_ptr<ucclEpWindow> make_window() {
  auto window = std::make_unique<ucclEpWindow>(nullptr);
  window->enlist(ObjectKind::window, nullptr);
  return window;
}
std::unique_ptr<ucclEpComm> make_comm() {
  auto comm = std::make_unique<ucclEpComm>();
  comm->enlist(ObjectKind::comm, comm.get());
  return comm;
}

}  // namespace

TEST_CASE("an object is alive from its making to its end, as what it is", "[api]") {
  auto window = make_window();
  ucclEpWindow_t const name = window.get();
  CHECK(call_with(name) == ucclEpSuccess);
  CHECK(call_with(reinterpret_cast<ucclEpHandle_t>(name)) == ucclEpInvalidArgument);
  CHECK_THAT(last_message(), Catch::Contains("is an object of another kind, not a handle"));
  window.reset();
  CHECK(call_with(name) == ucclEpInvalidArgument);
  CHECK_THAT(last_message(),
             Catch::Contains("window 0x") && Catch::Contains("is not an existing window: it was destroyed"));
}

TEST_CASE("any bits may be given as an object", "[api]") {
  const auto comm = make_comm();
  const auto inside = reinterpret_cast<uintptr_t>(comm.get()) + 1;
  for (const uintptr_t bits : {uintptr_t{1}, uintptr_t{0x1234}, uintptr_t{0xdeadbeefdeadbeef}, UINTPTR_MAX, inside}) {
    CHECK(call_with(reinterpret_cast<ucclEpComm_t>(bits)) == ucclEpInvalidArgument);
    CHECK(call_with(reinterpret_cast<ucclEpGroup_t>(bits)) == ucclEpInvalidArgument);
    CHECK(call_with(reinterpret_cast<ucclEpHandle_t>(bits)) == ucclEpInvalidArgument);
    CHECK(call_with(reinterpret_cast<ucclEpWindow_t>(bits)) == ucclEpInvalidArgument);
  }
}

TEST_CASE("the address of an object that has ended names no new one", "[api]") {
  std::set<ucclEpWindow_t> gone;
  for (int i = 0; i < 100; ++i) {
    const auto window = make_window();
    CHECK(gone.insert(window.get()).second);
  }
}

TEST_CASE("one thread gets the right to destroy an object, and may give it back", "[api]") {
  const auto comm = make_comm();
  ucclEpComm_t const name = comm.get();
  {
    const EndOfObject end(name);
    std::thread([&] {
      CHECK_THROWS_WITH(EndOfObject(name), Catch::Contains("is being destroyed by another thread"));
    }).join();
    CHECK(call_with(name) == ucclEpInvalidArgument);
    CHECK(guarded_beside("ucclEpTest", name, false, [] {}) == ucclEpInvalidArgument);
    CHECK(guarded_beside("ucclEpTest", name, true, [] {}) == ucclEpSuccess);
  }
  CHECK(call_with(name) == ucclEpSuccess);
  CHECK_NOTHROW(EndOfObject(name));
}

TEST_CASE("a communicator does not go while another thread's call holds it", "[api]") {
  for (const bool only_claimed : {false, true}) {
    const auto comm = make_comm();
    std::atomic<bool> holds = false, gone = false;
    std::atomic<bool> gone_too_early = false;
    std::thread other([&, name = comm.get()] {
      guarded_beside("ucclEpTest", name, true, [&] {
        holds = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        gone_too_early = gone.load();
      });
    });
    while (!holds) std::this_thread::yield();
    if (only_claimed) {
      const EndOfObject end(comm.get());
      gone = true;
    } else {
      comm->withdraw();
      gone = true;
      CHECK(call_with(comm.get()) == ucclEpInvalidArgument);
    }
    other.join();
    CHECK_FALSE(gone_too_early);
  }
}

TEST_CASE("threads look objects up while others make and end them", "[api]") {
  const auto kept = make_window();
  std::atomic<bool> over = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        wrong += call_with(kept.get()) != ucclEpSuccess;
        const auto window = make_window();
        wrong += find_object(window.get()).life != Life::alive;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
