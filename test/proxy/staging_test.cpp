// SPDX-License-Identifier: Apache-2.0
// Puts by way of host memory: what is copied when, what is refused, and that a copy which fails is reported.
#include "proxy/staging.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace ucclep::proxy {
namespace {

// Copies end when the test says so; or they fail.
struct Copies {
  uint64_t begun = 0, ended = 0;
  bool fails = false;
};
class QueueOfTest : public CopyQueue {
 public:
  explicit QueueOfTest(Copies& copies) : copies_(copies) {}
  void copy(void* to, const void* from, size_t bytes) override {
    if (copies_.fails) fail(ucclEpUnhandledDeviceError, "the copy engine is out of order");
    ++copies_.begun;
    std::memcpy(to, from, bytes);
  }
  uint64_t ended() override { return copies_.ended; }

 private:
  Copies& copies_;
};

constexpr uint32_t ranks = 3, id = 4;

// Two ranks in one process: what rank 0 has out for rank 2 is carried to where rank 2 accepts it.
struct Ends {
  Ends() {
    places.staged_in = staged_slot * staged_window * ranks;
    memory.resize(2 * places.staged_in);
    places.window = memory.data();
    staging.keep_window(id, window.data(), window.size());
  }
  void carry(uint64_t number) {
    std::memcpy(places.window + places.staged_in_at(1, number), places.window + places.staged_out_at(2, number),
                staged_slot);
  }
  std::vector<uint64_t> placed() {
    std::vector<uint64_t> numbers;
    staging.poll([&](uint32_t rank, uint64_t number) {
      CHECK(rank == 1);
      numbers.push_back(number);
    });
    return numbers;
  }

  ChannelPlaces places;
  std::vector<std::byte> memory, window{2 * staged_piece};
  Copies copies;
  Staging staging{places, ranks, std::make_unique<QueueOfTest>(copies)};
};

Message put_of(uint64_t from, uint64_t to, uint64_t bytes) {
  Message message{};
  message.from_window = message.to_window = id;
  message.from_offset = from, message.to_offset = to, message.bytes = bytes;
  return message;
}

TEST_CASE("staging: bytes leave when they are out, and are placed when they are in", "[staging]") {
  Ends ends;
  ends.window[100] = std::byte{7};
  REQUIRE(ends.staging.begin_out(2, 1, put_of(100, 5000, 1)));
  CHECK(ends.placed().empty());
  CHECK_FALSE(ends.staging.is_out(2, 1));
  CHECK_FALSE(ends.staging.idle());
  ends.copies.ended = 1;
  CHECK(ends.placed().empty());
  CHECK(ends.staging.is_out(2, 1));
  CHECK_FALSE(ends.staging.is_out(2, 1 + staged_window));  // another of the same slot
  ends.carry(1);
  REQUIRE(ends.staging.begin_in(1, 1));
  CHECK(ends.placed().empty());
  ends.copies.ended = 2;
  CHECK(ends.placed() == std::vector<uint64_t>{1});
  CHECK(ends.placed().empty());
  CHECK(ends.staging.idle());
  CHECK(ends.window[5000] == std::byte{7});
}

TEST_CASE("staging: what is in no window is refused at either end", "[staging]") {
  Ends ends;
  const uint64_t end = 2 * staged_piece;
  CHECK_FALSE(ends.staging.begin_out(2, 1, put_of(end, 0, 1)));
  CHECK_FALSE(ends.staging.begin_out(2, 1, put_of(UINT64_MAX, 0, 2)));
  CHECK_FALSE(ends.staging.begin_out(2, 1, put_of(0, 0, staged_piece + 1)));
  Message other = put_of(0, 0, 1);
  other.from_window = id + 1;
  CHECK_FALSE(ends.staging.begin_out(2, 1, other));
  other.from_window = 0;  // below the one that is known
  CHECK_FALSE(ends.staging.begin_out(2, 1, other));
  for (const Message& wrong : {put_of(0, end, 1), put_of(0, UINT64_MAX - 1, 2)}) {
    REQUIRE(ends.staging.begin_out(2, 1, wrong));  // of the other end it knows nothing
    ends.carry(1);
    CHECK_FALSE(ends.staging.begin_in(1, 1));
  }
  ends.staging.forget_window(id);
  CHECK_FALSE(ends.staging.begin_out(2, 1, put_of(0, 0, 1)));
}

TEST_CASE("staging: a copy that fails is reported once, and nothing is placed after it", "[staging]") {
  Ends ends;
  ends.copies.fails = true;
  CHECK(ends.staging.begin_out(2, 1, put_of(0, 0, 1)));
  CHECK(ends.placed().empty());
  const auto why = ends.staging.failure();
  REQUIRE(why.has_value());
  CHECK(why->find("out of order") != std::string::npos);
  CHECK_FALSE(ends.staging.failure().has_value());
  ends.copies.fails = false;
  ends.copies.ended = 1;
  CHECK(ends.staging.begin_out(2, 2, put_of(0, 0, 1)));
  CHECK(ends.placed().empty());
  CHECK_FALSE(ends.staging.is_out(2, 2));
  CHECK(ends.staging.idle());  // nobody waits for it
}

}  // namespace
}  // namespace ucclep::proxy
