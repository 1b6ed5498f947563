// SPDX-License-Identifier: Apache-2.0
// More rows than 32 bits number, and more than counters of int32 hold: nothing wraps, and a record says so.
#include <catch2/catch.hpp>
#include <climits>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Each expert of the one rank gets a row, in a zone that is padded to a million: 2^32 rows in all.
constexpr int64_t experts = 4096, top_k = 32, tokens = experts / top_k, alignment = int64_t{1} << 20, hidden = 16;
constexpr int64_t total = experts * alignment;

void require_overflow(ucclEpComm_t comm, const char* what) {
  const ucclEpAsyncError_t error = async_error(comm);
  require(error.code == ucclEpOverflow && std::string(error.phase) == "counts", std::string(what) + ": " + error.text);
  ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
}

struct Padded {
  explicit Padded(const Rank& rank) : comm(rank), stream(comm) {
    ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
    shape.num_experts = experts;
    shape.top_k = top_k;
    shape.max_tokens_per_rank = tokens;
    shape.max_token_bytes = 4 * hidden;
    group = make_group(comm, shape);
    for (int64_t i = 0; i < experts; ++i) ids.set_integer(i / top_k, i % top_k, i);
    ids.upload();
  }
  Handle make_padded_handle() const {
    ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
    config.mode = UCCLEP_MODE_HT;
    config.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
    config.expert_alignment = alignment;
    return make_handle(group, config);
  }
  // With counters of that type, which have to hold no more than it does.
  void update(ucclEpHandle_t handle, ucclEpDataType_t type) {
    const int64_t most = type == ucclEpInt64 ? INT64_MAX : INT32_MAX;
    Tensor offsets(comm, "expert_offsets", type, {experts + 1}), sum(comm, "recv_total", type, {1});
    ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
    counters.expert_offsets = offsets.get();
    counters.recv_total = sum.get();
    ok(ucclEpHandleUpdate(handle, ids.get(), &counters, stream), "ucclEpHandleUpdate");
    stream.synchronize();
    std::vector<int64_t> expected;
    for (int64_t i = 0; i <= experts; ++i) expected.push_back(std::min(i * alignment, most));
    offsets.set_integers(expected);
    offsets.verify(0);
    sum.set_integers({std::min(total, most)});
    sum.verify(0);
    require_overflow(comm, "2^32 rows");
  }
  Comm comm;
  Stream stream;
  Group group;
  Tensor ids{comm, "topk_idx", ucclEpInt64, {tokens, top_k}};
};

TEST_CASE("more rows than 32 bits number: those that are kept come and go, totals are true", "[reduced]") {
  run_ranks(1, [](Rank& rank) {
    Padded at(rank);
    const Handle handle = at.make_padded_handle();
    at.update(handle, ucclEpInt64);
    constexpr int64_t kept = 40;  // of the zone of expert 0: one row, and padding
    Tensor sent(at.comm, "tokens", ucclEpFloat32, {tokens, hidden}),
        rows(at.comm, "rows", ucclEpFloat32, {kept, hidden}),
        result(at.comm, "results", ucclEpFloat32, {tokens, hidden});
    for (int64_t row = 0; row < tokens; ++row) {
      for (int64_t column = 0; column < hidden; ++column) {
        reference::store(ucclEpFloat32, sent.element(row, column), static_cast<float>(1 + row + column));
      }
      result.zero_row(row);
    }
    sent.upload();
    ucclEpDispatchInputs_t inputs = UCCLEP_DISPATCH_INPUTS_INIT;
    inputs.tokens = sent.get();
    ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = rows.get();
    ok(ucclEpDispatch(handle, &inputs, &outputs, nullptr, at.stream), "ucclEpDispatch");
    at.stream.synchronize();
    for (int64_t row = 1; row < kept; ++row) rows.zero_row(row);
    rows.fill_row(0, sent.row(0));
    rows.verify(0);
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");  // of rows that were dropped
    ucclEpCombineInputs_t partial = UCCLEP_COMBINE_INPUTS_INIT;
    partial.tokens = rows.get();
    ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
    combined.tokens = result.get();
    ok(ucclEpCombine(handle, &partial, &combined, nullptr, at.stream), "ucclEpCombine");
    at.stream.synchronize();
    result.fill_row(0, sent.row(0));
    result.verify(0);
    no_async_error(at.comm);
  });
}

TEST_CASE("more rows than 32 bits number: a host that knows it refuses, and int32 counters hold their most") {
  run_ranks(1, [](Rank& rank) {
    Padded at(rank);
    const Handle handle = at.make_padded_handle();
    at.update(handle, ucclEpInt32);
    int64_t rows = 0;
    ok(ucclEpHandleWaitCounts(handle, &rows, nullptr), "ucclEpHandleWaitCounts");
    require(rows == total, "ucclEpHandleWaitCounts says " + std::to_string(rows));
    Tensor sent(at.comm, "tokens", ucclEpFloat32, {tokens, hidden}), few(at.comm, "rows", ucclEpFloat32, {40, hidden});
    ucclEpDispatchInputs_t inputs = UCCLEP_DISPATCH_INPUTS_INIT;
    inputs.tokens = sent.get();
    ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = few.get();
    refused(ucclEpDispatch(handle, &inputs, &outputs, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
            {std::to_string(total)});
    ucclEpGroupConfig_t large = UCCLEP_GROUP_CONFIG_INIT;
    large.num_experts = large.top_k = large.max_token_bytes = 1;
    large.max_tokens_per_rank = INT_MAX / 2;
    large.num_experts = 8;
    large.nranks = 8;
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    refused(ucclEpGroupQuery(nullptr, &large, &limits), ucclEpInvalidArgument, "ucclEpGroupQuery",
            {"max_tokens_per_rank"});
  });
}

TEST_CASE("cumulative counts end at what int32 holds", "[reduced]") {
  for (const Scenario& scenario : in_all_layouts({.ranks = 1, .experts = 2})) {
    run_ranks(1, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      Tensor full(at.comm, "cumulative_tokens_per_expert", ucclEpInt32, {scenario.local_experts()});
      full.set_integers({INT32_MAX - 1, INT32_MAX - 1});
      full.upload();
      exchange.dispatch_out.cumulative_tokens_per_expert = full.get();
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      full.set_integers({INT32_MAX, INT32_MAX});
      full.verify(0);
      require_overflow(at.comm, "cumulative counts");
    });
  }
}

}  // namespace
}  // namespace ucclep::test
