// SPDX-License-Identifier: Apache-2.0
// An endpoint around another one. Time is counted in polls: what is due at a poll happens in it. So all progress is the
// caller's, and nothing depends on how fast the machine is.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "transport/faulty/dice.hpp"
#include "transport/faulty/settings.hpp"
#include "transport/send_table.hpp"

namespace ucclep::transport {

class FaultyEndpoint : public Endpoint {
 public:
  FaultyEndpoint(const FaultSettings& settings, Transport& inner, const Config& config);
  ~FaultyEndpoint() override;

  const FaultStatistics& statistics() const { return statistics_; }
  const Traits& traits() const override { return traits_; }
  Address address() const override { return inner_->address(); }
  void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) override;
  void disconnect(uint32_t peer) override;
  uint32_t register_region(const Memory& memory, Key* key) override { return inner_->register_region(memory, key); }
  void deregister_region(uint32_t region) override { inner_->deregister_region(region); }
  uint32_t import_region(uint32_t peer, const Key& key) override { return inner_->import_region(peer, key); }
  void release_region(uint32_t region) override { inner_->release_region(region); }
  uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept override;
  uint32_t poll(std::span<Completion> completions) noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class At : uint8_t { nowhere, before_payload, before_immediate, under_way, before_report };
  // The way of an operation that this endpoint has taken.
  struct Travel {
    At at = At::nowhere;
    uint64_t due = 0;
    uint64_t number = 0;      // of the operation on its connection
    uint32_t unreturned = 0;  // parts of it that the inner endpoint has
  };
  struct Line {
    Dice dice;
    uint64_t operations = 0;
    uint64_t payloads_end = 0, immediates_end = 0;  // one past the highest number that has left
    std::optional<Clock::time_point> resumes = {};  // in an outage
  };
  struct Repeat {
    Completion arrival;
    uint64_t due;
  };

  void strike(uint32_t peer) noexcept;
  void set_out(uint32_t peer) noexcept;
  void move() noexcept;
  void step(uint32_t slot) noexcept;
  bool carries(Line& line) noexcept;
  void leave(uint32_t slot) noexcept;
  void note(uint64_t number, uint64_t& end, uint64_t& overtaken) noexcept;
  void came_back(uint32_t slot) noexcept;
  void stop(uint32_t peer) noexcept;
  void break_line(uint32_t peer) noexcept;
  void die() noexcept;
  void stand_still() noexcept;
  uint32_t take_from_inner(std::span<Completion> out) noexcept;
  Completion disguised(Completion arrival) noexcept;
  uint32_t repeat(std::span<Completion> out) noexcept;
  uint32_t report_death(std::span<Completion> out) noexcept;

  FaultSettings settings_;
  SendTable table_;
  std::unique_ptr<Endpoint> inner_;
  Traits traits_;
  std::vector<Travel> travels_;   // by slot
  std::vector<uint32_t> moving_;  // slots that are somewhere
  std::vector<std::optional<Line>> lines_;
  std::vector<Repeat> repeats_;
  Dice dice_;
  FaultStatistics statistics_;
  uint64_t now_ = 0;         // polls so far
  uint64_t operations_ = 0;  // for kill_at and stall_at
  bool apart_;               // immediates leave after their payloads
  bool here_ = false;        // this endpoint may break connections, die and so on
  bool dead_ = false, death_reported_ = false, stalls_ = false;
  bool reports_first_ = false;
};

}  // namespace ucclep::transport
