// SPDX-License-Identifier: Apache-2.0
// Wrong structs and configs, at the boundary and in the collective creates: the documented code, an error message that
// names what is wrong on every rank concerned, and a communicator that works afterwards.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// ---- Structs at the boundary ----

TEST_CASE("C50 INIT gives every struct its size and magic", "[process][reduced]") {
  const ucclEpGroupConfig_t group = UCCLEP_GROUP_CONFIG_INIT;
  CHECK(group.size == sizeof(group));
  CHECK(group.magic == UCCLEP_GROUP_CONFIG_MAGIC);
  CHECK(group.top_k == 0);
  const ucclEpCommConfig_t comm = UCCLEP_COMM_CONFIG_INIT;
  CHECK(comm.size == sizeof(comm));
  CHECK(comm.device_index == UCCLEP_DEVICE_INDEX_CURRENT);
  ucclEpTensor_t tensor;
  tensor = UCCLEP_TENSOR_INIT;  // it also assigns
  CHECK(tensor.size == sizeof(tensor));
  CHECK(tensor.dtype == ucclEpNoDataType);
}

TEST_CASE("C51 a larger struct with a zero tail is accepted, anything else is not", "[process][reduced]") {
  const Scenario scenario = pair_of_ranks(Layout::ht_flat);
  run_ranks(2, [&](Rank& rank) {
    Session at(rank, scenario);
    struct Larger {
      ucclEpHandleConfig_t config;
      int64_t unknown[2];
    } larger{handle_config(scenario), {0, 0}};
    larger.config.size = sizeof(larger);
    ucclEpHandle_t handle = nullptr;
    ok(ucclEpHandleCreate(&handle, at.group, &larger.config), "ucclEpHandleCreate with a larger struct");
    ok(ucclEpHandleDestroy(handle), "ucclEpHandleDestroy");
    handle = nullptr;
    larger.unknown[1] = 1;
    refused(ucclEpHandleCreate(&handle, at.group, &larger.config), ucclEpInvalidArgument, "ucclEpHandleCreate");
    ucclEpHandleConfig_t config = handle_config(scenario);
    config.size = 24;  // the first released form has 32
    refused(ucclEpHandleCreate(&handle, at.group, &config), ucclEpInvalidArgument, "ucclEpHandleCreate");
    config = handle_config(scenario);
    config.magic ^= 1;
    refused(ucclEpHandleCreate(&handle, at.group, &config), ucclEpInvalidArgument, "ucclEpHandleCreate", {"magic"});
    require(handle == nullptr, "a refused call wrote its out-parameter");
  });
}

TEST_CASE("C52 a struct that the library fills is written up to the caller's size", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    struct Larger {
      ucclEpCommInfo_t info;
      int64_t unknown;
    } larger{UCCLEP_COMM_INFO_INIT, 0};
    larger.info.size = sizeof(larger);
    ok(ucclEpCommGetInfo(comm, &larger.info), "ucclEpCommGetInfo");
    require(larger.info.size == sizeof(larger), "the caller's size was changed");
    require(larger.info.rank == rank.rank && larger.info.nranks == 2, "rank or nranks");
    require(larger.info.device == comm_config(rank).device, "device");
    require(larger.unknown == 0, "the unknown tail was written");
    ucclEpCommInfo_t wrong = UCCLEP_COMM_INFO_INIT;
    wrong.magic = 7;
    wrong.rank = -5;
    refused(ucclEpCommGetInfo(comm, &wrong), ucclEpInvalidArgument, "ucclEpCommGetInfo", {"magic"});
    require(wrong.rank == -5, "a refused call wrote");
  });
}

TEST_CASE("a wrong magic fails alone and at once", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario = pair_of_ranks(Layout::ll_expert_major);
    Session at(rank, scenario);
    if (rank.rank == 0) {
      ucclEpGroupConfig_t config = group_config({scenario});
      config.magic = 0x1234;
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, at.comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate", {"magic"});
      Exchange exchange(rank, at.comm, scenario);
      ucclEpTensor_t tensor = *exchange.dispatch_in.tokens;
      tensor.magic = 1;
      exchange.dispatch_in.tokens = &tensor;
      exchange.update(at.handle, at.stream);
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
              {"tokens", "magic"});
      at.stream.synchronize();
    }
    rank.board.add(0);
    rank.board.wait(0, 2);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
  });
}

// ---- Communicator ----

TEST_CASE("an environment variable that does not parse is named", "[process][reduced]") {
  // In processes of their own: the environment belongs to all threads.
  run_ranks(2, {.processes = true}, [&](Rank& rank) {
    setenv("UCCLEP_TIMEOUT_MS", "abc", 1);
    ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    refused(ucclEpCommInitRank(&comm, 2, rank.ids[0], rank.rank, &config), ucclEpInvalidArgument, "ucclEpCommInitRank",
            {"UCCLEP_TIMEOUT_MS", "abc"});
    require(comm == nullptr, "the out-parameter was written");
  });
}

TEST_CASE("ranks whose devices lead to another shape of a group are refused", "[host][process]") {
  run_ranks(2, {.processes = true}, [&](Rank& rank) {
    if (rank.rank == 1) setenv("UCCLEP_HOST_MODE", "apart", 1);
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 1;
    config.transport = "loopback";
    Comm comm(rank, config);
    const ucclEpGroupConfig_t shape = group_config({{.ranks = 2, .experts = 4}});
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &shape), ucclEpInvalidArgument, "ucclEpGroupCreate",
            {"of a group's", "differs between ranks", "rank 1"});
    require(group == nullptr, "the out-parameter was written");
  });
}

TEST_CASE("bad ranks and counts of ranks", "[process]") {
  run_ranks(1, {.communicators = 2}, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.timeout_ms = 2000;
    ucclEpComm_t comm = nullptr;
    refused(ucclEpCommInitRank(&comm, 0, rank.ids[0], 0, &config), ucclEpInvalidArgument, "ucclEpCommInitRank",
            {"nranks"});
    refused(ucclEpCommInitRank(&comm, 1, rank.ids[0], 1, &config), ucclEpInvalidArgument, "ucclEpCommInitRank",
            {"rank"});
    refused(ucclEpCommInitRank(&comm, 1, rank.ids[0], -1, &config), ucclEpInvalidArgument, "ucclEpCommInitRank",
            {"rank"});
    refused(ucclEpCommInitRank(nullptr, 1, rank.ids[0], 0, &config), ucclEpInvalidArgument, "ucclEpCommInitRank");
    require(comm == nullptr, "the out-parameter was written");
    // The refused calls may have used up their rendezvous.
    Comm good(rank, comm_config(rank), 1);
    int count = 0, self = -1;
    ok(ucclEpCommCount(good, &count), "ucclEpCommCount");
    ok(ucclEpCommUserRank(good, &self), "ucclEpCommUserRank");
    require(count == 1 && self == 0, "count or rank");
  });
}

TEST_CASE("a communicator over the caller's allgather", "[process][reduced][driver]") {
  struct Gather {  // over the words of the board: a byte a word, in rounds
    Rank* rank;
    uint32_t round = 0;
  };
  // The board's words carry no bytes; threads share memory instead.
  if (ranks_are_processes()) return skip_case("the test's allgather works among threads");
  static std::vector<uint8_t> shared(1 << 20);
  run_ranks(3, [&](Rank& rank) {
    Gather gather{&rank};
    ucclEpBootstrap_t bootstrap = UCCLEP_BOOTSTRAP_INIT;
    bootstrap.ctx = &gather;
    bootstrap.allgather = [](void* ctx, void* buffer, size_t bytes) {
      auto& self = *static_cast<Gather*>(ctx);
      const auto count = static_cast<size_t>(self.rank->count);
      const auto offset = static_cast<size_t>(self.rank->rank) * bytes;
      if (bytes * count > shared.size()) return 1;
      ++self.round;
      const auto everybody = [&](int word) {
        self.rank->board.add(word);
        self.rank->board.wait(word, self.round * static_cast<uint32_t>(count));
      };
      std::copy_n(static_cast<uint8_t*>(buffer) + offset, bytes, shared.begin() + static_cast<int64_t>(offset));
      everybody(0);
      std::copy_n(shared.begin(), bytes * count, static_cast<uint8_t*>(buffer));
      everybody(1);
      return 0;
    };
    ucclEpCommConfig_t config = comm_config(rank);
    ucclEpComm_t comm = nullptr;
    ok(ucclEpCommInitBootstrap(&comm, 3, rank.rank, &bootstrap, &config), "ucclEpCommInitBootstrap");
    note_comm(comm);
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
    require(test_gpus() == 0 || info.device_index == rank.rank % test_gpus(), "the rank shares its GPU");
    {
      const Scenario scenario{.layout = Layout::ht_flat, .ranks = 3, .experts = 6};
      Group group = make_group(comm, group_config({scenario}));
      Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      round_trip(rank, comm, handle, stream, scenario);
    }
    forget_comm(comm);
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
  });
}

// ---- Group ----

struct Difference {
  const char* field;
  std::function<void(ucclEpGroupConfig_t&)> change;
};

TEST_CASE("a group that differs on one rank is refused on all, with rank and field", "[process][reduced]") {
  const std::vector<Difference> differences{
      {"top_k", [](ucclEpGroupConfig_t& config) { config.top_k = 1; }},
      {"num_experts", [](ucclEpGroupConfig_t& config) { config.num_experts *= 2; }},
      {"max_tokens_per_rank", [](ucclEpGroupConfig_t& config) { config.max_tokens_per_rank += 1; }},
      {"ll_max_tokens_per_rank", [](ucclEpGroupConfig_t& config) { config.ll_max_tokens_per_rank = 2; }},
      {"max_token_bytes", [](ucclEpGroupConfig_t& config) { config.max_token_bytes += 16; }},
      {"max_recv_tokens_per_rank", [](ucclEpGroupConfig_t& config) { config.max_recv_tokens_per_rank = 9; }},
      {"overflow", [](ucclEpGroupConfig_t& config) { config.overflow = UCCLEP_OVERFLOW_DROP; }},
      {"max_in_flight", [](ucclEpGroupConfig_t& config) { config.max_in_flight = 4; }},
      {"num_logical_experts", [](ucclEpGroupConfig_t& config) { config.num_logical_experts = 1; }},
      {"replica_choice", [](ucclEpGroupConfig_t& config) { config.replica_choice = UCCLEP_REPLICA_NEAREST; }}};
  Scenario scenario = pair_of_ranks(Layout::ht_flat);
  scenario.ranks = 4;
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, scenario);
    for (const Difference& difference : differences) {
      ucclEpGroupConfig_t config = group_config({scenario});
      if (rank.rank == 2) difference.change(config);
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, at.comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
              {difference.field, "2"});
      require(group == nullptr, "the out-parameter was written");
    }
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
  });
}

TEST_CASE("with masks ranks agree on the time after which they mask each other", "[process]") {
  Scenario scenario = pair_of_ranks(Layout::ll_expert_major);
  run_ranks(2, [&](Rank& rank) {
    Session at(rank, scenario);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.timeout_ms = rank.rank == 0 ? 5000 : 20000;
    const Group group = make_group(at.comm, config);
    config.enable_mask = 1;
    ucclEpGroup_t masked = nullptr;
    refused(ucclEpGroupCreate(&masked, at.comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
            {"timeout_ms", "5000", "20000"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
  });
}

TEST_CASE("a group that is bad on one rank is refused on all", "[process]") {
  const std::vector<Difference> bad{
      {"top_k", [](ucclEpGroupConfig_t& config) { config.top_k = 0; }},
      {"num_experts", [](ucclEpGroupConfig_t& config) { config.num_experts = 5; }},
      {"max_tokens_per_rank", [](ucclEpGroupConfig_t& config) { config.max_tokens_per_rank = -1; }},
      {"max_token_bytes", [](ucclEpGroupConfig_t& config) { config.max_token_bytes = 0; }},
      {"max_recv_tokens_per_rank", [](ucclEpGroupConfig_t& config) { config.max_recv_tokens_per_rank = -1; }},
      {"overflow", [](ucclEpGroupConfig_t& config) { config.overflow = 2; }},
      {"max_in_flight", [](ucclEpGroupConfig_t& config) { config.max_in_flight = 9; }},
      {"free_fn", [](ucclEpGroupConfig_t& config) { config.alloc_fn = [](void**, size_t, void*) { return 1; }; }}};
  const Scenario scenario = pair_of_ranks(Layout::ht_flat);
  run_ranks(2, [&](Rank& rank) {
    Session at(rank, scenario);
    for (const Difference& difference : bad) {
      ucclEpGroupConfig_t config = group_config({scenario});
      if (rank.rank == 1) difference.change(config);
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, at.comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
              {"rank 1: config." + std::string(difference.field) + " is"});  // not that ranks differ
    }
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
  });
}

// ---- Masks ----

TEST_CASE("a group without masks has none to change", "[process]") {
  const Scenario scenario = pair_of_ranks(Layout::ll_expert_major);
  run_ranks(2, [&](Rank& rank) {
    Session at(rank, scenario);
    const int active[2] = {1, 1};
    int seen[2] = {};
    refused(ucclEpMaskUpdate(at.group, active, at.stream), ucclEpInvalidUsage, "ucclEpMaskUpdate", {"enable_mask"});
    refused(ucclEpMaskQuery(at.group, seen, at.stream), ucclEpInvalidUsage, "ucclEpMaskQuery", {"enable_mask"});
    refused(ucclEpMaskClear(at.group, at.stream), ucclEpInvalidUsage, "ucclEpMaskClear", {"enable_mask"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
  });
}

}  // namespace
}  // namespace ucclep::test
