// SPDX-License-Identifier: Apache-2.0
// What is read of sysfs, from one that the test writes.
#include "topology/sysfs.hpp"

#include <locale.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fleet.hpp"

// Of AddressSanitizer, where it is there.
extern "C" __attribute__((weak)) void __lsan_disable();
extern "C" __attribute__((weak)) void __lsan_enable();

using namespace ucclep::topology;
using namespace ucclep::test;

namespace {

class Sysfs {
 public:
  Sysfs() {
    std::array<char, 32> name{"/tmp/ep-test-sysfs-XXXXXX"};
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name.data();
  }
  ~Sysfs() { std::filesystem::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;

  void write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << '\n';
  }
  void interface(const std::string& name, const std::string& state, const std::string& flags = "0x1003") const {
    write("class/net/" + name + "/ifindex", "2");
    write("class/net/" + name + "/operstate", state);
    write("class/net/" + name + "/flags", flags);
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// A locale that lies in a directory. glibc 2.36 leaks its copy of LOCPATH.
locale_t load_locale(const std::string& directory, const char* name) {
  setenv("LOCPATH", directory.c_str(), 1);
  if (__lsan_disable != nullptr) __lsan_disable();
  const locale_t locale = newlocale(LC_ALL_MASK, name, nullptr);
  if (__lsan_enable != nullptr) __lsan_enable();
  unsetenv("LOCPATH");
  return locale;
}

}  // namespace

TEST_CASE("sysfs: rates and states of verbs devices", "[topology]") {
  const Sysfs sysfs;
  sysfs.write("class/infiniband/nic0/ports/1/state", "4: ACTIVE");
  sysfs.write("class/infiniband/nic0/ports/1/rate", "200 Gb/sec (4X HDR)");
  sysfs.write("class/infiniband/nic1/ports/1/state", "1: DOWN");
  sysfs.write("class/infiniband/nic1/ports/2/state", "1: DOWN");
  sysfs.write("class/infiniband/nic2/ports/1/state", "1: DOWN");
  sysfs.write("class/infiniband/nic2/ports/2/state", "4: ACTIVE");
  sysfs.write("class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
  Machine machine = machine_with({}, {0, 0, 0});
  machine.nics[0].gigabits = 0;
  add_what_sysfs_knows(machine, sysfs.root());
  REQUIRE(machine.nics.size() == 4);
  CHECK(machine.nics[0].gigabits == 200);
  CHECK(machine.nics[0].up);
  CHECK_FALSE(machine.nics[1].up);
  CHECK(machine.nics[2].up);
  CHECK(machine.nics[3].name == "rxe0");
  CHECK(machine.nics[3].rdma);
  CHECK(machine.nics[3].place == PciPlace{});
}

TEST_CASE("sysfs: network interfaces", "[topology]") {
  const Sysfs sysfs;
  sysfs.interface("ib0", "up");  // of nic0
  sysfs.interface("eth0", "up");
  sysfs.write("class/net/eth0/speed", "25000");
  sysfs.interface("eth1", "down");
  sysfs.write("class/net/eth1/speed", "-1");
  sysfs.interface("veth0", "unknown");
  sysfs.interface("lo", "unknown", "0x9");
  sysfs.interface("wlan0", "up");
  sysfs.write("class/net/wlan0/phy80211/name", "phy0");
  sysfs.write("class/net/bonding_masters", "bond0");
  Machine machine = machine_with({}, {0});
  machine.nics[0].interfaces = {"ib0"};
  add_what_sysfs_knows(machine, sysfs.root());
  REQUIRE(machine.nics.size() == 4);
  CHECK(machine.nics[1].name == "eth0");
  CHECK(machine.nics[1].gigabits == 25);
  CHECK_FALSE(machine.nics[1].rdma);
  CHECK_FALSE(machine.nics[2].up);
  CHECK(machine.nics[2].gigabits == 0);
  CHECK(machine.nics[3].name == "veth0");
  CHECK(machine.nics[3].up);
}

TEST_CASE("sysfs: hives of AMD GPUs", "[topology]") {
  const Sysfs sysfs;
  Machine machine = machine_with({0, 1, 2}, {});
  machine.gpus[1].links = machine.gpus[2].links = {};
  for (size_t i = 0; i < 3; ++i) {
    sysfs.write("bus/pci/devices/" + machine.gpus[i].place.address.text() + "/xgmi_hive_info/xgmi_hive_id",
                i == 2 ? "0" : "9007");
  }
  add_what_sysfs_knows(machine, sysfs.root());
  CHECK(machine.gpus[0].links == GpuLinks{"nvlink", "0", ""});  // somebody knew better
  CHECK(machine.gpus[1].links == GpuLinks{"xgmi", "9007", ""});
  CHECK(machine.gpus[2].links == GpuLinks{});
}

TEST_CASE("sysfs: a machine without one", "[topology]") {
  Machine machine = machine_with({0}, {0});
  const Machine before = machine;
  add_what_sysfs_knows(machine, "/nonexistent");
  CHECK(machine == before);
}

TEST_CASE("sysfs: a number has its point in every locale of the program", "[topology]") {
  const Sysfs sysfs;
  sysfs.write("class/infiniband/nic0/ports/1/state", "4: ACTIVE");
  sysfs.write("class/infiniband/nic0/ports/1/rate", "12.5 Gb/sec (5X SDR)");
  const std::string german = sysfs.root() + "/de_DE.UTF-8";
  if (std::system(("localedef -i de_DE -f UTF-8 " + german + " >/dev/null 2>&1").c_str()) != 0) {
    WARN("this machine cannot make a German locale");
    return;
  }
  const locale_t with_comma = load_locale(sysfs.root(), "de_DE.UTF-8");
  REQUIRE(with_comma != nullptr);
  const locale_t before = uselocale(with_comma);
  Machine machine = machine_with({}, {0});
  machine.nics[0].gigabits = 0;
  add_what_sysfs_knows(machine, sysfs.root());
  uselocale(before);
  freelocale(with_comma);
  CHECK(machine.nics[0].gigabits == 12.5);
}
