// SPDX-License-Identifier: Apache-2.0
// One rank: its communicator, group, handle and tensors, and the operations that the tools time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device_memory.hpp"
#include "expected.hpp"
#include "graph.hpp"
#include "measurement.hpp"
#include "options.hpp"
#include "team.hpp"
#include "tensors.hpp"
#include "verify.hpp"
#include "windows.hpp"

namespace ucclep::perf {

// What to corrupt with --corrupt.
enum class Corrupted { nothing, dispatch_input, combine_input };

class Endpoint {
 public:
  // Collective, as the destructor is unless a rank has failed. combines: make the tensors of combine, too.
  Endpoint(const Options& options, Team& team, bool combines);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const Options& options() const { return options_; }
  const Shape& shape() const { return shape_; }
  const ucclEpCommInfo_t& info() const { return info_; }
  const ucclEpGroupLimits_t& group_limits() const { return limits_; }
  // Memory that the creation of the group took per rank, as the operating system sees it; 0 if that cannot be told.
  uint64_t measured_group_bytes() const { return measured_group_bytes_; }
  bool on_host() const { return info_.device == UCCLEP_DEVICE_HOST; }
  Timing timing() const;
  Team& team() { return team_; }
  ucclEpComm_t comm() const { return comm_; }
  ucclEpStream_t stream() const { return stream_; }
  ucclEpHandle_t handle() const { return handle_; }
  DeviceMemory& memory() { return *memory_; }
  // Of the operation that runs: an aligned measurement exchanges the two.
  const Tensors& tensors() const { return *tensors_; }
  const Tensors& spare() const { return *spare_; }
  const Routing& routing() const { return routing_; }
  int capacity() const { return capacity_; }  // the most tokens that a size has

  // Makes room for the next `iterations` iterations of this size. With --windows it is collective.
  void begin_size(int tokens, int iterations);
  // What is timed next is another operation.
  void begin_series();
  // Routing and data of the next iteration; the tensors hold what earlier iterations left.
  void prepare();
  // The same, and the spare tensors get an iteration of their own, the one before.
  void prepare_both();
  // To the end of the stream.
  void run(const std::function<void()>& operation);
  // Runs it on all ranks to the end of the stream, from a barrier or from inside an untimed run of it. captures: with
  // --graph it is captured at the first time of a series and replayed.
  Sample timed(const std::function<void()>& operation, bool captures = true);
  // In LL the dispatch carries the routing, and there is nothing to update.
  void update();
  void dispatch();
  void combine();
  // The same for a kernel that runs them, with these tensors or the spare ones.
  void get_device(bool spare, ucclEpDeviceDispatch& dispatch, ucclEpDeviceCombine& combine);
  Tally check_dispatch();
  Tally check_combine();
  // Of what another shape makes of this iteration's rows and routing.
  Tally check_combine(const Shape& shape);
  Traffic traffic() const { return count_traffic(shape_, routing_); }
  Crossing crossing(const std::vector<Part>& parts) const {
    return count_crossing(shape_, routing_, parts, node_of_rank_);
  }
  // Whether rows of dispatch, and of combine, cross once for each node.
  bool dispatches_by_node() const { return combines_by_node() || ll_by_node_; }
  bool combines_by_node() const { return shape_.mode == UCCLEP_MODE_HT; }
  // What this rank's proxies have sent, when the operations of all ranks have ended and nothing more follows.
  // Collective.
  Wire wire();

 private:
  // call(inputs, outputs, config), and call(inputs, outputs).
  template <class Call>
  void with_dispatch(const Call& call);
  template <class Call>
  void with_combine(const Call& call);
  void create_communicator();
  void create_group();
  bool group_copies_by_node(const ucclEpGroupConfig_t& config) const;
  void create_tensors();
  void register_windows();
  ucclEpCounters_t counters() const;
  size_t choices() const { return static_cast<size_t>(size_tokens_) * shape_.topk; }
  void fill_inputs();
  void fill_routing(const Tensors& tensors);
  void fill_combine_input();
  void flip(std::byte* row, ucclEpDataType_t dtype) const;
  Wire wire_now() const;
  void record(ucclEpEvent_t event);
  void capture(const std::function<void()>& operation);
  void empty_caches();
  void synchronize();

  const Options& options_;
  Team& team_;
  const Shape shape_;
  const bool combines_;
  const int capacity_;  // B
  Corrupted corrupted_;

  ucclEpComm_t comm_ = nullptr;
  ucclEpCommInfo_t info_;
  ucclEpStream_t stream_ = nullptr;
  ucclEpEvent_t begin_ = nullptr, end_ = nullptr;
  ucclEpGroup_t group_ = nullptr;
  ucclEpGroupLimits_t limits_;
  uint64_t measured_group_bytes_ = 0;
  bool ll_by_node_ = false;  // rows of an LL dispatch
  ucclEpHandle_t handle_ = nullptr;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<int> node_of_rank_;

  // The spare is what the untimed operation of an aligned measurement uses: no cache is warm for the timed one, and
  // nothing but the timed one can write what is checked. Rounds of one launch take their inputs from both in turn.
  std::unique_ptr<Tensors> tensors_, spare_;
  std::unique_ptr<Windows> windows_;
  std::byte* scratch_ = nullptr;  // of a GPU, larger than its caches
  GraphApi graph_api_;
  std::unique_ptr<Graph> graph_, spare_graph_;
  int size_tokens_ = 0;
  uint64_t iteration_ = 0;
  Routing routing_{1, 0, 1};
  std::vector<Zone> zones_;
};

}  // namespace ucclep::perf
