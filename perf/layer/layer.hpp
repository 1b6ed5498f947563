// SPDX-License-Identifier: Apache-2.0
// One rank's MoE layer of one size: its group, a handle for each way to compute it, experts and tensors.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../examples/moe_layer_fused.hpp"
#include "graph.hpp"
#include "layer/experts.hpp"
#include "options.hpp"
#include "team.hpp"
#include "workload.hpp"

namespace ucclep::perf {

// A rank's communicator and streams. Collective, as the destructor is unless a rank has failed.
class LayerRank {
 public:
  LayerRank(const Options& options, Team& team);
  ~LayerRank();
  LayerRank(const LayerRank&) = delete;
  LayerRank& operator=(const LayerRank&) = delete;

  // To the end of the stream. Throws what the communicator has recorded.
  void synchronize();
  void wait(ucclEpStream_t stream, ucclEpStream_t other, ucclEpEvent_t event);  // stream waits for other

  const Options& options;
  Team& team;
  ucclEpComm_t comm = nullptr;
  ucclEpCommInfo_t info;
  ucclEpStream_t stream = nullptr, transfers = nullptr;  // the layer's, and that of phases beside the GEMMs
  std::vector<ucclEpEvent_t> events;
  int sms = 0;  // of this rank: its part of a GPU that it shares
};

class Layer {
 public:
  // tokens of this rank. Collective.
  Layer(LayerRank& rank, int tokens);
  ~Layer();
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Enqueues a layer on the rank's stream.
  void run(const std::string& way);
  // Zeroes the results.
  void clear();
  std::vector<uint16_t> results(const std::string& way);  // [tokens, hidden], bf16
  // Errors of a sample of tokens.
  RowErrors compare(const std::vector<uint16_t>& results) const;
  // Of a sample, which experts' tokens are wrong, and how much.
  std::string describe_errors(const std::vector<uint16_t>& results, double allowed) const;
  bool late() const;    // a tile was waited for too long
  bool failed() const;  // the fused kernel has ended without results
  std::string describe() const;

 private:
  struct Tensor;
  ucclEpHandle_t make_handle(int layout, int waves, int tile_rows);
  void dispatch(ucclEpHandle_t handle, bool send_only, int sms);
  void combine(ucclEpHandle_t handle, bool send_only, int sms, void* out);
  void gemms(ExpertZones zones, int blocks, ucclEpStream_t stream);
  void sequential(void* out);
  void waves(void* out);
  void tiles(void* out);
  void fused(void* out);
  moe_layer::Layer fused_layer(ucclEpHandle_t handle) const;
  std::vector<Visit> visits() const;
  void* allocate(size_t bytes);
  int64_t slab() const { return static_cast<int64_t>(capacity_) * shape_.ranks; }
  int wave_begin(int wave) const;

  LayerRank& rank_;
  const Options& o_;
  Shape shape_;
  int tokens_, capacity_;  // of this rank; B of the group
  int local_;              // experts
  int tile_rows_;
  int beside_;  // SMs of operations that run beside GEMMs
  Routing routing_;
  ucclEpGroup_t group_ = nullptr;
  std::map<std::string, ucclEpHandle_t> handles_;
  ucclEpTiles_t tiles_;
  std::vector<void*> memory_;
  void *in_ = nullptr, *ids_ = nullptr, *weights_ = nullptr, *rows_ = nullptr, *made_ = nullptr;
  int32_t* counts_ = nullptr;
  uint32_t *late_ = nullptr, *failed_ = nullptr;
  void* words_ = nullptr;  // of the fused kernel
  std::map<std::string, void*> out_;
  ExpertShape expert_shape_;
  std::unique_ptr<Experts> experts_;
};

}  // namespace ucclep::perf
