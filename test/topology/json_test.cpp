// SPDX-License-Identifier: Apache-2.0
// What ranks send each other of their machines, and what programs get of a plan.
#include "topology/json.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "fleet.hpp"
#include "machines.hpp"

using namespace ucclep;
using namespace ucclep::topology;
using namespace ucclep::test;

TEST_CASE("a machine survives its way to another rank", "[topology][build-tree]") {
  for (const char* name : machine_names) {
    INFO(name);
    const auto machine = saved_machine(name);
    CHECK(parse_machine(pack(*machine)) == *machine);
  }
}

TEST_CASE("what a rank says of itself survives its way to another rank", "[topology]") {
  RankFacts facts;
  facts.gpu = 3;
  facts.nics = {"mlx5_0", "name \"with\" quotes"};
  facts.ranks_per_node = 4;
  facts.ranks_per_domain = 2;
  facts.proxy_threads = 1;
  facts.whole_bytes = 8;
  for (const RankFacts& one : {facts, RankFacts()}) {
    const RankFacts copy = parse_facts(pack(one));
    CHECK(std::tie(copy.gpu, copy.nics, copy.ranks_per_node, copy.ranks_per_domain, copy.proxy_threads,
                   copy.whole_bytes) ==
          std::tie(one.gpu, one.nics, one.ranks_per_node, one.ranks_per_domain, one.proxy_threads, one.whole_bytes));
  }
  CHECK_THROWS_WITH(parse_facts("{}"), Catch::Matchers::Contains("cannot parse"));
}

TEST_CASE("a machine that did not survive is refused", "[topology]") {
  const std::string whole = pack(machine_with({0}, {0}));
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), whole.substr(0, whole.size() / 2)}) {
    INFO(text);
    CHECK_THROWS_AS(parse_machine(text), Error);
  }
  std::string wrong_address = whole;
  wrong_address.replace(wrong_address.find("0000:01:00.0"), 4, "zero");
  CHECK_THROWS_WITH(parse_machine(wrong_address),
                    "a rank's topology has the PCI address zero:01:00.0, which cannot be parsed");
  std::string no_number = whole;
  no_number.replace(no_number.find("\"drawn\""), 7, "1.2e20");
  CHECK_THROWS_WITH(parse_machine(no_number), Catch::Matchers::Contains("1.2e+20"));
  std::string wrong_type = whole;
  wrong_type.replace(wrong_type.find("\"drawn\""), 7, "7");
  CHECK_THROWS_WITH(parse_machine(wrong_type), Catch::Matchers::Contains("cannot parse"));
}

TEST_CASE("a plan as JSON", "[topology]") {
  const auto machine = std::make_shared<const Machine>(machine_with({0, 4}, {0, 4}));
  auto ranks = ranks_on(machine, 2);
  for (RankFacts& facts : ranks) facts.proxy_threads = 1;
  const auto json = nlohmann::json::parse(to_json(ranks, make_plan(ranks)));
  CHECK(json["version"] == 1);
  REQUIRE(json["machines"].size() == 1);
  CHECK(json["machines"][0]["gpus"][1]["links"]["kind"] == "nvlink");
  CHECK(json["machines"][0]["rails"] == nlohmann::json({"nic0", "nic1"}));
  CHECK(json["nodes"] == nlohmann::json({{0, 1}}));
  CHECK(json["domains"][0] == nlohmann::json({{"kind", "nvlink"}, {"ranks", {0, 1}}, {"whole_bytes", 128}}));
  REQUIRE(json["ranks"].size() == 2);
  CHECK(json["ranks"][1] == nlohmann::json::parse(R"({"machine": 0, "node": 0, "local_rank": 1, "domain": 0, "gpu": 1,
    "nics": [{"name": "nic1", "rail": 1, "path": "PCIe switch"}], "proxies": [{"cpu": 31, "nics": ["nic1"]}]})"));
}

TEST_CASE("ranks that see different parts of one machine have an entry each", "[topology]") {
  const Machine whole = machine_with({0, 4}, {0, 4});
  Machine part = whole;
  part.gpus.erase(part.gpus.begin());
  auto ranks = ranks_on(std::make_shared<const Machine>(whole), 3);
  ranks[1].machine = std::make_shared<const Machine>(part);
  ranks[1].gpu = 0;
  ranks[2].machine = std::make_shared<const Machine>(whole);
  const auto json = nlohmann::json::parse(to_json(ranks, make_plan(ranks)));
  REQUIRE(json["machines"].size() == 2);
  CHECK(json["machines"][0]["ranks"] == nlohmann::json({0, 2}));
  CHECK(json["machines"][1]["ranks"] == nlohmann::json({1}));
  CHECK(json["machines"][1]["gpus"].size() == 1);
  CHECK(json["machines"][1]["rails"] == json["machines"][0]["rails"]);
  CHECK(json["ranks"][1]["machine"] == 1);
  CHECK(json["ranks"][1]["gpu"] == 0);
  CHECK(json["ranks"][2]["machine"] == 0);
  CHECK(json["nodes"] == nlohmann::json({{0, 1, 2}}));
}

TEST_CASE("the part of a name that is UTF-8 is kept", "[topology]") {
  Machine machine = machine_with({0}, {0});
  machine.name = "h\xffst";
  CHECK(parse_machine(pack(machine)).name == "h\xef\xbf\xbdst");
  const auto ranks = ranks_on(std::make_shared<const Machine>(machine), 1);
  CHECK(nlohmann::json::parse(to_json(ranks, make_plan(ranks)))["machines"][0]["name"] == "h\xef\xbf\xbdst");
}
