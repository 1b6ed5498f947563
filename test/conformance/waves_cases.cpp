// SPDX-License-Identifier: Apache-2.0
// Waves of a handle: the rows of a dispatch in phases are had expert by expert.
#include <algorithm>
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "conformance/held_back.hpp"
#include "conformance/late_stores.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// One expert has most of it, some have nothing.
Rule skewed() {
  return [](const Scenario& s, uint64_t seed, int rank, int64_t token) {
    std::vector<int64_t> experts(static_cast<size_t>(s.top_k), -1);
    for (size_t k = 0; k < experts.size(); ++k) {
      const uint64_t draw = mix(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(token), k);
      const int64_t expert = static_cast<int64_t>(draw % static_cast<uint64_t>(s.experts));
      const int64_t chosen = draw % 3 == 0 ? s.experts - 1 : draw % 7 == 0 ? -1 : expert / 3 * 2;
      if (std::find(experts.begin(), experts.end(), chosen) == experts.end()) experts[k] = chosen;
    }
    return experts;
  };
}

void complete_wave(ucclEpHandle_t handle, int wave, ucclEpStream_t stream) {
  ok(ucclEpCompleteWave(handle, wave, stream), "ucclEpCompleteWave");
}

void complete_rest(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(ucclEpComplete(handle, stream), "ucclEpComplete");
}

int waves_of(const Scenario& scenario) {
  return std::max(1, scenario.waves);
}

void begin_waves(Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.dispatch_config.send_only = 1;
  if (!exchange.scenario().carried) exchange.update(handle, stream);
  exchange.dispatch(handle, stream);
}

// Each rank leaves out waves of its own, and some the rest.
void wave_by_wave(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
                  uint64_t seed) {
  Exchange exchange(rank, comm, scenario, seed);
  begin_waves(exchange, handle, stream);
  const uint64_t asked = seed % 3 == 0 ? ~uint64_t{0} : mix(seed, static_cast<uint64_t>(rank.rank));
  for (int wave = 0; wave < waves_of(scenario); ++wave) {
    if ((asked >> wave & 1) == 0) continue;
    complete_wave(handle, wave, stream);
    stream.synchronize();
    exchange.check_waves(wave + 1);
  }
  complete_rest(handle, stream);
  stream.synchronize();
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.check_combine();
}

void wave_done(ucclEpHandle_t handle, int wave, ucclEpStream_t stream) {
  ok(ucclEpWaveDone(handle, wave, stream), "ucclEpWaveDone");
}

// Experts work on a wave while later ones come, and its rows leave; some ranks leave the end to ucclEpComplete.
void there_and_back_by_waves(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                             const Scenario& scenario, uint64_t seed) {
  Exchange exchange(rank, comm, scenario, seed);
  const int waves = waves_of(scenario), left = static_cast<int>(mix(seed, static_cast<uint64_t>(rank.rank)) % 3);
  if (scenario.pass == UCCLEP_PASS_FORWARD) {
    begin_waves(exchange, handle, stream);
  } else {
    exchange.dispatch_config.send_only = 1;
    exchange.dispatch(handle, stream);
  }
  exchange.combine_config.send_only = 1;
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.hide_rows_back();
  for (int wave = 0; wave < waves; ++wave) {
    if (wave >= waves - left) {
      stream.synchronize();
      exchange.make_rows_back(wave);
      continue;
    }
    complete_wave(handle, wave, stream);
    stream.synchronize();
    exchange.check_waves(wave + 1);
    exchange.make_rows_back(wave);
    wave_done(handle, wave, stream);
  }
  complete_rest(handle, stream);
  stream.synchronize();
  exchange.check_dispatch();
  exchange.check_combine();
}

void run_waves(const std::vector<Scenario>& scenarios, int rounds = 1) {
  run_each(
      scenarios,
      [](const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
         uint64_t seed) {
        wave_by_wave(rank, comm, handle, stream, scenario, seed);
        if (scenario.waves > 1) there_and_back_by_waves(rank, comm, handle, stream, scenario, seed + 50);
        round_trip(rank, comm, handle, stream, scenario, seed + 100);  // whole operations of the same handle
      },
      rounds);
}

// By experts. In LL rows of the first travel as lines where these arrive whole, others in bulk.
std::vector<Scenario> in_waves(Scenario scenario) {
  std::vector<Scenario> all;
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_expert_major}) {
    all.push_back(scenario);
    all.back().layout = layout;
    if (layout == Layout::ll_expert_major) all.back().alignment = 1;
  }
  return all;
}

std::vector<Scenario> in_lines(int waves) {
  return in_waves({.experts = 16,
                   .top_k = 4,
                   .max_tokens = 11,
                   .hidden = 72,
                   .alignment = 4,
                   .waves = waves,
                   .rule = uniform(20),
                   .seed = 701});
}
std::vector<Scenario> in_bulk(int waves) {
  return in_waves({.experts = 20, .top_k = 6, .max_tokens = 14, .hidden = 1024, .waves = waves, .seed = 711});
}

TEST_CASE("waves: rows of one after the other", "[waves][process][reduced][driver][checked][nodes][modes]") {
  run_waves(in_lines(3), 3);
  if (!reduced()) run_waves(in_lines(32), 3);
}

TEST_CASE("waves: rows that travel in bulk", "[waves][process][reduced][nodes][modes]") {
  run_waves(in_bulk(4), 3);
}

TEST_CASE("waves: of other numbers", "[waves][nodes][long]") {
  for (const int waves : {1, 2, 4, 5, 8, 32}) {
    run_waves(in_lines(waves), 3);
    run_waves(in_bulk(waves), 3);
  }
}

TEST_CASE("waves: one expert has most rows, ranks have none", "[waves][nodes]") {
  for (const int64_t hidden : {64, 1024}) {
    run_waves(in_waves({.experts = 28,
                        .top_k = 5,
                        .max_tokens = 40,
                        .tokens = {0, 40, 17, 0},
                        .hidden = hidden,
                        .waves = 3,
                        .rule = skewed(),
                        .seed = 720}),
              3);
  }
}

TEST_CASE("waves: of many tokens and experts", "[waves][nodes][long]") {
  run_waves(in_waves({.experts = 1024, .top_k = 8, .max_tokens = 400, .hidden = 64, .waves = 7, .seed = 725}), 2);
}

TEST_CASE("waves: quantised on the way, and bytes with scales", "[waves][driver][nodes]") {
  for (const int64_t hidden : {256, 1024}) {
    run_waves(in_waves({.experts = 16,
                        .top_k = 3,
                        .max_tokens = 12,
                        .hidden = hidden,
                        .scales = Scales{},
                        .quant = UCCLEP_QUANT_FP8_128,
                        .waves = 3,
                        .seed = 730}));
    run_waves(in_waves({.experts = 16,
                        .top_k = 3,
                        .max_tokens = 12,
                        .hidden = hidden,
                        .dtype = ucclEpFloat8e4m3,
                        .scales = Scales{.width = 4},
                        .waves = 2,
                        .carried = true,
                        .strided = true,
                        .seed = 731}));
  }
}

TEST_CASE("waves: weights that come with combine", "[waves][reduced][driver][nodes]") {
  for (const int64_t hidden : {64, 1024}) {
    run_waves({{.layout = Layout::ll_expert_major,
                .experts = 16,
                .top_k = 4,
                .max_tokens = 12,
                .hidden = hidden,
                .weights = Weights::with_combine,
                .biases = 1,
                .waves = 4,
                .seed = 735}},
              2);
  }
}

TEST_CASE("waves: in a group with masks, and in rounds, all at once", "[waves][driver][nodes]") {
  Scenario masked{.experts = 16, .top_k = 3, .max_tokens = 12, .hidden = 72, .waves = 3, .seed = 736};
  masked.masked = true;
  masked.nodes = {masked.ranks};  // sums are those of one node, wherever the ranks are
  run_waves(in_waves(masked), 2);
  masked.weights = Weights::with_combine;
  run_waves({in_waves(masked).front()});
  if (std::getenv("UCCLEP_TEST_RANKS_PER_NODE") != nullptr) return;  // one round there
  run_waves({{.layout = Layout::ht_expert_major,
              .experts = 16,
              .top_k = 3,
              .max_tokens = 23,
              .round = 5,
              .hidden = 72,
              .waves = 3,
              .seed = 737}},
            2);
}

TEST_CASE("waves: the backward pass", "[waves][driver][nodes]") {
  for (const Scenario& scenario :
       in_waves({.experts = 16, .top_k = 3, .max_tokens = 11, .hidden = 72, .waves = 3, .seed = 740})) {
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      there_and_back(rank, at.comm, at.handle, at.stream, scenario, scenario.seed);
      there_and_back_by_waves(rank, at.comm, at.handle, at.stream, scenario, scenario.seed);
      there_and_back_by_waves(rank, at.comm, at.handle, at.stream, backward_of(scenario), scenario.seed);
      there_and_back_by_waves(rank, at.comm, at.handle, at.stream, backward_of(scenario), scenario.seed);
    });
  }
}

// ---- What peers hold back ----

// The wave of a token's row at a rank.
int wave_at(const Contents& contents, const Scenario& scenario, int source, int64_t token, int rank) {
  int lowest = scenario.local_experts();
  for (const reference::Slot& slot : contents.kept(rank).slots) {
    if (slot.source == source && slot.token == token) lowest = std::min(lowest, slot.expert);
  }
  return lowest * scenario.waves / scenario.local_experts();
}

// A mechanism that waited for all rows would end with a timeout here. [host], as the next: the case reads windows.
TEST_CASE("waves: the first is there while peers hold back the others", "[waves][host][process]") {
  const Scenario shape{.experts = 16, .top_k = 3, .max_tokens = 12, .hidden = 1024, .waves = 4, .seed = 750};
  std::vector<Scenario> scenarios = in_waves(shape);
  scenarios.push_back(scenarios.front());
  scenarios.back().hidden = 64;  // in lines
  for (const Scenario& scenario : scenarios) {
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 20000);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      begin_waves(exchange, at.handle, at.stream);
      at.stream.synchronize();
      masked::meet(rank, 0);  // all rows of all ranks are here
      for (const int first : {1, 3}) {
        HeldBack held(device_group(at.group), scenario, [&](int source, int64_t token) {
          return wave_at(exchange.contents(), scenario, source, token, rank.rank) >= first;
        });
        complete_wave(at.handle, first - 1, at.stream);
        at.stream.synchronize();
        exchange.check_waves(first);
        held.let_go();
      }
      complete_rest(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      no_async_error(at.comm);
    });
  }
}

// The epochs of the group's first combine that say of partial rows at this rank, of one part each, that they are here.
int64_t rows_back(const ucclEpDeviceGroup& group) {
  const uint32_t slot = group.shape.slot_of(1);
  int64_t here = 0;
  for (uint32_t source = 0; source < group.shape.ranks; ++source) {
    const uint64_t words = group.layout.back_epochs_of(slot, source);
    for (uint64_t i = 0; i < group.layout.back_words / 8; ++i) {
      here += __atomic_load_n(words_at(group, group.rank, words + 8 * i), __ATOMIC_ACQUIRE) == 1 ? 1 : 0;
    }
  }
  return here;
}

TEST_CASE("waves: partial rows leave with the wave of their highest expert", "[waves][host][process]") {
  const Scenario scenario{.layout = Layout::ll_expert_major,
                          .experts = 16,
                          .top_k = 3,
                          .max_tokens = 12,
                          .hidden = 1024,
                          .waves = 4,
                          .seed = 755};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 20000);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    const Contents& contents = exchange.contents();
    std::vector<int64_t> expected(4, 0);  // partial rows here after each wave
    for (int of = 0; of < scenario.ranks; ++of) {
      std::vector<int> highest(static_cast<size_t>(scenario.tokens_of(rank.rank)), -1);
      for (const reference::Slot& slot : contents.kept(of).slots) {
        if (slot.source != rank.rank) continue;
        int& expert = highest[static_cast<size_t>(slot.token)];
        expert = std::max(expert, slot.expert);
      }
      for (const int expert : highest) {
        for (int wave = 0; wave < 4 && expert >= 0; ++wave) expected[static_cast<size_t>(wave)] += expert <= wave;
      }
    }
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    exchange.combine_config.send_only = 1;
    exchange.combine(at.handle, at.stream);
    for (int wave = 0; wave < 4; ++wave) {
      wave_done(at.handle, wave, at.stream);
      at.stream.synchronize();
      masked::meet(rank, 2 * wave);
      const int64_t here = rows_back(device_group(at.group));
      require(here == expected[static_cast<size_t>(wave)], "after wave " + std::to_string(wave) + " rank " +
                                                               std::to_string(rank.rank) + " has " +
                                                               std::to_string(here) + " partial rows, expected " +
                                                               std::to_string(expected[static_cast<size_t>(wave)]));
      masked::meet(rank, 2 * wave + 1);
    }
    complete_rest(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
  });
}

TEST_CASE("waves: a whole combine ends the dispatch, and other handles go on meanwhile", "[waves][process][nodes]") {
  for (const Scenario& scenario :
       in_waves({.experts = 16, .top_k = 3, .max_tokens = 12, .hidden = 72, .waves = 4, .seed = 757})) {
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Handle other = make_handle(at.group, handle_config(scenario));
      Exchange exchange(rank, at.comm, scenario, scenario.seed), second(rank, at.comm, scenario, scenario.seed + 1);
      begin_waves(exchange, at.handle, at.stream);
      complete_wave(at.handle, 0, at.stream);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
      complete_rest(at.handle, at.stream);  // nothing is pending

      exchange.refresh(5);
      exchange.dispatch(at.handle, at.stream);
      exchange.combine_config.send_only = 1;
      exchange.combine(at.handle, at.stream);
      second.update(other, at.stream);
      second.dispatch(other, at.stream);
      second.combine(other, at.stream);
      for (int wave = 0; wave < scenario.waves; ++wave) {
        complete_wave(at.handle, wave, at.stream);
        wave_done(at.handle, wave, at.stream);
      }
      complete_rest(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
      second.check_all();
      no_async_error(at.comm);
    });
  }
}

// ---- Calls ----

TEST_CASE("waves: calls that are refused", "[waves][process][driver]") {
  const Scenario scenario{
      .layout = Layout::ll_expert_major, .experts = 16, .top_k = 3, .max_tokens = 9, .waves = 4, .seed = 760};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const auto is_refused = [&](ucclEpResult_t code, int wave, const std::vector<std::string>& words) {
      refused(ucclEpCompleteWave(at.handle, wave, at.stream), code, "ucclEpCompleteWave", words);
    };
    is_refused(ucclEpInvalidUsage, 0, {"no dispatch pending", "send_only"});
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    begin_waves(exchange, at.handle, at.stream);
    is_refused(ucclEpInvalidArgument, -1, {"wave is -1, expected 0 to 3"});
    is_refused(ucclEpInvalidArgument, 4, {"wave is 4, expected 0 to 3"});
    complete_wave(at.handle, 1, at.stream);
    is_refused(ucclEpInvalidUsage, 1, {"wave is 1", "ascending"});
    is_refused(ucclEpInvalidUsage, 0, {"wave is 0", "ascending"});
    complete_wave(at.handle, 3, at.stream);
    is_refused(ucclEpInvalidUsage, 3, {"no dispatch pending"});
    const auto is_not_done = [&](ucclEpResult_t code, int wave, const std::vector<std::string>& words) {
      refused(ucclEpWaveDone(at.handle, wave, at.stream), code, "ucclEpWaveDone", words);
    };
    is_not_done(ucclEpInvalidUsage, 0, {"no pending combine", "send_only"});
    exchange.combine_config.send_only = 1;
    exchange.combine(at.handle, at.stream);
    refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpCombine", {"combine", "pending"});
    is_not_done(ucclEpInvalidArgument, 4, {"wave is 4, expected 0 to 3"});
    is_not_done(ucclEpInvalidUsage, 1, {"wave is 1", "0 of 4 waves", "ascending"});
    wave_done(at.handle, 0, at.stream);
    is_not_done(ucclEpInvalidUsage, 0, {"wave is 0", "1 of 4 waves"});
    complete_rest(at.handle, at.stream);
    is_not_done(ucclEpInvalidUsage, 1, {"no pending combine"});
    at.stream.synchronize();
    exchange.check_all();

    exchange.refresh(3);
    exchange.dispatch(at.handle, at.stream);
    exchange.combine(at.handle, at.stream);
    is_not_done(ucclEpInvalidUsage, 0, {"wave 0 of the pending dispatch is not complete", "ucclEpCompleteWave"});
    refused(exchange.try_update(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpHandleUpdate", {"pending"});
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"pending"});
    complete_rest(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_dispatch();
    exchange.check_combine();

    ucclEpHandleConfig_t config = handle_config(scenario);
    const auto is_no_handle = [&](const std::vector<std::string>& words) {
      ucclEpHandle_t handle = nullptr;
      refused(ucclEpHandleCreate(&handle, at.group, &config), ucclEpInvalidArgument, "ucclEpHandleCreate", words);
      config = handle_config(scenario);
    };
    config.waves = -1;
    is_no_handle({"config.waves is -1, expected 0 to 32"});
    config.waves = 33;
    is_no_handle({"config.waves is 33, expected 0 to 32"});
    for (const auto& [mode, layout] :
         {std::pair{UCCLEP_MODE_LL, UCCLEP_LAYOUT_RANK_MAJOR}, std::pair{UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT}}) {
      config.mode = mode;
      config.layout = layout;
      is_no_handle({"config.waves is 4", "EXPERT_MAJOR"});
    }
    masked::meet(rank, 0);
  });
}

TEST_CASE("waves: ranks that differ end without a row", "[waves][process]") {
  run_ranks(4, [&](Rank& rank) {
    Scenario scenario{
        .layout = Layout::ll_expert_major, .experts = 16, .top_k = 3, .max_tokens = 9, .waves = 4, .seed = 765};
    if (rank.rank == 2) scenario.waves = 2;
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    begin_waves(exchange, at.handle, at.stream);
    complete_wave(at.handle, 0, at.stream);
    complete_rest(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_untouched();
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(error.code == ucclEpInvalidArgument && std::string(error.text).find("waves") != std::string::npos,
            error.text);
  });
}

}  // namespace
}  // namespace ucclep::test
