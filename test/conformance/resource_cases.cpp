// SPDX-License-Identifier: Apache-2.0
// Counters that the host waits for, capacities, the caller's allocator, and what a group costs.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// ---- Counts ----

TEST_CASE("recv_total_host is -1 until the counts of all ranks are there", "[process][reduced][driver]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    const Scenario scenario{.layout = layout};
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      const int64_t* total = exchange.counters().recv_total_host;
      if (rank.rank == 3) rank.board.wait(0, 3);
      exchange.update(at.handle, at.stream);
      if (rank.rank != 3) {
        const int64_t early = __atomic_load_n(total, __ATOMIC_ACQUIRE);
        require(early == -1, "recv_total_host was " + std::to_string(early) + " before rank 3 had come");
        rank.board.add(0);
      }
      int64_t waited = 0;
      ok(ucclEpHandleWaitCounts(at.handle, &waited, nullptr), "ucclEpHandleWaitCounts");
      at.stream.synchronize();
      exchange.check_counters();
    });
  }
}

TEST_CASE("ucclEpHandleWaitCounts gives the total and the padded counts", "[process][reduced][driver]") {
  const Scenario scenario{.layout = Layout::ht_expert_major, .experts = 16, .top_k = 4, .alignment = 4};
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, scenario);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Exchange exchange(rank, at.comm, scenario, seed);
      exchange.update(at.handle, at.stream);
      const reference::Counters expected =
          reference::counters(exchange.contents().world(), scenario.shape(), rank.rank);
      int64_t total = -1;
      std::vector<int64_t> counts(static_cast<size_t>(scenario.local_experts()), -1);
      ok(ucclEpHandleWaitCounts(at.handle, &total, counts.data()), "ucclEpHandleWaitCounts");
      require(total == expected.recv_total, "total is " + std::to_string(total));
      require(counts == expected.tokens_per_expert, "tokens_per_expert differs");
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
    }
  });
}

TEST_CASE("routing counts of any number of tokens", "[process][reduced][driver][modes]") {
  for (const ucclEpDataType_t type : {ucclEpInt32, ucclEpInt64}) {
    for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{700}}) {
      Scenario scenario{.layout = Layout::ht_flat, .experts = 24, .top_k = 6, .max_tokens = 4, .rule = uniform(15)};
      scenario.tokens = {tokens, tokens / 2, 3, 0};  // more than the group's maximum: it does not bind here
      run_ranks(4, [&](Rank& rank) {
        Comm comm(rank);
        Stream stream(comm);
        Group group = make_group(comm, group_config({scenario}));
        const Contents contents(scenario, 1, 1);
        const reference::Routing& routing = contents.raw().rank[static_cast<size_t>(rank.rank)];
        Tensor idx(comm, "topk_idx", type, {routing.tokens, routing.k});
        idx.set_integers(routing.experts);
        idx.upload();
        Tensor per_rank(comm, "tokens_per_rank", type, {4}), per_expert(comm, "tokens_per_expert", type, {24});
        Tensor in_rank(comm, "is_token_in_rank", ucclEpUint8, {routing.tokens, 4});
        ucclEpRoutingCounts_t out = UCCLEP_ROUTING_COUNTS_INIT;
        out.tokens_per_rank = per_rank.get();
        out.tokens_per_expert = per_expert.get();
        out.is_token_in_rank = in_rank.get();
        ok(ucclEpGetRoutingCounts(group, idx.get(), &out, stream), "ucclEpGetRoutingCounts");
        stream.synchronize();
        const reference::RoutingCounts expected = reference::routing_counts(contents.world(), rank.rank);
        per_rank.set_integers(expected.tokens_per_rank);
        per_expert.set_integers(expected.tokens_per_expert);
        for (int64_t token = 0; token < routing.tokens; ++token) {
          in_rank.fill_row(token, expected.is_token_in_rank.data() + 4 * token);
        }
        for (const Tensor* tensor : {&per_rank, &per_expert, &in_rank}) tensor->verify(rank.rank);
      });
    }
  }
}

TEST_CASE("waiting for a late peer shows in wait_ns", "[process]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    const Scenario scenario{.layout = layout};
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      Tensor waited(at.comm, "wait_ns", ucclEpInt64, {4});
      waited.set_integers({0, 0, 0, 0});
      waited.upload();
      exchange.dispatch_out.wait_ns = waited.get();
      exchange.update(at.handle, at.stream);
      at.stream.synchronize();
      rank.board.add(0);
      rank.board.wait(0, 4);
      if (rank.rank == 2) {
        rank.board.wait(1, 3);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // their kernels begin meanwhile
      }
      exchange.dispatch(at.handle, at.stream);
      rank.board.add(1);
      at.stream.synchronize();
      const int64_t late = waited.integers()[2];
      if (rank.rank != 2) require(late > 20'000'000, "wait_ns of the late rank is " + std::to_string(late));
    });
  }
}

// ---- Capacity ----

TEST_CASE("a tensor of exactly N rows suffices", "[process][reduced]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    run({.layout = layout,
         .top_k = 3,
         .tokens = {8, 1, 0, 5},
         .alignment = layout == Layout::ht_flat ? 1 : 4,
         .slack = 0});
  }
}

TEST_CASE("rows that do not fit are dropped and recorded", "[process][reduced]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    for (const int64_t missing : {1, 5}) {
      const Scenario scenario{
          .layout = layout, .top_k = 3, .alignment = layout == Layout::ht_flat ? 1 : 2, .slack = -missing};
      run_ranks(4, [&](Rank& rank) {
        Session at(rank, scenario);
        round_trip(rank, at.comm, at.handle, at.stream, scenario);
        const ucclEpAsyncError_t error = async_error(at.comm);
        require(error.code == ucclEpOverflow,
                "the record is " + std::to_string(error.code) + ", expected ucclEpOverflow");
        require(error.text[0] != 0, "the record has no message");
        ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
        no_async_error(at.comm);
        Scenario enough = scenario;
        enough.slack = 0;
        round_trip(rank, at.comm, at.handle, at.stream, enough, 2);
        no_async_error(at.comm);
      });
    }
  }
}

TEST_CASE("a tensor known to be too small is refused at once", "[process]") {
  const Scenario scenario{.layout = Layout::ht_flat, .top_k = 3, .slack = -1};
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    int64_t total = 0;
    ok(ucclEpHandleWaitCounts(at.handle, &total, nullptr), "ucclEpHandleWaitCounts");
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
            {std::to_string(total)});
    at.stream.synchronize();
    exchange.check_untouched();
    Scenario enough = scenario;
    enough.slack = 0;
    round_trip(rank, at.comm, at.handle, at.stream, enough);
  });
}

// ---- Memory ----

// Counts what the group asks for. It hands out memory that is there before, which no count of the process's mappings
// takes for the group's.
struct Allocator {
  static constexpr size_t room = 16 << 20;

  explicit Allocator(ucclEpComm_t comm) : comm(comm) {
    void* memory = nullptr;
    ok(ucclEpMemAlloc(comm, &memory, room), "ucclEpMemAlloc");
    pool = static_cast<char*>(memory);
  }
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator() { ucclEpMemFree(comm, pool); }

  ucclEpComm_t comm;
  char* pool;
  size_t used = 0;
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  size_t peak = 0;
  size_t bytes = 0;
  int calls = 0;

  static int alloc(void** ptr, size_t size, void* ctx) {
    auto& self = *static_cast<Allocator*>(ctx);
    const std::lock_guard lock(self.mutex);
    if (size > room - self.used) return 1;
    *ptr = self.pool + self.used;
    self.used += (size + 255) / 256 * 256;
    self.blocks[*ptr] = size;
    self.bytes += size;
    self.peak = std::max(self.peak, self.bytes);
    ++self.calls;
    return 0;
  }
  static int free(void* ptr, void* ctx) {
    auto& self = *static_cast<Allocator*>(ctx);
    const std::lock_guard lock(self.mutex);
    if (self.blocks.count(ptr) == 0) return 1;
    self.bytes -= self.blocks[ptr];
    self.blocks.erase(ptr);
    return 0;
  }
};

ucclEpGroupConfig_t with_allocator(const std::vector<Scenario>& scenarios, Allocator& allocator) {
  ucclEpGroupConfig_t config = group_config(scenarios);
  config.alloc_fn = Allocator::alloc;
  config.free_fn = Allocator::free;
  config.alloc_ctx = &allocator;
  return config;
}

TEST_CASE("C38 the caller's allocator serves a group from its creation to its end", "[process][reduced][driver]") {
  run_ranks(4, [&](Rank& rank) {
    const std::vector<Scenario> scenarios = in_all_layouts({.top_k = 3});
    Comm comm(rank);
    Stream stream(comm);
    Allocator allocator(comm);
    {
      Group group = make_group(comm, with_allocator(scenarios, allocator));
      for (const Scenario& scenario : scenarios) {
        Handle handle = make_handle(group, handle_config(scenario));
        round_trip(rank, comm, handle, stream, scenario);
      }
      require(allocator.calls > 0, "alloc_fn was never called");
    }
    require(allocator.blocks.empty(), std::to_string(allocator.blocks.size()) + " blocks were never given to free_fn");
  });
}

TEST_CASE("C39 an allocator that fails gives ucclEpOutOfMemory on every rank", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario{.ranks = 2};
    Comm comm(rank);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.alloc_fn = [](void**, size_t, void*) { return 1; };
    config.free_fn = [](void*, void*) { return 0; };
    ucclEpGroup_t group = nullptr;
    const ucclEpResult_t result = ucclEpGroupCreate(&group, comm, &config);
    require(result == ucclEpOutOfMemory, "ucclEpGroupCreate answered " + std::to_string(result));
    require(group == nullptr, "the out-parameter was written");
  });
}

// Bytes of all memory files that this process has mapped, each counted once.
int64_t mapped_memory_files() {
  std::map<std::string, int64_t> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    const size_t dash = range.find('-');
    const int64_t bytes =
        std::stoll(range.substr(dash + 1), nullptr, 16) - std::stoll(range.substr(0, dash), nullptr, 16);
    files[inode] = std::max<int64_t>(files[inode], std::stoll(offset, nullptr, 16) + bytes);
  }
  int64_t sum = 0;
  for (const auto& [inode, bytes] : files) sum += bytes;
  return sum;
}

TEST_CASE("ucclEpGroupQuery says within 5 % what a group takes", "[reduced][driver]") {
  if (ranks_are_processes()) return skip_case("the ranks must share one table of mappings");
  const std::vector<Scenario> both{
      {.layout = Layout::ht_flat, .experts = 32, .top_k = 8, .max_tokens = 256, .ll_max_tokens = 64, .hidden = 1024},
      {.layout = Layout::ll_expert_major, .experts = 32, .top_k = 8, .max_tokens = 64, .hidden = 1024}};
  struct World {
    int ranks;
    int64_t limit;
  };
  for (const World& world : {World{2, 0}, World{4, 0}, World{4, 100}}) {
    const int ranks = world.ranks;
    run_ranks(ranks, [&](Rank& rank) {
      Comm comm(rank);
      Allocator allocator(comm);
      ucclEpGroupConfig_t config = with_allocator(both, allocator);
      ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
      ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
      const int64_t dropless = limits.device_bytes;
      config.max_recv_tokens_per_rank = world.limit;
      ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
      // Two slots, in each of which combine stages so many rows of 2048 bytes less.
      const int64_t spared = world.limit == 0 ? 0 : 2 * 4 * (256 - 64) * 2048;
      const int64_t rounding = test_gpus() > 0 ? 2 << 20 : 0;  // windows on GPUs
      require(dropless - limits.device_bytes >= spared - rounding,
              "with a limit of " + std::to_string(world.limit) + " rows a group takes " +
                  std::to_string(limits.device_bytes) + " bytes, without " + std::to_string(dropless));
      require(allocator.calls == 0, "ucclEpGroupQuery allocated memory");
      const auto all_ranks = [&](int word) {
        rank.board.add(word);
        rank.board.wait(word, static_cast<uint32_t>(ranks));
      };
      all_ranks(0);
      const int64_t before = mapped_memory_files();
      all_ranks(1);
      Group group = make_group(comm, config);
      all_ranks(2);
      const int64_t windows = (mapped_memory_files() - before) / ranks;
      const int64_t real = windows + static_cast<int64_t>(allocator.peak);
      if (windows == 0 && test_gpus() > 0) return;  // windows of a GPU are no files
      all_ranks(3);
      const double error = static_cast<double>(limits.device_bytes - real) / static_cast<double>(real);
      require(error < 0.05 && error > -0.05,
              "the group takes " + std::to_string(windows) + " bytes of windows and " + std::to_string(allocator.peak) +
                  " of workspace, ucclEpGroupQuery said " + std::to_string(limits.device_bytes));
    });
  }
}

// The device is that of the ranks, also where doubles of two drivers could be loaded.
TEST_CASE("ucclEpGroupQuery without a communicator", "[process][reduced][driver]") {
  const char* const named = std::getenv("UCCLEP_TEST_DEVICE");
  std::optional<Environment> device;
  if (named != nullptr) device.emplace("UCCLEP_DEVICE", named);
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario{.ranks = 2, .max_tokens = 64, .hidden = 512};
    ucclEpGroupConfig_t config = group_config({scenario});
    ucclEpGroupLimits_t dry = UCCLEP_GROUP_LIMITS_INIT, real = UCCLEP_GROUP_LIMITS_INIT;
    config.nranks = 2;
    ok(ucclEpGroupQuery(nullptr, &config, &dry), "ucclEpGroupQuery");
    Comm comm(rank);
    ok(ucclEpGroupQuery(comm, &config, &real), "ucclEpGroupQuery");
    require(dry.device_bytes > 0 && dry.max_ranks >= 64 && dry.max_top_k >= 32 && dry.max_experts >= 896 &&
                dry.epoch_bits >= 64 && dry.tokens_per_round == config.max_tokens_per_rank,
            "a limit is missing");
    const auto estimate = static_cast<double>(dry.device_bytes), exact = static_cast<double>(real.device_bytes);
    require(estimate > 0.95 * exact && estimate < 1.05 * exact,
            "the dry estimate is " + std::to_string(dry.device_bytes) + ", of a communicator " +
                std::to_string(real.device_bytes));
  });
}

ucclEpGroupLimits_t limits_of(ucclEpComm_t comm, const ucclEpGroupConfig_t& config) {
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
  return limits;
}

TEST_CASE("ucclEpGroupQuery without a communicator takes the domains of UCCLEP_NODES", "[nodes]") {
  const Environment nodes("UCCLEP_NODES", "2,2"), device("UCCLEP_DEVICE", "host");
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario{.layout = Layout::ht_flat, .ranks = 4, .max_tokens = 512, .hidden = 4096};
    ucclEpGroupConfig_t config = group_config({scenario});
    config.nranks = 4;
    ucclEpCommConfig_t in_nodes = comm_config(rank);
    in_nodes.transport = "loopback";
    Comm comm(rank, in_nodes);
    const ucclEpGroupLimits_t dry = limits_of(nullptr, config), real = limits_of(comm, config);
    require(dry.tokens_per_round == real.tokens_per_round, "tokens_per_round is not that of a communicator");
    const auto all = [](const ucclEpGroupLimits_t& l) { return static_cast<double>(l.device_bytes + l.host_bytes); };
    require(all(dry) > 0.95 * all(real) && all(dry) < 1.05 * all(real),
            "the dry estimate is " + std::to_string(all(dry)) + ", of a communicator " + std::to_string(all(real)));
    config.nranks = 8;
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    refused(ucclEpGroupQuery(nullptr, &config, &limits), ucclEpInvalidArgument, "ucclEpGroupQuery",
            {"the sizes of UCCLEP_NODES add up to 4 ranks, but config.nranks is 8"});
  });
}

// The config with one more than its limit is refused on creation, by an error message that names the limit.
void is_beyond(ucclEpComm_t comm, ucclEpGroupConfig_t config, const char* field, int64_t most) {
  ucclEpGroup_t group = nullptr;
  refused(ucclEpGroupCreate(&group, comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
          {field, "expected 1 to " + std::to_string(most)});
}

TEST_CASE("as many experts as ucclEpGroupQuery says are routed in every layout, and not one more a rank",
          "[process][driver]") {
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Scenario scenario{.ranks = 2, .top_k = 4, .max_tokens = 6, .hidden = 8};
    ucclEpGroupConfig_t config = group_config({scenario});
    const int64_t most = limits_of(comm, config).max_experts;
    config.num_experts = static_cast<int>(most) + 2;
    is_beyond(comm, config, "config.num_experts", most);
    scenario.experts = static_cast<int>(most);
    for (const Scenario& layout : in_all_layouts(scenario)) {
      Group group = make_group(comm, group_config({layout}));
      Handle handle = make_handle(group, handle_config(layout));
      round_trip(rank, comm, handle, stream, layout);
    }
  });
}

TEST_CASE("one token or one byte more than ucclEpGroupQuery says is refused", "[process][driver]") {
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    const ucclEpGroupConfig_t config = group_config({Scenario{.ranks = 2}});
    const ucclEpGroupLimits_t limits = limits_of(comm, config);
    ucclEpGroupConfig_t beyond = config;
    beyond.max_tokens_per_rank = static_cast<int>(limits.max_tokens_per_rank) + 1;
    is_beyond(comm, beyond, "config.max_tokens_per_rank", limits.max_tokens_per_rank);
    beyond = config;
    beyond.max_token_bytes = limits.max_token_bytes + 1;
    is_beyond(comm, beyond, "config.max_token_bytes", limits.max_token_bytes);
  });
}

TEST_CASE("more tokens than one SM counts at a time are routed", "[process][driver]") {
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    // A bit for each token and each expert in a block's shared memory: of so many experts it holds some 900 tokens.
    const Scenario scenario{
        .layout = Layout::ht_flat, .ranks = 2, .experts = 2048, .top_k = 4, .max_tokens = 3000, .hidden = 8};
    ucclEpGroupConfig_t config = group_config({scenario});
    config.num_sms = 1;
    Group group = make_group(comm, config);
    Handle handle = make_handle(group, handle_config(scenario));
    round_trip(rank, comm, handle, stream, scenario);
  });
}

TEST_CASE("groups and handles leave no memory file and no descriptor behind", "[process][reduced][driver]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 2};
    auto together = [&, step = 0]() mutable {
      rank.board.add(step);
      rank.board.wait(step++, 2);
    };
    auto use = [&](ucclEpComm_t comm) {
      Stream stream(comm);
      Group group = make_group(comm, group_config({scenario}));
      Handle handle = make_handle(group, handle_config(scenario));
      round_trip(rank, comm, handle, stream, scenario);
    };
    Comm comm(rank);
    use(comm);
    together();
    // Ranks that are threads share one table of descriptors: one of them counts, while the others wait.
    const int files = rank.rank == 0 ? open_files() : 0;
    const int64_t mapped = mapped_memory_files();
    together();
    for (int round = 0; round < 5; ++round) use(comm);
    together();
    const int64_t left = mapped_memory_files() - mapped;
    require(left == 0, std::to_string(left) + " bytes of windows stay mapped");
    // What served a communicator or an exchange of memory closes its sockets a moment later; fewer is no leak.
    int more = 0;
    for (int tries = 0; rank.rank == 0 && tries < 100; ++tries) {
      more = open_files() - files;
      if (more <= 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    require(more <= 0, std::to_string(more) + " more descriptors are open");
    together();
  });
}

}  // namespace
}  // namespace ucclep::test
