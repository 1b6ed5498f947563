// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "device/host/host_device.hpp"
#include "host/memory/window_table.hpp"

using namespace ucclep;

namespace {

struct Table {
  std::unique_ptr<Device> device = open_host_device(0, {});
  WindowTable table{*device, 2};

  // A window of rank 1 over this range; the peer's is somewhere else.
  ucclEpWindow_t insert(char* data, size_t bytes, char* peers) {
    auto window = std::make_unique<ucclEpWindow>(nullptr);
    window->rank = 1;
    window->id = table.free_id();
    window->memory.of = {device->offer(peers, bytes, false), device->offer(data, bytes, false)};
    table.write(*window, Deadline::after_ms(60000));
    return table.insert(std::move(window));
  }
  // "id:offset", or nothing.
  std::string find(const char* data, uint64_t bytes) const {
    const auto place = table.find(data, bytes);
    return place ? fmt::format("{}:{}", place->id, place->offset) : "";
  }
};

}  // namespace

TEST_CASE("window table: a range is found whole, or not at all", "[window_table]") {
  Table windows;
  char memory[400], other[400];
  CHECK(windows.find(memory, 1).empty());
  windows.insert(memory + 100, 100, other);
  CHECK(windows.find(memory + 100, 100) == "0:0");
  CHECK(windows.find(memory + 150, 50) == "0:50");
  CHECK(windows.find(memory + 199, 1) == "0:99");
  CHECK(windows.find(memory + 99, 1).empty());
  CHECK(windows.find(memory + 99, 2).empty());
  CHECK(windows.find(memory + 150, 51).empty());
  CHECK(windows.find(memory + 200, 1).empty());
  CHECK(windows.find(memory + 150, UINT64_MAX).empty());
  CHECK(windows.find(other + 10, 1).empty());  // a peer's
}

TEST_CASE("window table: of several the lowest id counts, and ids come back", "[window_table]") {
  Table windows;
  char memory[400], other[400];
  const ucclEpWindow_t large = windows.insert(memory, 400, other);
  const ucclEpWindow_t small = windows.insert(memory + 100, 100, other);
  CHECK(windows.find(memory + 110, 10) == "0:110");
  CHECK(windows.table.has(large));
  windows.table.take(large->id);
  CHECK(!windows.table.has(large));
  CHECK(windows.find(memory + 110, 10) == "1:10");
  CHECK(windows.find(memory + 10, 10).empty());
  CHECK(windows.table.free_id() == 0);
  windows.insert(memory + 50, 100, other);
  CHECK(windows.table.free_id() == 2);
  CHECK(windows.find(memory + 110, 10) == "0:60");
  CHECK(windows.find(memory + 160, 10) == "1:60");
  CHECK(small->id == 1);
}

TEST_CASE("window table: kernels find the addresses of all ranks by id", "[window_table]") {
  Table windows;
  char memory[4][16];
  windows.insert(memory[0], 16, memory[1]);
  windows.insert(memory[2], 16, memory[3]);
  char* const* addresses = windows.table.addresses();  // the host device's memory can be read here
  for (const auto& [at, expected] : {std::pair{0, 1}, {1, 0}, {2, 3}, {3, 2}}) CHECK(addresses[at] == memory[expected]);
  CHECK(windows.table.addresses(1) == addresses + 2);
}
