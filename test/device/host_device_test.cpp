// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the host device.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>

#include "ranks.hpp"
#include "refusal.hpp"
#include "trial.hpp"

namespace ucclep {
namespace {

using test::is_refused;
using test::Trial;

// Lets the kernel trial_spins go on.
void release(Trial& trial) {
  std::atomic_ref<uint64_t>(trial.args.words[5]).store(1);
}

TEST_CASE("host device: memory is zero and aligned", "[host_device]") {
  auto device = open_host_device(0, {});
  auto* data = static_cast<unsigned char*>(device->alloc(10'000));
  CHECK(reinterpret_cast<uintptr_t>(data) % 4096 == 0);
  CHECK(std::all_of(data, data + 10'000, [](unsigned char c) { return c == 0; }));
  device->free(data);
  is_refused(ucclEpInvalidArgument, "was not allocated by host device 0", [&] { device->free(data); });
}

TEST_CASE("host device: a window keeps its size, and its address within a process", "[host_device]") {
  auto owner = open_host_device(0, {});
  auto peer = open_host_device(1, {});
  auto window = owner->share(8192);
  static_cast<char*>(window->data())[8191] = 42;
  CHECK(ftruncate(window->fd(), 4096) == -1);
  CHECK(errno == EPERM);
  CHECK(ftruncate(window->fd(), 16384) == -1);
  auto seen = peer->map(window->ticket(), Fd(dup(window->fd())));
  CHECK(seen->data() == window->data());
  window.reset();
  CHECK(static_cast<char*>(seen->data())[8191] == 42);
  MemoryTicket larger = seen->ticket();
  larger.bytes = 8193;
  is_refused(ucclEpInvalidArgument, "8193 bytes from byte 0 on are outside the 8192 bytes",
             [&] { peer->map(larger, Fd(dup(seen->fd()))); });
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  close(pipes[1]);
  is_refused(ucclEpInvalidArgument, "sealed", [&] { peer->map(seen->ticket(), Fd(pipes[0])); });
  CHECK(fcntl(pipes[0], F_GETFD) == -1);  // owned also by the call that fails
}

TEST_CASE("host device: operations of a stream run in order", "[host_device]") {
  Trial trial({});
  auto* text = reinterpret_cast<char*>(trial.args.data);
  auto* copy = reinterpret_cast<char*>(trial.args.copy);
  trial.launch("trial_spins", {2, 64, 0});
  trial.device().memcpy_async(text, "first", 6, nullptr);
  trial.device().memcpy_async(copy, text, 6, nullptr);
  CHECK(trial.device().stream_synchronize(nullptr, 20) == ucclEpTimeout);
  CHECK(text[0] == 0);
  release(trial);
  REQUIRE(trial.ends());
  CHECK(std::string(copy) == "first");
}

TEST_CASE("host device: streams wait for events", "[host_device]") {
  Trial trial({});
  Device& device = trial.device();
  const ucclEpStream_t other = device.stream_create();
  const ucclEpEvent_t before = device.event_create();
  const ucclEpEvent_t after = device.event_create();
  device.stream_wait_event(other, after);  // never recorded: nothing to wait for
  device.event_record(before, nullptr);
  trial.launch("trial_spins", {2, 64, 0});
  device.event_record(after, nullptr);
  device.stream_wait_event(other, after);
  device.memcpy_async(trial.args.data, "x", 2, other);
  CHECK(device.event_synchronize(before, 10'000) == ucclEpSuccess);
  CHECK(device.event_synchronize(after, 20) == ucclEpTimeout);
  is_refused(ucclEpInProgress, "not complete", [&] { device.event_elapsed_ms(before, after); });
  CHECK(device.stream_synchronize(other, 20) == ucclEpTimeout);
  CHECK(trial.args.data[0] == 0);
  release(trial);
  REQUIRE(device.stream_synchronize(other, 10'000) == ucclEpSuccess);
  CHECK(trial.args.data[0] == 'x');
  CHECK(device.event_elapsed_ms(before, after) >= 20);
  device.stream_destroy(other);
  device.event_destroy(before);
  device.event_destroy(after);
  is_refused(ucclEpInvalidArgument, "is not a stream", [&] { device.stream_synchronize(other, 0); });
  is_refused(ucclEpInvalidArgument, "is not an event", [&] { device.event_synchronize(after, 0); });
}

TEST_CASE("host device: a stream is destroyed with work in flight, which still ends", "[host_device]") {
  Trial trial({});
  const ucclEpStream_t stream = trial.device().stream_create();
  const ucclEpEvent_t end = trial.device().event_create();
  trial.launch("trial_spins", {2, 64, 0}, stream);
  trial.device().event_record(end, stream);
  trial.device().stream_destroy(stream);
  release(trial);
  CHECK(trial.device().event_synchronize(end, 10'000) == ucclEpSuccess);
  trial.device().event_destroy(end);
}

TEST_CASE("host device: a stream that waits for an event is destroyed, and still goes on", "[host_device]") {
  Trial trial({});
  Device& device = trial.device();
  const ucclEpStream_t stream = device.stream_create();
  const ucclEpEvent_t before = device.event_create(), end = device.event_create();
  trial.launch("trial_spins", {2, 64, 0});
  device.event_record(before, nullptr);
  device.stream_wait_event(stream, before);
  device.event_record(end, stream);
  device.stream_destroy(stream);
  release(trial);
  CHECK(device.event_synchronize(end, 10'000) == ucclEpSuccess);
}

TEST_CASE("host device: launches that cannot be are refused", "[host_device]") {
  Trial trial({});
  is_refused(ucclEpInternalError, "no kernel nobody", [&] { trial.launch("nobody", {1, 1, 0}); });
  is_refused(ucclEpInvalidArgument, "trial_nothing", [&] { trial.launch("trial_nothing", {0, 1, 0}); });
  is_refused(ucclEpInvalidArgument, "trial_nothing", [&] { trial.launch("trial_nothing", {1, 1025, 0}); });
  is_refused(ucclEpInvalidArgument, "trial_nothing", [&] { trial.launch("trial_nothing", {1, 32, 1u << 30}); });
}

TEST_CASE("host device: ranks may be threads", "[host_device]") {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int rank = 0; rank < 8; ++rank) {
    threads.emplace_back([rank, &right] {
      Trial trial({}, rank);
      trial.args.rounds = 20;
      for (int i = 0; i < 10; ++i) trial.launch("trial_tickets", {2, 64, 0});
      if (trial.ends() && trial.args.words[0] == 10 * 20 * 2 * 64) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 8);
}

TEST_CASE("host device: a device may go while its kernels still run", "[host_device]") {
  auto device = open_host_device(0, {});
  auto* words = static_cast<uint64_t*>(device->alloc_host(4096));
  test::TrialArgs args{};
  args.words = words;
  device->launch({"trial_spins"}, {2, 64, 0}, &args, sizeof args, nullptr);
  CHECK(device->stream_synchronize(nullptr, 20) == ucclEpTimeout);
  device.reset();
}

// With a seed they do not begin at once. AddressSanitizer says what is left of them.
TEST_CASE("host device: a device may go while its kernels have not begun", "[host_device]") {
  auto device = open_host_device(0, {.workers = 1, .seed = 1});
  auto* words = static_cast<uint64_t*>(device->alloc_host(4096));
  test::TrialArgs args{};
  args.words = words;
  for (int i = 0; i < 3; ++i) device->launch({"trial_spins"}, {2, 64, 0}, &args, sizeof args, nullptr);
  device.reset();
}

}  // namespace
}  // namespace ucclep
