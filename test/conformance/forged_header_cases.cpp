// SPDX-License-Identifier: Apache-2.0
// A rank whose headers count what no rank can have: the others get an error that names it, and access nothing by it.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/zero_copy.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

constexpr int forger = 1;
constexpr uint32_t many = 0x80000001u;

// A packet of a header, and what becomes of its value.
struct Forgery {
  const char* what;
  uint32_t packet;
  uint64_t keeps, value;
  const char* said;
};

const Forgery forgeries[] = {
    {"rows", HeaderLayout::rows, 0xffffffff00000000u, many, "counts 2147483649 "},
    {"one row more than B", HeaderLayout::rows, 0xffffffff00000000u, 9, "counts 9 "},
    {"form", HeaderLayout::rows, 0x00000000ffffffffu, uint64_t{7} << 32, "the form 7"},
    {"tokens", HeaderLayout::tokens, 0xffffffff00000000u, many, "counts 2147483649 "},
    {"rows of an expert", HeaderLayout::counts, 0xffffffff00000000u, many, "counts 2147483649 "},
    {"rows of the next expert", HeaderLayout::counts, 0x00000000ffffffffu, uint64_t{many} << 32, "counts 2147483649 "},
};

struct Packets {
  uint64_t value, epoch;
};

// The forger's header of its operation `seq` at a peer, as its next one, forged.
void forge(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, int peer, const Forgery& forgery) {
  const auto header = [&](uint64_t of) {
    return reinterpret_cast<Packets*>(group.windows[peer] +
                                      group.layout.header(group.shape, kind, group.shape.slot_of(of), forger));
  };
  const Packets* const from = header(seq);
  Packets* const to = header(seq + 1);
  for (uint32_t i = 0; i < group.layout.header_bytes / sizeof(Packets); ++i) {
    if (from[i].epoch != seq) continue;
    const bool forged = i == forgery.packet;
    const uint64_t value = forged ? (from[i].value & forgery.keeps) | forgery.value : from[i].value;
    __atomic_store_n(&to[i].value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&to[i].epoch, seq + 1, __ATOMIC_RELEASE);
  }
}

void require_named(ucclEpComm_t comm, const Forgery& forgery) {
  const ucclEpAsyncError_t error = async_error(comm);
  require(error.code == ucclEpRemoteError && error.peer == forger && std::string(error.phase) == "header",
          std::string(forgery.what) + ": " + error.text);
  require(std::string(error.text).find(forgery.said) != std::string::npos, error.text);
}

void run_forged(const Scenario& scenario, const Forgery& forgery) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 5000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    ucclEpDeviceGroup group{};
    ok(ucclEpGroupGetDevice(at.group, &group), "ucclEpGroupGetDevice");
    const Kind kind = scenario.ll() ? Kind::dispatch : Kind::update;
    if (rank.rank == forger) {
      for (int peer = 0; peer < rank.count; ++peer) {
        if (peer != forger) forge(group, kind, 1, peer, forgery);
      }
      rank.board.post(0);
      rank.board.wait(1, static_cast<uint32_t>(rank.count - 1), 60);
      return;
    }
    rank.board.wait(0, 1);
    Exchange exchange(rank, at.comm, scenario, 2);
    if (!scenario.carried) exchange.update(at.handle, at.stream);
    if (scenario.ll()) exchange.dispatch(at.handle, at.stream);
    require(ucclEpStreamSynchronize(at.comm, at.stream) == ucclEpRemoteError, forgery.what);
    require_named(at.comm, forgery);
    rank.board.add(1);
  });
}

TEST_CASE("a header that counts more than a rank can have is refused, and its rank named", "[reduced][modes]") {
  std::vector<Scenario> scenarios = in_all_layouts({.ranks = 3, .experts = 12});
  scenarios.push_back(scenarios.front());
  scenarios.back().hidden = 4096;  // rows of LL that do not travel as lines
  scenarios.push_back(scenarios.front());
  scenarios.back().masked = true;
  for (const Scenario& scenario : scenarios) {
    for (const Forgery& forgery : forgeries) run_forged(scenario, forgery);
  }
}

// Of HT between nodes READY counts the rows that a relay gets, as the sender's handle has them.
void run_forged_ready(const Scenario& scenario) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 1;
    config.transport = "loopback";
    Session at(rank, config, scenario, 5000);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    ucclEpDeviceHandle handle{};
    ok(ucclEpHandleGetDevice(at.handle, &handle), "ucclEpHandleGetDevice");
    const auto ranks = static_cast<uint32_t>(rank.count), nodes = ranks;
    // Behind the first round, of the nodes, which stand behind the ranks.
    uint32_t* const rows =
        reinterpret_cast<uint32_t*>(handle.view.memory + handle.view.offsets.sent_before) + (ranks + nodes) + ranks;
    for (uint32_t node = 0; rank.rank == forger && node < nodes; ++node) rows[node] = 1000;
    rank.board.add(0);
    rank.board.wait(0, static_cast<uint32_t>(rank.count));
    // The forger's own proxies may have given up before this rank calls.
    ucclEpResult_t result = exchange.try_dispatch(at.handle, at.stream);
    if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(at.comm, at.stream);
    if (rank.rank == forger) return;
    require(result == ucclEpRemoteError && async_error(at.comm).peer == forger, async_error(at.comm).text);
  });
}

TEST_CASE("a header from another node that counts more than a rank can have is refused", "[reduced]") {
  for (Scenario scenario : in_all_layouts({.ranks = 3, .experts = 12})) {
    if (scenario.ll()) continue;
    scenario.nodes = {1, 1, 1};
    run_forged_ready(scenario);
  }
}

// Of HT in rounds a packet of each round says which places come in it.
void run_forged_places(const Scenario& scenario) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 5000);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    ucclEpDeviceHandle handle{};
    ok(ucclEpHandleGetDevice(at.handle, &handle), "ucclEpHandleGetDevice");
    auto* const before = reinterpret_cast<uint32_t*>(handle.view.memory + handle.view.offsets.sent_before);
    const uint32_t behind_last = handle.view.rounds * static_cast<uint32_t>(rank.count);
    for (int peer = 0; rank.rank == forger && peer < rank.count; ++peer) ++before[behind_last + peer];
    rank.board.add(0);
    rank.board.wait(0, static_cast<uint32_t>(rank.count));
    ucclEpResult_t result = exchange.try_dispatch(at.handle, at.stream);
    if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(at.comm, at.stream);
    if (rank.rank == forger) return;
    require(result == ucclEpRemoteError && async_error(at.comm).peer == forger, async_error(at.comm).text);
  });
}

TEST_CASE("a round that announces more places than a rank has rows for is refused", "[reduced]") {
  for (Scenario scenario : in_all_layouts({.ranks = 3, .experts = 12, .max_tokens = 8, .round = 3})) {
    if (!scenario.ll()) run_forged_places(scenario);
  }
}

constexpr uint32_t offer_packet(uint32_t word) {
  return HeaderLayout::counts + word / 2;
}
const Forgery forged_offers[] = {
    {"capacity", offer_packet(OfferWords::capacity), 0x00000000ffffffffu, uint64_t{many} << 32, ""},
    {"window", offer_packet(OfferWords::tokens + OfferWords::window), 0xffffffff00000000u, 257, ""},
    {"another window", offer_packet(OfferWords::tokens + OfferWords::window), 0xffffffff00000000u, 200, ""},
    {"stride", offer_packet(OfferWords::tokens + OfferWords::stride), 0x00000000ffffffffu, uint64_t{many} << 32, ""},
    {"offset", offer_packet(OfferWords::tokens + OfferWords::offset), 0x00000000ffffffffu, uint64_t{many} << 32, ""},
    {"offset's upper half", offer_packet(OfferWords::tokens + OfferWords::offset + 1), 0xffffffff00000000u, many, ""},
};

// Of HT FLAT READY says where in which window the output lies, and peers write there.
void run_forged_offer(const Scenario& scenario, const Forgery& forgery) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 5000);
    Exchange exchange(rank, at.comm, scenario);
    const Windows windows(rank, at.comm, exchange, [](int, Which) { return Exposed::whole; });
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    ucclEpDeviceGroup group{};
    ok(ucclEpGroupGetDevice(at.group, &group), "ucclEpGroupGetDevice");
    if (rank.rank == forger) {
      for (int peer = 0; peer < rank.count; ++peer) {
        if (peer != forger) forge(group, Kind::dispatch, 1, peer, forgery);
      }
      rank.board.post(0);
      rank.board.wait(1, static_cast<uint32_t>(rank.count - 1), 60);
      return;
    }
    rank.board.wait(0, 1);
    exchange.dispatch(at.handle, at.stream);
    require(ucclEpStreamSynchronize(at.comm, at.stream) == ucclEpRemoteError, forgery.what);
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(error.peer == forger && std::string(error.phase) == "offer", error.text);
    rank.board.add(1);
  });
}

TEST_CASE("a tensor that a rank exposes beyond its window is refused, and the rank named", "[reduced][modes]") {
  for (const Forgery& forgery : forged_offers) {
    run_forged_offer({.layout = Layout::ht_flat, .ranks = 3, .experts = 12}, forgery);
  }
}

}  // namespace
}  // namespace ucclep::test
