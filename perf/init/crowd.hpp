// SPDX-License-Identifier: Apache-2.0
// Ranks that are no more than sockets, thousands of them in one thread. They meet as the library's ranks do: they greet
// the rendezvous, then the hub, bring a card to the first round, read its result, and come to more rounds if asked to.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "bootstrap/poller.hpp"
#include "bootstrap/stream_io.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"
#include "init/hub_rounds.hpp"
#include "ucclep/ucclep.h"

namespace ucclep::perf {

struct CrowdCounts {
  int finished = 0;                 // ranks that have read the results of all rounds of the latest call
  uint64_t sent = 0, received = 0;  // bytes of rounds, headers included
  uint64_t results = 0, wrong = 0;  // of rounds; wrong: another length than expected, or an error
  std::string text;                 // what the latest refusal or error said
};

// Ranks 1 to nranks - 1.
class Crowd {
 public:
  Crowd(const ucclEpUniqueId& id, int nranks) : id_(decode(id)), nranks_(nranks) {}

  // Comes back when each has joined or failed, or at the deadline. pace_us: between two that begin; 0: all at once. Who
  // is hung up on before it has joined tries again, as ranks of the library do.
  void join(int pace_us, Deadline deadline);
  // All that have joined come to these rounds, each as soon as its one before has ended.
  void run(std::span<const HubRound> rounds, Deadline deadline);
  // Waits until rank 0 says goodbye, or the deadline comes.
  void wait_for_goodbye(Deadline deadline) const;
  // Rank 1 brings a byte too many for each other rank from now on, which those have to notice.
  void corrupt() { corrupt_ = true; }
  const CrowdCounts& counts() const { return counts_; }

 private:
  enum class Step { connect, challenge, verdict, round };
  struct Client {
    int rank = 0;
    wire::Purpose purpose = wire::Purpose::rendezvous;
    Step step = Step::connect;
    Fd socket;
    wire::Greeting greeting;
    wire::Challenge challenge;
    wire::Verdict verdict;
    FrameWriter writer;
    bool waits_to_write = false;
    wire::FrameHeader header;
    size_t round = 0;  // of those that it comes to
    size_t have = 0;   // of what is read in this step
  };

  void call(Client client);
  void advance(const Poller::Event& event);
  void greet(Client& client);
  bool read(Client& client);
  bool prove(Client& client);
  void go_on(Client& client);
  void bring_part(Client& client);
  bool flush(Client& client);
  bool read_results(Client& client);
  bool discard_payload(Client& client);
  void end_round(Client& client);
  void drop(Client& client);
  void fail(Client& client, const std::string& text);
  void forget(Client& client);
  void poll(int wait_ms);

  UniqueId id_;
  int nranks_;
  SocketAddress hub_;
  Poller poller_;
  std::map<int, Client> clients_;  // by descriptor
  std::span<const HubRound> rounds_;
  uint64_t first_round_ = 0;  // its sequence number
  int unfinished_ = 0;        // ranks, in the latest call
  bool corrupt_ = false;
  CrowdCounts counts_;
};

}  // namespace ucclep::perf
