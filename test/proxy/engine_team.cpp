// SPDX-License-Identifier: Apache-2.0
#include "engine_team.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "proxy/serializer.hpp"

namespace ucclep::test {
namespace {

constexpr int64_t patience_ms = 60'000;
const Kind used[] = {Kind::dispatch, Kind::combine};

// Of the operation, the pair and the byte's place: no two rows are alike.
uint64_t pattern(Kind kind, uint64_t seq, uint32_t source, uint32_t destination, uint64_t word) {
  uint64_t x = seq * 0x9e3779b97f4a7c15 +
               (static_cast<uint64_t>(kind) << 56 | uint64_t{source} << 44 | uint64_t{destination} << 32 | word);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  return x ^ x >> 27;
}
constexpr uint64_t header_word = 1u << 31;

proxy::Places places_of(const TeamShape& shape, uint64_t* bytes) {
  proxy::Places places;
  uint64_t end = 0;
  const auto area = [&](uint64_t block) {
    const proxy::Area area{0, end, block * shape.ranks, block};
    end += block * shape.ranks * shape.in_flight;
    return area;
  };
  for (const Kind kind : used) {
    proxy::KindPlaces& to = places.kinds[static_cast<uint32_t>(kind)];
    to.rows = shape.rows;
    to.row_bytes = shape.row_bytes;
    to.rows_per_chunk = shape.rows_per_chunk;
    to.header_bytes = shape.header_bytes;
    to.rows_from = area(uint64_t{shape.rows} * shape.row_bytes);
    to.rows_to = area(uint64_t{shape.rows} * shape.row_bytes);
    to.header_from = area(shape.header_bytes);
    to.header_to = area(shape.header_bytes);
  }
  *bytes = end;
  return places;
}

}  // namespace

void check(bool good, const std::string& what) {
  if (!good) throw Failure(what);
}

void contains(const std::string& message, const std::string& part) {
  check(message.find(part) != std::string::npos, fmt::format("'{}' does not say '{}'", message, part));
}

std::string refused(ucclEpResult_t code, const std::function<void()>& step) {
  try {
    step();
  } catch (const Error& error) {
    check(error.code() == code, fmt::format("code {}: {}", static_cast<int>(error.code()), error.what()));
    return error.what();
  }
  throw Failure("it was not refused");
}

Rank::Rank(uint32_t rank, const TeamShape& shape, Meeting& meeting)
    : rank_(rank), shape_(shape), meeting_(meeting), device_(open_host_device(0, {})) {
  build();
  engine_ = std::make_shared<proxy::Engine>(config_);
}

Rank::Rank(Rank& sibling)
    : rank_(sibling.rank_),
      shape_(sibling.shape_),
      meeting_(sibling.meeting_),
      device_(open_host_device(0, {})),
      engine_(sibling.engine_) {
  build();
}

void Rank::build() {
  uint64_t bytes = 0;
  spec_.shape.places = places_of(shape_, &bytes);
  window_.resize(bytes / sizeof(uint64_t));
  words_.resize(Arrivals::words(shape_.ranks, shape_.in_flight));
  build_rings();
  spec_.shape.rank = rank_;
  spec_.shape.ranks = shape_.ranks;
  spec_.shape.in_flight = shape_.in_flight;
  spec_.shape.credits = shape_.credits;
  spec_.shape.credits.in_flight = shape_.in_flight;
  spec_.shape.timeout_ms = shape_.timeout_ms;
  spec_.words = Arrivals::in(words_.data(), shape_.ranks, shape_.in_flight);
  begin_behind(shape_.first);
  spec_.windows = {{UCCLEP_MEMORY_HOST, 0, window_.data(), bytes, -1, 0}};
  std::vector<uint32_t> all(shape_.ranks);
  std::iota(all.begin(), all.end(), 0);
  connect_to(all);
  spec_.sends = shape_.sends;
  config_.rank = rank_;
  config_.cpus.assign(shape_.threads, -1);
  const std::shared_ptr<transport::Transport> transport = transport::make_transport(shape_.transport);
  config_.nics.assign(shape_.nics, {transport, ""});
  config_.faults = [this](const proxy::Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(fault);
  };
  if (shape_.change) shape_.change(rank_, config_, spec_);
}

void Rank::build_rings() {
  rings_ = std::make_unique<proxy::CommandRings>(
      *device_, proxy::RingsShape{shape_.bulk_log2, shape_.control_log2, 16, shape_.capacity_log2},
      uint64_t{patience_ms} * 1'000'000, &abort_);
  writers_.clear();
  for (uint32_t ring = 0; ring < rings_->count(); ++ring) writers_.emplace_back(rings_->fifo(), ring);
  spec_.rings = rings_.get();
}

void Rank::begin_behind(const proxy::KindNumbers& first) {
  spec_.shape.first = seq_ = first;
  for (const Kind kind : used) std::fill_n(spec_.words.consumed_of(kind, 0), shape_.ranks, seq(kind));
}

void Rank::renew(const std::vector<uint32_t>& peers, const proxy::KindNumbers& first) {
  build_rings();
  std::fill(words_.begin(), words_.end(), 0);
  begin_behind(first);
  connect_to(peers);
}

void Rank::connect_to(const std::vector<uint32_t>& peers) {
  spec_.connections.assign(shape_.ranks, {});
  for (const uint32_t peer : peers) {
    for (uint32_t connection = 0; connection < shape_.connections && peer != rank_; ++connection)
      spec_.connections[peer].push_back(connection % shape_.nics);
  }
}

Rank::~Rank() {
  group_.reset();
}

void Rank::attach() {
  group_ = engine_->attach(spec_, {allgather(), exchange()});
}

proxy::Allgather Rank::allgather() {
  return [this](std::span<const std::byte> mine) { return meeting_.allgather(rank_, mine); };
}

// By an allgather of all that is for anybody.
proxy::Exchange Rank::exchange() {
  return [this](const std::vector<std::vector<std::byte>>& mine) {
    proxy::Serializer all;
    for (const std::vector<std::byte>& one : mine) all.bytes(one.data(), one.size());
    std::vector<std::vector<std::byte>> column;
    for (const std::vector<std::byte>& data : meeting_.allgather(rank_, all.data())) {
      std::span<const std::byte> own;
      if (!data.empty()) {
        proxy::Deserializer in(data, rank_);
        for (uint32_t to = 0; to <= rank_; ++to) own = in.bytes();
      }
      column.emplace_back(own.begin(), own.end());
    }
    return column;
  };
}

void Rank::exchange(Kind kind, std::mt19937_64& random) {
  begin(kind);
  struct Step {
    uint32_t destination, row, rows;
  };
  std::vector<Step> steps;
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!has_connections(peer)) continue;
    fill(kind, peer);
    steps.push_back({peer, 0, 0});
    const uint32_t all = rows_to(kind, rank_, peer);
    for (uint32_t row = 0, rows = 0; row < all; row += rows) {
      const uint32_t to_end = std::min(all - row, shape_.rows_per_chunk - row % shape_.rows_per_chunk);
      rows = 1 + static_cast<uint32_t>(random() % to_end);
      steps.push_back({peer, row, rows});
    }
  }
  std::shuffle(steps.begin(), steps.end(), random);
  for (const Step& step : steps) {
    if (step.rows == 0) {
      header(kind, step.destination);
    } else {
      put(kind, step.destination, step.row, step.rows);
    }
  }
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    if (has_connections(peer)) receive(kind, peer);
  }
  consume(kind);
}

void Rank::begin(Kind kind) {
  const uint64_t next = ++seq_[static_cast<uint32_t>(kind)];
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!has_connections(peer)) continue;
    until([&] { return consumed_by(kind, peer) + shape_.in_flight >= next; },
          fmt::format("rank {} to have read {} {}", peer, proxy::kind_name(kind), next - shape_.in_flight));
  }
}

uint32_t Rank::rows_to(Kind kind, uint32_t source, uint32_t destination) const {
  return static_cast<uint32_t>(pattern(kind, seq(kind), source, destination, header_word + 1) % (shape_.rows + 1));
}

// The same for all, as the settings of an operation are.
uint32_t Rank::row_bytes(Kind kind) const {
  return 16 * (1 + static_cast<uint32_t>(pattern(kind, seq(kind), 0, 0, header_word + 2) % (shape_.row_bytes / 16)));
}

std::byte* Rank::at(const proxy::Area& area, uint32_t slot, uint32_t rank) {
  return reinterpret_cast<std::byte*>(window_.data()) + area.at(slot, rank);
}

void Rank::fill(Kind kind, uint32_t destination) {
  const proxy::KindPlaces& places = spec_.shape.places[kind];
  const auto slot = static_cast<uint32_t>(seq(kind) % shape_.in_flight);
  auto* header = reinterpret_cast<uint64_t*>(at(places.header_from, slot, destination));
  for (uint32_t word = 0; word < shape_.header_bytes / 8; ++word) {
    header[word] = pattern(kind, seq(kind), rank_, destination, header_word + 8 + word);
  }
  auto* rows = reinterpret_cast<uint64_t*>(at(places.rows_from, slot, destination));
  const uint32_t words = rows_to(kind, rank_, destination) * (row_bytes(kind) / 8);
  for (uint32_t word = 0; word < words; ++word) rows[word] = pattern(kind, seq(kind), rank_, destination, word);
}

void Rank::put(Kind kind, uint32_t destination, uint32_t row, uint32_t rows) {
  push(destination, {.epoch = static_cast<uint32_t>(seq(kind)),
                     .row = row,
                     .bytes = rows * row_bytes(kind),
                     .destination = static_cast<uint16_t>(destination),
                     .rows = static_cast<uint16_t>(rows),
                     .operation = CommandOp::put,
                     .kind = static_cast<uint8_t>(kind)});
}

void Rank::header(Kind kind, uint32_t destination) {
  push(destination, {.epoch = static_cast<uint32_t>(seq(kind)),
                     .row = rows_to(kind, rank_, destination),
                     .bytes = shape_.header_bytes,
                     .destination = static_cast<uint16_t>(destination),
                     .operation = CommandOp::header,
                     .kind = static_cast<uint8_t>(kind)});
}

void Rank::send(Kind kind, uint32_t destination) {
  fill(kind, destination);
  const uint32_t all = rows_to(kind, rank_, destination);
  for (uint32_t row = 0; row < all; ++row) put(kind, destination, row, 1);
  header(kind, destination);
}

void Rank::receive(Kind kind, uint32_t source) {
  const proxy::KindPlaces& places = spec_.shape.places[kind];
  const auto slot = static_cast<uint32_t>(seq(kind) % shape_.in_flight);
  const std::string what =
      fmt::format("{} {} from rank {} to rank {}", proxy::kind_name(kind), seq(kind), source, rank_);
  const uint32_t all = rows_to(kind, source, rank_) * (row_bytes(kind) / 8);
  const uint32_t words_of_chunk = shape_.rows_per_chunk * (row_bytes(kind) / 8);
  bool announced = false;
  uint32_t word = 0, below = 0;
  // Whatever is said to be here is here, also while the rest is on its way.
  until(
      [&] {
        const Progress now = progress(kind, source);
        check(now.below >= below && (now.announced || !announced), what + ": its progress went back");
        if (now.announced && !announced) {
          const auto* header = reinterpret_cast<const uint64_t*>(at(places.header_to, slot, source));
          for (uint32_t i = 0; i < shape_.header_bytes / 8; ++i) {
            check(header[i] == pattern(kind, seq(kind), source, rank_, header_word + 8 + i), what + ": a wrong header");
          }
        }
        announced = now.announced;
        below = now.below;
        const uint32_t here = std::min(all, below * words_of_chunk);
        compare_words(kind, source, std::exchange(word, here), here);
        return now.complete;
      },
      what);
  check(announced && word == all, what + ": complete, and not all of it here");
}

void Rank::compare_words(Kind kind, uint32_t source, uint32_t from, uint32_t to) {
  const auto slot = static_cast<uint32_t>(seq(kind) % shape_.in_flight);
  const auto* rows = reinterpret_cast<const uint64_t*>(at(spec_.shape.places[kind].rows_to, slot, source));
  for (uint32_t word = from; word < to; ++word) {
    check(
        rows[word] == pattern(kind, seq(kind), source, rank_, word),
        fmt::format("{} {} from rank {} to rank {}: word {}", proxy::kind_name(kind), seq(kind), source, rank_, word));
  }
}

void Rank::compare(Kind kind, uint32_t source) {
  const uint32_t words_of_row = row_bytes(kind) / 8;
  const uint32_t rows = std::min(rows_to(kind, source, rank_), progress(kind, source).below * shape_.rows_per_chunk);
  compare_words(kind, source, 0, rows * words_of_row);
}

void Rank::spoil(Kind kind, uint32_t destination) {
  const proxy::KindPlaces& places = spec_.shape.places[kind];
  const auto slot = static_cast<uint32_t>(seq(kind) % shape_.in_flight);
  std::fill_n(at(places.header_from, slot, destination), shape_.header_bytes, std::byte{0xee});
  std::fill_n(at(places.rows_from, slot, destination), uint64_t{shape_.rows} * shape_.row_bytes, std::byte{0xee});
}

void Rank::detach(uint32_t peer) {
  push(peer, {.destination = static_cast<uint16_t>(peer), .operation = CommandOp::detach}, true);
}

bool Rank::is_set(uint64_t* word) {
  return std::atomic_ref(*word).load(std::memory_order_acquire) != 0;
}

void Rank::consume(Kind kind) {
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!has_connections(peer)) continue;
    push(peer,
         {.epoch = static_cast<uint32_t>(seq(kind)),
          .destination = static_cast<uint16_t>(peer),
          .operation = CommandOp::consumed,
          .kind = static_cast<uint8_t>(kind)},
         true);
  }
}

void Rank::push(uint32_t destination, const CommandFields& fields, bool control) {
  const Fifo& fifo = rings_->fifo();
  const uint32_t ring = control ? control_ring(fifo, destination) : bulk_ring(fifo, destination);
  const Command command = fields;
  check(writers_[ring].push(std::span(&command, 1)), "a ring that nobody reads");
}

Progress Rank::progress(Kind kind, uint32_t source) const {
  uint64_t& word = *spec_.words.progress_of(kind, seq(kind), source);
  const Progress now = Progress::of_word(std::atomic_ref(word).load(std::memory_order_acquire));
  return now.seq == seq(kind) ? now : Progress{seq(kind), false, false, 0};
}

uint64_t Rank::consumed_by(Kind kind, uint32_t rank) const {
  return std::atomic_ref(*spec_.words.consumed_of(kind, rank)).load(std::memory_order_acquire);
}

void Rank::until(const std::function<bool()>& reached, const std::string& what) const {
  const Deadline deadline = Deadline::after_ms(patience_ms);
  for (uint32_t polls = 0; !reached(); ++polls) {
    std::this_thread::yield();
    if (polls % 64 != 63) continue;
    check(!meeting_.given_up(), "another rank has failed");
    check(!deadline.expired(), fmt::format("rank {} waited in vain for {}", rank_, what));
    if (expects_faults_) continue;
    for (const proxy::Fault& fault : faults()) throw Failure("a fault: " + fault.message);
  }
}

std::vector<proxy::Fault> Rank::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

proxy::Fault Rank::wait_for_fault() const {
  until([&] { return !faults().empty(); }, "a fault");
  return faults().front();
}

void run_loose_team(const TeamShape& shape, const std::function<void(Rank&)>& body) {
  Meeting meeting(shape.ranks);
  std::vector<std::string> outcomes(shape.ranks, "ok");
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < shape.ranks; ++number) {
    threads.emplace_back([&, number] {
      try {
        Rank rank(number, shape, meeting);
        body(rank);
      } catch (const std::exception& error) {
        outcomes[number] = error.what();
        meeting.give_up();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t number = 0; number < shape.ranks; ++number) {
    INFO("rank " << number << " of " << shape.ranks << ", " << shape.transport);
    CHECK(outcomes[number] == "ok");
  }
}

TeamResult run_team(const TeamShape& shape, const std::function<void(Rank&)>& body) {
  TeamResult result;
  result.groups.resize(shape.ranks);
  run_loose_team(shape, [&](Rank& rank) {
    try {
      rank.attach();
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
      if (rank.rank() == 0) result.not_here = error.what();
      return;
    }
    body(rank);
    rank.stop();
    result.groups[rank.rank()] = rank.group().statistics();
    for (const proxy::Fault& fault : rank.faults()) throw Failure("a fault: " + fault.message);
  });
  return result;
}

}  // namespace ucclep::test
