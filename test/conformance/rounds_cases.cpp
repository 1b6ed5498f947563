// SPDX-License-Identifier: Apache-2.0
// HT operations with more tokens than a slot has room for: they run in rounds, and nobody sees it.
#include <catch2/catch.hpp>
#include <deque>

#include "conformance/turns.hpp"
#include "conformance/zero_copy.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// In both layouts of HT.
std::vector<Scenario> in_ht(Scenario scenario) {
  scenario.layout = Layout::ht_flat;
  std::vector<Scenario> both{scenario};
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = 4;
  both.push_back(scenario);
  return both;
}

// Ranks with many tokens, few and none; rounds that are full, and one that is not.
const Scenario many{.ranks = 4,
                    .experts = 8,
                    .top_k = 3,
                    .max_tokens = 61,
                    .round = 9,
                    .tokens = {61, 0, 20, 54},
                    .hidden = 96,
                    .biases = 1,
                    .rule = uniform(10)};

TEST_CASE("C90 an HT operation with more tokens than a round has runs in rounds", "[process][reduced][modes][nodes]") {
  run_each(in_ht(many), round_trip, 2);
}

TEST_CASE("C91 rounds: gradients and those of weights", "[process][reduced][nodes]") {
  run_each(in_ht(many), there_and_back);
}

TEST_CASE("C92 rounds: types, scales, quantised rows, strides and limits", "[process][nodes]") {
  Scenario bytes = many;
  bytes.dtype = ucclEpFloat8e4m3;
  bytes.scales = Scales{.width = 4};
  bytes.combine_dtype = ucclEpFloat32;
  bytes.strided = true;
  Scenario quantised = many;
  quantised.hidden = 256;
  quantised.scales = Scales{};
  quantised.quant = UCCLEP_QUANT_FP8_128;
  quantised.carried = true;
  // The partial rows of all homes share a pool, and what lies beyond the limit is dropped.
  Scenario limited = many;
  limited.max_recv = 31;
  limited.overflow = UCCLEP_OVERFLOW_DROP;
  Scenario even = many;  // the last round is full
  even.tokens = {27, 9, 18, 36};
  for (const Scenario& scenario : {bytes, quantised, limited, even}) run_each(in_ht(scenario), round_trip);
}

// On a group with so many slots.
void run_with_slots(const Scenario& scenario, int slots) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.max_in_flight = slots;
    Group group = make_group(comm, config);
    Handle handle = make_handle(group, handle_config(scenario));
    there_and_back(rank, comm, handle, stream, scenario, scenario.seed);
    no_async_error(comm);
  });
}

TEST_CASE("C93 rounds: more slots than two, more than rounds, and rounds of one token", "[process][reduced][nodes]") {
  for (const int slots : {4, 8}) {
    for (const Scenario& scenario : in_ht(many)) run_with_slots(scenario, slots);
  }
  Scenario single = many;
  single.round = 1;
  single.max_tokens = 7;
  single.tokens = {7, 0, 2, 6};
  for (const Scenario& scenario : in_ht(single)) run_with_slots(scenario, 2);
}

// ---- Tensors in windows

void run_in_windows(const Scenario& scenario, const Share& share) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (uint64_t seed = 0; seed < 2; ++seed) {
      Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
      const Windows windows(rank, at.comm, exchange, share);
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("C94 rounds: tensors in windows, of all ranks and of some", "[process][reduced][modes]") {
  run_in_windows(many, [](int, Which) { return Exposed::whole; });
  for (const int mask : {0x1, 0x6, 0xb}) {
    run_in_windows(many, [mask](int rank, Which) { return (mask >> rank & 1) != 0 ? Exposed::whole : Exposed::no; });
  }
  run_in_windows(many, [](int rank, Which which) { return (rank + which) % 2 != 0 ? Exposed::whole : Exposed::no; });
}

// ---- Phases

void complete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(ucclEpComplete(handle, stream), "ucclEpComplete");
}

// phases: of this rank's operations.
void trip_in_phases(const Rank& rank, Session& at, const Scenario& scenario, uint64_t seed, bool phases) {
  Exchange exchange(rank, at.comm, scenario, seed);
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = phases ? 1 : 0;
  exchange.update(at.handle, at.stream);
  exchange.dispatch(at.handle, at.stream);
  if (phases) {
    at.stream.synchronize();
    exchange.check_untouched();
  }
  complete(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_dispatch();
  exchange.combine(at.handle, at.stream);
  complete(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_combine();
}

TEST_CASE("C95 rounds: operations in phases, on all ranks and on some", "[phases][process][reduced][modes][nodes]") {
  for (Scenario scenario : in_ht(many)) {
    for (const bool all : {true, false}) {
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario);
        for (uint64_t seed = 0; seed < 2; ++seed) {
          trip_in_phases(rank, at, scenario, 40 + seed, all || rank.rank % 2 == 0);
          round_trip(rank, at.comm, at.handle, at.stream, scenario, 50 + seed);
        }
        no_async_error(at.comm);
      });
    }
  }
}

TEST_CASE("C96 rounds: quantised rows in phases", "[phases][process][nodes]") {
  Scenario scenario = many;
  scenario.hidden = 256;
  scenario.scales = Scales{};
  scenario.quant = UCCLEP_QUANT_FP8_128;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    trip_in_phases(rank, at, scenario, 60, true);
    no_async_error(at.comm);
  });
}

TEST_CASE("C97 rounds: a pending operation leaves slots for as many rounds as it has", "[phases][process]") {
  Scenario two = many, one = many;
  two.round = one.round = one.max_tokens = 31;  // tokens of a round
  one.tokens = {5, 31, 0, 9};
  run_ranks(many.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    ucclEpGroupConfig_t config = group_config({two, one});
    config.max_in_flight = 4;
    Group group = make_group(comm, config);
    std::deque<Handle> handles;
    std::deque<Exchange> exchanges;
    for (const Scenario& scenario : {two, one, two}) {
      handles.push_back(make_handle(group, handle_config(scenario)));
      exchanges.emplace_back(rank, comm, scenario, 70 + handles.size());
      exchanges.back().dispatch_config.send_only = 1;
      exchanges.back().update(handles.back(), stream);
    }
    const auto begin = [&](size_t i) { exchanges[i].dispatch(handles[i], stream); };
    const auto is_refused = [&](size_t i) {
      refused(exchanges[i].try_dispatch(handles[i], stream), ucclEpInvalidUsage, "ucclEpDispatch",
              {"max_in_flight", "tokens_per_round"});
    };
    const auto end = [&](size_t i, uint64_t data) {
      complete(handles[i], stream);
      stream.synchronize();
      exchanges[i].check_dispatch();
      exchanges[i].refresh(data);
    };
    begin(0);
    begin(1);
    is_refused(2);  // three slots are in use, and it may need two
    end(1, 80);
    end(0, 81);
    begin(2);
    begin(0);
    is_refused(1);
    end(2, 82);
    end(0, 83);
    begin(1);
    end(1, 84);
    no_async_error(comm);
  });
}

// ---- Operations in a row

TEST_CASE("C98 rounds: in a row with operations of one round, of both modes", "[process][reduced][modes][nodes]") {
  Scenario large = in_ht(many)[1], small = many, decoded = many;
  small.max_tokens = small.round;
  small.tokens = {9, 3, 0, 1};
  decoded.layout = Layout::ll_expert_major;
  decoded.max_tokens = decoded.round;
  decoded.tokens = {2, 9, 4, 0};
  large.fixed_capacity = small.fixed_capacity = 600;
  run_ranks(many.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({large, small, decoded}));
    std::deque<Turn> turns;
    for (const Scenario& scenario : {large, decoded, small, large, small, decoded}) {
      turns.emplace_back(rank, comm, group, scenario);
    }
    for (uint64_t seed = 0; seed < 3; ++seed) take(turns, 100 + seed, stream);
    no_async_error(comm);
  });
}

TEST_CASE("C99 rounds: an operation has one number, however many rounds", "[process]") {
  Scenario scenario = many;
  scenario.slack = -1;  // a row too few: a record
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (uint64_t number = 1; number <= 3; ++number) {
      Exchange exchange(rank, at.comm, scenario, number);
      exchange.update(at.handle, at.stream);
      exchange.dispatch_config.send_only = number == 2 ? 1 : 0;
      exchange.dispatch(at.handle, at.stream);
      complete(at.handle, at.stream);
      at.stream.synchronize();
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpOverflow && error.epoch == number,
              "dispatch " + std::to_string(number) + " left the record: " + error.text);
      ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    }
  });
}

// ---- What is refused

TEST_CASE("C100 a handle's max_tokens bounds its operations, and is the same on all ranks", "[process][nodes]") {
  const Scenario scenario = many;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({scenario}));
    ucclEpHandleConfig_t config = handle_config(scenario);
    const auto is_refused = [&](ucclEpResult_t code, const std::vector<std::string>& words) {
      ucclEpHandle_t handle = nullptr;
      refused(ucclEpHandleCreate(&handle, group, &config), code, "ucclEpHandleCreate", words);
      config = handle_config(scenario);
    };
    config.max_tokens = -1;
    is_refused(ucclEpInvalidArgument, {"config.max_tokens is -1"});
    config.max_tokens = int64_t{1} << 40;
    is_refused(ucclEpInvalidArgument, {"config.max_tokens"});
    config.mode = UCCLEP_MODE_LL;
    config.layout = UCCLEP_LAYOUT_RANK_MAJOR;
    is_refused(ucclEpInvalidArgument, {"config.max_tokens is 61", "LL"});
    config.tile_rows = 128;
    is_refused(ucclEpInvalidArgument, {"config.tile_rows is 128", "UCCLEP_LAYOUT_TILES"});

    size_t few = 0, most = 0;
    ok(ucclEpHandleMemSize(group, &config, &most), "ucclEpHandleMemSize");
    config.max_tokens = 0;
    ok(ucclEpHandleMemSize(group, &config, &few), "ucclEpHandleMemSize");
    require(most > few, "routing memory does not grow with max_tokens");

    config.max_tokens = 60;
    Handle less = make_handle(group, config);
    Exchange exchange(rank, comm, scenario);
    if (scenario.tokens_of(rank.rank) > 60) {
      refused(exchange.try_update(less, stream), ucclEpInvalidArgument, "ucclEpHandleUpdate", {"max_tokens"});
    }

    Scenario fewer = scenario;
    fewer.tokens = {9, 0, 20, 54};
    config.max_tokens = rank.rank == 2 ? 60 : 61;
    Handle differs = make_handle(group, config);
    Exchange other(rank, comm, fewer);
    other.update(differs, stream);
    other.dispatch(differs, stream);
    stream.synchronize();
    other.check_untouched();
    const ucclEpAsyncError_t error = async_error(comm);
    require(error.code == ucclEpInvalidArgument && std::string(error.text).find("max_tokens") != std::string::npos,
            std::string("the record is: ") + error.text);
    ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
    Handle handle = make_handle(group, handle_config(scenario));
    round_trip(rank, comm, handle, stream, scenario);
  });
}

TEST_CASE("C103 with masks an HT operation has one round, and more tokens are refused", "[process]") {
  Scenario scenario = many;
  scenario.masked = true;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Group group = make_group(comm, group_config({scenario}));
    const ucclEpHandleConfig_t config = handle_config(scenario);
    ucclEpHandle_t handle = nullptr;
    refused(ucclEpHandleCreate(&handle, group, &config), ucclEpNotSupported, "ucclEpHandleCreate",
            {"config.max_tokens is 61", "max_tokens_per_rank = 9", "enable_mask"});
  });
}

TEST_CASE("C104 a hundred thousand tokens in one call", "[process][slow]") {
  Scenario scenario{.layout = Layout::ht_flat, .ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 100000};
  scenario.round = 2048;
  scenario.tokens = {100000, 70001};
  scenario.hidden = 8;
  run(scenario);
}

// ---- window_bytes

ucclEpGroupLimits_t queried(ucclEpComm_t comm, const ucclEpGroupConfig_t& config) {
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
  return limits;
}

// The least window of a group, as the refusal of a smaller one says.
int64_t least_window(ucclEpComm_t comm, ucclEpGroupConfig_t config) {
  config.window_bytes = 1;
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  refused(ucclEpGroupQuery(comm, &config, &limits), ucclEpInvalidArgument, "ucclEpGroupQuery",
          {"config.window_bytes (UCCLEP_WINDOW_BYTES) is 1", "the group needs "});
  const std::string text = ucclEpGetLastError(nullptr), words = "the group needs ";
  return std::stoll(text.substr(text.find(words) + words.size()));
}

TEST_CASE("C101 window_bytes bounds a group's windows, and says how many tokens a round has",
          "[process][reduced][nodes]") {
  Scenario scenario = in_ht(many)[1];
  scenario.max_tokens = 200;
  scenario.ll_max_tokens = 1;
  scenario.round = 0;
  scenario.tokens = {200, 130, 0, 64};
  scenario.hidden = 512;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    ucclEpGroupConfig_t config = group_config({scenario});
    require(queried(comm, config).tokens_per_round == 200, "all tokens fit, and there is more than one round");
    config.window_bytes = least_window(comm, config);
    require(queried(comm, config).tokens_per_round == 32, "the least window has no round of 32 tokens");
    ucclEpGroupConfig_t large = config;  // than pages of a GPU, in which windows are made
    large.max_tokens_per_rank = 20000;
    const int64_t of_rounds = queried(comm, large).device_bytes;
    large.window_bytes = 0;
    require(of_rounds < queried(comm, large).device_bytes / 2, "fewer tokens in a round take no less memory");
    {
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      there_and_back(rank, comm, handle, stream, scenario, scenario.seed);
    }
    config.window_bytes += 1024 * 1024;
    const int64_t tokens = queried(comm, config).tokens_per_round;
    require(tokens > 32 && tokens < 200, "a round of " + std::to_string(tokens) + " tokens");
    ucclEpGroup_t group = nullptr;
    if (rank.rank == 1) config.window_bytes -= 1;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate", {"window_bytes"});
    no_async_error(comm);
  });
}

TEST_CASE("C102 UCCLEP_WINDOW_BYTES wins over the group's") {
  Scenario scenario = many;
  scenario.max_tokens = 200;
  scenario.ll_max_tokens = 1;
  ucclEpGroupConfig_t config = group_config({scenario});
  config.max_tokens_per_rank = 200;
  config.nranks = scenario.ranks;
  config.window_bytes = int64_t{1} << 40;
  if (test_gpus() > 0) return skip_case("asks for the host device");
  REQUIRE(queried(nullptr, config).tokens_per_round == 200);
  const Environment environment("UCCLEP_WINDOW_BYTES", std::to_string(least_window(nullptr, config)));
  CHECK(queried(nullptr, config).tokens_per_round == 32);
}

}  // namespace
}  // namespace ucclep::test
