// SPDX-License-Identifier: Apache-2.0
// P11, where windows lie that NICs read and write: over doubles of a GPU's driver and of NICs, which see to it that
// what a NIC writes into a GPU's memory is not there before it is flushed, if the platform orders nothing.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "conformance/exchange.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "device/nic_access.hpp"
#include "doubles/platform.hpp"
#include "support/test_env.hpp"
#include "user_kernels/channel_fixture.hpp"

namespace ucclep::test {
namespace {

constexpr const char* no_dma_buf = "124:0";
constexpr const char* efa = "ofi:efa";
constexpr const char* staged = "HT relays stage rows";  // says a group

// Bit for bit.
void exchange_rows(const Nodes& nodes, const std::string& transport, size_t scenarios, int rounds = 3,
                   const std::set<Layout>& layouts = {std::begin(all_layouts), std::end(all_layouts)}) {
  const int ranks = ranks_of(nodes);
  run_ranks(ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    const std::vector<Scenario> all = some_of_everything(ranks);
    for (size_t i = 0; i < scenarios; ++i) {
      for (Scenario scenario : in_all_layouts(all[i])) {
        scenario.ranks = ranks;
        scenario.nodes = nodes;
        if (!exists(scenario) || layouts.count(scenario.layout) == 0) continue;
        const Group group = make_group(comm, group_config({scenario}));
        const Handle handle = make_handle(group, handle_config(scenario));
        for (int round = 0; round < rounds; ++round) {
          round_trip(rank, comm, handle, stream, scenario, static_cast<uint64_t>(round) + 1);
        }
      }
    }
    no_async_error(comm);
  });
}

TEST_CASE("network memory: the rule of flushes", "[memory]") {
  using enum NicWritesReach;
  for (const bool flushes : {false, true}) {
    CHECK(flush_rule({all_devices, flushes}, all_devices) == FlushRule::nothing);
    CHECK(flush_rule({all_devices, flushes}, owner) == FlushRule::nothing);
    CHECK(flush_rule({owner, flushes}, owner) == FlushRule::nothing);
  }
  CHECK(flush_rule({owner, true}, all_devices) == FlushRule::by_driver);
  CHECK(flush_rule({nobody, true}, owner) == FlushRule::by_driver);
  CHECK(flush_rule({owner, false}, all_devices) == FlushRule::unknown);
  CHECK(flush_rule({nobody, false}, owner) == FlushRule::unknown);
}

TEST_CASE("network memory: rows in the memory of GPUs by dma-bufs and flushes", "[memory]") {
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}});
  exchange_rows({2, 2}, "verbs", 2);
  platform.all_said(4, "the GPU's memory, by dma-buf, flushed by its driver");
  // Peers of the domain read what is at a relay, where it landed.
  CHECK(platform.flushes(to_all_devices) > 0);
  CHECK(platform.said(staged).empty());
  CHECK(platform.flushes(to_owner) == 0);
}

TEST_CASE("network memory: the same by the addresses of GPUs, where they have no dma-bufs", "[memory]") {
  const Platform platform(
      {{"UCCLEP_DOUBLE_NIC", "bnxt_re"}, {"UCCLEP_DOUBLE_ATTRIBUTE", no_dma_buf}, {"UCCLEP_DOUBLE_PEER_MEMORY", "1"}});
  exchange_rows({1, 1, 1}, "verbs", 1);
  platform.all_said(3, "the GPU's memory, by its addresses, flushed by its driver");
  CHECK(platform.flushes(to_owner) > 0);
  CHECK(platform.flushes(to_all_devices) == 0);
}

TEST_CASE("network memory: libfabric registers the memory of GPUs where it promises not to copy", "[memory]") {
  const std::string provider = GENERATE("efa", "efa-direct");
  const Platform platform(Settings{{"UCCLEP_DOUBLE_PROVIDERS", provider}});
  exchange_rows({2, 1}, efa, 1);
  platform.all_said(3, "the GPU's memory, by its addresses");
}

TEST_CASE("network memory: a platform that orders writes of NICs needs no flush", "[memory]") {
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "118:200,117:0"}});
  exchange_rows({2, 2}, "verbs", 1, 1);
  platform.all_said(4, "the GPU's memory, by dma-buf, where writes of NICs need no flush");
  CHECK(platform.flushes(to_owner) + platform.flushes(to_all_devices) == 0);
}

// Where they do not reach it, or nobody knows when what they write is seen, all is in host memory, and says why.
TEST_CASE("network memory: what any rank lacks puts all in host memory", "[memory]") {
  struct Lack {
    const char* transport;
    Settings settings;
    std::string reason;
  };
  const auto lack = GENERATE(values<Lack>(
      {{"verbs",
        {{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "117:0"}},
        "rank 0: a NIC's writes to its GPU's memory cannot be made visible"},
       {"verbs",
        {{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "118:100,117:0"}},
        "rank 0: a NIC's writes to its GPU's memory cannot be made visible"},
       {"verbs",
        {{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "124@2:0,116@2:0"}},
        "rank 2: the CUDA driver does not let NICs access"},
       {"verbs",
        {{"UCCLEP_DOUBLE_NIC", "irdma"}, {"UCCLEP_DOUBLE_ATTRIBUTE", no_dma_buf}},
        "rank 0: dma-buf: the GPU's driver does not offer it; peer memory: the transport verbs does not accept this "
        "memory"},
       {"verbs",
        {{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", no_dma_buf}},
        "peer memory: verbs: cannot register 65536 bytes"},
       {"verbs", {{"UCCLEP_DOUBLE_NIC", "erdma"}}, "rank 0: dma-buf: the transport verbs does not accept this memory"},
       {efa, {{"UCCLEP_DOUBLE_PROVIDERS", "efa"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "124:0,110:0"}}, "rank 0: "},
       {"ofi:shm", {{"UCCLEP_DOUBLE_PROVIDERS", "shm"}}, "the transport ofi:shm does not accept this memory"},
       {"loopback", {}, "the transport loopback does not accept this memory"}}));
  const Platform platform(lack.settings);
  exchange_rows({2, 1}, lack.transport, 1, 1, {Layout::ht_flat});
  platform.all_said(3, "NICs read and write host memory only (");
  platform.all_said(3, lack.reason);
  CHECK(platform.said(staged).size() == 3);
  CHECK(platform.flushes(to_owner) + platform.flushes(to_all_devices) == 0);
}

void run_channel(const Nodes& nodes, const char* transport, const std::function<void(Rank&, Channel&)>& body,
                 const ucclEpGroupConfig_t& config = config_with(num_signals, 4)) {
  run_ranks(ranks_of(nodes), [&](Rank& rank) {
    Channel channel(rank, in_nodes(rank, nodes, transport), 2001, config);
    require(channel.args.group.shape.stages_puts == 0, "puts are copied");
    channel.args.scope = ChannelScope::warp;
    channel.args.rounds = 3;
    body(rank, channel);
  });
}

// NICs may reach less of a GPU than it has, and each group has a window of its own.
TEST_CASE("network memory: a group whose window NICs do not get hold of has it in host memory", "[memory]") {
  const std::string in_host = "a group's window of";
  SECTION("all groups") {
    const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_REACH", "70000"}});
    exchange_rows({2, 2}, "verbs", 1, 2);
    platform.all_said(4, "the GPU's memory, by dma-buf");
    CHECK(platform.said(in_host).size() >= 4);
  }
  SECTION("puts go from window to window all the same") {
    const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_REACH", "70000"}});
    ucclEpGroupConfig_t config = config_with(num_signals, 4);
    config.max_tokens_per_rank = 8192;
    const auto exchange = [](Rank&, Channel& channel) { channel.run("exchange"); };
    run_channel({2, 2}, "verbs", exchange, config);
    CHECK(platform.said(in_host).size() == 4);
    CHECK(platform.flushes(to_all_devices) > 0);
  }
  SECTION("a large group beside a small one") {
    constexpr int64_t reach = 32 << 20;
    const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_REACH", std::to_string(reach)}});
    run_ranks(2, [](Rank& rank) {
      Comm comm(rank, in_nodes_of(rank, 1, "verbs"));
      Stream stream(comm);
      const Scenario scenario{.layout = Layout::ht_flat, .ranks = 2, .experts = 4, .nodes = {1, 1}};
      ucclEpGroupConfig_t config = group_config({scenario});
      const Group small = make_group(comm, config);
      config.max_tokens_per_rank = 65536;
      const Group large = make_group(comm, config);
      for (const Group* group : {&small, &large}) {
        ucclEpDeviceGroup device;
        ok(ucclEpGroupGetDevice(*group, &device), "ucclEpGroupGetDevice");
        require((static_cast<int64_t>(device.layout.network_bytes) > reach) == (group == &large), "the sizes");
        const Handle handle = make_handle(*group, handle_config(scenario));
        for (uint64_t seed = 1; seed <= 3; ++seed) round_trip(rank, comm, handle, stream, scenario, seed);
      }
      no_async_error(comm);
    });
    CHECK(platform.said(in_host).size() == 2);
    CHECK(platform.flushes(to_owner) > 0);
  }
  SECTION("where UCCLEP_NETWORK_MEMORY insists") {
    const Platform platform(
        Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_REACH", "70000"}, {"UCCLEP_NETWORK_MEMORY", "device"}});
    run_ranks(2, [](Rank& rank) {
      Comm comm(rank, in_nodes_of(rank, 1, "verbs"));
      ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ht_flat, .ranks = 2}});
      config.max_tokens_per_rank = 8192;
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, comm, &config), ucclEpNotSupported, "ucclEpGroupCreate",
              {"rank 0 has set UCCLEP_NETWORK_MEMORY=device", "GPU memory of rank 0", "cannot register"});
    });
  }
}

// Shared memory for one warp: it sends, relays and pulls in turn. So operations have one round.
TEST_CASE("network memory: HT in blocks of one warp, and one round for them", "[memory]") {
  const Setting shared_memory("UCCLEP_DOUBLE_ATTRIBUTE", "97:24576");
  SECTION("rows with room for all") {
    const Platform platform;
    exchange_rows({2, 2}, "loopback", 2, 2, {Layout::ht_flat, Layout::ht_expert_major});
  }
  SECTION("more tokens than a round has") {
    run_ranks(4, [](Rank& rank) {
      Comm comm(rank, in_nodes_of(rank, 2, "loopback"));
      ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ht_flat}});
      const Group group = make_group(comm, config);
      ucclEpHandleConfig_t many = handle_config(Scenario{.layout = Layout::ht_flat});
      many.max_tokens = config.max_tokens_per_rank + 1;
      ucclEpHandle_t handle = nullptr;
      refused(ucclEpHandleCreate(&handle, group, &many), ucclEpNotSupported, "ucclEpHandleCreate",
              {"config.max_tokens is", "one round"});
    });
  }
}

TEST_CASE("network memory: UCCLEP_NETWORK_MEMORY keeps it on the host, or insists", "[memory]") {
  SECTION("host") {
    const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_NETWORK_MEMORY", "host"}});
    exchange_rows({1, 1}, "verbs", 1, 1);
    platform.all_said(2, "host memory only (rank 0: UCCLEP_NETWORK_MEMORY=host)");
  }
  SECTION("device") {
    const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_NETWORK_MEMORY", "DEVICE"}});
    exchange_rows({1, 1}, "verbs", 1, 1);
    platform.all_said(2, "the GPU's memory");
  }
  const auto refused_at_init = [](const char* transport, ucclEpResult_t code, const std::vector<std::string>& words) {
    run_ranks(3, [&](Rank& rank) {
      const ucclEpCommConfig_t config = in_nodes_of(rank, 1, transport);
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, rank.count, rank.ids[0], rank.rank, &config), code, "ucclEpCommInitRank",
              words);
    });
  };
  SECTION("device, which one rank cannot have") {
    const Platform platform(
        {{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_DOUBLE_ATTRIBUTE", "117@1:0"}, {"UCCLEP_NETWORK_MEMORY", "device"}});
    refused_at_init(
        "verbs", ucclEpNotSupported,
        {"UCCLEP_NETWORK_MEMORY=device", "GPU memory of rank 1", "does not order them, and the driver has no flush"});
  }
  SECTION("device, without NICs that have it") {
    const Platform platform(Settings{{"UCCLEP_NETWORK_MEMORY", "device"}});
    refused_at_init("loopback", ucclEpNotSupported,
                    {"UCCLEP_NETWORK_MEMORY=device", "GPU memory of rank 0", "loopback"});
  }
  SECTION("nonsense") {
    const Platform platform;
    run_ranks(2, [](Rank& rank) {  // the id is there
      if (rank.rank == 0) setenv("UCCLEP_NETWORK_MEMORY", "gpu", 1);
      rank.board.add(0);
      rank.board.wait(0, 2);
      const ucclEpCommConfig_t config = in_nodes_of(rank, 1, "loopback");
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, rank.count, rank.ids[0], rank.rank, &config), ucclEpInvalidArgument,
              "ucclEpCommInitRank", {"UCCLEP_NETWORK_MEMORY=\"gpu\"", "auto|device|host"});
    });
    unsetenv("UCCLEP_NETWORK_MEMORY");
  }
}

TEST_CASE("network memory: puts go from window to window without a copy, and come before their signals", "[memory]") {
  const bool by_verbs = GENERATE(true, false);
  const Platform platform(by_verbs ? Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}}
                                   : Settings{{"UCCLEP_DOUBLE_PROVIDERS", "efa"}});
  run_channel({2, 2}, by_verbs ? "verbs" : efa, [](Rank& rank, Channel& channel) {
    channel.run("exchange");
    rank.board.add(0);
    rank.board.wait(0, 4);
    channel.renew_windows();
    channel.args.seed = 1;
    channel.run("meet");
  });
  CHECK(platform.flushes(to_all_devices) > 0);
}

TEST_CASE("network memory: what was put before a flush is there, and what a peer has told of", "[memory]") {
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}});
  run_channel({2, 2}, "verbs", [](Rank& rank, Channel& channel) {
    channel.run("tell_another");
    rank.board.add(0);
    rank.board.wait(0, 4);
    channel.args.rounds = 1;
    channel.args.seed = 5;
    channel.run("put_and_flush");
    rank.board.add(0);
    rank.board.wait(0, 8);
    channel.run("check_all");
  });
}

TEST_CASE("network memory: a window that NICs do not get hold of is refused, with what helps", "[memory]") {
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}});
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1, "verbs"));
    const Group group = make_group(comm, config_with(num_signals, rank.count));
    void* memory = nullptr;
    ok(ucclEpMemAlloc(comm, &memory, 4096), "ucclEpMemAlloc");
    const auto turn = [&](uint32_t count) {
      rank.board.add(0);
      rank.board.wait(0, count);
    };
    turn(2);
    if (rank.rank == 0) setenv("UCCLEP_DOUBLE_FAIL", "dma_buf:801", 1);
    turn(4);
    ucclEpWindow_t window = nullptr;
    refused(ucclEpWindowRegister(comm, memory, 4096, &window), ucclEpNotSupported, "ucclEpWindowRegister",
            {"4096 bytes", "have no dma-buf", "code 801", "UCCLEP_NETWORK_MEMORY=host"});
    turn(6);
    if (rank.rank == 0) unsetenv("UCCLEP_DOUBLE_FAIL");
    turn(8);
    ok(ucclEpWindowRegister(comm, memory, 4096, &window), "ucclEpWindowRegister");
    ok(ucclEpWindowDeregister(comm, window), "ucclEpWindowDeregister");
  });
}

TEST_CASE("network memory: a flush that fails ends the communicator, with the driver's words", "[memory]") {
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}});
  run_ranks(2, [](Rank& rank) {
    const Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 2, .nodes = {1, 1}};
    const Session at(rank, in_nodes_of(rank, 1, "verbs"), scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    rank.board.add(0);
    rank.board.wait(0, 2);
    if (rank.rank == 0) setenv("UCCLEP_DOUBLE_FAIL", "flush_nic_writes:719", 1);
    rank.board.add(0);
    rank.board.wait(0, 4);
    const bool begun = exchange.try_dispatch(at.handle, at.stream) == ucclEpSuccess;  // the other may be ahead
    require(!begun || ucclEpStreamSynchronize(at.comm, at.stream) != ucclEpSuccess, "it went on");
    const std::string text = async_error(at.comm).text;
    require(text.find("flushing writes of NICs") != std::string::npos, text);
    rank.board.add(0);
    rank.board.wait(0, 6);
  });
  unsetenv("UCCLEP_DOUBLE_FAIL");
}

// Within 5 % of what the driver gives out.
TEST_CASE("network memory: ucclEpGroupQuery says where the bytes are", "[memory]") {
  const std::string where = GENERATE("host", "device");
  const Platform platform(Settings{{"UCCLEP_DOUBLE_NIC", "mlx5"}, {"UCCLEP_NETWORK_MEMORY", where}});
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  Double::Bytes before, after;
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1, "verbs"));
    ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ll_rank_major, .ranks = 2, .experts = 4}});
    config.max_tokens_per_rank = 8192;  // windows that are large beside what is rounded up
    uint32_t turn = 0;
    const auto meet = [&](Double::Bytes* bytes) {
      rank.board.add(0);
      rank.board.wait(0, ++turn * 2);
      if (rank.rank == 0 && bytes != nullptr) *bytes = platform.driver().live_bytes();
      rank.board.add(1);
      rank.board.wait(1, turn * 2);
    };
    meet(&before);
    const Group group = make_group(comm, config);
    meet(&after);
    ucclEpGroupLimits_t mine = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &mine), "ucclEpGroupQuery");
    ucclEpDeviceGroup device;
    ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
    const auto rows = static_cast<int64_t>(device.layout.network_bytes);
    require((where == "device" ? mine.device_bytes : mine.host_bytes) > rows, "the window is somewhere else");
    if (rank.rank == 0) limits = mine;
  });
  // Of two ranks.
  const auto on_device = static_cast<double>(after.device - before.device) / 2;
  const auto on_host = static_cast<double>(after.host - before.host) / 2;
  CHECK(static_cast<double>(limits.device_bytes) == Approx(on_device).epsilon(0.05));
  CHECK(static_cast<double>(limits.host_bytes) == Approx(on_host).epsilon(0.05));
}

}  // namespace
}  // namespace ucclep::test
