// SPDX-License-Identifier: Apache-2.0
// Streams of the host device that are captured into graphs.
#include <atomic>
#include <catch2/catch.hpp>

#include "refusal.hpp"
#include "trial.hpp"

namespace ucclep {
namespace {

using test::is_refused;
using test::Trial;

// Streams and events of one device, which go with it.
struct Captured {
  explicit Captured(const HostDeviceConfig& config = {})
      : trial(config), device(trial.device()), capture(*device.stream_capture()), stream(device.stream_create()) {}

  template <class Body>
  std::unique_ptr<Graph> graph(Body&& body) {
    capture.begin_capture(stream);
    body();
    return capture.end_capture(stream);
  }
  // Lets trial_spins go on.
  void release() { std::atomic_ref<uint64_t>(trial.args.words[5]).store(1); }
  bool ends(ucclEpStream_t waited) { return device.stream_synchronize(waited, 60'000) == ucclEpSuccess; }

  Trial trial;
  Device& device;
  StreamCapture& capture;
  const ucclEpStream_t stream;
};

constexpr LaunchShape shape{2, 64, 0};
constexpr uint64_t lanes = 128;

TEST_CASE("capture: nothing runs before a launch of the graph, all of it runs with each", "[capture]") {
  Captured at;
  at.trial.args.rounds = 3;
  at.trial.args.data[0] = 'a';
  const auto graph = at.graph([&] {
    CHECK(at.device.is_capturing(at.stream));
    at.trial.launch("trial_tickets", shape, at.stream);
    at.device.memcpy_async(at.trial.args.copy, at.trial.args.data, 1, at.stream);
  });
  CHECK(!at.device.is_capturing(at.stream));
  at.trial.args.rounds = 1000;  // arguments are those of the captured call
  REQUIRE(at.ends(at.stream));
  CHECK(at.trial.args.words[0] == 0);
  CHECK(at.trial.args.copy[0] == 0);
  const ucclEpStream_t other = at.device.stream_create();
  for (uint64_t launches = 1; launches <= 6; launches += 2) {
    graph->launch(other);
    graph->launch(at.stream);
    REQUIRE(at.ends(at.stream));  // of one graph, the second launch comes after the first
    CHECK(at.trial.args.words[0] == (launches + 1) * 3 * lanes);
    CHECK(at.trial.args.copy[0] == 'a');
  }
}

TEST_CASE("capture: a stream that waits for one that is captured is a branch, and runs beside it", "[capture]") {
  Captured at;
  const ucclEpStream_t side = at.device.stream_create();
  const ucclEpEvent_t fork = at.device.event_create(), join = at.device.event_create();
  const auto graph = at.graph([&] {
    at.device.event_record(fork, at.stream);
    at.device.stream_wait_event(side, fork);
    CHECK(at.device.is_capturing(side));
    at.trial.launch("trial_spins", shape, at.stream);  // ends when the branch has run
    at.trial.launch("trial_releases", {1, 32, 0}, side);
    at.device.event_record(join, side);
    at.device.stream_wait_event(at.stream, join);
    at.device.memcpy_async(at.trial.args.copy, at.trial.args.words + 5, 8, at.stream);
  });
  CHECK(!at.device.is_capturing(side));
  for (int i = 0; i < 3; ++i) {
    at.trial.args.words[5] = 0;
    at.trial.args.copy[0] = 0;
    graph->launch(at.stream);
    REQUIRE(at.ends(at.stream));
    CHECK(at.trial.args.copy[0] == 1);
  }
  at.device.event_record(fork, at.stream);  // its own again
  CHECK(at.device.event_synchronize(fork, 10'000) == ucclEpSuccess);
}

TEST_CASE("capture: work that the origin does not wait for ends it without a graph", "[capture]") {
  Captured at;
  at.trial.args.rounds = 1;
  const ucclEpStream_t side = at.device.stream_create();
  const ucclEpEvent_t fork = at.device.event_create(), join = at.device.event_create();
  const auto capture = [&](bool late) {
    at.device.event_record(fork, at.stream);
    at.device.stream_wait_event(side, fork);
    at.trial.launch("trial_tickets", shape, side);
    at.device.event_record(join, side);
    at.device.stream_wait_event(at.stream, join);
    if (late) at.trial.launch("trial_tickets", shape, side);
  };
  is_refused(ucclEpInvalidUsage, "did not wait for all", [&] { at.graph([&] { capture(true); }); });
  CHECK(!at.device.is_capturing(at.stream));
  CHECK(!at.device.is_capturing(side));
  is_refused(ucclEpInvalidUsage, "finished stream capture", [&] { at.device.stream_wait_event(side, join); });
  const auto graph = at.graph([&] { capture(false); });
  graph->launch(at.stream);
  REQUIRE(at.ends(at.stream));
  CHECK(at.trial.args.words[0] == lanes);
}

TEST_CASE("capture: nothing outside is waited for, and what is refused leaves it whole", "[capture]") {
  Captured at;
  at.trial.args.rounds = 1;
  const ucclEpStream_t other = at.device.stream_create(), side = at.device.stream_create();
  const ucclEpEvent_t outside = at.device.event_create(), inside = at.device.event_create();
  at.device.event_record(outside, other);
  const auto graph = at.graph([&] {
    at.trial.launch("trial_tickets", shape, at.stream);
    const auto wait = [&] { at.device.stream_wait_event(at.stream, outside); };
    is_refused(ucclEpInvalidUsage, "can wait for events of its own capture only", wait);
    at.capture.begin_capture(other);
    at.device.event_record(outside, other);
    is_refused(ucclEpInvalidUsage, "can wait for events of its own capture only", wait);
    is_refused(ucclEpInvalidUsage, "already", [&] { at.capture.begin_capture(at.stream); });
    at.device.event_record(inside, at.stream);
    at.device.stream_wait_event(side, inside);
    is_refused(ucclEpInvalidUsage, "began on another stream", [&] { at.capture.end_capture(side); });
  });
  is_refused(ucclEpInvalidUsage, "is not being captured", [&] { at.capture.end_capture(at.stream); });
  at.capture.end_capture(other)->launch(other);  // empty
  graph->launch(at.stream);
  REQUIRE(at.ends(at.stream));
  REQUIRE(at.ends(other));
  CHECK(at.trial.args.words[0] == lanes);
}

TEST_CASE("capture: a graph with a branch is launched in a capture", "[capture]") {
  Captured at;
  at.trial.args.rounds = 1;
  const ucclEpStream_t side = at.device.stream_create();
  const ucclEpEvent_t fork = at.device.event_create(), join = at.device.event_create();
  const auto inner = at.graph([&] {
    at.device.event_record(fork, at.stream);
    at.device.stream_wait_event(side, fork);
    at.trial.launch("trial_tickets", shape, side);
    at.device.event_record(join, side);
    at.device.stream_wait_event(at.stream, join);
  });
  const auto outer = at.graph([&] {
    inner->launch(at.stream);
    inner->launch(at.stream);
  });
  REQUIRE(at.ends(at.stream));
  CHECK(at.trial.args.words[0] == 0);
  outer->launch(at.stream);
  inner->launch(at.stream);
  REQUIRE(at.ends(at.stream));
  CHECK(at.trial.args.words[0] == 3 * lanes);
}

TEST_CASE("capture: a graph, and its stream, may go while a replay runs, which still ends", "[capture]") {
  Captured at;
  at.trial.args.data[0] = 'x';
  const ucclEpStream_t side = at.device.stream_create();
  const ucclEpEvent_t fork = at.device.event_create(), join = at.device.event_create(), end = at.device.event_create();
  auto graph = at.graph([&] {
    at.trial.launch("trial_spins", shape, at.stream);
    at.device.event_record(fork, at.stream);
    at.device.stream_wait_event(side, fork);
    at.device.memcpy_async(at.trial.args.copy, at.trial.args.data, 1, side);
    at.device.event_record(join, side);
    at.device.stream_wait_event(at.stream, join);
  });
  graph->launch(at.stream);
  graph.reset();
  at.device.event_record(end, at.stream);
  at.device.stream_destroy(at.stream);
  at.device.stream_destroy(side);
  CHECK(at.device.event_synchronize(end, 20) == ucclEpTimeout);
  CHECK(at.trial.args.copy[0] == 0);
  at.release();
  REQUIRE(at.device.event_synchronize(end, 60'000) == ucclEpSuccess);
  CHECK(at.trial.args.copy[0] == 'x');
}

TEST_CASE("capture: what each replay records can be waited for, and must be there", "[capture]") {
  Captured at;
  const ucclEpEvent_t event = at.device.event_create();
  const auto graph = at.graph([&] {
    at.trial.launch("trial_spins", shape, at.stream);
    at.capture.record_at_replay(event, at.stream);
  });
  CHECK(at.device.event_synchronize(event, 0) == ucclEpSuccess);
  graph->launch(at.stream);
  CHECK(at.device.event_synchronize(event, 20) == ucclEpTimeout);
  at.release();
  REQUIRE(at.device.event_synchronize(event, 60'000) == ucclEpSuccess);
  at.device.event_destroy(event);
  is_refused(ucclEpInvalidUsage, "a group that was destroyed", [&] { graph->launch(at.stream); });
}

}  // namespace
}  // namespace ucclep
