// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "api.hpp"
#include "environment.hpp"
#include "host/context/ll_copies.hpp"
#include "numeric.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::perf {

constexpr size_t scratch_half_bytes = size_t{128} << 20;

Endpoint::Endpoint(const Options& options, Team& team, bool combines)
    : options_(options),
      team_(team),
      shape_(options.shape()),
      combines_(combines),
      capacity_(options.sizes().back()),
      corrupted_(!options.corrupt                     ? Corrupted::nothing
                 : combines && !shape_.returns_tokens ? Corrupted::combine_input
                                                      : Corrupted::dispatch_input),
      info_(UCCLEP_COMM_INFO_INIT),
      limits_(UCCLEP_GROUP_LIMITS_INIT) {
  try {
    create_communicator();
    create_group();
    create_tensors();
  } catch (...) {  // no destructor runs
    ucclEpCommAbort(comm_);
    ucclEpCommDestroy(comm_);
    throw;
  }
}

Endpoint::~Endpoint() {
  // Destroying is collective, unless the communicator is broken: if one rank fails, all break theirs.
  if (std::uncaught_exceptions() > 0) ucclEpCommAbort(comm_);
  begin_series();
  windows_.reset();
  memory_.reset();
  ucclEpGroupDestroy(group_);
  ucclEpEventDestroy(comm_, begin_);
  ucclEpEventDestroy(comm_, end_);
  ucclEpStreamDestroy(comm_, stream_);
  ucclEpCommDestroy(comm_);
}

void Endpoint::create_communicator() {
  ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
  config.device = options_.api_device();
  if (config.device != UCCLEP_DEVICE_HOST) config.device_index = options_.gpu_of(team_.gpu());
  config.timeout_ms = options_.timeout_ms;
  if (options_.nodes > 0) config.ranks_per_node = shape_.ranks / options_.nodes;
  if (!options_.transport.empty()) config.transport = options_.transport.c_str();
  check(team_.init_communicator(&comm_, config), "ucclEpCommInit");
  check(ucclEpCommGetInfo(comm_, &info_), "ucclEpCommGetInfo", comm_);
  node_of_rank_ = team_.gather(info_.node);
  check(ucclEpStreamCreate(comm_, &stream_), "ucclEpStreamCreate", comm_);
  check(ucclEpEventCreate(comm_, &begin_), "ucclEpEventCreate", comm_);
  check(ucclEpEventCreate(comm_, &end_), "ucclEpEventCreate", comm_);
}

void Endpoint::create_group() {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = shape_.experts;
  config.top_k = shape_.topk;
  config.max_tokens_per_rank = capacity_;
  if (shape_.mode == UCCLEP_MODE_HT) config.ll_max_tokens_per_rank = 1;  // the memory of the group is HT's
  config.num_sms = options_.sms;
  config.max_token_bytes =
      static_cast<int64_t>(std::max({shape_.wire_row_bytes(), shape_.input_row_bytes(), shape_.combine_row_bytes()}));
  check(ucclEpGroupQuery(comm_, &config, &limits_), "ucclEpGroupQuery", comm_);

  ll_by_node_ = shape_.mode == UCCLEP_MODE_LL && group_copies_by_node(config);

  // All ranks stand still on both sides of the measurement, which sees all that live in this process.
  team_.barrier();
  const uint64_t before = process_memory_bytes();
  team_.barrier();
  check(ucclEpGroupCreate(&group_, comm_, &config), "ucclEpGroupCreate", comm_);
  team_.barrier();
  const uint64_t after = process_memory_bytes();
  team_.barrier();
  const bool all_here = options_.child_fd < 0 && options_.mpi_ranks == 0;
  if (all_here && on_host() && after > before) measured_group_bytes_ = (after - before) / team_.size();

  ucclEpHandleConfig_t handle = UCCLEP_HANDLE_CONFIG_INIT;
  handle.mode = shape_.mode;
  handle.layout = shape_.layout;
  check(ucclEpHandleCreate(&handle_, group_, &handle), "ucclEpHandleCreate", comm_);
}

// What the library's rule says of the group, or who forced it: no function of the API tells.
bool Endpoint::group_copies_by_node(const ucclEpGroupConfig_t& config) const {
  const char* const text = std::getenv("UCCLEP_LL_COPIES");
  const std::string asked = text == nullptr ? "auto" : text;
  CopyShape copies{static_cast<uint32_t>(config.num_experts),
                   static_cast<uint32_t>(config.top_k),
                   static_cast<uint32_t>(config.max_tokens_per_rank),
                   0,
                   {}};
  copies.row_bytes = MetaLayout::of(copies.top_k).bytes + round_up(static_cast<uint64_t>(config.max_token_bytes), 16);
  copies.node_sizes.resize(1 + static_cast<size_t>(*std::max_element(node_of_rank_.begin(), node_of_rank_.end())));
  for (const int node : node_of_rank_) ++copies.node_sizes[static_cast<size_t>(node)];
  return copies_by_node(asked == "rank"   ? LlCopies::rank
                        : asked == "node" ? LlCopies::node
                                          : LlCopies::automatic,
                        copies);
}

void Endpoint::create_tensors() {
  memory_ = std::make_unique<DeviceMemory>(comm_, stream_, on_host());
  tensors_ = std::make_unique<Tensors>(*memory_, shape_, capacity_, combines_);
  const bool needs_spare = timing().aligned || shape_.returns_tokens;
  if (needs_spare) spare_ = std::make_unique<Tensors>(*memory_, shape_, capacity_, combines_);
  if (!on_host()) scratch_ = memory_->allocate(2 * scratch_half_bytes);
  if (options_.graph) graph_api_ = open_graph_api(info_.device, info_.device_index);
}

void Endpoint::begin_size(int tokens, int iterations) {
  size_tokens_ = tokens;
  int64_t rows = tensor_rows(shape_, capacity_);
  if (shape_.mode == UCCLEP_MODE_HT && shape_.per_expert()) {
    // Room for the worst case would be topk times that of FLAT; take what these iterations need.
    rows = 1;
    for (int i = 1; i <= iterations; ++i) {
      rows = std::max(rows, max_expert_rows(shape_, make_routing(shape_, tokens, iteration_ + i)));
    }
  }
  windows_.reset();  // before the memory goes
  tensors_->resize(tokens, rows);
  if (spare_) spare_->resize(tokens, rows);
  if (options_.windows) register_windows();
}

void Endpoint::register_windows() {
  std::vector<const ucclEpTensor_t*> registered;
  for (const Tensors* tensors : {tensors_.get(), spare_.get()}) {
    if (tensors == nullptr) continue;
    registered.insert(registered.end(), {&tensors->out_tokens, &tensors->out_scales, &tensors->combine_in});
  }
  windows_ = std::make_unique<Windows>(comm_, registered);
}

void Endpoint::prepare() {
  ++iteration_;
  routing_ = make_routing(shape_, size_tokens_, iteration_);
  zones_ = expected_zones(shape_, routing_, team_.rank(), capacity_);
  fill_inputs();
  if (spare_ && !shape_.returns_tokens) fill_routing(*spare_);
  if (combines_ && !shape_.returns_tokens) fill_combine_input();
}

void Endpoint::prepare_both() {
  std::swap(tensors_, spare_);
  prepare();
  std::swap(tensors_, spare_);
  prepare();
}

// XOR of the byte with sign and exponent, so that no rounding hides it.
void Endpoint::flip(std::byte* row, ucclEpDataType_t dtype) const {
  row[(shape_.hidden / 2 + 1) * element_bytes(dtype) - 1] ^= std::byte{0xff};
}

void Endpoint::fill_inputs() {
  const int me = team_.rank();
  memory_->fill_rows(
      bytes_of(tensors_->tokens), shape_.input_row_bytes(), size_tokens_, [&](int64_t t, std::byte* row) {
        const auto token = static_cast<int>(t);
        fill_row(shape_.dtype, row_key(shape_, iteration_, Kind::tokens, me, token), row, shape_.input_row_bytes());
        if (corrupted_ == Corrupted::dispatch_input && me == 0 && token == 0) flip(row, shape_.dtype);
      });
  const size_t scale_bytes = shape_.scales() * sizeof(float);
  if (scale_bytes > 0) {
    memory_->fill_rows(bytes_of(tensors_->scales), scale_bytes, size_tokens_, [&](int64_t t, std::byte* row) {
      const uint64_t key = row_key(shape_, iteration_, Kind::scales, me, static_cast<int>(t));
      fill_row(ucclEpFloat32, key, row, scale_bytes);
    });
  }
  fill_routing(*tensors_);
  memory_->write(bytes_of(tensors_->weights), routing_.weights(me, 0), choices() * sizeof(float));
  const std::vector<int64_t> unset(zones_.size(), -1);
  memory_->write(bytes_of(tensors_->counts), unset.data(), unset.size() * sizeof(int64_t));
}

void Endpoint::fill_routing(const Tensors& tensors) {
  const int32_t* experts = routing_.experts(team_.rank(), 0);
  const std::vector<int64_t> ids(experts, experts + choices());
  memory_->write(bytes_of(tensors.topk_idx), ids.data(), ids.size() * sizeof(int64_t));
}

void Endpoint::fill_combine_input() {
  const int me = team_.rank();
  const ucclEpDataType_t dtype = shape_.combine_dtype();
  const size_t bytes = shape_.combine_row_bytes();
  const int32_t victim = routing_.experts(0, 0)[0];
  for (const Zone& zone : zones_) {
    memory_->fill_rows(bytes_of(tensors_->combine_in) + zone.first * bytes, bytes,
                       static_cast<int64_t>(zone.rows.size()), [&](int64_t i, std::byte* where) {
                         const ExpectedRow& row = zone.rows[i];
                         const uint64_t key = row_key(shape_, iteration_, Kind::expert_output, row.source, row.token,
                                                      output_part(shape_, row, me));
                         fill_row(dtype, key, where, bytes);
                         const bool hit = row.source == 0 && row.token == 0 && shape_.rank_of(victim) == me &&
                                          (row.expert < 0 || row.expert == victim);
                         if (corrupted_ == Corrupted::combine_input && hit) flip(where, dtype);
                       });
  }
}

Timing Endpoint::timing() const {
  const bool events = options_.time == "events" || (options_.time == "auto" && !on_host());
  return {events, events && options_.late_rank < 0};
}

Wire Endpoint::wire() {
  constexpr std::chrono::milliseconds pause{1};
  constexpr int max_pauses = 50;  // words that follow an operation leave within moments
  if (info_.num_nodes == 1) return {};
  team_.barrier();
  Wire now = wire_now();
  for (int i = 0; i < max_pauses; ++i) {
    const uint64_t before = now.messages;
    std::this_thread::sleep_for(pause);
    now = wire_now();
    if (now.messages == before) break;
  }
  team_.barrier();
  return now;
}

Wire Endpoint::wire_now() const {
  ucclEpStats_t stats = UCCLEP_STATS_INIT;
  check(ucclEpCommGetStats(comm_, &stats), "ucclEpCommGetStats", comm_);
  return {stats.bytes_sent, stats.messages, stats.commands, {}};
}

void Endpoint::record(ucclEpEvent_t event) {
  check(ucclEpEventRecord(comm_, event, stream_), "ucclEpEventRecord", comm_);
}

void Endpoint::synchronize() {
  check(ucclEpStreamSynchronize(comm_, stream_), "ucclEpStreamSynchronize", comm_);
  ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
  check(ucclEpCommGetAsyncError(comm_, &error), "ucclEpCommGetAsyncError", comm_);
  if (error.code != ucclEpSuccess) {
    throw PerfError(std::string(error.op) + ": " + ucclEpGetErrorString(error.code) + ": " + error.text);
  }
}

void Endpoint::run(const std::function<void()>& operation) {
  operation();
  synchronize();
}

void Endpoint::begin_series() {
  graph_.reset();
  spare_graph_.reset();
}

void Endpoint::capture(const std::function<void()>& operation) {
  graph_ = std::make_unique<Graph>(graph_api_, stream_, operation);
  if (!timing().aligned) return;
  std::swap(tensors_, spare_);
  spare_graph_ = std::make_unique<Graph>(graph_api_, stream_, operation);
  std::swap(tensors_, spare_);
}

// The host has just written the inputs, and they may lie in the caches of the GPU.
void Endpoint::empty_caches() {
  if (scratch_ == nullptr) return;
  check(ucclEpMemcpy(comm_, scratch_ + scratch_half_bytes, scratch_, scratch_half_bytes, stream_), "ucclEpMemcpy",
        comm_);
}

Sample Endpoint::timed(const std::function<void()>& operation, bool captures) {
  using Clock = std::chrono::steady_clock;
  if (options_.graph && captures && !graph_) capture(operation);
  empty_caches();
  team_.barrier();
  if (team_.rank() == options_.late_rank) std::this_thread::sleep_for(std::chrono::microseconds(options_.late_us));
  const auto start = Clock::now();
  // The host's threads leave the barrier apart. What is enqueued behind an operation that all ranks take part in begins
  // when they have met, if the host does not stand between the two.
  if (spare_graph_) {
    spare_graph_->launch();
  } else if (timing().aligned) {
    std::swap(tensors_, spare_);
    operation();
    std::swap(tensors_, spare_);
  }
  record(begin_);
  const auto call = Clock::now();
  graph_ ? graph_->launch() : operation();
  const auto returned = Clock::now();
  record(end_);
  synchronize();
  const auto stop = Clock::now();
  float milliseconds = 0;
  check(ucclEpEventElapsed(comm_, begin_, end_, &milliseconds), "ucclEpEventElapsed", comm_);
  return {std::chrono::duration<double, std::micro>(stop - start).count(), milliseconds * 1e3,
          std::chrono::duration<double, std::nano>(returned - call).count()};
}

ucclEpCounters_t Endpoint::counters() const {
  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  (shape_.per_expert() ? counters.tokens_per_expert : counters.tokens_per_rank) = &tensors_->counts;
  return counters;
}

void Endpoint::update() {
  if (shape_.mode == UCCLEP_MODE_LL) return;
  const ucclEpCounters_t counts = counters();
  check(ucclEpHandleUpdate(handle_, &tensors_->topk_idx, &counts, stream_), "ucclEpHandleUpdate", comm_);
}

template <class Call>
void Endpoint::with_dispatch(const Call& call) {
  ucclEpDispatchConfig_t config = UCCLEP_DISPATCH_CONFIG_INIT;
  config.quant = shape_.quant ? UCCLEP_QUANT_FP8_128 : UCCLEP_QUANT_NONE;
  const ucclEpCounters_t counts = counters();
  ucclEpDispatchInputs_t inputs = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  inputs.tokens = &tensors_->tokens;
  inputs.topk_weights = &tensors_->weights;
  outputs.tokens = &tensors_->out_tokens;
  outputs.topk_weights = &tensors_->out_weights;
  outputs.src_info = &tensors_->out_source;
  if (shape_.scales() > 0) outputs.scales = &tensors_->out_scales;
  if (shape_.scales() > 0 && !shape_.quant) inputs.scales = &tensors_->scales;
  if (tensors_->out_idx.data != nullptr) outputs.topk_idx = &tensors_->out_idx;
  if (shape_.mode == UCCLEP_MODE_LL) {  // update and dispatch in one call
    inputs.topk_idx = &tensors_->topk_idx;
    outputs.counters = &counts;
  }
  call(inputs, outputs, config);
}

void Endpoint::dispatch() {
  with_dispatch([&](const auto& inputs, const auto& outputs, const auto& config) {
    check(ucclEpDispatch(handle_, &inputs, &outputs, &config, stream_), "ucclEpDispatch", comm_);
  });
}

template <class Call>
void Endpoint::with_combine(const Call& call) {
  ucclEpCombineInputs_t inputs = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t outputs = UCCLEP_COMBINE_OUTPUTS_INIT;
  // LL EXPERT_MAJOR: dispatch has taken the weights.
  inputs.tokens = shape_.returns_tokens ? &tensors_->out_tokens : &tensors_->combine_in;
  outputs.tokens = &tensors_->combine_out;
  call(inputs, outputs);
}

void Endpoint::combine() {
  with_combine([&](const auto& inputs, const auto& outputs) {
    check(ucclEpCombine(handle_, &inputs, &outputs, nullptr, stream_), "ucclEpCombine", comm_);
  });
}

void Endpoint::get_device(bool spare, ucclEpDeviceDispatch& dispatch, ucclEpDeviceCombine& combine) {
  if (spare) std::swap(tensors_, spare_);
  with_dispatch([&](const auto& inputs, const auto& outputs, const auto& config) {
    check(ucclEpDispatchGetDevice(handle_, &inputs, &outputs, &config, &dispatch), "ucclEpDispatchGetDevice", comm_);
  });
  with_combine([&](const auto& inputs, const auto& outputs) {
    check(ucclEpCombineGetDevice(handle_, &inputs, &outputs, nullptr, &combine), "ucclEpCombineGetDevice", comm_);
  });
  if (spare) std::swap(tensors_, spare_);
}

Tally Endpoint::check_dispatch() {
  Received received;
  received.tokens = tensors_->out_tokens.data;
  received.scales = tensors_->out_scales.data;
  received.weights = tensors_->out_weights.data;
  received.topk_idx = tensors_->out_idx.data;
  received.src_info = tensors_->out_source.data;
  received.counts.resize(zones_.size());
  std::memcpy(received.counts.data(), memory_->read(tensors_->counts.data, zones_.size() * sizeof(int64_t)),
              zones_.size() * sizeof(int64_t));
  const Reader reader = [this](const void* device, size_t bytes) { return memory_->read(device, bytes); };
  return verify_dispatch(shape_, routing_, iteration_, team_.rank(), zones_, received, reader);
}

Tally Endpoint::check_combine() {
  return check_combine(shape_);
}

Tally Endpoint::check_combine(const Shape& shape) {
  const Reader reader = [this](const void* device, size_t bytes) { return memory_->read(device, bytes); };
  return verify_combine(shape, routing_, iteration_, team_.rank(), node_of_rank_, tensors_->combine_out.data, reader);
}

}  // namespace ucclep::perf
