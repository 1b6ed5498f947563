// SPDX-License-Identifier: Apache-2.0
// The channel of the device API: every row of its table of what orders what, in every scope; bounds and wrong calls.
#include <catch2/catch.hpp>
#include <vector>

#include "channel_fixture.hpp"
#include "support/race.hpp"

namespace ucclep::test {
namespace {

// In every scope, with messages in whole 16 bytes and others. Counts go on from launch to launch: a group for each.
void in_every_scope(const std::string& kernel, uint32_t rounds, std::initializer_list<uint64_t> sizes) {
  for (const ChannelScope scope : channel_scopes) {
    for (const uint64_t bytes : sizes) {
      run_ranks(channel_ranks, [&](Rank& rank) {
        Channel channel(rank, bytes);
        channel.args.rounds = rounds;
        channel.args.seed = static_cast<uint32_t>(bytes);
        channel.args.scope = scope;
        channel.run(kernel);
      });
    }
  }
}

TEST_CASE("channel: what was put before a signal is there when it is seen, and read before it is put anew",
          "[process][reduced]") {
  in_every_scope("exchange", 4, {2000, 37});
}

TEST_CASE("channel: what was put before a barrier is there after it", "[process][reduced]") {
  in_every_scope("meet", 3, {1040, 3});
}

TEST_CASE("channel: what was put before a flush is there for whoever hears of it", "[process][reduced]") {
  in_every_scope("flush", 3, {1040});
}

TEST_CASE("channel: all scopes of a grid signal at once, and none is lost", "[process][reduced]") {
  in_every_scope("at_once", 2, {64});
}

#if defined(UCCLEP_TSAN)
TEST_CASE("channel: a put after its signal is reported as a race", "[reduced]") {
  is_reported("broken: a put after its signal");
}
TEST_CASE("broken: a put after its signal", "[.broken]") {
  run_ranks(channel_ranks, [&](Rank& rank) {
    Channel channel(rank, 2000);
    channel.args.rounds = 1;
    channel.launch("told_before_put");
    channel.stream.synchronize();
  });
}
#endif

TEST_CASE("channel: counts go on over launches, and barriers between them", "[process]") {
  run_ranks(channel_ranks, [&](Rank& rank) {
    Channel channel(rank, 256);
    for (uint32_t launch = 0; launch < 3; ++launch) {
      channel.args.seed = launch;
      channel.args.rounds = 1;
      channel.args.scope = ChannelScope::block;
      channel.run("meet");
      channel.args.scope = ChannelScope::warp;
      channel.launch("meet");
      channel.run("flush");
    }
    no_async_error(channel.comm);
  });
}

// Before one of them does what the others must not see too early.
void all_are_there(const Rank& rank) {
  rank.board.add(0);
  rank.board.wait(0, static_cast<uint32_t>(rank.count));
}

TEST_CASE("channel: peers, signals and ranges that do not exist leave a record and move nothing",
          "[process][reduced]") {
  run_ranks(channel_ranks, [&](Rank& rank) {
    Channel channel(rank, 64);
    const auto refuse = [&](int peer, int signal, uint64_t bytes, const char* words) {
      channel.args.peer = peer;
      channel.args.signal = signal;
      channel.args.bytes = bytes;
      channel.launch("wrong");
      channel.stream.synchronize();
      left_record(channel, ucclEpInvalidArgument, words);
    };
    std::vector<char> sent(64, 0x5a), there(64), still(64);
    const auto copy = [&](void* to, const void* from) {
      ok(ucclEpMemcpy(channel.comm, to, from, 64, channel.stream), "ucclEpMemcpy");
      channel.stream.synchronize();
    };
    copy(channel.args.out.data, sent.data());
    copy(there.data(), channel.args.in.data);
    refuse(channel_ranks, 0, 64, "passed peer 4 to the channel, expected 0 to 3");
    refuse(-7, 0, 64, "passed peer -7");
    refuse(rank.rank, num_signals, 64, "passed signal 3 to the channel, expected 0 to 2");
    refuse(rank.rank, 0, 1 << 20, "has 264");
    refuse(rank.rank, 0, UINT64_MAX, "has 264");
    copy(still.data(), channel.args.in.data);
    require(still == there && there != sent, "a wrong call has put bytes");
    all_are_there(rank);  // nobody's messages come before that
    channel.args.bytes = 64;
    channel.args.rounds = 1;
    channel.args.scope = ChannelScope::warp;
    channel.run("exchange");  // counts from nothing: no wrong call has signalled
  });
}

TEST_CASE("channel: a wait that nobody answers ends in time, and says what it waited for", "[process][reduced]") {
  struct Lonely {
    int signal;
    const char *phase, *words;
  };
  for (const Lonely& lonely : {Lonely{1, "signal", "for signal 1 to reach 5, but its count is 0"},
                               Lonely{-1, "barrier", "for rank 1 to arrive"}}) {
    run_ranks(2, [&](Rank& rank) {
      Channel channel(rank, 64, 300);
      all_are_there(rank);
      channel.args.signal = lonely.signal;
      channel.args.rounds = 5;
      if (rank.rank == 0) {
        channel.launch("nobody");
        require(ucclEpStreamSynchronize(channel.comm, channel.stream) == ucclEpTimeout, "the wait did not time out");
        const ucclEpAsyncError_t error = async_error(channel.comm);
        require(
            std::string(error.phase) == lonely.phase && std::string(error.text).find(lonely.words) != std::string::npos,
            std::string("another record: ") + error.text);
        require(channel.args.result[1] == 1, "the call did not return false");
      }
      rank.board.add(1);
      rank.board.wait(1, 2);
    });
  }
}

TEST_CASE("channel: an abort ends waits", "[process][reduced]") {
  run_ranks(2, [&](Rank& rank) {
    Channel channel(rank, 64);
    all_are_there(rank);
    channel.args.signal = 0;
    channel.args.rounds = 5;
    if (rank.rank == 0) {
      channel.launch("nobody");
      ok(ucclEpCommAbort(channel.comm), "ucclEpCommAbort");
      require(ucclEpStreamSynchronize(channel.comm, channel.stream) == ucclEpAborted, "the abort did not end the wait");
      require(channel.args.result[1] == 1, "the call did not return false");
    }
    rank.board.add(1);
    rank.board.wait(1, 2);
  });
}

TEST_CASE("channel: num_signals is checked", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    const Comm comm(rank);
    const auto refuse = [](ucclEpComm_t on, int signals, ucclEpResult_t code, const char* words) {
      const ucclEpGroupConfig_t config = config_with(signals, 2);
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, on, &config), code, "ucclEpGroupCreate", {"num_signals", words});
    };
    refuse(comm, -1, ucclEpInvalidArgument, "expected 0 to 65536");
    refuse(comm, 65537, ucclEpInvalidArgument, "expected 0 to 65536");
  });
}

}  // namespace
}  // namespace ucclep::test
