// SPDX-License-Identifier: Apache-2.0
// Many operations of two groups on two streams, with another number of tokens on each rank from one to the next. Every
// output is poisoned on the stream before its operation, and compared in every bit after it.
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int groups = 2, variants = 5;  // slots of a group are used again after 2 operations: by another variant

// An output tensor, its poison, and what it must hold in the end, all without a copy to pageable memory.
class Watched {
 public:
  Watched(ucclEpComm_t comm, Tensor& output)
      : comm_(comm),
        output_(*output.get()),
        bytes_(static_cast<size_t>(output.rows() * output.columns()) * reference::element_bytes(output.dtype())),
        poison_(comm, "poison", output.dtype(), output.sizes()) {
    if (bytes_ == 0) return;
    void* host = nullptr;
    ok(ucclEpMemAllocHost(comm, &host, bytes_), "ucclEpMemAllocHost");
    host_.reset(static_cast<char*>(host));
  }
  void poison(ucclEpStream_t stream) { copy(output_.data, poison_.get()->data, stream); }
  void fetch(ucclEpStream_t stream) { copy(host_.get(), output_.data, stream); }
  // What was fetched is right.
  void learn() { expected_.assign(host_.get(), host_.get() + bytes_); }
  void check(const std::string& when) const {
    if (bytes_ == 0 || std::memcmp(host_.get(), expected_.data(), bytes_) == 0) return;
    size_t at = 0;
    while (host_.get()[at] == expected_[at]) ++at;
    throw Failure(when + ": byte " + std::to_string(at) + " of " + std::to_string(bytes_) + " is wrong");
  }

 private:
  void copy(void* to, const void* from, ucclEpStream_t stream) {
    ok(ucclEpMemcpy(comm_, to, from, bytes_, stream), "ucclEpMemcpy");
  }
  struct Free {
    ucclEpComm_t comm = nullptr;
    void operator()(char* memory) const {
      if (std::uncaught_exceptions() == 0) ucclEpMemFreeHost(comm, memory);
    }
  };
  ucclEpComm_t comm_;
  const ucclEpTensor_t output_;
  const size_t bytes_;
  Tensor poison_;
  std::unique_ptr<char, Free> host_{nullptr, Free{comm_}};
  std::vector<char> expected_;
};

// An exchange on a handle, to be repeated.
class Repeated {
 public:
  Repeated(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
           uint64_t seed)
      : handle_(handle),
        exchange_(rank, comm, scenario, seed),
        dispatched_(comm, exchange_.tokens_out()),
        combined_(comm, exchange_.combined()) {
    enqueue(stream);
    stream.synchronize();
    exchange_.check_counters();
    exchange_.check_dispatch();
    exchange_.check_combine();
    dispatched_.learn();
    combined_.learn();
  }
  void enqueue(ucclEpStream_t stream) {
    dispatched_.poison(stream);
    combined_.poison(stream);
    if (!exchange_.scenario().carried) exchange_.update(handle_, stream);
    exchange_.dispatch(handle_, stream);
    exchange_.combine(handle_, stream);
    dispatched_.fetch(stream);
    combined_.fetch(stream);
  }
  void check(const std::string& when) const {
    dispatched_.check(when + ", dispatch");
    combined_.check(when + ", combine");
  }

 private:
  ucclEpHandle_t handle_;
  Exchange exchange_;
  Watched dispatched_, combined_;
};

Scenario variant(Layout layout, int which) {
  Scenario scenario{.layout = layout, .experts = 16, .top_k = 3, .max_tokens = 40, .hidden = 512};
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    scenario.tokens.push_back(
        static_cast<int64_t>(mix(static_cast<uint64_t>(which), static_cast<uint64_t>(rank)) % 41));
  }
  scenario.carried = scenario.ll();
  scenario.rule = uniform(10);
  return scenario;
}

// A group with a handle of each mode, whose operations alternate between the streams.
struct Lane {
  Lane(const Rank& rank, ucclEpComm_t comm, Stream& stream, int index) : event(comm) {
    constexpr Layout layouts[groups][2] = {{Layout::ll_expert_major, Layout::ht_flat},
                                           {Layout::ht_expert_major, Layout::ll_rank_major}};
    ucclEpGroupConfig_t config = group_config({variant(layouts[index][0], 0), variant(layouts[index][1], 0)});
    config.num_sms = 16;  // both groups run at once: together they have to fit on any GPU
    group = make_group(comm, config);
    for (const Layout layout : layouts[index]) {
      handles.push_back(make_handle(group, handle_config(variant(layout, 0))));
      for (int v = 0; v < variants; ++v) {
        const auto seed = static_cast<uint64_t>(100 * index + 10 * v + 1);
        exchanges.emplace_back(rank, comm, handles.back(), stream, variant(layout, v), seed);
      }
    }
  }
  Repeated& at(unsigned iteration) { return exchanges[iteration * 7 % exchanges.size()]; }

  Group group;
  std::deque<Handle> handles;
  std::deque<Repeated> exchanges;
  Event event;  // the end of the group's operations so far
};

TEST_CASE("stress: two groups alternate between two streams", "[driver][process][stress]") {
  run_ranks(4, {.seconds = 130}, [&](Rank& rank) {
    Comm comm(rank);
    Stream streams[2] = {Stream(comm), Stream(comm)};
    std::deque<Lane> lanes;
    for (int g = 0; g < groups; ++g) lanes.emplace_back(rank, comm, streams[0], g);
    const unsigned count = iterations(reduced() ? 4 : 20);
    for (unsigned i = 0; i < count; ++i) {
      for (unsigned g = 0; g < groups; ++g) {
        Stream& stream = streams[(i + g) % 2];
        if (i > 0) ok(ucclEpStreamWaitEvent(comm, stream, lanes[g].event), "ucclEpStreamWaitEvent");
        lanes[g].at(i).enqueue(stream);
        ok(ucclEpEventRecord(comm, lanes[g].event, stream), "ucclEpEventRecord");
      }
      for (Stream& stream : streams) stream.synchronize();
      for (unsigned g = 0; g < groups; ++g) {
        lanes[g].at(i).check("iteration " + std::to_string(i) + " of group " + std::to_string(g));
      }
    }
    no_async_error(comm);
  });
}

}  // namespace
}  // namespace ucclep::test
