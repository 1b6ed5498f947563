// SPDX-License-Identifier: Apache-2.0
// The routing in a handle's memory is not the one that the host knows of: the memory was written to, or a graph has
// replayed an Update of other tokens. Only what both have is accessed, a data record says so, and the handle goes on.
#include <algorithm>
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// The tokens of the first are among those of the second, with the same routing and data.
struct Pair {
  Scenario few, many;
};

Pair pair_of(Scenario scenario) {
  if (!scenario.ll()) scenario.fixed_capacity = 96;
  if (scenario.layout == Layout::ht_expert_major) scenario.alignment = 4;
  Scenario few = scenario;
  few.tokens = {0, 1, 9, 3};
  scenario.tokens = {9, 4, 9, 5};
  return {few, scenario};
}

const Scenario base{.top_k = 3, .max_tokens = 9, .hidden = 96, .rule = uniform(10)};

void requires_record(ucclEpComm_t comm, const Rank& rank, const Pair& pair) {
  const ucclEpAsyncError_t error = async_error(comm);
  if (pair.few.tokens_of(rank.rank) == pair.many.tokens_of(rank.rank)) {
    require(error.code == ucclEpSuccess, std::string("a record of equal tokens: ") + error.text);
    return;
  }
  require(error.code == ucclEpInvalidArgument && std::string(error.phase) == "tokens" && error.rank == rank.rank,
          std::string("no record of other tokens: ") + error.text);
  ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
}

// One handle on memory of the caller's: what `filled` has filled is put back when `known` was the last to fill it.
class OtherRouting {
 public:
  OtherRouting(const Rank& rank, const Pair& pair, bool fewer_known, bool phases)
      : rank_(rank),
        pair_(pair),
        comm_(rank),
        stream_(comm_),
        group_(make_group(comm_, group_config({pair.few, pair.many}))),
        memory_(comm_, "handle_mem", ucclEpUint8, {size()}),
        saved_(comm_, "saved handle_mem", ucclEpUint8, {size()}),
        handle_(handle_on_memory()),
        few_(rank, comm_, pair.few),
        many_(rank, comm_, pair.many),
        known_(fewer_known ? few_ : many_),
        filled_(fewer_known ? many_ : few_) {
    few_.dispatch_config.send_only = many_.dispatch_config.send_only = phases ? 1 : 0;
    few_.combine_config.send_only = many_.combine_config.send_only = phases ? 1 : 0;
  }

  void check() {
    fill(filled_);
    copy(saved_, memory_);
    fill(known_);
    copy(memory_, saved_);
    combine();
    dispatch();
    round_trip(rank_, comm_, handle_, stream_, pair_.many, 5);
    no_async_error(comm_);
  }

 private:
  int64_t size() const {
    const ucclEpHandleConfig_t config = handle_config(pair_.many);
    size_t bytes = 0;
    ok(ucclEpHandleMemSize(group_, &config, &bytes), "ucclEpHandleMemSize");
    return static_cast<int64_t>(bytes);
  }
  Handle handle_on_memory() const {
    ucclEpHandleConfig_t config = handle_config(pair_.many);
    config.handle_mem = memory_.get();
    return make_handle(group_, config);
  }
  void copy(const Tensor& to, const Tensor& from) {
    ok(ucclEpMemcpy(comm_, to.get()->data, from.get()->data, static_cast<size_t>(size()), stream_), "ucclEpMemcpy");
    stream_.synchronize();
  }
  void finish() {
    ok(ucclEpComplete(handle_, stream_), "ucclEpComplete");
    stream_.synchronize();
  }
  void fill(Exchange& exchange) {
    exchange.update(handle_, stream_);
    exchange.dispatch(handle_, stream_);
    finish();
    exchange.check_dispatch();
    exchange.refresh(exchange.scenario().seed);
  }

  // Rows as they were dispatched, results for the tokens that the host knows of.
  void combine() {
    Tensor result(comm_, "results", pair_.many.combine_dtype,
                  {known_.scenario().tokens_of(rank_.rank), pair_.many.combined_hidden()});
    filled_.combine_out.tokens = result.get();
    filled_.combine(handle_, stream_);
    finish();
    const int64_t both = pair_.few.tokens_of(rank_.rank), hidden = pair_.many.combined_hidden();
    const std::vector<float> expected = filled_.contents().combined(rank_.rank);
    for (int64_t i = 0; i < both * hidden; ++i) {
      reference::store(pair_.many.combine_dtype, result.element(i / hidden, i % hidden),
                       expected[static_cast<size_t>(i)]);
    }
    result.verify(rank_.rank);
    requires_record(comm_, rank_, pair_);
  }

  // LL counts the rows again, as it sends them. In HT the rows that were counted come, if need be as zeros.
  void dispatch() {
    const bool counted = !pair_.many.ll();
    Exchange& received = counted ? filled_ : few_;
    const ucclEpDispatchInputs_t inputs = received.dispatch_in;
    received.dispatch_in = known_.dispatch_in;
    if (counted) received.expect_zeros_past(pair_.few.tokens);
    received.dispatch(handle_, stream_);
    finish();
    received.dispatch_in = inputs;
    received.check_dispatch();
    requires_record(comm_, rank_, pair_);
  }

  const Rank& rank_;
  const Pair& pair_;
  Comm comm_;
  Stream stream_;
  Group group_;
  Tensor memory_, saved_;
  Handle handle_;
  Exchange few_, many_;
  Exchange &known_, &filled_;
};

void run_other_routing(const Scenario& scenario, bool phases) {
  const Pair pair = pair_of(scenario);
  for (const bool fewer_known : {false, true}) {
    run_ranks(scenario.ranks, [&](Rank& rank) { OtherRouting(rank, pair, fewer_known, phases).check(); });
  }
}

TEST_CASE("other tokens than the host knows of: only what both have is accessed",
          "[process][reduced][driver][checked][nodes][modes]") {
  for (Scenario scenario : in_all_layouts(base)) {
    for (const bool phases : {false, true}) run_other_routing(scenario, phases);
    scenario.masked = true;
    scenario.nodes = {1, 1, 1, 1};  // with masks there are no sums of nodes
    run_other_routing(scenario, false);
  }
}

TEST_CASE("other tokens than the host knows of, rows that are quantised on their way") {
  Scenario scenario = base;
  scenario.hidden = 256;
  scenario.quant = UCCLEP_QUANT_FP8_128;
  scenario.scales = Scales{};
  for (const Scenario& each : in_all_layouts(scenario)) run_other_routing(each, false);
}

}  // namespace
}  // namespace ucclep::test
