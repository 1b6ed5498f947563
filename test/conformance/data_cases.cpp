// SPDX-License-Identifier: Apache-2.0
// What rows are made of: sizes, dtypes, scales, quantisation, weights and biases, index and counter types.
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

Scenario small_rows() {
  return {.experts = 8, .top_k = 3, .max_tokens = 7};
}

TEST_CASE("rows of 16 bytes, and of every multiple up to 160", "[process][reduced]") {
  std::vector<Scenario> scenarios;
  for (int64_t bytes = 16; bytes <= 160; bytes += 16) {
    Scenario scenario = small_rows();
    scenario.hidden = bytes / 2;
    scenario.layout = all_layouts[bytes / 16 % std::size(all_layouts)];
    scenarios.push_back(scenario);
  }
  run_all(scenarios);
}

TEST_CASE("rows around the sizes of copies", "[process]") {
  std::vector<Scenario> scenarios;
  for (const int64_t bytes : {496, 512, 528, 1008, 1040, 2032, 2064, 4080, 4096, 4112, 8176, 8208}) {
    Scenario scenario = small_rows();
    scenario.max_tokens = 3;
    scenario.ranks = 2;
    scenario.hidden = bytes / 2;
    scenario.layout = all_layouts[scenarios.size() % std::size(all_layouts)];
    scenarios.push_back(scenario);
  }
  run_all(scenarios);
}

void hidden_size(int64_t hidden) {
  run_all(in_all_layouts({.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 4, .hidden = hidden}));
}

TEST_CASE("hidden size 2880", "[process]") {
  hidden_size(2880);
}
TEST_CASE("hidden size 3584", "[process]") {
  hidden_size(3584);
}
TEST_CASE("hidden size 7168", "[process][reduced][driver][modes]") {
  hidden_size(7168);
}
TEST_CASE("hidden size 16384", "[process]") {
  hidden_size(16384);
}

TEST_CASE("fp16 tokens", "[process]") {
  Scenario scenario = small_rows();
  scenario.dtype = scenario.combine_dtype = ucclEpFloat16;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("fp32 tokens", "[process][reduced]") {
  Scenario scenario = small_rows();
  scenario.dtype = scenario.combine_dtype = ucclEpFloat32;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("dispatch and combine have different dtypes and sizes", "[process]") {
  Scenario scenario = small_rows();
  scenario.dtype = ucclEpFloat16;
  scenario.combine_dtype = ucclEpFloat32;
  scenario.combine_hidden = 40;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("NaN and infinity are forwarded bit for bit", "[process][reduced][nodes][modes]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    Scenario scenario = small_rows();
    scenario.dtype = dtype;
    scenario.any_bits = true;
    run_all(in_all_layouts(scenario));
  }
}

TEST_CASE("rows that lie further apart than they are long", "[process]") {
  Scenario scenario = small_rows();
  scenario.strided = true;
  scenario.biases = 2;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("tensors in plain memory of the process", "[process][reduced]") {
  if (test_gpus() > 0) return skip_case("GPUs do not reach pageable memory");
  Scenario scenario = small_rows();
  scenario.memory = Memory::plain;
  scenario.biases = 1;
  run_all(in_all_layouts(scenario));
}

// ---- Bytes with scales ----

Scenario bytes(ucclEpDataType_t dtype, const Scales& scales) {
  Scenario scenario = small_rows();
  scenario.dtype = dtype;
  scenario.hidden = 256;
  scenario.combine_hidden = 64;
  scenario.scales = scales;
  return scenario;
}

TEST_CASE("fp8 with fp32 scales by rows", "[process][reduced]") {
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpFloat32, 2, false})));
}

TEST_CASE("fp8 with fp32 scales by columns", "[process][nodes]") {
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpFloat32, 5, true})));
}

TEST_CASE("fp8 e5m2 with e8m0 scales", "[process]") {
  run_all(in_all_layouts(bytes(ucclEpFloat8e5m2, {ucclEpFloat8e8m0, 8, false})));
}

TEST_CASE("fp8 with scales of odd width and one byte", "[process][nodes]") {
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpUint8, 7, false})));
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpUint8, 13, true})));
}

TEST_CASE("fp8 with packed int32 and with bf16 scales", "[process]") {
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpInt32, 1, false})));
  run_all(in_all_layouts(bytes(ucclEpFloat8e4m3, {ucclEpBfloat16, 3, true})));
}

TEST_CASE("fp4 with e4m3 scales", "[process]") {
  run_all(in_all_layouts(bytes(ucclEpFloat4e2m1x2, {ucclEpFloat8e4m3, 32, false})));
}

TEST_CASE("fp4 with e4m3 scales by columns and aligned zones", "[process]") {
  Scenario scenario = bytes(ucclEpFloat4e2m1x2, {ucclEpFloat8e4m3, 32, true});
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = 16;
  run(scenario);
}

// ---- bf16 to fp8 ----

void quantise(const Scales& scales, bool round_scale) {
  std::vector<Scenario> scenarios;
  for (const int64_t hidden : {128, 512, 640, 1024}) {
    Scenario scenario = small_rows();
    scenario.layout = all_layouts[scenarios.size()];
    scenario.hidden = hidden;
    scenario.quant = UCCLEP_QUANT_FP8_128;
    scenario.scales = scales;
    scenario.round_scale = round_scale;
    scenarios.push_back(scenario);
  }
  Scenario padded = scenarios.back();
  padded.alignment = 8;
  scenarios.push_back(padded);
  run_all(scenarios);
}

TEST_CASE("fp8 quantisation with fp32 scales", "[process][reduced][driver][checked][nodes]") {
  quantise({ucclEpFloat32, 0, false}, false);
}
TEST_CASE("fp8 quantisation with fp32 scales by columns", "[process]") {
  quantise({ucclEpFloat32, 0, true}, false);
}
TEST_CASE("fp8 quantisation with fp32 scales rounded to powers of two", "[process]") {
  quantise({ucclEpFloat32, 0, true}, true);
}
TEST_CASE("fp8 quantisation with e8m0 scales", "[process]") {
  quantise({ucclEpFloat8e8m0, 0, false}, true);
}
TEST_CASE("fp8 quantisation with e8m0 scales by columns", "[process]") {
  quantise({ucclEpFloat8e8m0, 0, true}, true);
}
TEST_CASE("fp8 quantisation with four exponents in a word", "[process][reduced][nodes][modes]") {
  quantise({ucclEpInt32, 0, false}, true);
  quantise({ucclEpInt32, 0, true}, true);
}

// Scales of a row have 512 bytes of shared memory: 128 of fp32.
TEST_CASE("fp8 quantisation of the longest row, and of one that is too long", "[process]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    Scenario longest = small_rows();
    longest.layout = layout;
    longest.hidden = 128 * 128;
    longest.quant = UCCLEP_QUANT_FP8_128;
    longest.scales = Scales{ucclEpFloat32, 0, false};
    run_all({longest});
    Scenario too_long = longest;
    too_long.hidden += 128;
    run_ranks(too_long.ranks, [&](Rank& rank) {
      Session at(rank, too_long);
      Exchange exchange(rank, at.comm, too_long);
      exchange.update(at.handle, at.stream);
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpNotSupported, "ucclEpDispatch", {"516", "512"});
      at.stream.synchronize();  // the update reads topk_idx
    });
  }
}

// ---- Weights and biases ----

TEST_CASE("weights with dispatch", "[process]") {
  Scenario scenario = small_rows();
  scenario.weights = Weights::with_dispatch;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("LL expert-major: weights with combine", "[process][reduced][driver][checked][nodes][modes]") {
  Scenario scenario = small_rows();
  scenario.layout = Layout::ll_expert_major;
  scenario.weights = Weights::with_combine;
  run(scenario, 3);
}

TEST_CASE("LL expert-major: weights of combine win over those of dispatch", "[process]") {
  Scenario scenario = small_rows();
  scenario.layout = Layout::ll_expert_major;
  scenario.weights = Weights::with_both;
  run(scenario, 3);
}

TEST_CASE("layouts that sum rows as they are need no weights", "[process]") {
  for (const Layout layout : {Layout::ll_rank_major, Layout::ht_flat, Layout::ht_expert_major}) {
    Scenario scenario = small_rows();
    scenario.layout = layout;
    scenario.weights = Weights::none;
    run(scenario);
  }
}

TEST_CASE("one bias", "[process]") {
  Scenario scenario = small_rows();
  scenario.biases = 1;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("two biases in every dtype", "[process][reduced][nodes]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    Scenario scenario = small_rows();
    scenario.biases = 2;
    scenario.dtype = scenario.combine_dtype = dtype;
    run_all(in_all_layouts(scenario));
  }
}

// ---- Index and counter types ----

TEST_CASE("global numbers of received experts", "[process][reduced][nodes]") {
  for (const Layout layout : {Layout::ll_rank_major, Layout::ht_flat}) {
    Scenario scenario = small_rows();
    scenario.layout = layout;
    scenario.global_ids = true;
    run(scenario);
  }
}

TEST_CASE("int32 topk_idx in, int64 out", "[process][reduced]") {
  Scenario scenario = small_rows();
  scenario.idx = ucclEpInt32;
  scenario.idx_out = ucclEpInt64;
  run_all(in_all_layouts(scenario));
}

TEST_CASE("int64 counters and int32 source tokens", "[process]") {
  Scenario scenario = small_rows();
  scenario.counter = ucclEpInt64;
  scenario.src_info = ucclEpInt32;
  scenario.offsets_with_total = true;
  run_all(in_all_layouts(scenario));
}

}  // namespace
}  // namespace ucclep::test
