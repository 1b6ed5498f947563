// SPDX-License-Identifier: Apache-2.0
// One case of the conformance suite as data: the shape of the world, what each rank sends, and what it asks for. All
// contents are functions of a seed, so that every rank knows what every other rank has sent.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reference/numeric.hpp"
#include "reference/reference.hpp"
#include "support/ep.hpp"

namespace ucclep::test {

using reference::Layout;

// A hash of up to four numbers: the source of all contents.
uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0);

enum class Weights { none, with_dispatch, with_combine, with_both };

// Scales that travel with bytes, or that quantisation makes.
struct Scales {
  ucclEpDataType_t dtype = ucclEpFloat32;
  int64_t width = 1;     // of bytes; quantisation knows its own
  bool columns = false;  // column-major: the rows are contiguous
};

struct Scenario;
// The experts of one token; k entries.
using Rule = std::function<std::vector<int64_t>(const Scenario&, uint64_t seed, int rank, int64_t token)>;

Rule uniform(int percent_dropped = 0);    // distinct experts
Rule only(std::vector<int64_t> experts);  // every token the same
Rule next_rank();                         // the experts of the rank after one's own, in turn
Rule bad_ids();                           // some out of range, some twice

struct Scenario {
  Layout layout = Layout::ht_flat;
  int ranks = 4;
  int experts = 8;
  int top_k = 2;
  int max_tokens = 8;
  int ll_max_tokens = 0;
  int round = 0;                     // HT: the group's max_tokens_per_rank; 0: max_tokens, which is then the handle's
  std::vector<int64_t> tokens = {};  // of each rank; empty: all that are allowed
  int64_t hidden = 64;               // storage elements
  ucclEpDataType_t dtype = ucclEpBfloat16;
  ucclEpDataType_t combine_dtype = ucclEpBfloat16;
  int64_t combine_hidden = 0;  // 0: as hidden
  bool any_bits = false;       // tokens with NaN and infinity in them
  std::optional<Scales> scales = {};
  int quant = UCCLEP_QUANT_NONE;
  bool round_scale = false;
  Weights weights = Weights::with_dispatch;
  int biases = 0;
  int pass = UCCLEP_PASS_FORWARD;
  bool weight_rows = true;  // backward: rows of weights go back with combine
  int64_t alignment = 1;
  bool global_ids = false;
  int waves = 0;  // of the handle, in expert-major layouts
  // EXPERT_MAJOR: the handle's layout is TILES; rows of the reference count as in EXPERT_MAJOR. HT: also the alignment.
  int tile_rows = 0;
  ucclEpDataType_t idx = ucclEpInt64;
  ucclEpDataType_t idx_out = ucclEpInt32;
  ucclEpDataType_t counter = ucclEpInt32;
  ucclEpDataType_t src_info = ucclEpInt64;
  bool offsets_with_total = false;
  bool carried = false;        // topk_idx comes with dispatch, without an update
  int64_t slack = 3;           // HT: rows of the output tensors beyond N; below zero: too few
  int64_t fixed_capacity = 0;  // HT: rows of the output tensors, whatever N is
  int64_t max_recv = 0;        // the group's limit of rows received, which HT keeps; 0: none
  int overflow = UCCLEP_OVERFLOW_ERROR;
  bool strided = false;  // rows of token tensors lie further apart than they are long
  Memory memory = Memory::device;
  int num_sms = 0;
  Rule rule = uniform();
  uint64_t seed = 1;
  std::vector<int> nodes = {};  // ranks of each, of which sums are made; empty: as the environment has them
  bool masked = false;          // the group has enable_mask
  // The expert map of each rank (set_maps): the rule draws logical experts. Empty: none has one.
  std::vector<reference::ExpertMap> maps = {};
  bool nearest = false;  // tokens take the nearest copies

  bool ll() const { return reference::is_ll(layout); }
  bool by_expert() const { return reference::is_by_expert(layout); }
  int64_t max_rows() const { return ll() && ll_max_tokens > 0 ? ll_max_tokens : max_tokens; }  // B
  int64_t tokens_of(int rank) const { return tokens.empty() ? max_rows() : tokens[static_cast<size_t>(rank)]; }
  int local_experts() const { return experts / ranks; }
  int logical_experts() const { return maps.empty() ? experts : static_cast<int>(maps.front().size()); }
  // LL EXPERT_MAJOR: rows of an expert in a tensor.
  int64_t slab_rows() const {
    const int64_t rows = ranks * max_rows(), unit = tile_rows > 0 ? tile_rows : 1;
    return (rows + unit - 1) / unit * unit;
  }
  int64_t combined_hidden() const { return combine_hidden > 0 ? combine_hidden : hidden; }
  std::vector<int> node_of_ranks() const;
  int64_t limit() const { return ll() || max_recv == 0 ? INT64_MAX : max_recv; }
  reference::Shape shape() const { return {layout, max_rows(), alignment, limit()}; }
  int64_t scale_width() const;
  // Bytes of a row on its way to an expert, scales included.
  int64_t row_bytes() const;
};

// One group for all of them.
ucclEpGroupConfig_t group_config(const std::vector<Scenario>& scenarios);
ucclEpHandleConfig_t handle_config(const Scenario& scenario);
// What its gradients do on the same handle.
Scenario backward_of(Scenario scenario);
Scenario pair_of_ranks(Layout layout);  // small

// A map for each rank, all different: `logical` experts with a copy or several of the scenario's physical ones, some of
// which no token ever gets.
std::vector<reference::ExpertMap> some_maps(const Scenario& scenario, int logical, uint64_t seed = 1);

// The contents that belong to a scenario. Routing and data have seeds of their own: one routing serves many dispatches.
class Contents {
 public:
  Contents(const Scenario& scenario, uint64_t routing_seed, uint64_t data_seed);

  const reference::World& raw() const { return raw_; }      // as it is sent
  const reference::World& world() const { return world_; }  // as it counts
  // A masked rank: its experts give nothing back, and where it sends nothing either, it has no tokens.
  void leave_out(int rank, bool sends);
  const reference::Routing& combine_weights(int rank) const { return combine_[static_cast<size_t>(rank)]; }

  std::vector<uint8_t> token(int rank, int64_t token) const;   // a row of dispatch's input
  std::vector<uint8_t> scales(int rank, int64_t token) const;  // its scales, for bytes
  // What arrives of it: the row and its scales, quantised where the scenario says so.
  struct Row {
    std::vector<uint8_t> bytes, scales;
  };
  Row received(int rank, int64_t token) const;
  // Elements of combine's input and of its biases, as values of the dtype.
  float combine_input(int destination, int64_t row, int64_t column) const;
  float bias(int which, int rank, int64_t token, int64_t column) const;
  float weight_row(int destination, int64_t row, int k) const;  // backward; k is 0 in expert-major layouts
  // Rows of the HT output tensors of a rank.
  int64_t capacity(int rank) const;
  // What arrives at a rank, and what of it is kept.
  reference::Placement placed(int rank) const { return reference::placement(world_, scenario_->shape(), rank); }
  int64_t kept_rows(int rank) const;
  reference::Placement kept(int rank) const { return reference::kept(placed(rank), kept_rows(rank)); }
  // What combine must give back to a rank: tokens x hidden.
  std::vector<float> combined(int rank) const;
  std::vector<float> combined_weights(int rank) const;  // backward: tokens x k

 private:
  reference::World mapped() const;
  reference::CombineProblem problem(int rank) const;
  uint64_t row_key(int destination, int64_t row) const;
  void element(ucclEpDataType_t dtype, bool any_bits, uint64_t hash, uint8_t* out) const;

  const Scenario* scenario_;
  uint64_t data_seed_;
  reference::World raw_, world_;
  std::vector<reference::Routing> combine_;
  mutable std::vector<std::vector<uint64_t>> row_keys_;  // by destination and row, of those that were asked for
};

}  // namespace ucclep::test
