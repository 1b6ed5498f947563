// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of operations: the documented code, an error message that names what is wrong, nothing written, and a
// group that works afterwards.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using Words = std::vector<std::string>;

// A case for one layout with two ranks: `wrong` makes refused calls; then a whole exchange must still work.
void then_works(const Scenario& scenario, const std::function<void(Rank&, Session&, Exchange&)>& wrong) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    wrong(rank, at, exchange);
    at.stream.synchronize();
    exchange.check_untouched();
    no_async_error(at.comm);
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
  });
}

// ---- Handle and operations ----

TEST_CASE("handles without a layout, and combinations that do not exist", "[process][reduced]") {
  const Scenario scenario = pair_of_ranks(Layout::ht_flat);
  then_works(scenario, [](Rank&, Session& at, Exchange&) {
    const auto create = [&](int mode, int layout, int alignment = 0) {
      ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
      config.mode = mode;
      config.layout = layout;
      config.expert_alignment = alignment;
      ucclEpHandle_t handle = nullptr;
      return ucclEpHandleCreate(&handle, at.group, &config);
    };
    refused(create(UCCLEP_MODE_HT, 0), ucclEpInvalidArgument, "ucclEpHandleCreate", {"layout"});
    refused(create(UCCLEP_MODE_HT, 9), ucclEpInvalidArgument, "ucclEpHandleCreate", {"layout"});
    refused(create(7, UCCLEP_LAYOUT_FLAT), ucclEpInvalidArgument, "ucclEpHandleCreate", {"mode"});
    refused(create(UCCLEP_MODE_LL, UCCLEP_LAYOUT_FLAT), ucclEpNotSupported, "ucclEpHandleCreate");
    refused(create(UCCLEP_MODE_HT, UCCLEP_LAYOUT_RANK_MAJOR), ucclEpNotSupported, "ucclEpHandleCreate");
    refused(create(UCCLEP_MODE_HT, UCCLEP_LAYOUT_EXPERT_MAJOR, 3), ucclEpInvalidArgument, "ucclEpHandleCreate",
            {"expert_alignment", "3"});
  });
}

TEST_CASE("required tensors that are NULL are named", "[process][reduced]") {
  for (const Layout layout : all_layouts) {
    then_works(pair_of_ranks(layout), [](Rank&, Session& at, Exchange& exchange) {
      refused(ucclEpHandleUpdate(at.handle, nullptr, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpHandleUpdate",
              {"topk_idx"});
      exchange.update(at.handle, at.stream);
      refused(ucclEpDispatch(at.handle, nullptr, &exchange.dispatch_out, nullptr, at.stream), ucclEpInvalidArgument,
              "ucclEpDispatch");
      refused(ucclEpDispatch(at.handle, &exchange.dispatch_in, nullptr, nullptr, at.stream), ucclEpInvalidArgument,
              "ucclEpDispatch");
      const ucclEpTensor_t* tokens = std::exchange(exchange.dispatch_in.tokens, nullptr);
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"tokens"});
      ucclEpTensor_t no_data = *tokens;
      no_data.data = nullptr;
      exchange.dispatch_in.tokens = &no_data;
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"tokens"});
      exchange.dispatch_in.tokens = tokens;
      exchange.dispatch_out.tokens = nullptr;
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"tokens"});
    });
  }
}

TEST_CASE("combine's tensors that are NULL or of another shape", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = pair_of_ranks(layout);
    run_ranks(2, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      const ucclEpTensor_t* tokens = std::exchange(exchange.combine_in.tokens, nullptr);
      refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine", {"tokens"});
      ucclEpTensor_t other = *tokens;
      other.dtype = ucclEpFloat8e4m3;
      exchange.combine_in.tokens = &other;
      refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine", {"tokens"});
      exchange.combine_in.tokens = tokens;
      ucclEpTensor_t result = *exchange.combine_out.tokens;
      result.sizes[0] += 1;
      exchange.combine_out.tokens = &result;
      refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine", {"tokens"});
      exchange.combine_out.tokens = exchange.combined().get();
      exchange.combine_in.scales = tokens;
      refused(exchange.try_combine(at.handle, at.stream), ucclEpNotSupported, "ucclEpCombine", {"scales"});
      exchange.combine_in.scales = nullptr;
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
    });
  }
}

TEST_CASE("LL expert-major: combine without any weights", "[process]") {
  Scenario scenario = pair_of_ranks(Layout::ll_expert_major);
  scenario.weights = Weights::none;
  run_ranks(2, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine", {"topk_weights"});
    at.stream.synchronize();
    exchange.check_dispatch();
  });
}

TEST_CASE("tensors with a bad dtype, shape, stride or address", "[process][reduced]") {
  for (const Layout layout : all_layouts) {
    then_works(pair_of_ranks(layout), [](Rank&, Session& at, Exchange& exchange) {
      exchange.update(at.handle, at.stream);
      const ucclEpTensor_t good = *exchange.dispatch_in.tokens;
      const auto try_tokens = [&](const std::function<void(ucclEpTensor_t&)>& change, const Words& words) {
        ucclEpTensor_t tensor = good;
        change(tensor);
        exchange.dispatch_in.tokens = &tensor;
        refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", words);
      };
      try_tokens([](ucclEpTensor_t& tensor) { tensor.dtype = ucclEpNoDataType; }, {"tokens", "dtype"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.ndim = 1; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.ndim = 5; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.sizes[1] -= 1; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.sizes[0] += 1; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.sizes[0] = -1; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.data = static_cast<char*>(tensor.data) + 8; }, {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.strides[0] = tensor.sizes[1] + 1, tensor.strides[1] = 1; },
                 {"tokens"});
      try_tokens([](ucclEpTensor_t& tensor) { tensor.strides[0] = 1, tensor.strides[1] = 8; }, {"tokens"});
    });
  }
}

TEST_CASE("more tokens, choices or bytes than the group allows", "[process][reduced]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = pair_of_ranks(layout);
    then_works(scenario, [&](Rank& rank, Session& at, Exchange&) {
      Scenario tokens = scenario;
      tokens.max_tokens = 5;
      Exchange many(rank, at.comm, tokens);
      refused(many.try_update(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpHandleUpdate",
              {"topk_idx", "5", "4"});
      Scenario choices = scenario;
      choices.top_k = 3;
      Exchange wide(rank, at.comm, choices);
      refused(wide.try_update(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpHandleUpdate",
              {"topk_idx", "3", "2"});
      Scenario bytes = scenario;
      bytes.hidden = 72;
      Exchange large(rank, at.comm, bytes);
      large.update(at.handle, at.stream);
      refused(large.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"max_token_bytes"});
      Scenario scales = scenario;  // of which a row alone is as long as it may be
      scales.dtype = ucclEpFloat8e4m3;
      scales.hidden = scenario.row_bytes();
      scales.scales = Scales{};
      Exchange scaled(rank, at.comm, scales);
      refused(scaled.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
              {"4 bytes of scales", "max_token_bytes"});
      at.stream.synchronize();  // the update reads topk_idx
    });
  }
}

TEST_CASE("dispatch before any routing is refused", "[process]") {
  for (const Layout layout : all_layouts) {
    then_works(pair_of_ranks(layout), [](Rank&, Session& at, Exchange& exchange) {
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch");
    });
  }
}

void count_as_none(const Scenario& bad) {
  run_ranks(bad.ranks, [&](Rank& rank) {
    Session at(rank, bad);
    round_trip(rank, at.comm, at.handle, at.stream, bad);
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(error.code == ucclEpInvalidArgument, "the record is " + std::to_string(error.code));
    require(std::string(error.text).find("topk_idx") != std::string::npos,
            std::string("the record says: ") + error.text);
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    Scenario good = bad;
    good.rule = uniform();
    round_trip(rank, at.comm, at.handle, at.stream, good, 2);
    no_async_error(at.comm);
  });
}

TEST_CASE("expert ids out of range or twice count as -1 and leave a record", "[process][reduced][nodes]") {
  for (const Scenario& layout :
       in_all_layouts({.experts = 16, .top_k = 5, .max_tokens = 30, .idx = ucclEpInt64, .rule = bad_ids()})) {
    count_as_none(layout);
  }
  Scenario few{
      .layout = Layout::ll_expert_major, .ranks = 2, .top_k = 3, .max_tokens = 2, .hidden = 8, .carried = true};
  few.rule = [](const Scenario& self, uint64_t, int, int64_t token) -> std::vector<int64_t> {
    return token == 0 ? std::vector<int64_t>{7, self.experts, 2} : std::vector<int64_t>{-5, 7, 7};
  };
  count_as_none(few);
}

TEST_CASE("one bad expert id on one rank leaves its record there, and a later one leaves that", "[process]") {
  for (const ucclEpDataType_t type : {ucclEpInt32, ucclEpInt64}) {
    const auto with_id = [type](int64_t bad) {
      Scenario scenario = pair_of_ranks(Layout::ht_flat);
      scenario.idx = type;
      scenario.rule = [bad](const Scenario& self, uint64_t seed, int rank, int64_t token) {
        std::vector<int64_t> row = uniform()(self, seed, rank, token);
        if (rank == 1 && token == 2) row[1] = bad;
        return row;
      };
      return scenario;
    };
    run_ranks(2, [&](Rank& rank) {
      Session at(rank, with_id(4));
      for (const int64_t bad : {4, 9}) {
        round_trip(rank, at.comm, at.handle, at.stream, with_id(bad));
        const ucclEpAsyncError_t error = async_error(at.comm);
        require(error.code == (rank.rank == 1 ? ucclEpInvalidArgument : ucclEpSuccess),
                "the record is " + std::to_string(error.code));
        if (rank.rank != 1) continue;
        require(error.rank == 1, "the record names rank " + std::to_string(error.rank));
        require(std::string(error.text).find("the id 4,") != std::string::npos, error.text);
      }
    });
  }
}

// The settings of one rank differ: all get the record, nobody's rows are written, and the group works on.
void differing(const Scenario& common, const Scenario& other, const Words& words) {
  run_ranks(common.ranks, [&](Rank& rank) {
    const Scenario& own = rank.rank == 1 ? other : common;
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({common, other}));
    {
      Handle handle = make_handle(group, handle_config(own));
      Exchange exchange(rank, comm, own);
      exchange.update(handle, stream);
      const ucclEpResult_t result = exchange.try_dispatch(handle, stream);
      require(result == ucclEpSuccess || result == ucclEpInvalidArgument,
              "ucclEpDispatch answered " + std::to_string(result));
      stream.synchronize();
      const ucclEpAsyncError_t error = async_error(comm);
      require(error.code == ucclEpInvalidArgument, "the record is " + std::to_string(error.code) + ": " + error.text);
      for (const std::string& word : words) {
        require(std::string(error.text).find(word) != std::string::npos, std::string(error.text) + " lacks " + word);
      }
      exchange.check_untouched();
    }
    ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
    Handle handle = make_handle(group, handle_config(common));
    round_trip(rank, comm, handle, stream, common, 3);
    no_async_error(comm);
  });
}

TEST_CASE("the layout differs between ranks: refused on all, no row written", "[process][reduced]") {
  Scenario low{.layout = Layout::ll_expert_major}, high{.layout = Layout::ht_flat};
  Scenario other_low = low, other_high = high;
  other_low.layout = Layout::ll_rank_major;
  other_high.layout = Layout::ht_expert_major;
  differing(low, other_low, {"layout"});
  differing(high, other_high, {"layout"});
}

TEST_CASE("the alignment differs between ranks", "[process]") {
  Scenario common{.layout = Layout::ht_expert_major, .alignment = 4};
  Scenario other = common;
  other.alignment = 8;
  differing(common, other, {"alignment"});
}

TEST_CASE("the number of choices differs between ranks", "[process]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    Scenario common{.layout = layout, .top_k = 3};
    Scenario other = common;
    other.top_k = 2;
    differing(common, other, {});
  }
}

TEST_CASE("the hidden size or dtype differs between ranks", "[process][nodes]") {
  for (const Layout layout : {Layout::ll_rank_major, Layout::ht_flat}) {
    Scenario common{.layout = layout};
    Scenario other = common;
    other.hidden = 72;
    differing(common, other, {});
    other.hidden = 64;
    other.dtype = ucclEpFloat16;
    differing(common, other, {});
  }
}

}  // namespace
}  // namespace ucclep::test
