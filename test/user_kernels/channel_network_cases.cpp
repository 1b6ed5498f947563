// SPDX-License-Identifier: Apache-2.0
// The channel between domains: two virtual nodes of two ranks each, over networks that keep an order and such that do
// not. [apart]: also where NICs do not reach the windows, as on GPUs.
#include <catch2/catch.hpp>
#include <string>

#include "channel_fixture.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void run_channel_across(const std::string& transport, uint64_t bytes,
                        const std::function<void(Rank&, Channel&)>& body) {
  run_ranks(channel_ranks, [&](Rank& rank) {
    Channel channel(rank, in_nodes_of(rank, 2, transport.c_str()), bytes);
    body(rank, channel);
  });
}

// Every scope over a network of its own: one that keeps the order, one where what goes to one peer comes late, and some
// that reorder all.
void in_scopes(const std::function<void(const std::string&, ChannelScope)>& run) {
  for (uint32_t seed = 1; seed <= (seeds() + 2) / 3; ++seed) {
    const auto reorders = [&](int delay) {
      return "faulty:seed=" + std::to_string(seed) + ",delay=" + std::to_string(delay) + ":loopback";
    };
    run("loopback", ChannelScope::thread);
    run("faulty:outage=1,peer=0,ms=40:loopback", ChannelScope::block);
    run(reorders(40), ChannelScope::lanes4);
    run(reorders(80), ChannelScope::warp);
  }
}

void in_scopes(const std::string& kernel, uint32_t rounds, uint64_t bytes) {
  in_scopes([&](const std::string& transport, ChannelScope scope) {
    run_channel_across(transport, bytes, [&](Rank&, Channel& channel) {
      channel.args.rounds = rounds;
      channel.args.seed = static_cast<uint32_t>(bytes);
      channel.args.scope = scope;
      channel.run(kernel);
    });
  });
}

TEST_CASE("channel between domains: puts come before their signals", "[process][reduced][apart][seeds]") {
  in_scopes("exchange", 4, 2001);
}

TEST_CASE("channel between domains: what was put to one peer is there when another has told it",
          "[process][reduced][apart][seeds]") {
  in_scopes("tell_another", 6, 640);
}

TEST_CASE("channel between domains: puts come before a barrier", "[process][reduced][apart][seeds]") {
  in_scopes("meet", 3, 1040);
}

TEST_CASE("channel between domains: all scopes of a grid signal at once, and none is lost",
          "[process][reduced][apart][seeds]") {
  in_scopes("at_once", 2, 64);
}

TEST_CASE("channel between domains: what was put before a flush is there", "[process][reduced][apart][seeds]") {
  in_scopes([](const std::string& transport, ChannelScope scope) {
    run_channel_across(transport, 520, [&](Rank& rank, Channel& channel) {
      channel.args.scope = scope;
      for (channel.args.rounds = 1; channel.args.rounds <= 3; ++channel.args.rounds) {
        for (const char* kernel : {"put_and_flush", "check_all"}) {
          channel.run(kernel);
          rank.board.add(0);
          const uint32_t launches = 2 * channel.args.rounds - (kernel[0] == 'p' ? 1 : 0);
          rank.board.wait(0, launches * channel_ranks);
        }
      }
    });
  });
}

TEST_CASE("channel between domains: a put of several messages, and more of them than may be under way",
          "[process][apart]") {
  run_channel_across("faulty:seed=3:loopback", 2 * channel_piece + 100, [](Rank&, Channel& channel) {
    channel.args.rounds = 2;
    channel.args.scope = ChannelScope::block;
    channel.run("exchange");
  });
  run_channel_across("faulty:seed=4:loopback", 48, [](Rank&, Channel& channel) {
    channel.args.rounds = 2 * channel_window;
    channel.args.scope = ChannelScope::warp;
    channel.run("exchange");
  });
}

TEST_CASE("channel between domains: windows come and go beside groups, before and after them",
          "[process][reduced][apart]") {
  run_channel_across("loopback", 100, [](Rank& rank, Channel& channel) {
    const Group later = make_group(channel.comm, config_with(num_signals, channel_ranks));
    channel.args.scope = ChannelScope::warp;
    channel.args.rounds = 1;
    channel.run("exchange");
    for (uint32_t turn = 0; turn < 3; ++turn) {
      const Group group = make_group(channel.comm, config_with(num_signals, channel_ranks));  // after the windows
      channel.renew_windows();
      ok(ucclEpGroupGetDevice(turn == 1 ? later : group, &channel.args.group), "ucclEpGroupGetDevice");
      channel.args.seed = turn;
      channel.run("exchange");
    }
    rank.board.add(0);
    rank.board.wait(0, channel_ranks);
  });
}

TEST_CASE("channel between domains: a window that is deregistered has got what was put", "[process][reduced][apart]") {
  run_channel_across("faulty:seed=5,delay=1500:loopback", 4096, [](Rank&, Channel& channel) {
    channel.args.scope = ChannelScope::warp;
    channel.args.rounds = 7;
    channel.run("put_all");  // without a flush
    channel.forget_windows();
    channel.run("check_all");
  });
}

TEST_CASE("channel between domains: ranges that do not exist are refused by the one who puts",
          "[process][reduced][apart]") {
  run_channel_across("loopback", 64, [](Rank& rank, Channel& channel) {
    channel.args.peer = (rank.rank + 2) % channel_ranks;
    channel.args.signal = 0;
    for (const uint64_t bytes : {uint64_t{265}, UINT64_MAX}) {
      channel.args.bytes = bytes;
      channel.launch("wrong");
      channel.stream.synchronize();
      left_record(channel, ucclEpInvalidArgument, "has 264");
    }
    rank.board.add(0);
    rank.board.wait(0, channel_ranks);
    channel.args.bytes = 64;
    channel.args.rounds = 1;
    channel.args.scope = ChannelScope::warp;
    channel.run("exchange");  // counts from nothing
  });
}

TEST_CASE("channel between domains: waits end in time, and by an abort", "[process][reduced][host]") {
  const auto lonely = [](const char* transport, int signal, const std::function<void(Channel&)>& begin) {
    run_ranks(2, [&](Rank& rank) {
      Channel channel(rank, in_nodes_of(rank, 1, transport), 64, 150);
      rank.board.add(0);
      rank.board.wait(0, 2);
      channel.args.signal = signal;
      channel.args.rounds = 5;
      channel.args.scope = ChannelScope::warp;
      if (rank.rank == 0) begin(channel);
      rank.board.add(1);
      rank.board.wait(1, 2);
    });
  };
  const auto times_out = [](const char* kernel, const char* words) {
    return [=](Channel& channel) {
      channel.launch(kernel);
      require(ucclEpStreamSynchronize(channel.comm, channel.stream) == ucclEpTimeout, "the wait did not time out");
      const std::string text = async_error(channel.comm).text;
      require(text.find(words) != std::string::npos, "another record: " + text);
      require(channel.args.result[1] == 1, "the call did not return false");
    };
  };
  lonely("loopback", 1, times_out("nobody", "for signal 1 to reach 5, but its count is 0"));
  lonely("loopback", -1, times_out("nobody", "for rank 1 to arrive"));
  lonely("loopback", 0, [](Channel& channel) {
    channel.launch("nobody");
    ok(ucclEpCommAbort(channel.comm), "ucclEpCommAbort");
    require(ucclEpStreamSynchronize(channel.comm, channel.stream) == ucclEpAborted, "the abort did not end the wait");
    require(channel.args.result[1] == 1, "the call did not return false");
  });
  // What was put does not get there.
  lonely("faulty:outage=1,ms=1000:loopback", 0, times_out("put_and_flush", "rank 1"));
}

}  // namespace
}  // namespace ucclep::test
