// SPDX-License-Identifier: Apache-2.0
// Files that are no topology.
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.hpp"
#include "machines.hpp"
#include "support/test_env.hpp"
#include "topology/discover.hpp"

using namespace ucclep;
using namespace ucclep::topology;
using Catch::Matchers::Contains;

namespace {

// A file that goes with its owner.
class File {
 public:
  explicit File(const std::string& text) {
    std::array<char, 32> name{"/tmp/ep-test-topology-XXXXXX"};
    const int fd = mkstemp(name.data());
    REQUIRE(fd >= 0);
    close(fd);
    path_ = name.data();
    write(text);
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;

  void write(const std::string& text) const { std::ofstream(path_, std::ios::trunc) << text; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string refusal(const std::string& path) {
  try {
    read_topology_file(path);
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    CHECK_THAT(error.what(), Contains(path));
    return error.what();
  }
  return "";
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("topology file: what cannot be read", "[topology]") {
  CHECK_THAT(refusal("/nonexistent/machine.xml"), Contains("No such file"));
  CHECK_THAT(refusal("/tmp"), Contains("not a regular file"));
  CHECK_THAT(refusal("/dev/zero"), Contains("not a regular file"));
}

TEST_CASE("topology file: what is too large", "[topology]") {
  const File file("<topology");
  std::filesystem::resize_file(file.path(), (size_t{16} << 20) + 1);
  CHECK_THAT(refusal(file.path()), Contains("16777217 bytes, expected at most 16777216"));
}

TEST_CASE("topology file: what is no XML of hwloc", "[topology]") {
  for (const char* text : {"", "\n", "machine.json", "<topology version=\"2.0\"><object"}) {
    const File file(text);
    CHECK_THAT(refusal(file.path()), Contains("is not XML: "));
  }
  for (const char* text : {"<html><body/></html>", "<topology/>", "<topology version=\"1.0\"/>"}) {
    const File file(text);
    CHECK_THAT(refusal(file.path()), Contains("expected <topology version=\"2.0\">"));
  }
  const File empty("<topology version=\"2.0\"></topology>");
  CHECK_THAT(refusal(empty.path()), Contains("no processing unit"));
}

TEST_CASE("topology file: objects nested without end", "[topology]") {
  std::string text = "<topology version=\"2.0\">";
  for (int i = 0; i < 500000; ++i) text += "<object type=\"Group\">";
  for (int i = 0; i < 500000; ++i) text += "</object>";
  const File file(text + "</topology>");
  CHECK_THAT(refusal(file.path()), Contains("nested deeper than 64"));
}

TEST_CASE("topology file: values that are none", "[topology][build-tree]") {
  const std::string whole = text_of(test::topology_path("pcie-only"));
  for (const auto& [from, to, message] :
       {std::tuple{"pci_busid=\"0000:17:00.0\"", "pci_busid=\"17\"",
                   "pci_busid of a PCIDev is \"17\", expected an address as in 0000:1b:00.0"},
        {"\"0302 [10de:26b9] [0000:0000] 00\"", "\"0302\"", "pci_type of a PCIDev is \"0302\", expected a class"},
        {"cpuset=\"0x00000001,0x00000000,0x00000001\"", "cpuset=\"1-3\"",
         "cpuset of a Core is \"1-3\", expected words of 32 bits"}}) {
    std::string text = whole;
    replace(text, from, to);
    const bool changed = text != whole;
    REQUIRE(changed);
    const File file(text);
    CHECK_THAT(refusal(file.path()), Contains(message));
  }
}

TEST_CASE("topology file: a machine without a PU", "[topology][build-tree]") {
  std::string text = text_of(test::topology_path("laptop"));
  replace(text, "type=\"PU\"", "type=\"Group\"");
  const File file(text);
  CHECK_THAT(refusal(file.path()), Contains("no processing unit"));
}

TEST_CASE("topology file: one that ends too early", "[topology][build-tree]") {
  const std::string text = text_of(test::topology_path("laptop"));
  const File file(text.substr(0, text.size() / 2));
  CHECK_THAT(refusal(file.path()), Contains("is not XML: "));
}

TEST_CASE("topology file: damaged anywhere, it is read or refused", "[topology][build-tree]") {
  const std::string whole = text_of(test::topology_path("pcie-only"));
  const File file("");
  for (unsigned seed = 0; seed < 40 * test::seeds(); ++seed) {
    std::mt19937 random(seed);
    std::string text = whole;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(' ' + random() % 95);
      } else {
        text.erase(at, random() % 200);
      }
    }
    INFO("seed " << seed);
    file.write(text);
    try {
      const Machine machine = read_topology_file(file.path());
      CHECK_FALSE(machine.numa_nodes.empty());
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpInvalidArgument);
    }
  }
}
