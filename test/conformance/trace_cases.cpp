// SPDX-License-Identifier: Apache-2.0
// UCCLEP_TRACE: what the file says is what ran.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using nlohmann::json;

// Traces everything while it lives, in processes that the case starts, too: these find the variable set.
class Tracing {
 public:
  explicit Tracing(const std::string& file = "") {
    if (std::getenv("UCCLEP_TRACE") != nullptr) return;
    own_ = true;
    std::string path = std::filesystem::temp_directory_path() / "ep-test-trace-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    directory_ = path;
    file_ = file.empty() ? directory_ / "trace.json" : std::filesystem::path(file);
    setenv("UCCLEP_TRACE", file_.c_str(), 1);
  }
  ~Tracing() {
    if (!own_) return;
    unsetenv("UCCLEP_TRACE");
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  // Which lacks the last bracket, as the format allows.
  json events() const {
    std::ifstream file(file_);
    std::ostringstream text;
    text << file.rdbuf() << ']';
    return json::parse(text.str());
  }

 private:
  bool own_ = false;
  std::filesystem::path directory_, file_;
};

struct Span {
  double begin, end;
};

bool within(const Span& inner, const Span& outer) {
  constexpr double rounding_us = 0.5;  // of a double that counts microseconds since 1970
  return inner.begin >= outer.begin - rounding_us && inner.end <= outer.end + rounding_us;
}

std::vector<Span> spans(const json& events, int rank, const std::string& name) {
  std::vector<Span> found;
  for (const json& event : events) {
    if (event["ph"] != "X" || event["pid"] != rank || event["name"] != name) continue;
    found.push_back({event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
  }
  return found;
}

double wall_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Scenario traced(Layout layout) {
  return {.layout = layout, .ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 8, .hidden = 64};
}

constexpr int few_rounds = 3;

void run_rounds(Rank& rank, const ucclEpCommConfig_t& config, const Scenario& scenario, int rounds = few_rounds) {
  Comm comm(rank, config);
  const Group group = make_group(comm, group_config({scenario}));
  const Handle handle = make_handle(group, handle_config(scenario));
  Stream stream(comm);
  for (int round = 0; round < rounds; ++round)
    round_trip(rank, comm, handle, stream, scenario, 1 + static_cast<uint64_t>(round));
}

struct Expected {
  std::vector<std::string> kinds;
  int rounds = few_rounds;
  Span test{};
};

void check_operations(const json& events, int rank, const Expected& expected) {
  for (const std::string& kind : expected.kinds) {
    for (int seq = 1; seq <= expected.rounds; ++seq) {
      const std::string name = kind + " " + std::to_string(seq);
      INFO("rank " << rank << ", " << name);
      const std::vector<Span> found = spans(events, rank, name);
      REQUIRE(found.size() == 1);
      CHECK(found[0].end > found[0].begin);
      CHECK(within(found[0], expected.test));
      for (const char* step : {"slots", "headers", "rows"}) {
        INFO("step " << step);
        int inside = 0;
        for (const Span& span : spans(events, rank, step)) inside += within(span, found[0]) ? 1 : 0;
        CHECK(inside == 1);
      }
    }
  }
}

// In processes: these come back from run_ranks in the first one only.
void trace_all(const Scenario& scenario, Expected expected) {
  const Tracing tracing;
  const double begin = wall_us();
  run_ranks(scenario.ranks, {.processes = true},
            [&](Rank& rank) { run_rounds(rank, comm_config(rank), scenario, expected.rounds); });
  constexpr double slack_us = 1000;  // between the clocks of a device and of the wall
  expected.test = {begin - slack_us, wall_us() + slack_us};
  const json events = tracing.events();
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    check_operations(events, rank, expected);
    CHECK(spans(events, rank, "ucclEpGroupCreate").size() == 1);
  }
  CHECK(spans(events, scenario.ranks, "dispatch 1").empty());
}

TEST_CASE("trace: every operation of LL of every rank is there, with its steps", "[driver][reduced]") {
  trace_all(traced(Layout::ll_expert_major), {{"dispatch", "combine"}});
}

// So few rows that combine has the kernel whose warps are for themselves, and on the host device a thread for each
// block.
TEST_CASE("trace: no step of LL is before its operation began, whichever warp comes first", "[driver]") {
  const Environment workers("UCCLEP_HOST_WORKERS", "8");
  Scenario scenario = traced(Layout::ll_expert_major);
  scenario.ranks = 2;
  scenario.max_tokens = 1;
  trace_all(scenario, {{"dispatch", "combine"}, 60});
}

TEST_CASE("trace: every operation of HT of every rank is there, with its steps", "[driver][reduced][modes]") {
  trace_all(traced(Layout::ht_flat), {{"update", "dispatch", "combine"}});
}

TEST_CASE("trace: what went over the network to whom, and what came", "[driver][network][reduced]") {
  const Tracing tracing;
  run_ranks(4, {.processes = true},
            [&](Rank& rank) { run_rounds(rank, in_nodes_of(rank, 2), traced(Layout::ll_rank_major)); });
  const json events = tracing.events();
  for (int rank = 0; rank < 4; ++rank) {
    for (int peer = 0; peer < 4; ++peer) {
      for (const char* direction : {"to", "from"}) {
        for (int seq = 1; seq <= few_rounds; ++seq) {
          INFO("rank " << rank << " " << direction << " " << peer << ", dispatch " << seq);
          double begin = 0, end = 0;
          int messages = 0;
          for (const json& event : events) {
            if (event.value("cat", "") != "group 0: " + std::string(direction) + " rank " + std::to_string(peer))
              continue;
            if (event["pid"] != rank || event["name"] != "dispatch " + std::to_string(seq)) continue;
            (event["ph"] == "b" ? begin : end) = event["ts"];
            if (event["ph"] == "b") messages += event["args"]["messages"].get<int>();
          }
          const bool crosses = rank / 2 != peer / 2;
          CHECK((messages > 0) == crosses);
          CHECK((begin > 0) == crosses);
          CHECK(end >= begin);
        }
      }
    }
  }
}

// The operations that the rank's trace has of what went to the peer.
std::set<std::string> sent_to(const json& events, int rank, int peer, const std::string& kind) {
  std::set<std::string> names;
  for (const json& event : events) {
    if (event["pid"] != rank || event.value("cat", "") != "group 0: to rank " + std::to_string(peer)) continue;
    if (event["name"].get<std::string>().starts_with(kind)) names.insert(event["name"]);
  }
  return names;
}

TEST_CASE("trace: what went over the network before ranks came back, and with one that is masked",
          "[driver][network][masks][reduced]") {
  const Tracing tracing;
  const Scenario scenario = traced(Layout::ll_rank_major);
  run_ranks(masked::ranks, {.processes = true}, [&](Rank& rank) {
    masked::Masked at(rank, in_nodes_of(rank, 2), scenario, 60'000);
    for (const uint64_t seed : {1, 2}) {
      round_trip(rank, at.comm, at.handle, at.stream, scenario, seed);
      masked::meet(rank, static_cast<int>(seed));
      if (rank.rank != masked::missing) masked::mask_missing(at);
      at.stream.synchronize();
      if (seed == 1) ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    }
  });
  const json events = tracing.events();
  for (int rank = 0; rank < masked::ranks; ++rank) {
    for (const int peer : {rank < 2 ? 2 : 0, rank < 2 ? 3 : 1}) {
      INFO("rank " << rank << " to " << peer);
      CHECK(sent_to(events, rank, peer, "dispatch ").size() == 2);
    }
  }
}

TEST_CASE("trace: the latest operations are kept, and a graph's are among them", "[reduced][host]") {
  const Tracing tracing;
  constexpr int replays = 20;
  const Scenario scenario = traced(Layout::ht_flat);
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    ok(ucclEpStreamBeginCapture(at.comm, at.stream), "ucclEpStreamBeginCapture");
    exchange.dispatch(at.handle, at.stream);
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(at.comm, at.stream, &graph), "ucclEpStreamEndCapture");
    for (int i = 0; i < replays; ++i) ok(ucclEpGraphLaunch(at.comm, graph, at.stream), "ucclEpGraphLaunch");
    at.stream.synchronize();
    ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
  });
  const json events = tracing.events();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(spans(events, rank, "dispatch " + std::to_string(replays)).size() == 1);
    CHECK(spans(events, rank, "dispatch " + std::to_string(replays + 1)).empty());
  }
}

TEST_CASE("trace: a file that cannot be opened is named, a full disk costs the trace and nothing else", "[reduced]") {
  {
    const Tracing tracing("/nonexistent/trace.json");
    run_ranks(2, {.processes = true}, [](Rank& rank) {
      ucclEpCommConfig_t config = comm_config(rank);
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, 2, rank.ids[0], rank.rank, &config), ucclEpSystemError, "ucclEpCommInitRank",
              {"UCCLEP_TRACE", "/nonexistent/trace.json"});
    });
  }
  const Tracing tracing("/dev/full");
  run_ranks(4, {.processes = true}, [](Rank& rank) { run_rounds(rank, comm_config(rank), traced(Layout::ht_flat)); });
}

TEST_CASE("trace: a file that another process keeps locked is waited for no longer than a moment") {
  const Tracing tracing;
  const int file = open(std::getenv("UCCLEP_TRACE"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  REQUIRE(file >= 0);
  REQUIRE(flock(file, LOCK_EX) == 0);
  run_ranks(4, [](Rank& rank) { run_rounds(rank, comm_config(rank), traced(Layout::ht_flat)); });
  struct stat facts = {};
  CHECK((fstat(file, &facts) == 0 && facts.st_size == 0));
  close(file);
}

TEST_CASE("trace: a pipe that nobody reads is refused") {
  const Tracing tracing;
  REQUIRE(mkfifo(std::getenv("UCCLEP_TRACE"), 0600) == 0);
  run_ranks(2, [](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    refused(ucclEpCommInitRank(&comm, 2, rank.ids[0], rank.rank, &config), ucclEpSystemError, "ucclEpCommInitRank",
            {"UCCLEP_TRACE"});
  });
}

}  // namespace
}  // namespace ucclep::test
