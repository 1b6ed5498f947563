// SPDX-License-Identifier: Apache-2.0
// What cases of the channel launch their kernels with.
#pragma once
#include <string>
#include <utility>

#include "channel_kernels.hpp"
#include "conformance/exchange.hpp"
#include "launch_user.hpp"

namespace ucclep::test {

inline constexpr int channel_ranks = 4;
inline constexpr int num_signals = 3;

inline Scenario any_scenario(int count) {
  return {.layout = Layout::ll_expert_major, .ranks = count, .max_tokens = 4};
}

inline ucclEpGroupConfig_t config_with(int signals, int count, int timeout_ms = 0, bool masked = false) {
  ucclEpGroupConfig_t config = group_config({any_scenario(count)});
  config.num_signals = signals;
  config.timeout_ms = timeout_ms;
  config.enable_mask = masked ? 1 : 0;
  return config;
}

// A group with signals, two windows and what kernels report.
class Channel {
 public:
  Channel(const Rank& rank, uint64_t bytes, int timeout_ms = 0) : Channel(rank, comm_config(rank), bytes, timeout_ms) {}
  Channel(const Rank& rank, const ucclEpCommConfig_t& config, uint64_t bytes, int timeout_ms = 0, bool masked = false)
      : Channel(rank, config, bytes, config_with(num_signals, rank.count, timeout_ms, masked)) {}
  Channel(const Rank& rank, const ucclEpCommConfig_t& config, uint64_t bytes, const ucclEpGroupConfig_t& of_group)
      : comm(rank, config),
        group(make_group(comm, of_group)),
        handle(make_handle(group, handle_config(any_scenario(rank.count)))),
        stream(comm) {
    const uint64_t window_bytes = static_cast<uint64_t>(rank.count) * bytes + 8;  // a word behind the messages
    ok(ucclEpMemAlloc(comm, &memory_[0], window_bytes), "ucclEpMemAlloc");
    ok(ucclEpMemAlloc(comm, &memory_[1], window_bytes), "ucclEpMemAlloc");
    register_windows(window_bytes);
    void* result = nullptr;
    ok(ucclEpMemAllocHost(comm, &result, 2 * sizeof(uint64_t)), "ucclEpMemAllocHost");
    args.result = static_cast<uint64_t*>(result);
    ok(ucclEpGroupGetDevice(group, &args.group), "ucclEpGroupGetDevice");
    args.bytes = bytes;
    args.absent = no_peer;
  }
  ~Channel() { forget_windows(); }

  void forget_windows() {
    for (ucclEpWindow_t& window : windows_) ucclEpWindowDeregister(comm, std::exchange(window, nullptr));
  }
  void renew_windows() {
    forget_windows();
    register_windows(args.in.bytes);
  }

  void launch(const std::string& kernel) {
    launch_user(handle, "channel_" + kernel, &args, sizeof args, stream, {.blocks = 2, .threads = 128});
  }
  void run(const std::string& kernel) {
    args.result[0] = args.result[1] = 0;
    launch(kernel);
    stream.synchronize();
    no_async_error(comm);
    require(args.result[0] == 0, kernel + ": " + std::to_string(args.result[0]) + " bytes are wrong");
    require(args.result[1] == 0, kernel + ": a wait gave up");
  }

  Comm comm;
  Group group;
  Handle handle;
  Stream stream;
  ChannelArgs args{};

 private:
  void register_windows(uint64_t bytes) {
    for (int i = 0; i < 2; ++i) {
      ok(ucclEpWindowRegister(comm, memory_[i], bytes, &windows_[i]), "ucclEpWindowRegister");
      ok(ucclEpWindowGetDevice(windows_[i], i == 0 ? &args.out : &args.in), "ucclEpWindowGetDevice");
    }
  }
  void* memory_[2] = {};
  ucclEpWindow_t windows_[2] = {};
};

// The record of a wrong call, which is gone then.
inline void left_record(Channel& channel, ucclEpResult_t code, const std::string& words) {
  const ucclEpAsyncError_t error = async_error(channel.comm);
  require(error.code == code && std::string(error.op) == "channel" &&
              std::string(error.text).find(words) != std::string::npos,
          std::string("a record of another kind: ") + error.text);
  ok(ucclEpCommClearAsyncError(channel.comm), "ucclEpCommClearAsyncError");
}

}  // namespace ucclep::test
