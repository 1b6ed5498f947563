// SPDX-License-Identifier: Apache-2.0
// Ranks of a test, each with an engine, rings, windows and a thread that does what the rank's kernels would: it puts
// rows, reads what arrives, and says that it has read it. What arrives is compared byte by byte.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "device/host/host_device.hpp"
#include "meeting.hpp"
#include "proxy/engine.hpp"
#include "proxy/ring_writer.hpp"

namespace ucclep::test {

// In a rank: Catch2's own checks belong to the main thread.
void check(bool good, const std::string& what);
void contains(const std::string& message, const std::string& part);
// The message of the Error that the step throws.
std::string refused(ucclEpResult_t code, const std::function<void()>& step);

inline constexpr Kind kind = Kind::dispatch;  // what most cases exchange

struct TeamShape {
  uint32_t ranks = 2, in_flight = 2;
  std::string transport = "loopback";
  uint32_t threads = 1, nics = 1, connections = 1;  // threads and NICs of a rank; between two ranks
  uint32_t bulk_log2 = 1, control_log2 = 1, capacity_log2 = 0;
  uint32_t rows = 24, row_bytes = 64, rows_per_chunk = 4, header_bytes = 32;
  uint32_t sends = 1024, timeout_ms = 20'000;
  proxy::CreditShape credits = {};
  proxy::KindNumbers first = {};  // of each kind the number before that of its first operation
  // Of one rank, before its engine is made.
  std::function<void(uint32_t rank, proxy::EngineConfig&, proxy::GroupSpec&)> change = {};
};

class Rank {
 public:
  Rank(uint32_t rank, const TeamShape& shape, Meeting& meeting);
  // With another group of the same engine.
  explicit Rank(Rank& sibling);
  ~Rank();

  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return shape_.ranks; }
  const TeamShape& shape() const { return shape_; }
  proxy::Engine& engine() { return *engine_; }
  proxy::ProxyGroup& group() { return *group_; }
  void attach();  // the constructor does not
  void stop(int64_t timeout_ms = 20'000) { group_->stop(Deadline::after_ms(timeout_ms), allgather()); }
  void end() { group_.reset(); }
  void end_engine() { group_.reset(), engine_.reset(); }
  void leave() { meeting_.leave(rank_); }  // as the others see it, it is gone
  void come_back() { meeting_.come_back(); }
  // Before attach: with connections to these ranks alone, from these numbers on, and with fresh rings.
  void renew(const std::vector<uint32_t>& peers, const proxy::KindNumbers& first);
  bool has_connections(uint32_t peer) const { return !spec_.connections[peer].empty(); }
  proxy::Allgather allgather();
  proxy::Exchange exchange();
  void meet() { allgather()({}); }

  // One whole operation with all that it has connections to, rows in an order drawn from `random`.
  void exchange(Kind kind, std::mt19937_64& random);
  // Its parts.
  void begin(Kind kind);  // waits until there is room
  uint64_t seq(Kind kind) const { return seq_[static_cast<uint32_t>(kind)]; }
  uint32_t rows_to(Kind kind, uint32_t source, uint32_t destination) const;
  uint32_t row_bytes(Kind kind) const;
  void fill(Kind kind, uint32_t destination);  // header and rows
  void put(Kind kind, uint32_t destination, uint32_t row, uint32_t rows);
  void header(Kind kind, uint32_t destination);
  void send(Kind kind, uint32_t destination);   // all of these, rows one by one
  void receive(Kind kind, uint32_t source);     // waits for all, and compares
  void compare(Kind kind, uint32_t source);     // what is said to be here
  void spoil(Kind kind, uint32_t destination);  // what fill has put there
  void consume(Kind kind);                      // tells all others
  void push(uint32_t destination, const CommandFields& fields, bool control = false);

  Progress progress(Kind kind, uint32_t source) const;
  uint64_t consumed_by(Kind kind, uint32_t rank) const;
  void detach(uint32_t peer);
  bool detached(uint32_t peer) const { return is_set(spec_.words.detached + peer); }
  bool evicted(uint32_t peer) const { return is_set(spec_.words.evicted + peer); }
  void until(const std::function<bool()>& reached, const std::string& what) const;

  std::vector<proxy::Fault> faults() const;
  proxy::Fault wait_for_fault() const;
  void expects_faults() { expects_faults_ = true; }  // else one of them fails the rank

 private:
  void build();
  void build_rings();
  void connect_to(const std::vector<uint32_t>& peers);
  void begin_behind(const proxy::KindNumbers& first);
  static bool is_set(uint64_t* word);
  void compare_words(Kind kind, uint32_t source, uint32_t from, uint32_t to);
  std::byte* at(const proxy::Area& area, uint32_t slot, uint32_t rank);

  const uint32_t rank_;
  const TeamShape shape_;
  Meeting& meeting_;
  std::unique_ptr<Device> device_;
  uint32_t abort_ = 0;
  std::vector<uint64_t> window_, words_;
  std::unique_ptr<proxy::CommandRings> rings_;
  std::vector<proxy::RingWriter> writers_;
  proxy::EngineConfig config_;
  proxy::GroupSpec spec_;
  std::shared_ptr<proxy::Engine> engine_;
  std::unique_ptr<proxy::ProxyGroup> group_;
  proxy::KindNumbers seq_ = {};
  mutable std::mutex mutex_;
  std::vector<proxy::Fault> faults_;
  bool expects_faults_ = false;
};

// Of all ranks.
struct TeamResult {
  std::vector<proxy::GroupStatistics> groups;
  std::string not_here;  // what the machine lacks for it; then nothing was run
};

// Fails the running case when a rank failed. Ranks attach before the body, and stop after it.
TeamResult run_team(const TeamShape& shape, const std::function<void(Rank&)>& body);
// They do neither.
void run_loose_team(const TeamShape& shape, const std::function<void(Rank&)>& body);

}  // namespace ucclep::test
