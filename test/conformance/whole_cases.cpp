// SPDX-License-Identifier: Apache-2.0
#include "conformance/exchange.hpp"

#include <algorithm>

namespace ucclep::test {
namespace {

ucclEpGroupConfig_t limited(ucclEpGroupConfig_t config, int timeout_ms) {
  config.timeout_ms = timeout_ms;
  return config;
}

int64_t most_copies(const reference::ExpertMap& map) {
  size_t most = 1;
  for (const std::vector<int64_t>& copies : map) most = std::max(most, copies.size());
  return static_cast<int64_t>(most);
}

}  // namespace

MapTensors::MapTensors(ucclEpComm_t comm, const reference::ExpertMap& map, int64_t extra)
    : physical(comm, "logical_to_physical", ucclEpInt32, {static_cast<int64_t>(map.size()), most_copies(map) + extra}),
      copies(comm, "copies", ucclEpInt32, {static_cast<int64_t>(map.size())}) {
  fill(map);
}

void MapTensors::fill(const reference::ExpertMap& map) {
  for (size_t expert = 0; expert < map.size(); ++expert) {
    const auto count = static_cast<int64_t>(map[expert].size());
    copies.set_integer(0, static_cast<int64_t>(expert), count);
    for (int64_t c = 0; c < physical.columns(); ++c) {
      physical.set_integer(static_cast<int64_t>(expert), c, c < count ? map[expert][static_cast<size_t>(c)] : -1);
    }
  }
  physical.upload();
  copies.upload();
}

ucclEpResult_t MapTensors::try_set(ucclEpGroup_t group, ucclEpStream_t stream) const {
  return ucclEpGroupSetExpertMap(group, physical.get(), copies.get(), stream);
}

void MapTensors::set(ucclEpGroup_t group, ucclEpStream_t stream) const {
  ok(try_set(group, stream), "ucclEpGroupSetExpertMap");
}

void set_map(const Rank& rank, ucclEpComm_t comm, ucclEpGroup_t group, Stream& stream, const Scenario& scenario) {
  if (scenario.maps.empty()) return;
  const MapTensors map(comm, scenario.maps[static_cast<size_t>(rank.rank)]);
  map.set(group, stream);
  stream.synchronize();
}

Session::Session(const Rank& rank, const Scenario& scenario, int timeout_ms)
    : Session(rank, comm_config(rank), scenario, timeout_ms) {}

Session::Session(const Rank& rank, const ucclEpCommConfig_t& config, const Scenario& scenario, int timeout_ms)
    : comm(rank, config),
      group(make_group(comm, limited(group_config({scenario}), timeout_ms))),
      handle(make_handle(group, handle_config(scenario))),
      stream(comm) {
  set_map(rank, comm, group, stream, scenario);
}

void round_trip(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
                uint64_t routing_seed) {
  Exchange exchange(rank, comm, scenario, routing_seed);
  if (!scenario.carried) exchange.update(handle, stream);
  exchange.dispatch(handle, stream);
  stream.synchronize();
  if (scenario.tile_rows > 0) exchange.take_places(handle);
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.check_combine();
}

void there_and_back(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                    const Scenario& scenario, uint64_t routing_seed) {
  round_trip(rank, comm, handle, stream, scenario, routing_seed);
  Exchange gradients(rank, comm, backward_of(scenario), routing_seed);
  gradients.refresh(routing_seed + 1000);
  gradients.dispatch(handle, stream);
  stream.synchronize();
  if (scenario.tile_rows > 0) gradients.take_places(handle);
  gradients.check_dispatch();
  gradients.combine(handle, stream);
  stream.synchronize();
  gradients.check_combine();
}

std::vector<Scenario> in_all_layouts(const Scenario& scenario) {
  std::vector<Scenario> scenarios;
  for (const Layout layout : all_layouts) {
    scenarios.push_back(scenario);
    scenarios.back().layout = layout;
    if (layout != Layout::ht_expert_major) scenarios.back().alignment = 1;  // the others have no zones to pad
  }
  return scenarios;
}

std::vector<Scenario> trained(const Scenario& scenario) {
  std::vector<Scenario> scenarios = in_all_layouts(scenario);
  std::erase_if(scenarios, [](const Scenario& one) { return one.layout == Layout::ll_rank_major; });
  return scenarios;
}

void run_each(const std::vector<Scenario>& scenarios, const Trip& trip, int rounds) {
  run_ranks(scenarios.front().ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    for (size_t i = 0; i < scenarios.size(); ++i) {
      try {
        Group group = make_group(comm, group_config({scenarios[i]}));
        Handle handle = make_handle(group, handle_config(scenarios[i]));
        set_map(rank, comm, group, stream, scenarios[i]);
        for (int round = 0; round < rounds; ++round) {
          trip(rank, comm, handle, stream, scenarios[i], scenarios[i].seed + static_cast<uint64_t>(round));
        }
        no_async_error(comm);
      } catch (const Failure& failure) {
        throw Failure("scenario " + std::to_string(i) + ": " + failure.what());
      }
    }
  });
}

void run_all(const std::vector<Scenario>& scenarios) {
  run_each(scenarios, round_trip);
}

void run(const Scenario& scenario, int rounds) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (int round = 0; round < rounds; ++round) {
      round_trip(rank, at.comm, at.handle, at.stream, scenario, scenario.seed + static_cast<uint64_t>(round));
    }
    no_async_error(at.comm);
  });
}

}  // namespace ucclep::test
