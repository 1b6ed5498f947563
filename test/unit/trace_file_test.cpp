// SPDX-License-Identifier: Apache-2.0
// The file of a trace is JSON after each append, whatever was in it and whatever stops the writer.
#include "host/context/trace_file.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace ucclep {
namespace {

using nlohmann::json;

class OwnFile {
 public:
  ~OwnFile() { std::filesystem::remove(name); }
  std::string text() const {
    std::ifstream file(name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void set(const std::string& text) const { std::ofstream(name) << text; }
  std::string events() const { return json::parse(text()).dump(); }
  const std::string name = "/tmp/ep-test-trace-" + std::to_string(getpid());
};

TraceEvents of(std::initializer_list<const char*> texts) {
  TraceEvents events;
  for (const char* text : texts) events.push_back(json::parse(text));
  return events;
}

TEST_CASE("trace file: it is an array after each append, of all who write to it") {
  const OwnFile own;
  TraceFile first(own.name), second(own.name);
  first.append({});
  CHECK(own.text().empty());
  first.append(of({"1"}));
  CHECK(own.events() == "[1]");
  second.append(of({"2", "3"}));
  first.append(of({"4"}));
  CHECK(own.events() == "[1,2,3,4]");
}

TEST_CASE("trace file: one that lacks its last bracket has it after the next append, and nothing else is taken away") {
  const OwnFile own;
  own.set("[\n1");
  TraceFile(own.name).append(of({"2"}));
  CHECK(own.events() == "[1,2]");
  own.set("a shopping list\n");
  TraceFile(own.name).append(of({"2"}));
  CHECK(own.text().starts_with("a shopping list\n"));
}

TEST_CASE("trace file: what does not fit is lost, and the events before it stay an array") {
  const OwnFile own;
  TraceFile file(own.name);
  file.append(of({"1"}));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{64, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  file.append(TraceEvents(1, std::string(1000, 'x')));
  file.append(of({"2"}));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(own.events() == "[1]");
}

TEST_CASE("track set: spans that overlap have tracks of their own, others share one") {
  TraceEvents events;
  TrackSet tracks(3, "calls");
  const uint32_t first = tracks.take(10, 20, events);
  CHECK(tracks.take(20, 30, events) == first);
  const uint32_t second = tracks.take(25, 40, events);
  CHECK(second != first);
  CHECK(tracks.take(30, 35, events) == first);
  CHECK(TrackSet(3, "calls").take(0, 1, events) != first);
  REQUIRE(events.size() == 3);
  CHECK(events[1].dump() ==
        R"({"args":{"name":"calls"},"name":"thread_name","ph":"M","pid":3,"tid":)" + std::to_string(second) + "}");
}

}  // namespace
}  // namespace ucclep
