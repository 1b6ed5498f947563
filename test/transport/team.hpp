// SPDX-License-Identifier: Apache-2.0
// Members of a test: threads of this process, or processes forked from it (UCCLEP_TEST_PROCESSES=1), each with an
// endpoint of the transport under test (UCCLEP_TEST_TRANSPORT) that is connected to those of all others and of itself.
// They take the NICs in UCCLEP_TEST_NICS, a list with commas, in turns.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/sealed_memory.hpp"
#include "transport/transport.hpp"

namespace ucclep::test {

std::string transport_under_test();
bool members_are_processes();

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// In a member: Catch2's own checks belong to the main thread.
void check(bool good, const std::string& what);

// Where members live: threads or processes that have to be somewhere before they open anything. A program may have one.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void prepare() = 0;        // before there are members
  virtual void enter(int rank) = 0;  // each of them
};
inline Stage* stage = nullptr;

struct TeamOptions {
  int members = 2;
  std::string transport = transport_under_test();
  uint32_t sends = 256, receives = 1024, timeout_ms = 20000;
  size_t window_bytes = 1 << 20;
  std::set<int> killed = {};  // members that end by a signal
  std::set<int> alone = {};   // members that do not connect; they take part in exchange
};

// What all members see, also across processes.
class Board {
 public:
  static constexpr int max_members = 8, words = 8;
  static constexpr size_t page_bytes = 8192;
  std::atomic<uint32_t> arrived{0}, word[words] = {};
  std::atomic<bool> given_up{false};
  struct Page {
    char outcome[1024];
    size_t bytes;
    std::byte data[page_bytes];
  } page[max_members];
};

struct Event : transport::Completion {
  std::string message;  // a copy of words
};

class Member {
 public:
  Member(int rank, const TeamOptions& options, Board& board);
  ~Member();

  int rank() const { return rank_; }
  int count() const { return options_.members; }
  const std::string& transport() const { return options_.transport; }
  // Providers of libfabric that work without a NIC report some remote errors to nobody. Its double does.
  bool errors_are_certain() const {
    return transport().find("ofi") == std::string::npos || std::getenv("UCCLEP_DOUBLE_PROVIDERS") != nullptr;
  }
  transport::Endpoint& endpoint() { return *endpoint_; }
  std::byte* window() { return reinterpret_cast<std::byte*>(window_.data()); }
  uint32_t region() const { return region_; }
  uint32_t remote(int peer) const { return remote_[static_cast<size_t>(peer)]; }
  const transport::Key& key(int peer) const { return keys_[static_cast<size_t>(peer)]; }
  const transport::Address& address(int peer) const { return addresses_[static_cast<size_t>(peer)]; }

  void connect(int peer);
  void disconnect(int peer) { endpoint_->disconnect(static_cast<uint32_t>(peer)); }
  void close() { endpoint_.reset(); }

  // Of all members. Polls meanwhile, as every wait here does: nothing moves on its own.
  void barrier();
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine);
  void post(int word, uint32_t value = 1) { board_.word[word].store(value); }
  void wait_for_word(int word, uint32_t at_least = 1);
  void sleep_until_word(int word);  // without polling
  void until(const std::function<bool()>& reached, const std::string& what);
  void poll();

  // Posts until it is taken. The cookie is the number of the operation, from 0 on.
  void send(int peer, const transport::Operation& operation);
  // What is taken now; the cookies are set.
  uint32_t send_chain(int peer, std::span<const transport::Operation> operations);
  // From this window to the peer's.
  transport::Operation write(int peer, uint64_t local, uint64_t remote, uint64_t bytes) const;
  static transport::Operation with_imm(transport::Operation operation, uint32_t imm);
  // Until all that was sent has ended; throws Failure for an ERROR.
  void finish();
  uint64_t unfinished() const { return sent_ - ended_; }

  // Until the connection to the peer is reported as broken and all its operations have ended; the reason.
  Event until_broken(int peer, const std::string& what);
  // Sends until then.
  Event send_until_broken(int peer, const transport::Operation& operation);
  // The message of the Error that the setup function throws.
  static std::string refused(ucclEpResult_t code, const std::function<void()>& setup);

  // Called for each arrival, the first time that its immediate comes.
  std::function<void(const Event&)> on_arrival;
  const std::set<uint32_t>& arrived() const { return arrived_; }
  std::vector<Event> errors;  // of operations and of connections
  uint64_t dones = 0, repeated = 0;
  uint32_t poll_room = 32;  // completions that one poll may give

 private:
  void take(const transport::Completion& completion);
  void check_on_others() const;

  int rank_;
  TeamOptions options_;
  Board& board_;
  std::unique_ptr<transport::Transport> transport_;
  SealedMemory window_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  uint32_t region_ = 0;
  std::vector<transport::Address> addresses_;
  std::vector<transport::Key> keys_;
  std::vector<uint32_t> remote_;
  std::set<uint32_t> arrived_;
  std::vector<uint8_t> completed_;  // by cookie
  uint64_t sent_ = 0, ended_ = 0;
  uint32_t barriers_ = 0;
};

// Fails the running case when a member failed. A '*' in the transport's name stands for the seeds to try, one after the
// other.
void run_team(const TeamOptions& options, const std::function<void(Member&)>& body);
void run_team(const std::function<void(Member&)>& body);

}  // namespace ucclep::test
