// SPDX-License-Identifier: Apache-2.0
// What marks of kernels say: steps follow each other, whichever warp read the clock first, and none is of another
// operation.
#include "host/context/trace_marks.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <vector>

namespace ucclep {
namespace {

// ns of begin, slots_free, headers_in, end.
TraceEntry entry(uint64_t seq, std::initializer_list<uint64_t> ns) {
  TraceEntry made{seq, {}};
  std::copy(ns.begin(), ns.end(), made.ns);
  return made;
}

using Steps = std::vector<TracedStep>;

TEST_CASE("trace marks: operations in their order, each with its steps") {
  const std::vector<TraceEntry> ring{{}, entry(2, {50, 60, 70, 80}), entry(1, {10, 20, 30, 40}), {}};
  const std::vector<TracedOperation> all = operations_in(ring);
  REQUIRE(all.size() == 2);
  CHECK(all[0].seq == 1);
  CHECK(all[1].seq == 2);
  CHECK(all[1].ended());
  CHECK(all[1].begin == 50);
  CHECK(all[1].end() == 80);
  CHECK(all[1].steps == Steps{{Mark::slots_free, 50, 60}, {Mark::headers_in, 60, 70}, {Mark::end, 70, 80}});
}

TEST_CASE("trace marks: another warp may have marked a step before the first one marked the begin") {
  const std::vector<TraceEntry> ring{{}, entry(1, {10, 8, 30, 40}), entry(2, {52, 55, 50, 80}), {}};
  const std::vector<TracedOperation> all = operations_in(ring);
  REQUIRE(all.size() == 2);
  CHECK(all[0].begin == 8);
  CHECK(all[0].steps == Steps{{Mark::slots_free, 8, 8}, {Mark::headers_in, 8, 30}, {Mark::end, 30, 40}});
  CHECK(all[1].begin == 50);
  CHECK(all[1].steps == Steps{{Mark::slots_free, 50, 55}, {Mark::headers_in, 55, 55}, {Mark::end, 55, 80}});
}

TEST_CASE("trace marks: a step that an operation does not have is not that of the one that had its entry") {
  // Operation 5 has the entry that 1 had, 6 that of 2. 5 made no mark but begin and end, 6 did not end.
  const std::vector<TraceEntry> ring{entry(4, {41, 42, 43, 44}), entry(5, {51, 12, 13, 54}), entry(6, {61, 62, 23, 24}),
                                     entry(3, {31, 32, 33, 34})};
  const std::vector<TracedOperation> all = operations_in(ring);
  REQUIRE(all.size() == 4);
  CHECK(all[2].seq == 5);
  CHECK(all[2].begin == 51);
  CHECK(all[2].ended());
  CHECK(all[2].steps == Steps{{Mark::end, 51, 54}});
  CHECK_FALSE(all[3].ended());
  CHECK(all[3].steps == Steps{{Mark::slots_free, 61, 62}});
  CHECK(all[3].end() == 62);
}

TEST_CASE("trace marks: of the oldest operation, whose forerunner is gone, nothing is older than its begin") {
  const std::vector<TraceEntry> ring{entry(8, {81, 82, 83, 84}), entry(5, {51, 50, 53, 54}), entry(6, {61, 62, 63, 64}),
                                     entry(7, {71, 72, 73, 74})};
  const std::vector<TracedOperation> all = operations_in(ring);
  REQUIRE(all.size() == 4);
  CHECK(all[0].begin == 51);
  CHECK(all[0].steps.size() == 2);
}

TEST_CASE("trace marks: nothing noted, no operation") {
  CHECK(operations_in(std::vector<TraceEntry>(4)).empty());
  CHECK(operations_in({}).empty());
}

}  // namespace
}  // namespace ucclep
