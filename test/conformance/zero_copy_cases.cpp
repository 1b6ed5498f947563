// SPDX-License-Identifier: Apache-2.0
// Tensors that lie in windows of the user's: HT FLAT moves rows straight into and out of them. Every rank decides for
// itself, so ranks with and without windows meet in one operation.
#include <catch2/catch.hpp>

#include "conformance/zero_copy.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Update, dispatch and combine with new routing in each round; the last routing once more with other data.
void exchange_rows(Rank& rank, Session& at, const Scenario& scenario, const Share& share, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Exchange exchange(rank, at.comm, scenario, scenario.seed + static_cast<uint64_t>(round));
    const Windows windows(rank, at.comm, exchange, share);
    if (!scenario.carried) exchange.update(at.handle, at.stream);
    for (uint64_t data = 0; data < 2; ++data) {
      if (data > 0) exchange.refresh(70 + data);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
    }
  }
}

void run_zero_copy(const Scenario& scenario, const Share& share, int rounds = reduced() ? 1 : 2) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    exchange_rows(rank, at, scenario, share, rounds);
    no_async_error(at.comm);
  });
}

Share all() {
  return [](int, Which) { return Exposed::whole; };
}
Share only_ranks(unsigned mask) {
  return [mask](int rank, Which) { return (mask >> rank & 1) != 0 ? Exposed::whole : Exposed::no; };
}
Share but(Which missing) {
  return [missing](int, Which which) { return which == missing ? Exposed::no : Exposed::whole; };
}

Scenario flat() {
  return {.layout = Layout::ht_flat, .experts = 16, .top_k = 3, .max_tokens = 41, .hidden = 72};
}

TEST_CASE("zero copy: all ranks", "[process][reduced][nodes][modes]") {
  run_zero_copy(flat(), all(), 3);
}

TEST_CASE("zero copy: some ranks expose tensors, and the others do not", "[process][reduced][nodes]") {
  for (const unsigned mask : {0x1u, 0x6u, 0xbu}) {
    Scenario scenario = flat();
    scenario.seed = 500 + mask;
    run_zero_copy(scenario, only_ranks(mask));
  }
}

TEST_CASE("zero copy: a rank exposes one tensor and not the other", "[process][nodes]") {
  run_zero_copy(flat(), but(combined));
  run_zero_copy(flat(), but(dispatched));
  run_zero_copy(flat(), [](int rank, Which which) { return (rank + which) % 2 != 0 ? Exposed::whole : Exposed::no; });
}

TEST_CASE("zero copy: a tensor of which half lies in a window is staged", "[process][reduced][nodes]") {
  run_zero_copy(flat(), [](int rank, Which) { return rank % 2 != 0 ? Exposed::half : Exposed::whole; });
}

TEST_CASE("zero copy: ranks without tokens, dropped choices, one SM", "[process][reduced][nodes]") {
  Scenario scenario = flat();
  scenario.tokens = {41, 0, 1, 17};
  scenario.rule = uniform(40);
  scenario.num_sms = 1;
  run_zero_copy(scenario, all());
  run_zero_copy(scenario, only_ranks(0x5));
  scenario.rule = only({-1, -1, -1});
  run_zero_copy(scenario, only_ranks(0xd));
}

TEST_CASE("zero copy: long rows that lie apart, carried routing, biases", "[process]") {
  Scenario scenario = flat();
  scenario.hidden = 7168;
  scenario.max_tokens = 9;
  scenario.strided = true;
  scenario.carried = true;
  scenario.biases = 2;
  scenario.global_ids = true;
  run_zero_copy(scenario, all());
  run_zero_copy(scenario, only_ranks(0x9));
}

TEST_CASE("zero copy: one rank, and two", "[process]") {
  Scenario scenario = flat();
  for (const int count : {1, 2}) {
    scenario.ranks = count;
    run_zero_copy(scenario, all());
  }
}

// Nothing is written at or beyond the capacity, and what was not dispatched counts as zero in combine.
TEST_CASE("zero copy: rows that do not fit are dropped and recorded", "[process][reduced]") {
  for (const unsigned mask : {0xfu, 0x6u}) {
    for (const int64_t missing : {1, 30, 1000}) {
      Scenario scenario = flat();
      scenario.slack = -missing;
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario);
        exchange_rows(rank, at, scenario, only_ranks(mask), 1);
        require(async_error(at.comm).code == ucclEpOverflow, "expected the record ucclEpOverflow");
      });
    }
  }
}

// The group's limit is below what the tensors hold.
TEST_CASE("zero copy: rows that the group does not keep are dropped", "[process][reduced]") {
  for (const unsigned mask : {0xfu, 0x6u}) {
    for (const int64_t limit : {1, 30}) {
      Scenario scenario = flat();
      scenario.max_recv = limit;
      scenario.overflow = UCCLEP_OVERFLOW_DROP;
      run_zero_copy(scenario, only_ranks(mask));
    }
  }
}

Scenario fp8(const Scales& format) {
  Scenario scenario = flat();
  scenario.dtype = ucclEpFloat8e4m3;
  scenario.hidden = 256;
  scenario.combine_hidden = 64;
  scenario.scales = format;
  return scenario;
}

TEST_CASE("zero copy: fp8 rows with their scales", "[process][reduced][nodes]") {
  run_zero_copy(fp8({ucclEpFloat32, 4, false}), all());
  run_zero_copy(fp8({ucclEpFloat32, 4, false}), only_ranks(0x6));
  run_zero_copy(fp8({ucclEpFloat32, 3, false}), all());
  run_zero_copy(fp8({ucclEpFloat32, 5, true}), all());
  run_zero_copy(fp8({ucclEpUint8, 7, false}), all());
  run_zero_copy(fp8({ucclEpBfloat16, 3, true}), only_ranks(0xb));
}

TEST_CASE("zero copy: fp8 rows without their scales are staged", "[process]") {
  run_zero_copy(fp8({ucclEpFloat32, 4, false}), but(scales));
  run_zero_copy(fp8({ucclEpFloat32, 4, true}), [](int rank, Which which) {
    return which == scales && rank % 2 != 0 ? Exposed::half : Exposed::whole;
  });
}

TEST_CASE("zero copy: quantisation on the way", "[process][reduced]") {
  Scenario scenario = flat();
  scenario.hidden = 640;
  scenario.quant = UCCLEP_QUANT_FP8_128;
  for (const bool columns : {false, true}) {
    scenario.scales = Scales{ucclEpFloat32, 0, columns};
    run_zero_copy(scenario, all());
    run_zero_copy(scenario, only_ranks(0x3));
  }
  scenario.round_scale = true;
  scenario.scales = Scales{ucclEpInt32, 0, true};
  run_zero_copy(scenario, all());
}

TEST_CASE("zero copy: expert-major stages all rows", "[process]") {
  Scenario scenario = flat();
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = 4;
  run_zero_copy(scenario, all());
}

// The caller goes on when his operation has ended: nobody reads or writes the tensors after that.
TEST_CASE("zero copy: many operations one behind the other", "[process][reduced][nodes]") {
  const Scenario scenario = flat();
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    const Windows windows(rank, at.comm, exchange, all());
    exchange.update(at.handle, at.stream);
    for (int i = 0; i < 12; ++i) {
      exchange.dispatch(at.handle, at.stream);
      exchange.combine(at.handle, at.stream);
    }
    at.stream.synchronize();
    exchange.check_combine();
    exchange.refresh(9);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
  });
}

TEST_CASE("zero copy: phases expose nothing, and meet ranks that do", "[process][reduced]") {
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, flat());
    Exchange exchange(rank, at.comm, flat());
    const Windows windows(rank, at.comm, exchange, all());
    exchange.update(at.handle, at.stream);
    for (int round = 0; round < 4; ++round) {
      const bool phases = round == 3 || (rank.rank + round) % 2 == 0;
      exchange.dispatch_config.send_only = exchange.combine_config.send_only = phases ? 1 : 0;
      if (round > 0) exchange.refresh(static_cast<uint64_t>(20 + round));
      exchange.dispatch(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.combine(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      at.stream.synchronize();
      exchange.check_combine();
    }
  });
}

}  // namespace
}  // namespace ucclep::test
