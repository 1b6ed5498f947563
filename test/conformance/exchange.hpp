// SPDX-License-Identifier: Apache-2.0
// One routing decision with its data on one rank: makes the tensors, calls the library, and checks every byte that it
// may and may not have written.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "conformance/scenario.hpp"

namespace ucclep::test {

class Exchange {
 public:
  Exchange(const Rank& rank, ucclEpComm_t comm, const Scenario& scenario, uint64_t routing_seed = 1);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();

  // Enqueue one call each. The counters come with update, or with a dispatch that carries the routing.
  void update(ucclEpHandle_t handle, ucclEpStream_t stream);
  void dispatch(ucclEpHandle_t handle, ucclEpStream_t stream);
  void combine(ucclEpHandle_t handle, ucclEpStream_t stream);
  // The same, but the library's answer is returned.
  ucclEpResult_t try_update(ucclEpHandle_t handle, ucclEpStream_t stream);
  ucclEpResult_t try_dispatch(ucclEpHandle_t handle, ucclEpStream_t stream);
  ucclEpResult_t try_combine(ucclEpHandle_t handle, ucclEpStream_t stream);

  // After the stream was synchronised. Counters are good from HT's update, LL's dispatch on.
  void check_counters();
  void check_dispatch();
  // The rows of the experts of waves below `end` alone. Others may be there or not.
  void check_waves(int end);
  void check_combine();
  void check_all();
  // For operations that must not write: all outputs are as they were before.
  void check_untouched();

  // Sets the rows that combine reads to NaN, and then those of the experts of a wave to their values. No operation may
  // read them meanwhile.
  void hide_rows_back();
  void make_rows_back(int wave);
  // With tiles: where the rows lie that have come, as the handle says when the dispatch has ended. All that it says is
  // checked.
  void take_places(ucclEpHandle_t handle);

  // Other data for the same routing; all outputs are poisoned again. The counters are not.
  void refresh(uint64_t data_seed);
  // Other routing and other data in the same tensors: the scenario has a fixed capacity. Everything is poisoned.
  void reroute(uint64_t seed);
  // The same for other expert maps of the ranks; empty: none has one.
  void remap(std::vector<reference::ExpertMap> maps, uint64_t seed);

  // Of a masked rank nothing is expected from now on; sends: but its rows of this dispatch.
  void leave_out(int rank, bool sends = false);
  // Rows of later tokens of each rank are expected to be zeros with weight 0.
  void expect_zeros_past(std::vector<int64_t> tokens) { given_ = std::move(tokens); }
  // Of its rows not all came: they are expected to be zero rows.
  void expect_blank(int rank) { blank_ = rank; }

  ucclEpComm_t comm() const { return comm_; }
  const Contents& contents() const { return contents_; }
  const Scenario& scenario() const { return scenario_; }
  Tensor& tokens_out() { return *tokens_out_; }
  Tensor& combined() { return *combined_; }
  const ucclEpCounters_t& counters() const { return counters_; }
  int64_t total_on_host() const { return __atomic_load_n(total_host_, __ATOMIC_ACQUIRE); }
  // Descriptors that cases may change before a call.
  ucclEpDispatchInputs_t dispatch_in = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t dispatch_out = UCCLEP_DISPATCH_OUTPUTS_INIT;
  ucclEpDispatchConfig_t dispatch_config = UCCLEP_DISPATCH_CONFIG_INIT;
  ucclEpCombineInputs_t combine_in = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combine_out = UCCLEP_COMBINE_OUTPUTS_INIT;
  ucclEpCombineConfig_t combine_config = UCCLEP_COMBINE_CONFIG_INIT;
  const Tensor& topk_idx() const { return *topk_idx_; }

 private:
  void make_inputs();
  void make_outputs();
  void make_counters();
  void fill_inputs();
  void fill_rows_back();
  void fill_row_back(int64_t row);
  void fill_weight_row(int64_t row);
  int64_t at(int64_t row) const;  // in a tensor of received rows, of a row of the reference
  void expect_row(const reference::Slot& slot);
  void expect_padding(int64_t row);
  void expect_nothing_in(int64_t row);
  void expect_unused(int64_t row);
  void check_added(Tensor& tensor, const std::vector<int64_t>& before);
  Tensor make(const char* name, ucclEpDataType_t dtype, Tensor::Shape sizes, Tensor::Shape strides = {}) const;
  Tensor make_rows(const char* name, ucclEpDataType_t dtype, Tensor::Shape sizes) const;
  Tensor::Shape leading() const;
  Tensor::Shape weight_entries() const;
  Tensor::Shape with(Tensor::Shape shape, int64_t last) const;
  Tensor::Shape scale_strides(const Tensor::Shape& sizes) const;

  const int rank_;
  ucclEpComm_t const comm_;
  Scenario scenario_;
  uint64_t routing_seed_;
  Contents contents_;
  std::optional<Tensor> tokens_, scales_, weights_, topk_idx_;
  std::optional<Tensor> tokens_out_, scales_out_, idx_out_, weights_out_, src_info_, cumulative_, wait_;
  std::optional<Tensor> combine_tokens_, combine_weights_, bias_, bias2_, combined_, combine_wait_;
  std::optional<Tensor> weight_rows_, combined_weights_;
  std::optional<Tensor> per_expert_, unpadded_, offsets_, per_rank_, per_expert_rank_, total_;
  ucclEpCounters_t counters_ = UCCLEP_COUNTERS_INIT;
  int64_t* total_host_ = nullptr;
  std::optional<ucclEpStream_t> last_stream_;
  std::vector<int64_t> places_;  // with tiles, of rows of the reference
  int blank_ = -1;
  std::vector<int64_t> given_;
  std::vector<int64_t> cumulative_before_, wait_before_, combine_wait_before_;
};

// The tensors of an expert map. extra: columns beyond those that the map needs.
struct MapTensors {
  MapTensors(ucclEpComm_t comm, const reference::ExpertMap& map, int64_t extra = 0);
  void fill(const reference::ExpertMap& map);  // one of as many experts, and no more copies
  ucclEpResult_t try_set(ucclEpGroup_t group, ucclEpStream_t stream) const;
  void set(ucclEpGroup_t group, ucclEpStream_t stream) const;
  Tensor physical, copies;
};
// The rank's map of the scenario, if it has maps; waits for the stream.
void set_map(const Rank& rank, ucclEpComm_t comm, ucclEpGroup_t group, Stream& stream, const Scenario& scenario);

// Communicator, group, handle, stream for one scenario.
struct Session {
  // timeout_ms: of the group, so that a short one does not bound how long ranks need to meet.
  Session(const Rank& rank, const Scenario& scenario, int timeout_ms = 0);
  Session(const Rank& rank, const ucclEpCommConfig_t& config, const Scenario& scenario, int timeout_ms = 0);
  Comm comm;
  Group group;
  Handle handle;
  Stream stream;
};

// Update, dispatch, combine on the handle, all checked.
void round_trip(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
                uint64_t routing_seed = 1);

// All the layouts, for cases that hold in each of them.
inline constexpr Layout all_layouts[] = {Layout::ll_expert_major, Layout::ll_rank_major, Layout::ht_flat,
                                         Layout::ht_expert_major};
// The scenario in each of them.
std::vector<Scenario> in_all_layouts(const Scenario& scenario);
std::vector<Scenario> trained(const Scenario& scenario);  // in all layouts that have a backward pass

// Update, dispatch, combine, and then the same backward with gradients of their own; all checked.
void there_and_back(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                    const Scenario& scenario, uint64_t routing_seed = 1);

// What a rank does with a scenario on a handle of its group, and checks.
using Trip = std::function<void(const Rank&, ucclEpComm_t, ucclEpHandle_t, Stream&, const Scenario&, uint64_t)>;
// Every scenario on a group of its own, one after the other on one communicator, `rounds` routings on one handle; all
// have the same ranks. At the end of each no record is left.
void run_each(const std::vector<Scenario>& scenarios, const Trip& trip, int rounds = 1);
// The same with round_trip.
void run_all(const std::vector<Scenario>& scenarios);

// The whole of it on scenario.ranks ranks, `rounds` updates of one handle with different routing.
void run(const Scenario& scenario, int rounds = 1);

}  // namespace ucclep::test
