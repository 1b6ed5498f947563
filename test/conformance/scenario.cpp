// SPDX-License-Identifier: Apache-2.0
#include "conformance/scenario.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ucclep::test {
namespace {

// What a hash is for: no two kinds of content share their numbers.
enum Purpose : uint64_t {
  routing = 1,
  weight,
  second_weight,
  token_element,
  scale_element,
  combine_element,
  weight_row_element,
  bias_element,
  row_key,
  replica
};

uint64_t stir(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

float unit(uint64_t hash) {
  return static_cast<float>((hash >> 40) + 1) * 0x1p-25f;
}  // (0, 0.5]

// Some floating-point number of moderate size with random mantissa bits.
uint32_t moderate(uint64_t hash, int exponent_bits, int mantissa_bits) {
  const auto bits = static_cast<uint32_t>(hash);
  const uint32_t bias = (1u << (exponent_bits - 1)) - 1;
  const uint32_t exponent = bias - 3 + static_cast<uint32_t>(hash >> 40) % 7;
  const uint32_t sign = bits >> 31;
  return (sign << exponent_bits | exponent) << mantissa_bits | (bits & ((1u << mantissa_bits) - 1));
}

// For quantisation: the magnitude varies widely between blocks of 128, and some blocks are all zero.
uint16_t blocky_bf16(uint64_t block_hash, uint64_t hash) {
  if (block_hash % 8 == 0) return 0;
  const auto exponent = static_cast<uint16_t>(105 + block_hash % 32 + hash % 12);
  return static_cast<uint16_t>((hash >> 63) << 15 | exponent << 7 | (hash >> 20 & 0x7f));
}

}  // namespace

uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x = stir(a + 0x9e3779b97f4a7c15u);
  x = stir(x + b + 0x9e3779b97f4a7c15u);
  x = stir(x + c + 0x9e3779b97f4a7c15u);
  return stir(x + d + 0x9e3779b97f4a7c15u);
}

Rule uniform(int percent_dropped) {
  return [percent_dropped](const Scenario& scenario, uint64_t seed, int rank, int64_t token) {
    std::vector<int64_t> row;
    for (uint64_t attempt = 0; row.size() < static_cast<size_t>(scenario.top_k); ++attempt) {
      const uint64_t hash = mix(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(token), attempt);
      const auto expert = static_cast<int64_t>(hash % static_cast<uint64_t>(scenario.experts));
      if (static_cast<int>(hash >> 32) % 100 < percent_dropped && hash >> 63 == 0) {
        row.push_back(-1);
      } else if (std::find(row.begin(), row.end(), expert) == row.end()) {
        row.push_back(expert);
      }
    }
    return row;
  };
}

Rule only(std::vector<int64_t> experts) {
  return [experts = std::move(experts)](const Scenario&, uint64_t, int, int64_t) { return experts; };
}

Rule next_rank() {
  return [](const Scenario& scenario, uint64_t, int rank, int64_t token) {
    const int local = scenario.local_experts();
    const int64_t first = int64_t{(rank + 1) % scenario.ranks} * local;
    std::vector<int64_t> row;
    for (int j = 0; j < scenario.top_k; ++j) row.push_back(first + (token * scenario.top_k + j) % local);
    return row;
  };
}

Rule bad_ids() {
  return [](const Scenario& scenario, uint64_t seed, int rank, int64_t token) {
    std::vector<int64_t> row = uniform()(scenario, seed, rank, token);
    const uint64_t hash = mix(seed, 77, static_cast<uint64_t>(rank), static_cast<uint64_t>(token));
    if (row.size() > 1 && hash % 3 == 0) row.back() = row.front();
    if (hash % 5 == 0) row[hash / 16 % row.size()] = scenario.experts + static_cast<int64_t>(hash % 1000);
    if (hash % 7 == 0) row[hash / 16 % row.size()] = -2 - static_cast<int64_t>(hash % 1000);
    if (hash % 11 == 0) row[hash / 16 % row.size()] = INT32_MAX;
    return row;
  };
}

int64_t Scenario::scale_width() const {
  if (!scales) return 0;
  if (quant == UCCLEP_QUANT_NONE) return scales->width;
  return scales->dtype == ucclEpInt32 ? (hidden + 511) / 512 : hidden / 128;
}

int64_t Scenario::row_bytes() const {
  const auto element = static_cast<int64_t>(quant == UCCLEP_QUANT_NONE ? reference::element_bytes(dtype) : 1);
  const auto scale = static_cast<int64_t>(scales ? reference::element_bytes(scales->dtype) : 0);
  return hidden * element + scale_width() * scale;
}

std::vector<int> Scenario::node_of_ranks() const {
  if (nodes.empty()) return nodes_of_environment(ranks);
  std::vector<int> of;
  for (size_t node = 0; node < nodes.size(); ++node)
    of.insert(of.end(), static_cast<size_t>(nodes[node]), static_cast<int>(node));
  return of;
}

ucclEpGroupConfig_t group_config(const std::vector<Scenario>& scenarios) {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  for (const Scenario& scenario : scenarios) {
    config.num_experts = scenario.experts;
    config.top_k = std::max(config.top_k, scenario.top_k);
    config.max_tokens_per_rank =
        std::max(config.max_tokens_per_rank, scenario.round > 0 ? scenario.round : scenario.max_tokens);
    config.ll_max_tokens_per_rank = std::max(config.ll_max_tokens_per_rank, scenario.ll_max_tokens);
    config.max_recv_tokens_per_rank = scenario.max_recv;
    config.overflow = scenario.overflow;
    config.enable_mask = scenario.masked ? 1 : 0;
    config.num_logical_experts = scenario.maps.empty() ? 0 : scenario.logical_experts();
    config.replica_choice = scenario.nearest ? UCCLEP_REPLICA_NEAREST : UCCLEP_REPLICA_ROUND_ROBIN;
    const auto element = static_cast<int64_t>(reference::element_bytes(scenario.combine_dtype));
    config.max_token_bytes =
        std::max({config.max_token_bytes, scenario.row_bytes(), scenario.combined_hidden() * element});
  }
  return config;
}

ucclEpHandleConfig_t handle_config(const Scenario& scenario) {
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  config.mode = scenario.ll() ? UCCLEP_MODE_LL : UCCLEP_MODE_HT;
  config.layout = scenario.by_expert()                       ? UCCLEP_LAYOUT_EXPERT_MAJOR
                  : scenario.layout == Layout::ll_rank_major ? UCCLEP_LAYOUT_RANK_MAJOR
                                                             : UCCLEP_LAYOUT_FLAT;
  const bool padded = scenario.alignment > 1 && scenario.tile_rows == 0;
  config.expert_alignment = padded ? static_cast<int>(scenario.alignment) : 0;
  config.expert_ids = scenario.global_ids ? UCCLEP_EXPERT_IDS_GLOBAL : UCCLEP_EXPERT_IDS_LOCAL;
  config.waves = scenario.by_expert() ? scenario.waves : 0;
  if (scenario.tile_rows > 0) config.layout = UCCLEP_LAYOUT_TILES;
  config.tile_rows = scenario.tile_rows;
  if (scenario.round > 0 && !scenario.ll()) config.max_tokens = scenario.max_tokens;
  return config;
}

Scenario backward_of(Scenario scenario) {
  scenario.pass = UCCLEP_PASS_BACKWARD;
  scenario.weights = Weights::none;
  scenario.carried = false;
  scenario.biases = 0;
  return scenario;
}

std::vector<reference::ExpertMap> some_maps(const Scenario& scenario, int logical, uint64_t seed) {
  std::vector<reference::ExpertMap> maps;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    const auto draw = [&](uint64_t what, int number) {
      return mix(mix(Purpose::replica, seed), static_cast<uint64_t>(rank), what, static_cast<uint64_t>(number));
    };
    std::vector<int64_t> physical;
    for (int expert = 0; expert < scenario.experts; ++expert) physical.push_back(expert);
    std::sort(physical.begin(), physical.end(),
              [&](int64_t a, int64_t b) { return draw(0, static_cast<int>(a)) < draw(0, static_cast<int>(b)); });
    reference::ExpertMap map(static_cast<size_t>(logical));
    for (int i = 0; i < scenario.experts; ++i) {
      const uint64_t of = draw(1, i);
      const auto expert = i < logical ? static_cast<size_t>(i) : of / 5 % static_cast<size_t>(logical);
      if (i < logical || of % 5 != 0) map[expert].push_back(physical[static_cast<size_t>(i)]);
    }
    maps.push_back(map);
  }
  return maps;
}

Scenario pair_of_ranks(Layout layout) {
  return {.layout = layout, .ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 4};
}

Contents::Contents(const Scenario& scenario, uint64_t routing_seed, uint64_t data_seed)
    : scenario_(&scenario), data_seed_(data_seed), row_keys_(static_cast<size_t>(scenario.ranks)) {
  raw_ = {scenario.ranks, scenario.experts, {}};
  Scenario drawn = scenario;
  drawn.experts = scenario.logical_experts();
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    reference::Routing routing{scenario.tokens_of(rank), scenario.top_k, {}, {}};
    reference::Routing second = routing;
    for (int64_t token = 0; token < routing.tokens; ++token) {
      const auto row = scenario.rule(drawn, mix(Purpose::routing, routing_seed), rank, token);
      routing.experts.insert(routing.experts.end(), row.begin(), row.end());
      for (int j = 0; j < scenario.top_k; ++j) {
        const auto entry = static_cast<uint64_t>(token * scenario.top_k + j);
        routing.weights.push_back(unit(mix(Purpose::weight, data_seed, static_cast<uint64_t>(rank), entry)));
        second.weights.push_back(unit(mix(Purpose::second_weight, data_seed, static_cast<uint64_t>(rank), entry)));
      }
    }
    if (scenario.tile_rows > 0 && scenario.weights == Weights::none) {  // tiles are summed without, too
      std::fill(routing.weights.begin(), routing.weights.end(), 1.0f);
    }
    second.experts = routing.experts;
    raw_.rank.push_back(routing);
    const bool given = scenario.weights == Weights::with_combine || scenario.weights == Weights::with_both;
    combine_.push_back(given ? second : routing);
  }
  world_ = scenario.maps.empty() ? reference::cleaned(raw_) : mapped();
}

// Where ranks are in one domain each node is one.
reference::World Contents::mapped() const {
  if (!scenario_->nearest) return reference::mapped(raw_, scenario_->maps);
  return reference::mapped(raw_, scenario_->maps, [nodes = scenario_->node_of_ranks()](int rank, int other) {
    const auto node = [&](int of) { return nodes.empty() ? 0 : nodes[static_cast<size_t>(of)]; };
    if (rank == other) return reference::Distance::own;
    return node(rank) == node(other) ? reference::Distance::domain : reference::Distance::far;
  });
}

void Contents::leave_out(int rank, bool sends) {
  world_.absent.push_back(rank);
  if (!sends) world_.rank[static_cast<size_t>(rank)].tokens = 0;
  row_keys_.assign(row_keys_.size(), {});
}

void Contents::element(ucclEpDataType_t dtype, bool any_bits, uint64_t hash, uint8_t* out) const {
  auto bits = static_cast<uint32_t>(hash);
  if (!any_bits && dtype == ucclEpBfloat16) bits = moderate(hash, 8, 7);
  if (!any_bits && dtype == ucclEpFloat16) bits = moderate(hash, 5, 10);
  if (!any_bits && dtype == ucclEpFloat32) bits = moderate(hash, 8, 23);
  std::memcpy(out, &bits, reference::element_bytes(dtype));
}

std::vector<uint8_t> Contents::token(int rank, int64_t token) const {
  const size_t size = reference::element_bytes(scenario_->dtype);
  const uint64_t row =
      mix(Purpose::token_element, data_seed_, static_cast<uint64_t>(rank), static_cast<uint64_t>(token));
  std::vector<uint8_t> bytes(static_cast<size_t>(scenario_->hidden) * size);
  for (uint64_t column = 0; column < static_cast<uint64_t>(scenario_->hidden); ++column) {
    uint8_t* out = bytes.data() + column * size;
    if (scenario_->quant == UCCLEP_QUANT_NONE) {
      element(scenario_->dtype, scenario_->any_bits, stir(row + column), out);
    } else {
      const uint16_t bits = blocky_bf16(stir(row ^ (column / 128 << 32)), stir(row + column));
      std::memcpy(out, &bits, sizeof(bits));
    }
  }
  return bytes;
}

std::vector<uint8_t> Contents::scales(int rank, int64_t token) const {
  const size_t size = reference::element_bytes(scenario_->scales->dtype);
  const uint64_t row =
      mix(Purpose::scale_element, data_seed_, static_cast<uint64_t>(rank), static_cast<uint64_t>(token));
  std::vector<uint8_t> bytes(static_cast<size_t>(scenario_->scale_width()) * size);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(stir(row + i));
  return bytes;
}

Contents::Row Contents::received(int rank, int64_t token) const {
  const std::vector<uint8_t> sent = this->token(rank, token);
  if (scenario_->quant == UCCLEP_QUANT_NONE) {
    return {sent, scenario_->scales ? scales(rank, token) : std::vector<uint8_t>()};
  }
  Row row;
  const Scales& format = *scenario_->scales;
  row.scales.resize(static_cast<size_t>(scenario_->scale_width()) * reference::element_bytes(format.dtype));
  for (int64_t begin = 0; begin < scenario_->hidden; begin += 128) {
    std::vector<float> block;
    for (int64_t i = begin; i < std::min(begin + 128, scenario_->hidden); ++i) {
      block.push_back(reference::load(ucclEpBfloat16, sent.data() + 2 * i));
    }
    const reference::Quantized quantized = reference::quantize_block(block, scenario_->round_scale);
    row.bytes.insert(row.bytes.end(), quantized.values.begin(), quantized.values.end());
    // An int32 word holds four exponents, lowest byte first: in memory they are bytes in a row.
    const auto index = static_cast<size_t>(begin / 128);
    if (format.dtype == ucclEpFloat32) {
      std::memcpy(row.scales.data() + 4 * index, &quantized.scale, 4);
    } else {
      row.scales[index] = quantized.exponent;
    }
  }
  return row;
}

// Of a row of combine's input: whose it is, not where it lies. Of a rank that is lost, ranks may have received more or
// less, so what they send back lies elsewhere than a third one would think.
uint64_t Contents::row_key(int destination, int64_t row) const {
  std::vector<uint64_t>& keys = row_keys_[static_cast<size_t>(destination)];
  if (keys.empty()) {
    for (const reference::Slot& slot : placed(destination).slots) {
      const auto at = static_cast<size_t>(slot.row);
      if (at >= keys.size()) keys.resize(at + 1);
      keys[at] = mix(Purpose::row_key, static_cast<uint64_t>(slot.source), static_cast<uint64_t>(slot.token),
                     static_cast<uint64_t>(slot.expert) + 1);
    }
  }
  return keys.at(static_cast<size_t>(row));
}

float Contents::combine_input(int destination, int64_t row, int64_t column) const {
  uint8_t bytes[4];
  const uint64_t hash =
      mix(Purpose::combine_element, data_seed_, static_cast<uint64_t>(destination), row_key(destination, row));
  element(scenario_->combine_dtype, false, stir(hash + static_cast<uint64_t>(column)), bytes);
  return reference::load(scenario_->combine_dtype, bytes);
}

float Contents::bias(int which, int rank, int64_t token, int64_t column) const {
  uint8_t bytes[4];
  const uint64_t hash = mix(Purpose::bias_element + static_cast<uint64_t>(which), data_seed_,
                            static_cast<uint64_t>(rank), static_cast<uint64_t>(token));
  element(scenario_->combine_dtype, false, stir(hash + static_cast<uint64_t>(column)), bytes);
  return reference::load(scenario_->combine_dtype, bytes);
}

float Contents::weight_row(int destination, int64_t row, int k) const {
  uint8_t bytes[4];
  const uint64_t hash =
      mix(Purpose::weight_row_element, data_seed_, static_cast<uint64_t>(destination), row_key(destination, row));
  element(ucclEpFloat32, false, stir(hash + static_cast<uint64_t>(k)), bytes);
  return reference::load(ucclEpFloat32, bytes);
}

int64_t Contents::capacity(int rank) const {
  if (scenario_->fixed_capacity > 0) return scenario_->fixed_capacity;
  return std::max<int64_t>(0, placed(rank).total + scenario_->slack);
}

int64_t Contents::kept_rows(int rank) const {
  return scenario_->ll() ? INT64_MAX : std::min(capacity(rank), scenario_->limit());
}

reference::CombineProblem Contents::problem(int rank) const {
  reference::CombineProblem problem{&world_,
                                    scenario_->shape(),
                                    scenario_->combine_dtype,
                                    scenario_->combined_hidden(),
                                    {},
                                    {},
                                    {},
                                    &combine_[static_cast<size_t>(rank)],
                                    scenario_->node_of_ranks()};
  problem.input = [this](int destination, int64_t row, int64_t column) {
    return combine_input(destination, row, column);
  };
  for (int which = 0; which < scenario_->biases; ++which) {
    problem.biases.push_back(
        [this, which, rank](int64_t token, int64_t column) { return bias(which, rank, token, column); });
  }
  for (int destination = 0; destination < scenario_->ranks; ++destination) {
    problem.kept_rows.push_back(kept_rows(destination));
  }
  problem.weighted = scenario_->tile_rows > 0;
  problem.backward = scenario_->pass == UCCLEP_PASS_BACKWARD;
  problem.weight_row = [this](int destination, int64_t row, int k) { return weight_row(destination, row, k); };
  return problem;
}

std::vector<float> Contents::combined(int rank) const {
  return reference::combine(problem(rank), rank);
}

std::vector<float> Contents::combined_weights(int rank) const {
  return reference::combined_weights(problem(rank), rank);
}

}  // namespace ucclep::test
