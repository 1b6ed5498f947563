// SPDX-License-Identifier: Apache-2.0
// Rows into chunks, and where they lie.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/error.hpp"
#include "proxy/chunk_gather.hpp"
#include "proxy/immediate.hpp"
#include "support/test_env.hpp"

namespace ucclep::proxy {
namespace {

constexpr uint8_t dispatch = static_cast<uint8_t>(Kind::dispatch);

Places small_places(uint32_t rows, uint32_t rows_per_chunk) {
  Places places;
  places.kinds[dispatch] = {.rows = rows, .row_bytes = 64, .rows_per_chunk = rows_per_chunk, .header_bytes = 32};
  return places;
}

Command put(uint64_t seq, uint32_t row, uint32_t rows, uint32_t row_bytes = 64) {
  return CommandFields{.epoch = static_cast<uint32_t>(seq),
                       .row = row,
                       .bytes = rows * row_bytes,
                       .destination = 3,
                       .rows = static_cast<uint16_t>(rows),
                       .operation = CommandOp::put,
                       .kind = dispatch};
}
Command header(uint64_t seq, uint32_t rows) {
  return CommandFields{.epoch = static_cast<uint32_t>(seq),
                       .row = rows,
                       .destination = 3,
                       .operation = CommandOp::header,
                       .kind = dispatch};
}

TEST_CASE("gather: each chunk is whole once, whatever the order of its rows and of the header", "[gather]") {
  for (uint64_t seed = 1; seed <= 20 * test::seeds(); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t max = 1 + below(60), of_chunk = 1 + below(7), in_flight = 2 + below(7);
    const Places places = small_places(max, of_chunk);
    ChunkGather gather(places, in_flight);
    for (uint64_t seq = 1; seq < 40; ++seq) {
      const uint32_t rows = below(max + 1), row_bytes = 16 * (1 + below(4));
      std::vector<Command> commands{header(seq, rows)};
      for (uint32_t row = 0, piece = 0; row < rows; row += piece) {
        piece = 1 + below(std::min(rows - row, of_chunk - row % of_chunk));
        commands.push_back(put(seq, row, piece, row_bytes));
      }
      std::shuffle(commands.begin(), commands.end(), random);
      std::map<uint32_t, uint32_t> whole;  // first row, rows
      for (const Command& command : commands) {
        Command chunk;
        const char* wrong = gather.accept(command, &chunk);
        REQUIRE(std::string(wrong == nullptr ? "" : wrong).empty());
        if (chunk.operation() == CommandOp::none) continue;
        REQUIRE(chunk.bytes() == chunk.rows() * row_bytes);
        REQUIRE(chunk.destination() == 3);
        REQUIRE(gather.seq_of(Kind::dispatch, chunk.epoch()) == seq);
        REQUIRE(whole.emplace(chunk.row(), chunk.rows()).second);
      }
      REQUIRE(whole.size() == (rows + of_chunk - 1) / of_chunk);
      for (const auto& [first, count] : whole) {
        REQUIRE(first % of_chunk == 0);
        REQUIRE(count == std::min(of_chunk, rows - first));
      }
      REQUIRE(gather.rows_waiting() == 0);
    }
  }
}

TEST_CASE("gather: an epoch goes on past 32 bits", "[gather]") {
  const Places places = small_places(4, 4);
  ChunkGather gather(places, 2);
  Command chunk;
  uint64_t last = 0;
  for (const uint64_t seq : {uint64_t{0x7fff'ffff}, uint64_t{0xffff'fffe}, uint64_t{0xffff'ffff}, uint64_t{1} << 32,
                             (uint64_t{1} << 32) + 1, (uint64_t{1} << 32) + 0x7fff'ffff}) {
    CHECK(gather.seq_of(Kind::dispatch, static_cast<uint32_t>(seq)) == seq);
    CHECK(gather.accept(header(seq, 0), &chunk) == nullptr);
    CHECK(gather.seq_of(Kind::dispatch, static_cast<uint32_t>(last)) == last);
    last = seq;
  }
}

TEST_CASE("gather: operations begin behind the number that is given", "[gather]") {
  const Places places = small_places(8, 4);
  for (const uint64_t first : {uint64_t{1'000'003}, uint64_t{0xffff'ffff}, (uint64_t{1} << 40) + 7}) {
    INFO("from " << first << " on");
    ChunkGather gather(places, 2, {0, first, 0});
    Command chunk;
    CHECK(gather.seq_of(Kind::dispatch, static_cast<uint32_t>(first + 2)) == first + 2);
    CHECK(gather.accept(header(first, 0), &chunk) != nullptr);
    CHECK(gather.accept(header(first - 1, 0), &chunk) != nullptr);
    CHECK(gather.accept(put(first + 1, 0, 4), &chunk) == nullptr);
    CHECK(chunk.rows() == 4);
    CHECK(gather.accept(header(first + 2, 0), &chunk) == nullptr);
    CHECK(gather.accept(header(first + 3, 0), &chunk) != nullptr);
    CHECK(gather.accept(header(first + 1, 4), &chunk) == nullptr);
    CHECK(gather.accept(header(first + 3, 0), &chunk) == nullptr);
  }
}

TEST_CASE("gather: an operation does not take the slot of one that is not over", "[gather]") {
  const Places places = small_places(8, 4);
  ChunkGather gather(places, 2);
  Command chunk;
  CHECK(gather.accept(put(1, 0, 2), &chunk) == nullptr);
  CHECK(gather.rows_waiting() == 2);
  CHECK(gather.accept(header(2, 0), &chunk) == nullptr);
  CHECK(gather.accept(header(3, 0), &chunk) != nullptr);
  CHECK(gather.accept(put(1, 2, 2), &chunk) == nullptr);
  CHECK(chunk.rows() == 4);
  CHECK(gather.accept(header(3, 0), &chunk) != nullptr);  // there is no header of the first yet
  CHECK(gather.accept(header(1, 4), &chunk) == nullptr);
  CHECK(gather.accept(header(3, 0), &chunk) == nullptr);
  CHECK(gather.accept(header(1, 4), &chunk) != nullptr);
}

TEST_CASE("gather: an operation has rows of one sort, the next may have those of the other", "[gather]") {
  const auto between_nodes = [](const Command& command) {
    CommandFields fields = command.fields();
    fields.flags = between_nodes_flag;
    return Command(fields);
  };
  Places places = small_places(8, 4);
  places.between_nodes(Kind::dispatch) = {.rows = 6, .row_bytes = 128, .rows_per_chunk = 2, .header_bytes = 32};
  ChunkGather gather(places, 2);
  Command chunk;
  CHECK(gather.accept(put(1, 0, 2), &chunk) == nullptr);
  CHECK(chunk.operation() == CommandOp::none);
  CHECK(gather.accept(between_nodes(put(1, 2, 2, 128)), &chunk) != nullptr);
  CHECK(gather.accept(between_nodes(header(1, 2)), &chunk) != nullptr);
  CHECK(gather.accept(header(1, 2), &chunk) == nullptr);
  CHECK(chunk.rows() == 2);
  CHECK(gather.accept(between_nodes(put(3, 4, 2, 128)), &chunk) == nullptr);
  CHECK(chunk.rows() == 2);
  CHECK(chunk.flags() == between_nodes_flag);
  CHECK(gather.accept(between_nodes(put(3, 6, 2, 128)), &chunk) != nullptr);
}

TEST_CASE("places: areas lie within their windows, and commands can name all rows", "[gather]") {
  const auto refusal = [](const auto& change, uint64_t window = 1 << 20) -> std::string {
    Places places = small_places(10, 4);
    KindPlaces& kind = places.kinds[dispatch];
    kind.rows_from = {0, 0, 640 * 4, 640};
    kind.rows_to = {0, 640 * 8, 640 * 4, 640};
    kind.header_from = kind.header_to = {0, 640 * 16, 128, 32};
    change(kind);
    try {
      check_places(places, 4, 2, std::span(&window, 1));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto as_it_is = [](KindPlaces&) {};
  CHECK(refusal(as_it_is, 640 * 16 + 256).empty());
  CHECK_THAT(refusal(as_it_is, 640 * 16 + 255),
             Catch::Contains(
                 "dispatch: the headers to send of 4 ranks and 2 operations end at byte 10496, but the window has"));
  CHECK_THAT(refusal(as_it_is, 640 * 16 - 1), Catch::Contains("dispatch: the rows to receive"));
  CHECK_THAT(refusal([](KindPlaces& kind) { kind.rows_to.window = 1; }),
             Catch::Contains("lie in window 1, but the group has 1 windows"));
  CHECK_THAT(refusal([](KindPlaces& kind) { kind.row_bytes = 24; }), Catch::Contains("a row 24 bytes"));
  CHECK_THAT(refusal([](KindPlaces& kind) { kind.rows_per_chunk = 0; }), Catch::Contains("a chunk has 0 rows"));
  CHECK_THAT(refusal([](KindPlaces& kind) { kind.rows_per_chunk = kind.rows = 16384; }),
             Catch::Contains("16384 rows in a command"));
}

}  // namespace
}  // namespace ucclep::proxy
