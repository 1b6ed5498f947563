// SPDX-License-Identifier: Apache-2.0
#include "host/context/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.hpp"
#include "support/environment.hpp"
#include "ucclep/ucclep.h"

using namespace ucclep;
using Catch::Matchers::Contains;
using test::Environment;

TEST_CASE("an empty environment asks for nothing") {
  Config config = Config::from_environment();
  CHECK_FALSE(config.device);
  CHECK_FALSE(config.timeout_ms);
  CHECK(config.transport.empty());
  CHECK(config.nics.empty());
  CHECK(config.nodes.empty());
  CHECK(config.ll_copies == LlCopies::automatic);
}

TEST_CASE("every variable of the environment reaches the configuration") {
  Environment environment({{"UCCLEP_DEVICE", "host"},
                           {"UCCLEP_TRANSPORT", "efa"},
                           {"UCCLEP_NICS", "mlx5_0,mlx5_1"},
                           {"UCCLEP_NODES", "3,5"},
                           {"UCCLEP_SOCKET_IFNAME", "eth"},
                           {"UCCLEP_TIMEOUT_MS", "1234"},
                           {"UCCLEP_WINDOW_BYTES", "536870912"},
                           {"UCCLEP_TOPO_FILE", "topo.json"},
                           {"UCCLEP_NETWORK_MEMORY", "device"},
                           {"UCCLEP_STATS_DIR", "/run/stats"},
                           {"UCCLEP_TRACE", "trace.%r.json"},
                           {"UCCLEP_LL_COPIES", "node"}});
  Config config = Config::from_environment();
  CHECK(config.device == UCCLEP_DEVICE_HOST);
  CHECK(config.transport == "efa");
  CHECK(config.nics == std::vector<std::string>{"mlx5_0", "mlx5_1"});
  CHECK(config.nodes == std::vector<int>{3, 5});
  CHECK(config.socket_ifname == "eth");
  CHECK(config.timeout_ms == 1234);
  CHECK(config.window_bytes == 536870912);
  CHECK(config.topo_file == "topo.json");
  CHECK(config.network_memory == Config::NetworkMemory::device);
  CHECK(config.stats_dir == "/run/stats");
  CHECK(config.trace_file == "trace.%r.json");
  CHECK(config.ll_copies == LlCopies::node);
}

TEST_CASE("a removed variable that is set gives one line with its successor") {
  REQUIRE_FALSE(removed_variables().empty());
  for (const char* ring : {"UCCLEP_HT_RING", "UCCLEP_HT_RELAY_RING"}) {
    const auto one = std::ranges::find(removed_variables(), std::string(ring), &RemovedVariable::name);
    REQUIRE(one != removed_variables().end());
    CHECK_THAT(one->successor, Contains("UCCLEP_WINDOW_BYTES"));
  }
  for (const RemovedVariable& variable : removed_variables()) {
    std::string path = "/tmp/ucclep-removed-XXXXXX";
    const int file = mkstemp(path.data());
    REQUIRE(file >= 0);
    close(file);
    {
      const Environment environment(std::map<std::string, std::string>{
          {variable.name, "yes"}, {"UCCLEP_DEBUG", "WARN"}, {"UCCLEP_DEBUG_FILE", path}});
      CHECK_NOTHROW(Config::from_environment());
    }
    CHECK_NOTHROW(
        Config::from_environment());  // the log goes back to where it was; nothing is set, so nothing is written
    std::ifstream log(path);
    const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
    CHECK_THAT(text, Contains(std::string(variable.name) + " is set") && Contains(variable.successor));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    unlink(path.c_str());
  }
}

TEST_CASE("a variable that does not parse is named") {
  std::map<std::string, std::string> bad{{"UCCLEP_DEVICE", "gpu"},     {"UCCLEP_NICS", "a,,b"},
                                         {"UCCLEP_NODES", "3,0"},      {"UCCLEP_TIMEOUT_MS", "abc"},
                                         {"UCCLEP_DEBUG", "LOUD"},     {"UCCLEP_NETWORK_MEMORY", "gpu"},
                                         {"UCCLEP_LL_COPIES", "both"}, {"UCCLEP_WINDOW_BYTES", "0"}};
  for (const auto& [name, value] : bad) {
    Environment environment(std::map<std::string, std::string>{{name, value}});
    try {
      Config::from_environment();
      FAIL(name << "=" << value << " was accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpInvalidArgument);
      CHECK_THAT(error.what(), Contains(name + "=\"" + value + "\""));
    }
  }
  for (const char* value : {"0", "-5", "2147483648"}) {
    Environment environment(std::map<std::string, std::string>{{"UCCLEP_TIMEOUT_MS", value}});
    CHECK_THROWS_WITH(Config::from_environment(), Contains("from 1 to 2147483647"));
  }
}

TEST_CASE("a variable that another device would read is checked as well") {
  for (const auto& [variable, value] : {std::pair{"UCCLEP_EARLY_START", "yes"},
                                        {"UCCLEP_HOST_WAVE", "33"},
                                        {"UCCLEP_HOST_SEED", "-1"},
                                        {"UCCLEP_HOST_MODE", "residency=0"}}) {
    const Environment environment(std::map<std::string, std::string>{{variable, value}});
    try {
      Config::from_environment();
      FAIL(variable << " was accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpInvalidArgument);
      CHECK_THAT(error.what(), Contains(variable) && Contains(value));
    }
  }
}

TEST_CASE("the timeout is the environment's, then the group's, then the communicator's") {
  Config config;
  CHECK(resolve_timeout_ms(config, 0, 0) == 100000);
  CHECK(resolve_timeout_ms(config, 0, 30) == 30);
  CHECK(resolve_timeout_ms(config, 20, 30) == 20);
  config.timeout_ms = 10;
  CHECK(resolve_timeout_ms(config, 20, 30) == 10);
}
