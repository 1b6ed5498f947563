// SPDX-License-Identifier: Apache-2.0
#include "layer/layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "api.hpp"

namespace ucclep::perf {
namespace {

constexpr int most_waves = 32, most_sampled = 64;
constexpr int tile_of_gemms = 128;

// Ranks that take the GPU of this one.
int sharers(Team& team, const ucclEpCommInfo_t& info) {
  struct Place {
    char node_name[sizeof(ucclEpCommInfo_t::node_name)];
    int device_index;
  };
  Place mine{};
  std::memcpy(mine.node_name, info.node_name, sizeof mine.node_name);
  mine.device_index = info.device_index;
  const std::vector<Place> all = team.gather(mine);
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const Place& other) {
    return other.device_index == mine.device_index && std::strcmp(other.node_name, mine.node_name) == 0;
  }));
}

}  // namespace

LayerRank::LayerRank(const Options& o, Team& t) : options(o), team(t), info(UCCLEP_COMM_INFO_INIT) {
  const int gpu = o.gpu_of(t.gpu());
  use_gpu(gpu);
  ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
  config.device = UCCLEP_DEVICE_CUDA;
  config.device_index = gpu;
  config.timeout_ms = o.timeout_ms;
  check(team.init_communicator(&comm, config), "ucclEpCommInit");
  try {
    check(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo", comm);
    for (ucclEpStream_t* each : {&stream, &transfers})
      check(ucclEpStreamCreate(comm, each), "ucclEpStreamCreate", comm);
    events.resize(2 * most_waves + 2);
    for (ucclEpEvent_t& event : events) check(ucclEpEventCreate(comm, &event), "ucclEpEventCreate", comm);
    sms = gpu_sms() / sharers(team, info);
  } catch (...) {  // no destructor runs
    ucclEpCommAbort(comm);
    ucclEpCommDestroy(comm);
    throw;
  }
}

LayerRank::~LayerRank() {
  if (std::uncaught_exceptions() > 0) ucclEpCommAbort(comm);
  ucclEpCommDestroy(comm);  // with all that was made from it
}

void LayerRank::synchronize() {
  check(ucclEpStreamSynchronize(comm, stream), "ucclEpStreamSynchronize", comm);
  ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
  check(ucclEpCommGetAsyncError(comm, &error), "ucclEpCommGetAsyncError", comm);
  if (error.code != ucclEpSuccess) {
    throw PerfError(fmt::format("{}: {}: {}", error.op, ucclEpGetErrorString(error.code), error.text));
  }
}

void LayerRank::wait(ucclEpStream_t waiting, ucclEpStream_t other, ucclEpEvent_t event) {
  check(ucclEpEventRecord(comm, event, other), "ucclEpEventRecord", comm);
  check(ucclEpStreamWaitEvent(comm, waiting, event), "ucclEpStreamWaitEvent", comm);
}

Layer::Layer(LayerRank& rank, int tokens)
    : rank_(rank),
      o_(rank.options),
      shape_(rank.options.shape()),
      tokens_(tokens),
      capacity_((tokens + tile_of_gemms - 1) / tile_of_gemms * tile_of_gemms),
      local_(shape_.local_experts()),
      tile_rows_(o_.tile_rows > 0                                             ? o_.tile_rows
                 : tokens * shape_.ranks * shape_.topk <= 64 * shape_.experts ? 64
                                                                              : 128),
      beside_(o_.sms > 0 ? o_.sms : std::max(1, rank.sms / 8)),
      routing_(make_routing(shape_, tokens, 1)),
      tiles_(UCCLEP_TILES_INIT) {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = shape_.experts;
  config.top_k = shape_.topk;
  config.max_tokens_per_rank = capacity_;
  config.max_token_bytes = static_cast<int64_t>(shape_.input_row_bytes());
  check(ucclEpGroupCreate(&group_, rank_.comm, &config), "ucclEpGroupCreate", rank_.comm);

  const size_t row = shape_.input_row_bytes(), choices = static_cast<size_t>(tokens_) * shape_.topk;
  in_ = allocate(static_cast<size_t>(tokens_) * row);
  ids_ = allocate(choices * sizeof(int32_t));
  weights_ = allocate(choices * sizeof(float));
  rows_ = allocate(static_cast<size_t>(slab()) * local_ * row);
  made_ = allocate(static_cast<size_t>(slab()) * local_ * row);
  counts_ = static_cast<int32_t*>(allocate(static_cast<size_t>(local_) * sizeof(int32_t)));
  const uint32_t zero = 0;
  for (uint32_t** word : {&late_, &failed_}) {
    *word = static_cast<uint32_t*>(allocate(sizeof zero));
    write_device(*word, &zero, sizeof zero);
  }
  write_device(ids_, routing_.experts(rank_.team.rank(), 0), choices * sizeof(int32_t));
  write_device(weights_, routing_.weights(rank_.team.rank(), 0), choices * sizeof(float));
  fill_tokens(in_, tokens_, shape_.hidden, o_.seed, rank_.team.rank(), 0, nullptr);

  expert_shape_ = {local_, rank_.team.rank() * local_, o_.hidden, o_.intermediate, o_.seed};
  experts_ = std::make_unique<Experts>(expert_shape_, rows_, made_, slab() * local_);
  for (const std::string& way : o_.ways) {
    out_[way] = allocate(static_cast<size_t>(tokens_) * row);
    const bool by_tiles = way == "tiles" || way == "fused";
    handles_[way] = make_handle(by_tiles ? UCCLEP_LAYOUT_TILES : UCCLEP_LAYOUT_EXPERT_MAJOR,
                                way == "waves" ? o_.waves : 0, by_tiles ? tile_rows_ : 0);
    if (way == "fused") words_ = allocate(moe_layer::words_bytes(fused_layer(handles_[way])));
    if (way == "tiles") check(ucclEpHandleGetTiles(handles_[way], &tiles_), "ucclEpHandleGetTiles", rank_.comm);
  }
}

Layer::~Layer() {
  ucclEpGroupDestroy(group_);  // with its handles
  for (void* memory : memory_) free_device(memory);
}

void* Layer::allocate(size_t bytes) {
  return memory_.emplace_back(allocate_device(bytes));
}

ucclEpHandle_t Layer::make_handle(int layout, int waves, int tile_rows) {
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  config.mode = UCCLEP_MODE_LL;
  config.layout = layout;
  config.waves = waves;
  config.tile_rows = tile_rows;
  ucclEpHandle_t handle = nullptr;
  check(ucclEpHandleCreate(&handle, group_, &config), "ucclEpHandleCreate", rank_.comm);
  return handle;
}

void Layer::dispatch(ucclEpHandle_t handle, bool send_only, int sms) {
  const ucclEpTensor_t tokens = tensor(in_, ucclEpBfloat16, {tokens_, shape_.hidden}),
                       ids = tensor(ids_, ucclEpInt32, {tokens_, shape_.topk}),
                       weights = tensor(weights_, ucclEpFloat32, {tokens_, shape_.topk}),
                       rows = tensor(rows_, ucclEpBfloat16, {local_, slab(), shape_.hidden}),
                       counts = tensor(counts_, ucclEpInt32, {local_});
  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  counters.tokens_per_expert = &counts;
  ucclEpDispatchInputs_t inputs = UCCLEP_DISPATCH_INPUTS_INIT;
  inputs.tokens = &tokens, inputs.topk_idx = &ids, inputs.topk_weights = &weights;
  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = &rows, outputs.counters = &counters;
  ucclEpDispatchConfig_t config = UCCLEP_DISPATCH_CONFIG_INIT;
  config.send_only = send_only, config.num_sms = sms;
  check(ucclEpDispatch(handle, &inputs, &outputs, &config, rank_.stream), "ucclEpDispatch", rank_.comm);
}

void Layer::combine(ucclEpHandle_t handle, bool send_only, int sms, void* out) {
  const ucclEpTensor_t made = tensor(made_, ucclEpBfloat16, {local_, slab(), shape_.hidden}),
                       results = tensor(out, ucclEpBfloat16, {tokens_, shape_.hidden});
  ucclEpCombineInputs_t inputs = UCCLEP_COMBINE_INPUTS_INIT;
  inputs.tokens = &made;
  ucclEpCombineOutputs_t outputs = UCCLEP_COMBINE_OUTPUTS_INIT;
  outputs.tokens = &results;
  ucclEpCombineConfig_t config = UCCLEP_COMBINE_CONFIG_INIT;
  config.send_only = send_only, config.num_sms = sms;
  check(ucclEpCombine(handle, &inputs, &outputs, &config, rank_.stream), "ucclEpCombine", rank_.comm);
}

void Layer::gemms(ExpertZones zones, int blocks, ucclEpStream_t stream) {
  if (o_.gemm_sms > 0) blocks = std::min(blocks, o_.gemm_sms);
  experts_->up(zones, {tile_rows_, blocks, stream});
  zones.ready = nullptr;  // the up GEMM has waited for all rows
  experts_->down(zones, {tile_rows_, blocks, stream});
}

void Layer::run(const std::string& way) {
  void* const out = out_.at(way);
  way == "sequential" ? sequential(out) : way == "waves" ? waves(out) : way == "tiles" ? tiles(out) : fused(out);
}

void Layer::sequential(void* out) {
  const ucclEpHandle_t handle = handles_.at("sequential");
  dispatch(handle, false, 0);
  gemms({counts_, nullptr, slab(), 0, local_}, rank_.sms, rank_.stream);
  combine(handle, false, 0, out);
}

int Layer::wave_begin(int wave) const {  // local expert l is in wave l * waves / local_
  return (wave * local_ + o_.waves - 1) / o_.waves;
}

// The transfers of a wave run beside the GEMMs of its neighbours, whose results leave one wave later.
void Layer::waves(void* out) {
  const ucclEpHandle_t handle = handles_.at("waves");
  const ucclEpStream_t stream = rank_.stream, transfers = rank_.transfers;
  const auto send_back = [&](int wave) {
    rank_.wait(transfers, stream, rank_.events[2 * wave + 1]);
    check(ucclEpWaveDone(handle, wave, transfers), "ucclEpWaveDone", rank_.comm);
  };
  dispatch(handle, true, beside_);
  combine(handle, true, beside_, out);
  rank_.wait(transfers, stream, rank_.events[2 * most_waves]);
  for (int wave = 0; wave < o_.waves; ++wave) {
    check(ucclEpCompleteWave(handle, wave, transfers), "ucclEpCompleteWave", rank_.comm);
    rank_.wait(stream, transfers, rank_.events[2 * wave]);
    if (wave > 0) send_back(wave - 1);
    gemms({counts_, nullptr, slab(), wave_begin(wave), wave_begin(wave + 1)}, rank_.sms - beside_, stream);
  }
  send_back(o_.waves - 1);
  check(ucclEpComplete(handle, transfers), "ucclEpComplete", rank_.comm);
  rank_.wait(stream, transfers, rank_.events[2 * most_waves + 1]);
}

void Layer::tiles(void* out) {
  const ucclEpHandle_t handle = handles_.at("tiles");
  dispatch(handle, true, beside_);
  gemms({tiles_.rows_final, tiles_.first_row, slab(), 0, local_, tiles_.tile_ready, late_}, rank_.sms - beside_,
        rank_.stream);
  check(ucclEpComplete(handle, rank_.stream), "ucclEpComplete", rank_.comm);
  combine(handle, false, 0, out);
}

moe_layer::Layer Layer::fused_layer(ucclEpHandle_t handle) const {
  moe_layer::Layer layer{};
  layer.handle = handle;
  layer.tokens = tokens_, layer.top_k = shape_.topk;
  layer.hidden = shape_.hidden, layer.intermediate = o_.intermediate;
  layer.experts = local_, layer.tile_rows = tile_rows_, layer.slab = slab();
  layer.in = in_, layer.ids = static_cast<const int32_t*>(ids_), layer.weights = static_cast<const float*>(weights_);
  layer.up_weights = experts_->up_weights(), layer.down_weights = experts_->down_weights();
  layer.rows = rows_, layer.inner = experts_->inner(), layer.made = made_;
  layer.words = words_, layer.failed = failed_;
  return layer;
}

void Layer::fused(void* out) {
  moe_layer::Layer layer = fused_layer(handles_.at("fused"));
  layer.out = out;
  const int blocks = o_.gemm_sms > 0 ? std::min(rank_.sms, o_.gemm_sms) : rank_.sms;
  const char* const wrong = moe_layer::launch(layer, blocks, rank_.stream);
  if (wrong != nullptr) throw PerfError(std::string("cannot launch the fused kernel: ") + wrong);
}

std::vector<uint16_t> Layer::results(const std::string& way) {
  return read_row(out_.at(way), 0, static_cast<int64_t>(tokens_) * shape_.hidden);
}

void Layer::clear() {
  const std::vector<uint16_t> zeros(static_cast<size_t>(tokens_) * shape_.hidden);
  for (const auto& [way, out] : out_) write_device(out, zeros.data(), zeros.size() * sizeof zeros[0]);
}

std::vector<Visit> Layer::visits() const {
  std::vector<Visit> sample;
  const int step = std::max(1, tokens_ / most_sampled), me = rank_.team.rank();
  for (int token = 0; token < tokens_; token += step) {
    const int32_t* const experts = routing_.experts(me, token);
    const float* const weights = routing_.weights(me, token);
    sample.push_back({me, token, {experts, experts + shape_.topk}, {weights, weights + shape_.topk}});
  }
  return sample;
}

RowErrors Layer::compare(const std::vector<uint16_t>& results) const {
  const std::vector<Visit> sample = visits();
  std::vector<uint16_t> got;
  for (const Visit& visit : sample) {
    const auto first = results.begin() + visit.token * shape_.hidden;
    got.insert(got.end(), first, first + shape_.hidden);
  }
  RowErrors errors = compare_rows(got, reference_rows(expert_shape_, sample).results.data(),
                                  static_cast<int64_t>(sample.size()), shape_.hidden);
  if (errors.row >= 0) errors.row = sample[static_cast<size_t>(errors.row)].token;
  return errors;
}

std::string Layer::describe_errors(const std::vector<uint16_t>& results, double allowed) const {
  struct OfExpert {
    int wrong = 0, all = 0;
    double largest = 0;
  };
  std::map<int, OfExpert> of_experts;
  const std::vector<Visit> sample = visits();
  const std::vector<float> expected = reference_rows(expert_shape_, sample).results;
  for (size_t i = 0; i < sample.size(); ++i) {
    const auto first = results.begin() + sample[i].token * shape_.hidden;
    const double error =
        compare_rows({first, first + shape_.hidden}, expected.data() + i * shape_.hidden, 1, shape_.hidden).largest;
    for (const int expert : sample[i].experts) {
      OfExpert& of = of_experts[expert];
      ++of.all, of.wrong += error > allowed;
      of.largest = std::max(of.largest, error);
    }
  }
  std::string text;
  for (const auto& [expert, of] : of_experts) {
    text +=
        fmt::format("{}{}: {:.3g} ({} of {} tokens)", text.empty() ? "" : ", ", expert, of.largest, of.wrong, of.all);
  }
  return text;
}

bool Layer::late() const {
  return read_row(late_, 0, 2)[0] != 0;
}
bool Layer::failed() const {
  return read_row(failed_, 0, 2)[0] != 0;
}

std::string Layer::describe() const {
  return fmt::format("tiles of {}, {} SMs, of these {} for operations beside GEMMs", tile_rows_, rank_.sms, beside_);
}

}  // namespace ucclep::perf
