// SPDX-License-Identifier: Apache-2.0
// Edges of the contract: descriptors that are gone after the call, entries that nobody fills, scales that do not fit,
// and sequence numbers past 32 bits.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "conformance/turns.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// A copy of a struct on the heap that is overwritten, and freed, when the call has returned.
template <class T>
class Fleeting {
 public:
  explicit Fleeting(const T& value) : copy_(new T(value)) {}
  Fleeting(const Fleeting&) = delete;
  Fleeting& operator=(const Fleeting&) = delete;
  ~Fleeting() {
    std::memset(static_cast<void*>(copy_), 0xa5, sizeof(T));
    delete copy_;
  }
  operator const T*() const { return copy_; }

 private:
  T* copy_;
};

TEST_CASE("C29 descriptors are copied during the call, wherever they lie", "[process][reduced]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario{.layout = layout, .ranks = 2, .experts = 4, .max_tokens = 6, .biases = 1};
    run_ranks(2, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group group = make_group(comm, *Fleeting(group_config({scenario})));
      Handle handle = make_handle(group, *Fleeting(handle_config(scenario)));
      Exchange exchange(rank, comm, scenario);
      ok(ucclEpHandleUpdate(handle, Fleeting(*exchange.topk_idx().get()), Fleeting(exchange.counters()), stream),
         "ucclEpHandleUpdate");
      {
        const Fleeting tokens(*exchange.dispatch_in.tokens);
        const Fleeting rows(*exchange.dispatch_out.tokens);
        exchange.dispatch_in.tokens = tokens;
        exchange.dispatch_out.tokens = rows;
        ok(ucclEpDispatch(handle, Fleeting(exchange.dispatch_in), Fleeting(exchange.dispatch_out),
                          Fleeting(exchange.dispatch_config), stream),
           "ucclEpDispatch");
      }
      {
        const Fleeting rows(*exchange.combine_in.tokens);
        exchange.combine_in.tokens = rows;
        ok(ucclEpCombine(handle, Fleeting(exchange.combine_in), Fleeting(exchange.combine_out),
                         Fleeting(exchange.combine_config), stream),
           "ucclEpCombine");
      }
      stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      exchange.check_combine();
    });
  }
}

TEST_CASE("C63 LL rank-major: of few tokens, and of none, every other entry is -1", "[process][reduced]") {
  Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 4, .experts = 8, .max_tokens = 8};
  scenario.idx = ucclEpInt32;
  std::vector<Scenario> all;
  const auto add = [&](int choices, int64_t tokens, Rule rule) {
    scenario.top_k = choices;
    scenario.tokens.assign(4, tokens);
    scenario.rule = std::move(rule);
    all.push_back(scenario);
  };
  add(1, 1, only({0}));
  add(1, 2, only({0}));
  add(1, 2, only({7}));
  add(2, 1, next_rank());
  add(2, 1, [](const Scenario&, uint64_t, int rank, int64_t) {  // one here, one next door
    return std::vector<int64_t>{rank * 2, (rank * 2 + 3) % 8};
  });
  add(1, 0, only({0}));
  run_all(all);
}

TEST_CASE("C76 scales that are missing, of no use, or of another shape", "[process][reduced]") {
  Scenario bytes{.layout = Layout::ht_flat, .ranks = 2, .experts = 4, .max_tokens = 4};
  bytes.dtype = ucclEpFloat8e4m3;
  bytes.scales = Scales{.dtype = ucclEpFloat32, .width = 2};
  for (const Layout layout : all_layouts) {
    bytes.layout = layout;
    run_ranks(2, [&](Rank& rank) {
      Session at(rank, bytes);
      Exchange exchange(rank, at.comm, bytes);
      exchange.update(at.handle, at.stream);
      const ucclEpTensor_t *in = exchange.dispatch_in.scales, *out = exchange.dispatch_out.scales;
      const auto is_refused = [&](const std::vector<std::string>& words) {
        refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", words);
        exchange.dispatch_in.scales = in;
        exchange.dispatch_out.scales = out;
      };
      exchange.dispatch_in.scales = nullptr;
      is_refused({"inputs.scales must not be NULL"});
      exchange.dispatch_out.scales = nullptr;
      is_refused({"outputs.scales must not be NULL"});
      ucclEpTensor_t other = *out;
      other.dtype = ucclEpBfloat16;
      exchange.dispatch_out.scales = &other;
      is_refused({"outputs.scales"});
      other = *in;
      other.sizes[1] = 1;
      exchange.dispatch_in.scales = &other;
      is_refused({"scales"});
      at.stream.synchronize();
      exchange.check_untouched();
      round_trip(rank, at.comm, at.handle, at.stream, bytes, 2);
    });
  }
}

TEST_CASE("C79 max_token_bytes need not be a multiple of 16", "[process]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    for (Scenario scenario : in_all_layouts({.ranks = 2, .experts = 4, .max_tokens = 5, .hidden = 64})) {
      ucclEpGroupConfig_t config = group_config({scenario});
      config.max_token_bytes += 3;
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      round_trip(rank, comm, handle, stream, scenario);
    }
  });
}

// ---- Sequence numbers ----

TEST_CASE("C61 operations go on past sequence numbers of 8, 16, 32 and 48 bits", "[reduced][modes]") {
  if (test_gpus() > 0) return skip_case("writes memory of the host device");
  for (const Layout layout : all_layouts) {
    const Scenario scenario{.layout = layout, .ranks = 3, .experts = 6, .max_tokens = 5, .hidden = 32};
    run_ranks(3, [&](Rank& rank) {
      Session at(rank, scenario);
      int word = 0;
      for (const int bits : reduced() ? std::vector{8, 32} : std::vector{8, 16, 32, 48}) {
        const auto meet = [&] {
          rank.board.add(word);
          rank.board.wait(word++, 3);
        };
        at.stream.synchronize();
        meet();
        set_sequences(at.group, (uint64_t{1} << bits) - 3);
        meet();
        for (uint64_t round = 0; round < 6; ++round) {
          round_trip(rank, at.comm, at.handle, at.stream, scenario, 10 * static_cast<uint64_t>(bits) + round);
        }
      }
      no_async_error(at.comm);
    });
  }
}

}  // namespace
}  // namespace ucclep::test
