// SPDX-License-Identifier: Apache-2.0
#include "proxy/transfer_log.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

namespace ucclep::proxy {
namespace {

TEST_CASE("a transfer log tells apart directions, ranks, kinds and operations") {
  TransferLog log(3, 2);
  for (int i = 0; i < 3; ++i) log.note(true, 1, Kind::dispatch, 7);
  log.note(false, 1, Kind::dispatch, 7);
  log.note(true, 2, Kind::dispatch, 7);
  log.note(true, 1, Kind::combine, 7);
  log.note(true, 1, Kind::dispatch, 8);
  const std::vector<Transfer> all = log.all();
  REQUIRE(all.size() == 5);
  const auto found = std::ranges::find_if(all, [](const Transfer& t) { return t.messages == 3; });
  REQUIRE(found != all.end());
  CHECK((found->sent && found->peer == 1 && found->kind == Kind::dispatch && found->seq == 7));
  CHECK(found->last_ns >= found->first_ns);
}

TEST_CASE("a transfer log remembers the latest operations, each once") {
  TransferLog log(1, 2);
  constexpr uint64_t operations = 40000;
  for (uint64_t seq = 1; seq <= operations; ++seq) log.note(true, 0, Kind::combine, seq);
  std::vector<uint64_t> seqs;
  for (const Transfer& transfer : log.all()) seqs.push_back(transfer.seq);
  std::ranges::sort(seqs);
  REQUIRE(seqs.size() > 10000);
  CHECK(seqs.size() < operations);
  CHECK(seqs.back() == operations);
  CHECK(seqs.back() - seqs.front() + 1 == seqs.size());
}

}  // namespace
}  // namespace ucclep::proxy
