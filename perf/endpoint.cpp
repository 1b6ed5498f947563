// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "api.hpp"
#include "environment.hpp"
#include "numeric.hpp"

namespace ucclep::perf {

Endpoint::Endpoint(const Options& options, Team& team, bool combines)
    : options_(options),
      team_(team),
      shape_(options.shape()),
      combines_(combines),
      capacity_(options.sizes().back()),
      corrupted_(!options.corrupt ? Corrupted::nothing
                 : combines       ? Corrupted::combine_input
                                  : Corrupted::dispatch_input),
      info_(UCCLEP_COMM_INFO_INIT),
      limits_(UCCLEP_GROUP_LIMITS_INIT) {
  try {
    create_communicator();
    create_group();
    allocate_inputs();
  } catch (...) {  // no destructor runs
    ucclEpCommAbort(comm_);
    ucclEpCommDestroy(comm_);
    throw;
  }
}

Endpoint::~Endpoint() {
  // Destroying is collective, unless the communicator is broken: if one rank fails, all break theirs.
  if (std::uncaught_exceptions() > 0) ucclEpCommAbort(comm_);
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
  // One GPU per rank of a machine, in order; MPI launchers restrict the visible devices instead.
  const bool gpu = config.device == UCCLEP_DEVICE_CUDA || config.device == UCCLEP_DEVICE_HIP;
  if (gpu && options_.mpi_ranks == 0) config.device_index = team_.rank();
  config.timeout_ms = options_.timeout_ms;
  check(team_.init_communicator(&comm_, config), "ucclEpCommInit");
  check(ucclEpCommGetInfo(comm_, &info_), "ucclEpCommGetInfo", comm_);
  node_of_rank_ = team_.gather(info_.node);
  check(ucclEpStreamCreate(comm_, &stream_), "ucclEpStreamCreate", comm_);
  check(ucclEpEventCreate(comm_, &begin_), "ucclEpEventCreate", comm_);
  check(ucclEpEventCreate(comm_, &end_), "ucclEpEventCreate", comm_);
  memory_ = std::make_unique<DeviceMemory>(comm_, stream_, on_host());
}

void Endpoint::create_group() {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = shape_.experts;
  config.top_k = shape_.topk;
  config.max_tokens_per_rank = capacity_;
  config.max_token_bytes =
      static_cast<int64_t>(std::max({shape_.wire_row_bytes(), shape_.input_row_bytes(), shape_.combine_row_bytes()}));
  check(ucclEpGroupQuery(comm_, &config, &limits_), "ucclEpGroupQuery", comm_);

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

void Endpoint::allocate_inputs() {
  const size_t choices = static_cast<size_t>(capacity_) * shape_.topk;
  tokens_ = memory_->allocate(capacity_ * shape_.input_row_bytes());
  if (shape_.scales() > 0) scales_ = memory_->allocate(capacity_ * shape_.scales() * sizeof(float));
  topk_idx_ = memory_->allocate(choices * sizeof(int64_t));
  weights_ = memory_->allocate(choices * sizeof(float));
  counts_ = memory_->allocate(std::max(shape_.local_experts(), shape_.ranks) * sizeof(int64_t));
  if (combines_) combine_out_ = memory_->allocate(capacity_ * shape_.combine_row_bytes());
}

void Endpoint::allocate_rows(int64_t rows) {
  if (rows <= rows_) return;
  for (std::byte* old : {out_tokens_, out_scales_, out_idx_, out_weights_, out_source_, combine_in_})
    memory_->free(old);
  out_scales_ = out_idx_ = combine_in_ = nullptr;
  rows_ = rows;
  const int entries = shape_.per_expert() ? 1 : shape_.topk;
  out_tokens_ = memory_->allocate(rows * shape_.row_bytes());
  if (shape_.scales() > 0) out_scales_ = memory_->allocate(rows * shape_.scales() * sizeof(float));
  if (!shape_.per_expert()) out_idx_ = memory_->allocate(rows * entries * sizeof(int64_t));
  out_weights_ = memory_->allocate(rows * entries * sizeof(float));
  out_source_ = memory_->allocate(rows * sizeof(int64_t));
  if (combines_) combine_in_ = memory_->allocate(rows * shape_.combine_row_bytes());
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
  allocate_rows(rows);
  describe();
}

void Endpoint::describe() {
  Descriptors& d = tensors_;
  const int64_t tokens = size_tokens_, k = shape_.topk, h = shape_.hidden, s = shape_.scales();
  d.tokens = tensor(tokens_, shape_.dtype, {tokens, h});
  d.scales = tensor(scales_, ucclEpFloat32, {tokens, s});
  d.topk_idx = tensor(topk_idx_, ucclEpInt64, {tokens, k});
  d.weights = tensor(weights_, ucclEpFloat32, {tokens, k});
  d.counts = tensor(counts_, ucclEpInt64, {shape_.per_expert() ? shape_.local_experts() : shape_.ranks});
  d.combine_out = tensor(combine_out_, shape_.combine_dtype(), {tokens, h});
  const ucclEpDataType_t back = shape_.combine_dtype();
  if (shape_.mode == UCCLEP_MODE_LL) {
    const int64_t zones = shape_.per_expert() ? shape_.local_experts() : shape_.ranks;
    const int64_t per_zone = rows_ / zones;
    d.out_tokens = tensor(out_tokens_, shape_.received_dtype(), {zones, per_zone, h});
    d.out_scales = tensor(out_scales_, ucclEpFloat32, {zones, per_zone, s});
    d.out_idx = tensor(out_idx_, ucclEpInt64, {zones, per_zone, k});
    d.out_source = tensor(out_source_, ucclEpInt64, {zones, per_zone});
    d.out_weights = shape_.per_expert() ? tensor(out_weights_, ucclEpFloat32, {zones, per_zone})
                                        : tensor(out_weights_, ucclEpFloat32, {zones, per_zone, k});
    d.combine_in = tensor(combine_in_, back, {zones, per_zone, h});
  } else {
    d.out_tokens = tensor(out_tokens_, shape_.received_dtype(), {rows_, h});
    d.out_scales = tensor(out_scales_, ucclEpFloat32, {rows_, s});
    d.out_idx = tensor(out_idx_, ucclEpInt64, {rows_, k});
    d.out_source = tensor(out_source_, ucclEpInt64, {rows_});
    d.out_weights = shape_.per_expert() ? tensor(out_weights_, ucclEpFloat32, {rows_})
                                        : tensor(out_weights_, ucclEpFloat32, {rows_, k});
    d.combine_in = tensor(combine_in_, back, {rows_, h});
  }
}

void Endpoint::prepare() {
  ++iteration_;
  routing_ = make_routing(shape_, size_tokens_, iteration_);
  zones_ = expected_zones(shape_, routing_, team_.rank(), capacity_);
  fill_inputs();
  if (combines_) fill_combine_input();
}

// XOR of the byte with sign and exponent, so that no rounding hides it.
void Endpoint::flip(std::byte* row, ucclEpDataType_t dtype) const {
  row[(shape_.hidden / 2 + 1) * element_bytes(dtype) - 1] ^= std::byte{0xff};
}

void Endpoint::fill_inputs() {
  const int me = team_.rank();
  memory_->fill_rows(tokens_, shape_.input_row_bytes(), size_tokens_, [&](int64_t t, std::byte* row) {
    const auto token = static_cast<int>(t);
    fill_row(shape_.dtype, row_key(shape_, iteration_, Kind::tokens, me, token), row, shape_.input_row_bytes());
    if (corrupted_ == Corrupted::dispatch_input && me == 0 && token == 0) flip(row, shape_.dtype);
  });
  const size_t scale_bytes = shape_.scales() * sizeof(float);
  if (scale_bytes > 0) {
    memory_->fill_rows(scales_, scale_bytes, size_tokens_, [&](int64_t t, std::byte* row) {
      const uint64_t key = row_key(shape_, iteration_, Kind::scales, me, static_cast<int>(t));
      fill_row(ucclEpFloat32, key, row, scale_bytes);
    });
  }
  const size_t choices = static_cast<size_t>(size_tokens_) * shape_.topk;
  const std::vector<int64_t> ids(routing_.experts(me, 0), routing_.experts(me, 0) + choices);
  memory_->write(topk_idx_, ids.data(), choices * sizeof(int64_t));
  memory_->write(weights_, routing_.weights(me, 0), choices * sizeof(float));
  const std::vector<int64_t> unset(zones_.size(), -1);
  memory_->write(counts_, unset.data(), unset.size() * sizeof(int64_t));
}

void Endpoint::fill_combine_input() {
  const int me = team_.rank();
  const ucclEpDataType_t dtype = shape_.combine_dtype();
  const size_t bytes = shape_.combine_row_bytes();
  const int32_t victim = routing_.experts(0, 0)[0];
  for (const Zone& zone : zones_) {
    memory_->fill_rows(combine_in_ + zone.first * bytes, bytes, static_cast<int64_t>(zone.rows.size()),
                       [&](int64_t i, std::byte* where) {
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

Sample Endpoint::timed(const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  team_.barrier();
  if (team_.rank() == options_.late_rank) std::this_thread::sleep_for(std::chrono::microseconds(options_.late_us));
  const auto start = Clock::now();
  // The host's threads leave the barrier apart. What is enqueued behind an operation that all ranks take part in begins
  // when they have met, if the host does not stand between the two.
  if (timing().aligned) operation();
  check(ucclEpEventRecord(comm_, begin_, stream_), "ucclEpEventRecord", comm_);
  operation();
  check(ucclEpEventRecord(comm_, end_, stream_), "ucclEpEventRecord", comm_);
  check(ucclEpStreamSynchronize(comm_, stream_), "ucclEpStreamSynchronize", comm_);
  const auto stop = Clock::now();
  check_record();
  float milliseconds = 0;
  check(ucclEpEventElapsed(comm_, begin_, end_, &milliseconds), "ucclEpEventElapsed", comm_);
  return {std::chrono::duration<double, std::micro>(stop - start).count(), milliseconds * 1e3};
}

void Endpoint::check_record() {
  ucclEpAsyncError_t record = UCCLEP_ASYNC_ERROR_INIT;
  check(ucclEpCommGetAsyncError(comm_, &record), "ucclEpCommGetAsyncError", comm_);
  if (record.code != ucclEpSuccess) {
    throw PerfError(std::string(record.op) + ": " + ucclEpGetErrorString(record.code) + ": " + record.text);
  }
}

void Endpoint::dispatch() {
  ucclEpDispatchConfig_t config = UCCLEP_DISPATCH_CONFIG_INIT;
  config.quant = shape_.quant ? UCCLEP_QUANT_FP8_128 : UCCLEP_QUANT_NONE;
  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  (shape_.per_expert() ? counters.tokens_per_expert : counters.tokens_per_rank) = &tensors_.counts;
  ucclEpDispatchInputs_t inputs = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  inputs.tokens = &tensors_.tokens;
  inputs.topk_weights = &tensors_.weights;
  outputs.tokens = &tensors_.out_tokens;
  outputs.topk_weights = &tensors_.out_weights;
  outputs.src_info = &tensors_.out_source;
  if (shape_.scales() > 0) outputs.scales = &tensors_.out_scales;
  if (shape_.scales() > 0 && !shape_.quant) inputs.scales = &tensors_.scales;
  if (!shape_.per_expert()) outputs.topk_idx = &tensors_.out_idx;
  if (shape_.mode == UCCLEP_MODE_HT) {
    check(ucclEpHandleUpdate(handle_, &tensors_.topk_idx, &counters, stream_), "ucclEpHandleUpdate", comm_);
  } else {  // update and dispatch in one call
    inputs.topk_idx = &tensors_.topk_idx;
    outputs.counters = &counters;
  }
  check(ucclEpDispatch(handle_, &inputs, &outputs, &config, stream_), "ucclEpDispatch", comm_);
}

void Endpoint::combine() {
  ucclEpCombineInputs_t inputs = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t outputs = UCCLEP_COMBINE_OUTPUTS_INIT;
  inputs.tokens = &tensors_.combine_in;  // LL EXPERT_MAJOR: dispatch has taken the weights
  outputs.tokens = &tensors_.combine_out;
  check(ucclEpCombine(handle_, &inputs, &outputs, nullptr, stream_), "ucclEpCombine", comm_);
}

Tally Endpoint::check_dispatch() {
  Received received;
  received.tokens = out_tokens_;
  received.scales = out_scales_;
  received.weights = out_weights_;
  received.topk_idx = out_idx_;
  received.src_info = out_source_;
  received.counts.resize(zones_.size());
  std::memcpy(received.counts.data(), memory_->read(counts_, zones_.size() * sizeof(int64_t)),
              zones_.size() * sizeof(int64_t));
  const Reader reader = [this](const void* device, size_t bytes) { return memory_->read(device, bytes); };
  return verify_dispatch(shape_, routing_, iteration_, team_.rank(), zones_, received, reader);
}

Tally Endpoint::check_combine() {
  const Reader reader = [this](const void* device, size_t bytes) { return memory_->read(device, bytes); };
  return verify_combine(shape_, routing_, iteration_, team_.rank(), node_of_rank_, combine_out_, reader);
}

}  // namespace ucclep::perf
