// SPDX-License-Identifier: Apache-2.0
// The picture, as far as a program can judge it: it is XML, everything is there, inside what it belongs to, and nothing
// overlaps.
#include <catch2/catch.hpp>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <vector>

#include "fleet.hpp"
#include "machines.hpp"
#include "topology/text.hpp"

using namespace ucclep::topology;
using namespace ucclep::test;

namespace {

struct Rectangle {
  double x, y, width, height;
  bool overlaps(const Rectangle& o) const {
    return x < o.x + o.width && o.x < x + width && y < o.y + o.height && o.y < y + height;
  }
  bool contains(const Rectangle& o) const {
    return x <= o.x && o.x + o.width <= x + width && y <= o.y && o.y + o.height <= y + height;
  }
};

struct Picture {
  explicit Picture(const std::vector<RankFacts>& ranks) {
    const std::string text = to_svg(ranks, make_plan(ranks));
    const pugi::xml_parse_result parsed = document.load_string(text.c_str());
    INFO(text);
    REQUIRE(parsed);
    for (const pugi::xml_node rect : document.child("svg").children("rect")) {
      const auto number = [&](const char* name) { return rect.attribute(name).as_double(-1); };
      shapes[rect.attribute("class").value()].push_back({number("x"), number("y"), number("width"), number("height")});
    }
    for (const pugi::xml_node path : document.child("svg").children("path")) ++paths[path.attribute("class").value()];
    for (const pugi::xml_node words : document.child("svg").children("text")) texts.insert(words.child_value());
  }

  size_t count(const std::string& shape) { return shapes[shape].size(); }

  void check_places() {
    std::vector<Rectangle> items;
    for (const char* kind : {"gpu", "cpu", "idle", "nic"})
      items.insert(items.end(), shapes[kind].begin(), shapes[kind].end());
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t k = 0; k < i; ++k) CHECK_FALSE(items[i].overlaps(items[k]));
      size_t holders = 0;
      for (const Rectangle& numa : shapes["numa"]) holders += numa.contains(items[i]);
      CHECK(holders == 1);
    }
    for (const char* kind : {"numa", "links"}) {
      for (const Rectangle& inner : shapes[kind]) {
        size_t holders = 0;
        for (const Rectangle& machine : shapes["machine"]) holders += machine.contains(inner);
        CHECK(holders == 1);
      }
    }
    for (const Rectangle& machine : shapes["machine"]) CHECK(shapes["paper"][0].contains(machine));
  }

  pugi::xml_document document;
  std::map<std::string, std::vector<Rectangle>> shapes;
  std::map<std::string, int> paths;
  std::set<std::string> texts;
};

}  // namespace

TEST_CASE("picture: the saved machines", "[topology][build-tree]") {
  struct Expected {
    size_t gpus, nics, links;
    int near, far;
  };
  const std::map<std::string, Expected> expected = {
      {"h100-cx7", {8, 8, 1, 8, 0}},     {"p5en", {8, 16, 1, 16, 0}},    {"p5", {8, 32, 1, 32, 0}},
      {"mi300x-thor2", {8, 8, 1, 8, 0}}, {"pcie-only", {4, 2, 0, 0, 4}}, {"laptop", {0, 0, 0, 0, 0}},
  };
  for (const char* name : machine_names) {
    INFO(name);
    const auto machine = saved_machine(name);
    Picture picture(ranks_on(machine, std::max(1, static_cast<int>(machine->gpus.size()))));
    const Expected& wanted = expected.at(name);
    CHECK(picture.count("gpu") == wanted.gpus);
    CHECK(picture.count("nic") == wanted.nics);
    CHECK(picture.count("links") == wanted.links);
    CHECK(picture.paths["near"] == wanted.near);
    CHECK(picture.paths["far"] == wanted.far);
    CHECK(picture.paths["head"] == wanted.near + wanted.far);
    CHECK(picture.count("numa") == machine->numa_nodes.size());
    for (const Nic& nic : machine->nics) CHECK(picture.texts.count(nic.name) == 1);
    picture.check_places();
  }
}

TEST_CASE("picture: machines of all shapes", "[topology]") {
  const std::vector<std::vector<int>> places = {
      {}, {0}, {5, 5}, {0, 0, 0, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5}};
  for (size_t gpus = 0; gpus < places.size(); ++gpus) {
    for (size_t nics = 0; nics < places.size(); ++nics) {
      INFO("GPUs " << gpus << " NICs " << nics);
      Machine machine = machine_with(places[gpus], places[nics]);
      machine.nics.push_back({{}, "veth0", {}, false, true, 0});
      const auto shared = std::make_shared<const Machine>(machine);
      for (const int count : {1, 3, 12}) {
        Picture picture(ranks_on(shared, count, "a"));
        picture.check_places();
      }
    }
  }
}

TEST_CASE("picture: several machines, and names that XML does not like", "[topology]") {
  Machine machine = machine_with({0}, {0});
  machine.name = "<a & \"b\">\x01";
  machine.nics[0].name = "n&c";
  const auto shared = std::make_shared<const Machine>(machine);
  auto ranks = ranks_on(shared, 1, "a");
  ranks.push_back(ranks_on(shared, 1, "b")[0]);
  Picture picture(ranks);
  CHECK(picture.count("machine") == 2);
  CHECK_FALSE(picture.shapes["machine"][0].overlaps(picture.shapes["machine"][1]));
  CHECK(picture.texts.count("<a & \"b\">: node 1, rank 1") == 1);
  CHECK(picture.texts.count("n&c") == 1);
  picture.check_places();
}
