// SPDX-License-Identifier: Apache-2.0
// Routing, data, places and sums that the perf tools expect, against small cases worked out by hand.
#include "expected.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "numeric.hpp"

using namespace ucclep::perf;

namespace {

Shape shape_of(int ranks, int experts, int topk, int mode, int layout) {
  Shape shape;
  shape.ranks = ranks;
  shape.experts = experts;
  shape.topk = topk;
  shape.hidden = 64;
  shape.mode = mode;
  shape.layout = layout;
  return shape;
}

// Two ranks of two experts; rank 0 has two tokens, rank 1 as well.
Routing by_hand() {
  Routing routing(2, 2, 2);
  const int32_t experts[2][2][2] = {{{3, 1}, {0, 1}}, {{2, 3}, {1, 2}}};
  std::memcpy(routing.experts(0, 0), experts, sizeof experts);
  const float weights[2][2][2] = {{{0.3f, 0.7f}, {0.9f, 0.2f}}, {{0.6f, 0.35f}, {0.15f, 0.45f}}};
  std::memcpy(routing.weights(0, 0), weights, sizeof weights);
  return routing;
}

std::string describe(const std::vector<Zone>& zones) {
  std::ostringstream text;
  for (const Zone& zone : zones) {
    text << zone.first << ":";
    for (const ExpectedRow& row : zone.rows) text << " " << row.source << "." << row.token;
    text << "; ";
  }
  return text.str();
}

// The expert's output for a token, as floats.
std::vector<float> output(const Shape& shape, uint64_t iteration, int source, int token, int part,
                          Kind kind = Kind::expert_output) {
  std::vector<std::byte> bytes(shape.combine_row_bytes());
  fill_row(shape.combine_dtype(), row_key(shape, iteration, kind, source, token, part), bytes.data(), bytes.size());
  std::vector<float> values(shape.hidden);
  decode_row(shape.combine_dtype(), bytes.data(), values.size(), values.data());
  return values;
}

float rounded(float value) {
  return from_bf16(to_bf16(value));
}

}  // namespace

TEST_CASE("routing has distinct experts in range, repeats, and differs between iterations", "[perf][workload]") {
  const double skew = GENERATE(0.0, 1.0, 4.0);
  Shape shape = shape_of(4, 16, 5, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  shape.skew = skew;
  const Routing routing = make_routing(shape, 50, 1);
  const Routing again = make_routing(shape, 50, 1);
  const Routing next = make_routing(shape, 50, 2);
  bool differs = false;
  for (int rank = 0; rank < 4; ++rank) {
    for (int token = 0; token < 50; ++token) {
      const int32_t* e = routing.experts(rank, token);
      CHECK(std::set<int32_t>(e, e + 5).size() == 5);
      CHECK(*std::min_element(e, e + 5) >= 0);
      CHECK(*std::max_element(e, e + 5) < 16);
      CHECK(std::equal(e, e + 5, again.experts(rank, token)));
      CHECK(std::equal(routing.weights(rank, token), routing.weights(rank, token) + 5, again.weights(rank, token)));
      differs = differs || !std::equal(e, e + 5, next.experts(rank, token)) ||
                routing.weights(rank, token)[0] != next.weights(rank, token)[0];
    }
  }
  CHECK(differs);
}

TEST_CASE("a token can choose all experts", "[perf][workload]") {
  const Shape shape = shape_of(1, 32, 32, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  const Routing routing = make_routing(shape, 3, 1);
  const int32_t* e = routing.experts(0, 2);
  CHECK(std::set<int32_t>(e, e + 32).size() == 32);
}

TEST_CASE("with skew the first rank is chosen so many times as often as the average", "[perf][workload]") {
  Shape shape = shape_of(4, 64, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  const auto rows_of = [&](int rank) {
    const Routing routing = make_routing(shape, 1000, 1);
    size_t rows = 0;
    for (const Zone& zone : expected_zones(shape, routing, rank, 1000)) rows += zone.rows.size();
    return static_cast<double>(rows);
  };
  const double average = 2000;  // 8000 choices, 4 ranks
  CHECK(rows_of(0) == Approx(average).epsilon(0.1));
  shape.skew = 2.5;
  CHECK(rows_of(0) == Approx(2.5 * average).epsilon(0.1));
  CHECK(rows_of(3) == Approx(0.5 * average).epsilon(0.1));
  shape.skew = 4;
  CHECK(rows_of(0) == 4 * average);
  shape.topk = 40;  // more than the rank has
  CHECK(rows_of(0) == 4000.0 * 16);
}

TEST_CASE("rows are finite, and differ with everything that names them", "[perf][workload]") {
  const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  for (ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    std::vector<std::byte> bytes(64 * element_bytes(dtype));
    fill_row(dtype, 123, bytes.data(), bytes.size());
    std::vector<float> values(64);
    decode_row(dtype, bytes.data(), 64, values.data());
    for (float value : values) {
      CHECK(std::abs(value) >= 0x1p-7f);
      CHECK(std::abs(value) < 2.0f);
    }
  }
  const std::set<uint64_t> keys = {row_key(shape, 1, Kind::tokens, 0, 0), row_key(shape, 2, Kind::tokens, 0, 0),
                                   row_key(shape, 1, Kind::scales, 0, 0), row_key(shape, 1, Kind::tokens, 1, 0),
                                   row_key(shape, 1, Kind::tokens, 0, 1), row_key(shape, 1, Kind::tokens, 0, 0, 1)};
  CHECK(keys.size() == 6);
}

TEST_CASE("expected places of a routing by hand", "[perf][expected]") {
  const Routing routing = by_hand();
  const auto zones = [&](int mode, int layout, int receiver) {
    return describe(expected_zones(shape_of(2, 4, 2, mode, layout), routing, receiver, 10));
  };
  CHECK(zones(UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR, 0) == "0: 0.1; 20: 0.0 0.1 1.1; ");
  CHECK(zones(UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR, 1) == "0: 1.0 1.1; 20: 0.0 1.0; ");
  CHECK(zones(UCCLEP_MODE_HT, UCCLEP_LAYOUT_EXPERT_MAJOR, 0) == "0: 0.1; 1: 0.0 0.1 1.1; ");
  CHECK(zones(UCCLEP_MODE_LL, UCCLEP_LAYOUT_RANK_MAJOR, 0) == "0: 0.0 0.1; 10: 1.1; ");
  CHECK(zones(UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT, 0) == "0: 0.0 0.1; 2: 1.1; ");
  CHECK(zones(UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT, 1) == "0: 0.0; 1: 1.0 1.1; ");
}

TEST_CASE("traffic of a routing by hand", "[perf][expected]") {
  const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  const Traffic traffic = count_traffic(shape, by_hand());
  CHECK(traffic.selections == 8);
  CHECK(traffic.distinct == 6);  // 0.0 and 1.1 reach both ranks
  CHECK(traffic.remote == 2);
  CHECK(max_expert_rows(shape, by_hand()) == 4);
}

TEST_CASE("rows that cross nodes, of a routing by hand", "[perf][expected]") {
  Routing routing(4, 1, 3);  // ranks 0 and 1 are a node, 2 and 3 another; an expert each
  const int32_t experts[4][3] = {{0, 2, 3}, {0, 1, 3}, {2, 3, 1}, {0, 1, 2}};
  for (int rank = 0; rank < 4; ++rank) std::copy_n(experts[rank], 3, routing.experts(rank, 0));
  const Shape shape = shape_of(4, 4, 3, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  const Crossing crossing = count_crossing(shape, routing, {{"dispatch", 100}, {"combine", 40'000}}, {0, 0, 1, 1});
  CHECK(crossing.to_ranks == 2 + 1 + 1 + 2);
  CHECK(crossing.to_nodes == 4);
  CHECK(crossing.pieces == 6 * (1 + 2));
  CHECK(count_crossing(shape, routing, {{"dispatch", 40'000, true}}, {0, 0, 1, 1}).pieces == 4 * 2);
  CHECK(count_crossing(shape, routing, {{"dispatch", 100}}, {0, 0, 0, 0}).to_ranks == 0);
}

TEST_CASE("the combine reference multiplies, adds and rounds in the documented order", "[perf][expected]") {
  const Routing routing = by_hand();
  const uint64_t iteration = 5;
  const auto compare = [&](const Shape& shape, int source, int token, auto&& value_at) {
    CombineReference reference(shape, routing, iteration);
    const auto row = reference.row(source, token);
    std::vector<float> got(shape.hidden);
    decode_row(shape.combine_dtype(), row.data(), got.size(), got.data());
    for (int i = 0; i < shape.hidden; ++i) CHECK(got[i] == value_at(i));
  };
  SECTION("LL, one rank: weighted sum of the experts ascending, rounded") {
    const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
    const auto y2 = output(shape, iteration, 1, 0, 2), y3 = output(shape, iteration, 1, 0, 3);
    compare(shape, 1, 0, [&](int i) {
      const float a = 0.6f * y2[i], b = 0.35f * y3[i];
      return rounded(a + b);
    });
  }
  SECTION("LL, two ranks: each rank's part is rounded first") {
    const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
    const auto y1 = output(shape, iteration, 0, 0, 1), y3 = output(shape, iteration, 0, 0, 3);
    compare(shape, 0, 0, [&](int i) { return rounded(rounded(0.7f * y1[i]) + rounded(0.3f * y3[i])); });
  }
  SECTION("HT EXPERT_MAJOR: the same without weights") {
    const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_HT, UCCLEP_LAYOUT_EXPERT_MAJOR);
    const auto y0 = output(shape, iteration, 0, 1, 0), y1 = output(shape, iteration, 0, 1, 1);
    compare(shape, 0, 1, [&](int i) { return rounded(y0[i] + y1[i]); });
  }
  SECTION("experts that return what they received") {
    Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
    shape.returns_tokens = true;
    const auto x = output(shape, iteration, 1, 0, 0, Kind::tokens);
    compare(shape, 1, 0, [&](int i) { return rounded(0.6f * x[i] + 0.35f * x[i]); });
    shape.layout = UCCLEP_LAYOUT_FLAT;
    const auto two_ranks = output(shape, iteration, 1, 1, 0, Kind::tokens);
    compare(shape, 1, 1, [&](int i) { return 2 * two_ranks[i]; });
  }
  SECTION("a row per rank: plain sum of the ranks' rows") {
    const Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT);
    const auto r0 = output(shape, iteration, 1, 1, 0), r1 = output(shape, iteration, 1, 1, 1);
    compare(shape, 1, 1, [&](int i) { return rounded(r0[i] + r1[i]); });
  }
}

TEST_CASE("in HT over two nodes each node's sum is rounded, in LL it is not", "[perf][expected]") {
  Shape shape = shape_of(4, 4, 3, UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT);
  Routing routing(4, 1, 3);
  for (int k = 0; k < 3; ++k) routing.experts(0, 0)[k] = 2 - k;
  const auto y0 = output(shape, 1, 0, 0, 0), y1 = output(shape, 1, 0, 0, 1), y2 = output(shape, 1, 0, 0, 2);
  const auto result = [&] {
    CombineReference reference(shape, routing, 1, {0, 0, 1, 1});
    const auto row = reference.row(0, 0);
    std::vector<float> values(shape.hidden);
    decode_row(ucclEpBfloat16, row.data(), values.size(), values.data());
    return values;
  };
  const std::vector<float> per_node = result();
  shape.mode = UCCLEP_MODE_LL;
  shape.layout = UCCLEP_LAYOUT_RANK_MAJOR;
  const std::vector<float> flat = result();
  for (int i = 0; i < shape.hidden; ++i) {
    CHECK(per_node[i] == rounded(rounded(y0[i] + y1[i]) + y2[i]));
    CHECK(flat[i] == rounded(y0[i] + y1[i] + y2[i]));
  }
  CHECK(per_node != flat);
}

TEST_CASE("rows quantised to fp8 follow the documented formula", "[perf][workload]") {
  Shape shape = shape_of(2, 4, 2, UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR);
  shape.hidden = 256;
  shape.quant = true;
  CHECK(shape.wire_row_bytes() == 256 + 2 * sizeof(float));
  std::vector<std::byte> given(shape.input_row_bytes()), row(shape.row_bytes()), scales(shape.scales() * sizeof(float));
  fill_row(ucclEpBfloat16, row_key(shape, 3, Kind::tokens, 1, 5), given.data(), given.size());
  std::vector<float> x(256);
  decode_row(ucclEpBfloat16, given.data(), 256, x.data());
  received_row(shape, 3, 1, 5, row.data(), scales.data());
  for (int g = 0; g < 2; ++g) {
    float largest = 0, scale = 0;
    for (int i = 128 * g; i < 128 * (g + 1); ++i) largest = std::max(largest, std::abs(x[i]));
    std::memcpy(&scale, scales.data() + g * sizeof(float), sizeof scale);
    CHECK(scale == largest / 448.0f);
    for (int i = 128 * g; i < 128 * (g + 1); ++i) {
      const auto q = static_cast<unsigned>(row[i]);
      const int exponent = static_cast<int>((q >> 3) & 15);
      const float fraction = static_cast<float>((q & 7) + (exponent > 0 ? 8 : 0));
      const float decoded = std::ldexp(fraction, std::max(1, exponent) - 10) * (q & 0x80 ? -1.0f : 1.0f);
      CHECK(decoded * scale == Approx(x[i]).epsilon(0.0626).margin(scale * 0x1p-10));
    }
  }
}

TEST_CASE("fp8 rounds to nearest even and saturates", "[perf][numeric]") {
  CHECK(to_e4m3(1.0f) == 0x38);
  CHECK(to_e4m3(-1.0f) == 0xb8);
  CHECK(to_e4m3(1.0625f) == 0x38);  // a tie, to even
  CHECK(to_e4m3(1.1875f) == 0x3a);
  CHECK(to_e4m3(448.0f) == 0x7e);
  CHECK(to_e4m3(1e9f) == 0x7e);
  CHECK(to_e4m3(0x1p-9f) == 0x01);
  CHECK(to_e4m3(0x1p-10f) == 0x00);
  CHECK(to_e4m3(0x3p-10f) == 0x02);
  CHECK(to_e4m3(0x1p-6f) == 0x08);
  CHECK(to_e4m3(0x1.fp-7f) == 0x08);
}

TEST_CASE("bf16 and fp16 round to nearest even", "[perf][numeric]") {
  CHECK(to_bf16(1.0f) == 0x3f80);
  CHECK(to_bf16(1.0f + 0x1p-8f) == 0x3f80);  // a tie, to even
  CHECK(to_bf16(1.0f + 0x3p-8f) == 0x3f82);
  CHECK(to_fp16(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(to_fp16(1.0f + 0x3p-11f) == 0x3c02);
  CHECK(to_fp16(65519.0f) == 0x7bff);
  CHECK(to_fp16(65520.0f) == 0x7c00);
  CHECK(to_fp16(0x1p-25f) == 0x0000);
  CHECK(to_fp16(0x3p-25f) == 0x0002);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool fp16_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    const bool bf16_nan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0;
    if (!fp16_nan && to_fp16(from_fp16(half)) != half) FAIL("fp16 " << bits);
    if (!bf16_nan && to_bf16(from_bf16(half)) != half) FAIL("bf16 " << bits);
  }
}
