// SPDX-License-Identifier: Apache-2.0
// The channel in groups with enable_mask, of four ranks in one domain, and in two with a network that reorders: whom a
// wait misses is lost, and the others go on without it.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "channel_fixture.hpp"
#include "conformance/masked.hpp"
#include "conformance/nodes.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

constexpr uint64_t bytes = 520;
const char* const networks[] = {nullptr, "faulty:seed=11,delay=40:loopback"};

class MaskedChannel : public Channel {
 public:
  MaskedChannel(const Rank& rank, const char* network, int timeout_ms)
      : MaskedChannel(rank, network == nullptr ? comm_config(rank) : in_nodes_of(rank, 2, network), timeout_ms) {}
  MaskedChannel(const Rank& rank, const ucclEpCommConfig_t& config, int timeout_ms)
      : Channel(rank, config, bytes, timeout_ms, true) {
    args.scope = ChannelScope::warp;
    args.rounds = 2;
    meet(rank, 0);
  }
  // As run, of what may leave a record. True: all calls have come back with true.
  bool all_true(const std::string& kernel) {
    args.result[0] = args.result[1] = 0;
    launch(kernel);
    stream.synchronize();
    return args.result[1] == 0;
  }
  bool barrier() {
    args.signal = -1;
    return all_true("nobody");
  }
  // The bytes that a rank has put here.
  std::string put_by(int rank) {
    std::string all(static_cast<size_t>(ranks) * bytes, 0);
    ok(ucclEpMemcpy(comm, all.data(), args.in.data, all.size(), stream), "ucclEpMemcpy");
    stream.synchronize();
    return all.substr(static_cast<size_t>(rank) * bytes, bytes);
  }
};

void run_masked(int timeout_ms, const std::function<void(Rank&, MaskedChannel&)>& body) {
  for (const char* network : networks) {
    if (reduced() && network == nullptr) continue;
    run_ranks(ranks, [&](Rank& rank) {
      MaskedChannel channel(rank, network, timeout_ms);
      body(rank, channel);
    });
  }
}

// Counts of all ranks begin at 0 again.
void all_are_back(const Rank& rank, MaskedChannel& channel) {
  meet(rank, 5);
  ok(ucclEpMaskClear(channel.group, channel.stream), "ucclEpMaskClear");
  channel.args.absent = no_peer;
  channel.run("exchange");
  require(channel.barrier(), "a barrier of all ranks gave up");
  no_async_error(channel.comm);
}

// What the survivors do: all of the channel, and an operation, which masks the rank if nothing has before.
void go_on(const Rank& rank, MaskedChannel& channel) {
  channel.args.absent = missing;
  channel.run("exchange");
  require(channel.all_true("put_and_flush") && channel.barrier(), "the channel waits for a rank that is gone");
  no_async_error(channel.comm);
  round_without(rank, channel, any_scenario(ranks), 3);
  require_masked(channel, true);
  require(channel.barrier(), "the channel waits for a rank that is masked");
}

TEST_CASE("channel with masks: while nobody is lost, and anew after MaskClear", "[process][reduced][apart][masked]") {
  run_masked(20000, [](Rank& rank, MaskedChannel& channel) {
    for (const char* kernel : {"exchange", "meet", "at_once"}) {
      channel.run(kernel);
      meet(rank, 1);
      ok(ucclEpMaskClear(channel.group, channel.stream), "ucclEpMaskClear");
    }
    channel.renew_windows();
    channel.run("exchange");
    round_trip(rank, channel.comm, channel.handle, channel.stream, any_scenario(ranks));
  });
}

TEST_CASE("channel with masks: a rank that does not come to a barrier is lost, and the others go on",
          "[process][reduced][apart][masked]") {
  run_masked(short_ms, [](Rank& rank, MaskedChannel& channel) {
    if (rank.rank != missing) {
      require(!channel.barrier(), "a barrier came back with true, to which a rank did not come");
      const ucclEpAsyncError_t error = async_error(channel.comm);
      require(std::string(error.phase) == "barrier", std::string("another record: ") + error.text);
      require_record(channel);
      require_masked(channel, true);
      go_on(rank, channel);
    }
    meet(rank, 1);
    if (rank.rank == missing) hears(rank, channel, any_scenario(ranks));
    all_are_back(rank, channel);
  });
}

TEST_CASE("channel with masks: nothing goes to a masked rank, and nothing comes of it",
          "[process][reduced][apart][masked]") {
  run_masked(20000, [](Rank& rank, MaskedChannel& channel) {
    if (rank.rank != missing) {
      mask_missing(channel);
      channel.stream.synchronize();
      go_on(rank, channel);
    }
    meet(rank, 1);
    if (rank.rank == missing) {
      for (int from = 0; from < ranks; ++from) {
        require(channel.put_by(from) == std::string(bytes, 0), "bytes came to a rank that is masked");
      }
      require(channel.all_true("put_and_flush"), "a flush waits for ranks that have masked this one");
      require(!channel.barrier(), "a rank that all have masked came through a barrier");
    }
    meet(rank, 2);
    if (rank.rank != missing) {
      require(channel.put_by(missing) == std::string(bytes, 0), "bytes of a masked rank came");
    } else {
      hears(rank, channel, any_scenario(ranks));
    }
    all_are_back(rank, channel);
  });
}

// Rank 0 puts, and gets nothing to rank 3 for a while; nor does rank 1, nor do ranks 2 and 3 to rank 1. Rank 0 waits
// for its put, and ranks 1 and 2 for rank 0, which they do not lose. A transport gives up a connection that carries
// nothing after as long as a kernel waits: where that comes first, whoever waits for the rank at its other end comes
// back with true.
TEST_CASE("channel with masks: puts that do not get there lose their rank, and no other",
          "[process][host][apart][masked]") {
  run_ranks(ranks, [](Rank& rank) {
    MaskedChannel channel(rank, by_one_thread(in_nodes_of(rank, 2, "faulty:outage=1,peer=1,ms=3500:loopback")),
                          short_ms);
    channel.args.rounds = 1;
    const bool came = rank.rank == 0 ? channel.all_true("meet") : channel.barrier();
    const std::vector<int64_t> mask = mask_of(channel);
    const ucclEpAsyncError_t error = async_error(channel.comm);
    const std::string text = error.text;
    if (rank.rank == 0) require(mask == mask_without({3}), "rank 0 has not lost rank 3 alone: " + text);
    if (rank.rank == 1) require(mask[0] == 1, "rank 1 has lost rank 0: " + text);
    if (rank.rank == 2) require(came && mask[0] == 1 && mask[3] == 1, "rank 2 has lost rank 0 or 3: " + text);
    if (rank.rank < 2 && came) {
      require(text.find("lost its connection") != std::string::npos, "nobody was lost: " + text);
    }
    if (!came) require(error.code == ucclEpTimeout, "no record says so: " + text);
    meet(rank, 1);
  });
}

TEST_CASE("channel with masks: a signal that nobody sends ends its wait, and nothing else",
          "[process][reduced][masked]") {
  run_masked(300, [](Rank& rank, MaskedChannel& channel) {
    channel.args.signal = 1;
    channel.args.rounds = 5;
    require(!channel.all_true("nobody"), "a wait for a signal that nobody sends came back with true");
    left_record(channel, ucclEpTimeout, "for signal 1 to reach 5, but its count is 0");
    meet(rank, 1);
    require_masked(channel, false);
    all_are_back(rank, channel);
  });
}

// Nobody waits for its time limit. The death may be put on record more than once, as it shows in several places.
TEST_CASE("channel with masks: kill -9, and the others' barriers go on", "[process][apart][killed][masked]") {
  for (const char* network : networks) {
    run_ranks(ranks, {.processes = true, .killed = {missing}}, [&](Rank& rank) {
      MaskedChannel channel(rank, network, 20000);
      channel.run("exchange");
      meet(rank, 1);
      if (rank.rank == missing) kill(getpid(), SIGKILL);
      const auto begin = Clock::now();
      require(channel.barrier(), "a barrier gave up");
      require(channel.all_true("put_and_flush"), "a flush gave up");
      Exchange exchange(rank, channel.comm, any_scenario(ranks));
      exchange.leave_out(missing);
      update_and_dispatch(exchange, channel);
      channel.stream.synchronize();
      exchange.check_dispatch();
      require(seconds_since(begin) < 15, "it took " + std::to_string(seconds_since(begin)) + " s");
      require_masked(channel, true);
      ok(ucclEpMaskClear(channel.group, channel.stream), "ucclEpMaskClear");
      channel.args.absent = missing;
      require(channel.all_true("exchange") && channel.args.result[0] == 0, "what the others put is not there");
    });
  }
}

}  // namespace
}  // namespace ucclep::test
