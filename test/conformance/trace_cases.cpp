// SPDX-License-Identifier: Apache-2.0
// UCCLEP_TRACE: what the file says is what ran.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using nlohmann::json;

struct Span {
  int rank;
  std::string track, name;
  double begin, end;
  uint64_t messages;
};

// The Trace Event format: the spans of a track begin and end in an order in which they lie within each other, times of
// a track rise, each process and each track has a name before it is used.
class FormatReader {
 public:
  std::vector<Span> read(const json& events) {
    REQUIRE(events.is_array());
    for (const json& event : events) {
      INFO(event.dump());
      const std::string phase = event.at("ph");
      if (phase == "M") {
        name(event);
      } else if (phase == "B") {
        begin(event);
      } else {
        REQUIRE(phase == "E");
        end(event);
      }
    }
    for (const auto& [key, track] : tracks_) CHECK(track.open.empty());
    return std::move(spans_);
  }

 private:
  struct Track {
    std::string name;
    double latest = 0;
    std::vector<Span> open;
  };

  void name(const json& event) {
    const int pid = event.at("pid");
    if (event.at("name") == "process_name") processes_.insert(pid);
    if (event.at("name") == "thread_name") tracks_[{pid, event.at("tid")}].name = event.at("args").at("name");
  }
  Track& at(const json& event) {
    REQUIRE(processes_.contains(event.at("pid")));
    Track& track = tracks_[{event.at("pid"), event.at("tid")}];
    REQUIRE(!track.name.empty());
    REQUIRE(event.at("ts").get<double>() >= track.latest);
    track.latest = event.at("ts");
    return track;
  }
  void begin(const json& event) {
    Track& track = at(event);
    const uint64_t messages = event.contains("args") ? event["args"].at("messages").get<uint64_t>() : 0;
    track.open.push_back({event.at("pid"), track.name, event.at("name"), track.latest, 0, messages});
  }
  void end(const json& event) {
    Track& track = at(event);
    REQUIRE(!track.open.empty());
    REQUIRE(track.open.back().name == event.at("name").get<std::string>());
    track.open.back().end = track.latest;
    spans_.push_back(track.open.back());
    track.open.pop_back();
  }

  std::set<int> processes_;
  std::map<std::pair<int, uint32_t>, Track> tracks_;
  std::vector<Span> spans_;
};

std::vector<Span> spans_of(const json& events) {
  return FormatReader().read(events);
}

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

  // As any reader of the format sees them: all events of the file, after a check of their form.
  std::vector<Span> spans() const {
    std::ifstream file(file_);
    return spans_of(json::parse(file));
  }

 private:
  bool own_ = false;
  std::filesystem::path directory_, file_;
};

bool within(const Span& inner, const Span& outer) {
  return inner.begin >= outer.begin && inner.end <= outer.end;
}

std::vector<Span> named(const std::vector<Span>& all, int rank, const std::string& name) {
  std::vector<Span> found;
  for (const Span& span : all) {
    if (span.rank == rank && span.name == name) found.push_back(span);
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
  double begin_us = 0, end_us = 0;  // of the case
};

void check_operations(const std::vector<Span>& spans, int rank, const Expected& expected) {
  for (const std::string& kind : expected.kinds) {
    for (int seq = 1; seq <= expected.rounds; ++seq) {
      const std::string name = kind + " " + std::to_string(seq);
      INFO("rank " << rank << ", " << name);
      const std::vector<Span> found = named(spans, rank, name);
      REQUIRE(found.size() == 1);
      CHECK(found[0].end > found[0].begin);
      CHECK(found[0].track == "group 0: " + kind);
      CHECK(found[0].begin >= expected.begin_us);
      CHECK(found[0].end <= expected.end_us);
      for (const char* step : {"slots", "headers", "rows"}) {
        INFO("step " << step);
        int inside = 0;
        for (const Span& span : named(spans, rank, step)) {
          inside += span.track == found[0].track && within(span, found[0]) ? 1 : 0;
        }
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
  expected.begin_us = begin - slack_us;
  expected.end_us = wall_us() + slack_us;
  const std::vector<Span> spans = tracing.spans();
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    check_operations(spans, rank, expected);
    CHECK(named(spans, rank, "ucclEpGroupCreate").size() == 1);
    CHECK(named(spans, rank, "ucclEpGroupCreate")[0].track == "calls");
  }
  CHECK(named(spans, scenario.ranks, "dispatch 1").empty());
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
  const std::vector<Span> spans = tracing.spans();
  for (int rank = 0; rank < 4; ++rank) {
    for (int peer = 0; peer < 4; ++peer) {
      for (const char* direction : {"to", "from"}) {
        for (int seq = 1; seq <= few_rounds; ++seq) {
          INFO("rank " << rank << " " << direction << " " << peer << ", dispatch " << seq);
          const std::string track = "group 0: " + std::string(direction) + " rank " + std::to_string(peer);
          uint64_t messages = 0;
          for (const Span& span : named(spans, rank, "dispatch " + std::to_string(seq))) {
            if (span.track == track) messages += span.messages;
          }
          CHECK((messages > 0) == (rank / 2 != peer / 2));
        }
      }
    }
  }
}

// The operations that the rank's trace has of what went to the peer.
std::set<std::string> sent_to(const std::vector<Span>& spans, int rank, int peer, const std::string& kind) {
  std::set<std::string> names;
  for (const Span& span : spans) {
    if (span.rank != rank || span.track != "group 0: to rank " + std::to_string(peer)) continue;
    if (span.name.starts_with(kind)) names.insert(span.name);
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
  const std::vector<Span> spans = tracing.spans();
  for (int rank = 0; rank < masked::ranks; ++rank) {
    for (const int peer : {rank < 2 ? 2 : 0, rank < 2 ? 3 : 1}) {
      INFO("rank " << rank << " to " << peer);
      CHECK(sent_to(spans, rank, peer, "dispatch ").size() == 2);
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
  const std::vector<Span> spans = tracing.spans();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(named(spans, rank, "dispatch " + std::to_string(replays)).size() == 1);
    CHECK(named(spans, rank, "dispatch " + std::to_string(replays + 1)).empty());
  }
}

TEST_CASE("trace: the file is whole after an abort, with all that ended before", "[network][reduced]") {
  const Tracing tracing;
  const Scenario scenario = traced(Layout::ll_rank_major);
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, in_nodes_of(rank, 2), scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 1);
    Exchange exchange(rank, at.comm, scenario);
    rank.board.add(0);
    rank.board.wait(0, 4);
    if (rank.rank != 0) static_cast<void>(exchange.try_dispatch(at.handle, at.stream));
    ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
    static_cast<void>(ucclEpStreamSynchronize(at.comm, at.stream));
  });
  const std::vector<Span> spans = tracing.spans();
  for (int rank = 0; rank < 4; ++rank) {
    int combines = 0;
    for (const Span& span : named(spans, rank, "combine 1")) combines += span.track == "group 0: combine" ? 1 : 0;
    CHECK(combines == 1);
  }
}

TEST_CASE("trace: the file is whole after a rank was killed, and ranks of a later job continue it", "[killed]") {
  const Tracing tracing;
  const Scenario scenario = traced(Layout::ht_flat);
  run_ranks(4, {.processes = true, .killed = {3}}, [&](Rank& rank) {
    Comm comm(rank, comm_config(rank));
    rank.board.add(0);
    if (rank.rank != 3) return;
    rank.board.wait(0, 4);
    raise(SIGKILL);
  });
  if (!is_rank_process()) CHECK(named(tracing.spans(), 0, "dispatch 1").empty());
  run_ranks(4, {.processes = true}, [&](Rank& rank) { run_rounds(rank, comm_config(rank), scenario); });
  CHECK(named(tracing.spans(), 3, "dispatch 1").size() == 1);
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
