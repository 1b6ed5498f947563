// SPDX-License-Identifier: Apache-2.0
// The verification of the perf tools must find what is wrong: each kind of damage, and exactly as many rows.
#include "verify.hpp"

#include <catch2/catch.hpp>

#include "numeric.hpp"
#include "perfect_receiver.hpp"

using namespace ucclep::perf;

namespace {

Shape small_shape(int mode, int layout, ucclEpDataType_t dtype = ucclEpBfloat16) {
  Shape shape;
  shape.ranks = 4;
  shape.experts = 16;
  shape.topk = 3;
  shape.hidden = 128;
  shape.mode = mode;
  shape.layout = layout;
  shape.dtype = dtype;
  return shape;
}

struct ModeLayout {
  int mode, layout;
};

ModeLayout every_layout() {
  return GENERATE(
      ModeLayout{UCCLEP_MODE_LL, UCCLEP_LAYOUT_EXPERT_MAJOR}, ModeLayout{UCCLEP_MODE_LL, UCCLEP_LAYOUT_RANK_MAJOR},
      ModeLayout{UCCLEP_MODE_HT, UCCLEP_LAYOUT_EXPERT_MAJOR}, ModeLayout{UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT});
}

constexpr int tokens = 20;
constexpr int capacity = 24;
constexpr uint64_t iteration = 7;

// A receiver in every layout that has a zone of two rows or more.
struct Fixture {
  explicit Fixture(ModeLayout at, ucclEpDataType_t dtype = ucclEpBfloat16)
      : shape(small_shape(at.mode, at.layout, dtype)),
        routing(make_routing(shape, tokens, iteration)),
        receiver(shape, routing, iteration, 1, capacity),
        zone(receiver.zone_with(2)),
        place(receiver.zones[zone].first) {}
  Shape shape;
  Routing routing;
  PerfectReceiver receiver;
  size_t zone;
  size_t place;
};

}  // namespace

TEST_CASE("a faultless dispatch verifies all its rows", "[perf][verify]") {
  const ModeLayout at = every_layout();
  for (ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32, ucclEpFloat8e4m3}) {
    Fixture f(at, dtype);
    const Tally tally = f.receiver.verify();
    CHECK(tally.wrong == 0);
    CHECK(tally.first.empty());
    CHECK(tally.verified == f.receiver.expected_rows());
    CHECK(tally.verified > 0);
  }
}

TEST_CASE("one flipped byte of a received row is one wrong row", "[perf][verify]") {
  Fixture f(every_layout());
  f.receiver.tokens[(f.place + 1) * f.shape.row_bytes() + 100] ^= std::byte{0x01};
  const Tally tally = f.receiver.verify();
  CHECK(tally.wrong == 1);
  CHECK(tally.verified == f.receiver.expected_rows());
  CHECK(tally.first.find("byte 100") != std::string::npos);
}

TEST_CASE("a missing row is one wrong row", "[perf][verify]") {
  Fixture f(every_layout());
  SECTION("that was not announced") {
    f.receiver.counts[f.zone] -= 1;
  }
  SECTION("that was announced and never written") {
    std::memset(&f.receiver.tokens[f.place * f.shape.row_bytes()], 0, f.shape.row_bytes());
  }
  CHECK(f.receiver.verify().wrong == 1);
}

TEST_CASE("counts that nobody wrote make all rows of a zone wrong", "[perf][verify]") {
  Fixture f(every_layout());
  f.receiver.counts[f.zone] = -1;
  CHECK(f.receiver.verify().wrong == f.receiver.zones[f.zone].rows.size());
}

TEST_CASE("rows too many are wrong and counted", "[perf][verify]") {
  Fixture f(every_layout());
  f.receiver.counts[f.zone] += 2;
  const Tally tally = f.receiver.verify();
  CHECK(tally.wrong == 2);
  CHECK(tally.verified == f.receiver.expected_rows() + 2);
}

TEST_CASE("two rows that changed places are two wrong rows", "[perf][verify]") {
  Fixture f(every_layout());
  std::byte* row = &f.receiver.tokens[f.place * f.shape.row_bytes()];
  std::swap_ranges(row, row + f.shape.row_bytes(), row + f.shape.row_bytes());
  std::swap(f.receiver.src_info[f.place], f.receiver.src_info[f.place + 1]);
  CHECK(f.receiver.verify().wrong == 2);
}

TEST_CASE("a wrong source, weight, index or scale is one wrong row", "[perf][verify]") {
  Fixture f(every_layout(), ucclEpFloat8e4m3);
  SECTION("source") {
    f.receiver.src_info[f.place] += 1;
  }
  SECTION("weight") {
    f.receiver.weights[f.place * f.receiver.entries] += 0.5f;
  }
  SECTION("index") {
    if (f.receiver.topk_idx.empty()) {
      f.receiver.src_info[f.place] = -1;
    } else {
      f.receiver.topk_idx[f.place * f.receiver.entries + 2] += 1;
    }
  }
  SECTION("scale") {
    f.receiver.scales[f.place * sizeof(float) * f.shape.scales()] ^= std::byte{0x80};
  }
  SECTION("several of them at once") {
    f.receiver.src_info[f.place] += 1;
    f.receiver.tokens[f.place * f.shape.row_bytes()] ^= std::byte{0xff};
  }
  CHECK(f.receiver.verify().wrong == 1);
}

TEST_CASE("rows of another iteration are all wrong", "[perf][verify]") {
  const ModeLayout at = every_layout();
  Fixture f(at);
  PerfectReceiver stale(f.shape, f.routing, iteration - 1, 1, capacity);
  f.receiver.tokens = stale.tokens;
  CHECK(f.receiver.verify().wrong == f.receiver.expected_rows());
}

TEST_CASE("combined rows equal the reference bit for bit or are wrong", "[perf][verify]") {
  const ModeLayout at = every_layout();
  const Shape shape = small_shape(at.mode, at.layout);
  const Routing routing = make_routing(shape, tokens, iteration);
  CombineReference reference(shape, routing, iteration);
  std::vector<std::byte> result;
  for (int token = 0; token < tokens; ++token) {
    const auto row = reference.row(2, token);
    result.insert(result.end(), row.begin(), row.end());
  }
  const auto verify = [&] {
    return verify_combine(shape, routing, iteration, 2, {}, result.data(),
                          [](const void* memory, size_t) { return static_cast<const std::byte*>(memory); });
  };
  CHECK(verify().verified == tokens);
  CHECK(verify().wrong == 0);
  result[3 * shape.combine_row_bytes()] ^= std::byte{0x01};  // the last bit of a value
  result[9 * shape.combine_row_bytes() + 7] ^= std::byte{0x80};
  CHECK(verify().wrong == 2);
}
