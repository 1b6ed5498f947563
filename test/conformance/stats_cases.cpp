// SPDX-License-Identifier: Apache-2.0
// UCCLEP_STATS_DIR: what the files say is what the ranks did. bindings/python/tests/test_top.py reads them as users do.
#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"

namespace ucclep::test {
namespace {

using nlohmann::json;

struct Folder {
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path = std::filesystem::temp_directory_path() / "ep-test-stats-XXXXXX";
};

// The rank's file, once it counts so many dispatches. Another rank's may be replaced, or go, meanwhile.
json file_of(const std::string& folder, int rank, uint64_t dispatches) {
  for (int tries = 0; tries < 300; ++tries) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path());
      const json found = json::parse(file, nullptr, false);
      if (found.is_discarded() || found.value("rank", -1) != rank || found.value("dispatches", 0u) < dispatches)
        continue;
      struct stat facts = {};
      require(stat(entry.path().c_str(), &facts) != 0 || (facts.st_mode & 0777) == 0600,
              "others may read " + entry.path().string());
      return found;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw Failure("rank " + std::to_string(rank) + " wrote nothing in 30 s");
}

TEST_CASE("stats: the file of each rank counts what it did, and goes with its communicator", "[network][reduced]") {
  const Folder folder;
  const Environment variable("UCCLEP_STATS_DIR", folder.path + "/made");
  const Scenario scenario{
      .layout = Layout::ll_rank_major, .ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 8, .hidden = 64};
  constexpr uint64_t rounds = 3;
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, in_nodes_of(rank, 2), scenario);
    for (uint64_t round = 1; round <= rounds; ++round) round_trip(rank, at.comm, at.handle, at.stream, scenario, round);
    const json file = file_of(folder.path + "/made", rank.rank, rounds);
    rank.board.add(0);
    rank.board.wait(0, 4);  // nobody sends any more
    require(file.at("combines") == rounds && file.at("groups") == 1, "operations: " + file.dump());
    require(file.at("bytes_sent") > 0 && file.at("bytes_sent") <= stats_of(at.comm).bytes_sent,
            "bytes: " + file.dump());
    require(file.at("masked") == 0 && file.at("error") == "", "masks, error: " + file.dump());
  });
  CHECK(std::filesystem::is_empty(folder.path + "/made"));
}

TEST_CASE("stats: a folder that cannot be made is named", "[reduced]") {
  const Environment variable("UCCLEP_STATS_DIR", "/nonexistent/stats");
  run_ranks(2, [](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    refused(ucclEpCommInitRank(&comm, 2, rank.ids[0], rank.rank, &config), ucclEpSystemError, "ucclEpCommInitRank",
            {"UCCLEP_STATS_DIR", "/nonexistent/stats"});
  });
}

}  // namespace
}  // namespace ucclep::test
