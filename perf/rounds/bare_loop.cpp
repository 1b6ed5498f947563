// SPDX-License-Identifier: Apache-2.0
#include "rounds/bare_loop.hpp"

#include <cstring>

#include "api.hpp"
#include "ceiling/placement.hpp"

namespace ucclep::perf {
namespace {

constexpr size_t landings = 2;      // of each way (bare_rounds)
constexpr size_t line_bytes = 128;  // at most; of a line at least half is data

// Zeroed.
std::byte* allocate(DeviceMemory& memory, size_t row_bytes, size_t rows = 1) {
  std::byte* const result = memory.allocate(row_bytes * rows);
  memory.fill_rows(result, row_bytes, static_cast<int64_t>(rows),
                   [row_bytes](int64_t, std::byte* where) { std::memset(where, 0, row_bytes); });
  return result;
}

}  // namespace

bool BareLoop::exists(const Endpoint& endpoint) {
  const Shape& shape = endpoint.shape();
  return shape.mode == UCCLEP_MODE_LL && shape.dtype == ucclEpBfloat16 && endpoint.info().domain_size == shape.ranks &&
         shape.ranks <= static_cast<int>(ceiling_max_ranks);
}

BareLoop::BareLoop(Endpoint& endpoint, Launcher& launcher, const ucclEpDeviceGroup& group)
    : endpoint_(endpoint),
      launcher_(launcher),
      landings_(allocate_landings()),
      window_(endpoint.comm(), {&landings_}),
      input_(endpoint.memory().allocate(2 * endpoint.capacity() * row_bytes())),
      received_(endpoint.memory().allocate(most_rows() * row_bytes())),
      places_(endpoint.memory().allocate(most_rows() * sizeof(int32_t))),
      origins_(endpoint.memory().allocate(most_rows() * sizeof(int32_t))),
      late_(allocate(endpoint.memory(), sizeof(uint32_t))),
      barrier_(allocate(endpoint.memory(), sizeof(GridBarrier))),
      limit_{group.timeout_ns, group.abort_word, reinterpret_cast<uint32_t*>(late_)} {
  find_peers();
  endpoint.team().barrier();  // all landings are empty
}

size_t BareLoop::most_rows() const {
  return static_cast<size_t>(endpoint_.capacity()) * endpoint_.shape().ranks;
}

size_t BareLoop::landed_row_bytes() const {
  return 2 * row_bytes() + line_bytes;
}

// Of the way there, then of the way back.
ucclEpTensor_t BareLoop::allocate_landings() {
  const size_t rows = 2 * landings * most_rows(), elements = landed_row_bytes() / sizeof(uint16_t);
  return tensor(allocate(endpoint_.memory(), landed_row_bytes(), rows), ucclEpBfloat16,
                {static_cast<int64_t>(rows), static_cast<int64_t>(elements)});
}

void BareLoop::find_peers() {
  ucclEpDeviceWindow window;
  check(ucclEpWindowGetDevice(window_[0], &window), "ucclEpWindowGetDevice", endpoint_.comm());
  peers_.resize(endpoint_.shape().ranks);
  const size_t bytes = peers_.size() * sizeof(char*);
  std::memcpy(peers_.data(), endpoint_.memory().read(window.peers, bytes), bytes);
}

void BareLoop::prepare() {
  const size_t bytes = endpoint_.routing().tokens() * row_bytes();
  const Tensors* const from[] = {&endpoint_.tensors(), &endpoint_.spare()};
  for (size_t i = 0; i < 2; ++i) {
    check(ucclEpMemcpy(endpoint_.comm(), input_ + i * bytes, from[i]->tokens.data, bytes, endpoint_.stream()),
          "ucclEpMemcpy", endpoint_.comm());
  }
  const Placement placement = place_routing(endpoint_.shape(), endpoint_.routing());
  const int me = endpoint_.team().rank();
  const auto write = [&](std::byte* to, const std::vector<int32_t>& words) {
    endpoint_.memory().write(to, words.data(), words.size() * sizeof(int32_t));
  };
  write(places_, placement.places[me]);
  write(origins_, placement.origins[me]);
  received_rows_ = static_cast<uint32_t>(placement.received(me));
}

CeilingCopyArgs BareLoop::common_args(uint64_t epoch) const {
  CeilingCopyArgs args{};
  args.ranks = static_cast<uint32_t>(endpoint_.shape().ranks);
  args.rank = static_cast<uint32_t>(endpoint_.team().rank());
  args.tokens = static_cast<uint32_t>(endpoint_.routing().tokens());
  args.received = received_rows_;
  args.row_bytes = static_cast<uint32_t>(row_bytes());
  args.rounds = static_cast<uint32_t>(endpoint_.options().rounds);
  args.inputs = 1;
  args.landings = landings;
  args.first_landing = static_cast<uint32_t>(epoch % landings);
  args.landing_stride = landing_bytes();
  args.places = reinterpret_cast<const int32_t*>(places_);
  args.origins = reinterpret_cast<const int32_t*>(origins_);
  args.epoch = epoch;
  args.limit = limit_;
  return args;
}

void BareLoop::launch() {
  const uint64_t epoch = next_epoch_;
  next_epoch_ += static_cast<uint64_t>(endpoint_.options().rounds);
  BareRoundsArgs args{common_args(epoch), common_args(epoch), reinterpret_cast<GridBarrier*>(barrier_)};
  args.there.inputs = 2;
  args.there.first_input = (args.there.rounds - 1) % 2;  // the last round takes the first
  args.there.input_stride = args.there.tokens * row_bytes();
  args.there.input = reinterpret_cast<const unsigned char*>(input_);
  args.there.output = reinterpret_cast<unsigned char*>(received_);
  args.back.input = args.there.output;
  args.back.output = static_cast<unsigned char*>(endpoint_.tensors().combine_out.data);
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    args.there.windows[rank] = reinterpret_cast<unsigned char*>(peers_[rank]);
    args.back.windows[rank] = args.there.windows[rank] + landings * landing_bytes();
  }
  launcher_.launch("rounds_bare", args);
}

// Every rank that a token goes to returns its row: what FLAT adds up.
Tally BareLoop::verify() {
  uint32_t late;
  std::memcpy(&late, endpoint_.memory().read(late_, sizeof late), sizeof late);
  if (late != 0) throw PerfError("a peer's rows did not arrive in time in the bare loop");
  Shape shape = endpoint_.shape();
  shape.layout = UCCLEP_LAYOUT_FLAT;
  return endpoint_.check_combine(shape);
}

}  // namespace ucclep::perf
