// SPDX-License-Identifier: Apache-2.0
#include "conformance/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "conformance/tile_words.hpp"

namespace ucclep::test {
namespace {

const ucclEpTensor_t* get(const std::optional<Tensor>& tensor) {
  return tensor ? tensor->get() : nullptr;
}

void verify(const std::optional<Tensor>& tensor, int rank) {
  if (tensor) tensor->verify(rank);
}

}  // namespace

Exchange::Exchange(const Rank& rank, ucclEpComm_t comm, const Scenario& scenario, uint64_t routing_seed)
    : rank_(rank.rank),
      comm_(comm),
      scenario_(scenario),
      routing_seed_(routing_seed),
      contents_(scenario_, routing_seed, routing_seed) {
  make_inputs();
  make_outputs();
  make_counters();
  fill_inputs();
}

Exchange::~Exchange() {
  if (std::uncaught_exceptions() > 0) return;  // as for tensors
  // A call that was refused says nothing of operations before it: they may be on their way still.
  if (last_stream_) ucclEpStreamSynchronize(comm_, *last_stream_);
  ucclEpMemFreeHost(comm_, total_host_);
}

Tensor Exchange::make(const char* name, ucclEpDataType_t dtype, Tensor::Shape sizes, Tensor::Shape strides) const {
  return Tensor(comm_, name, dtype, std::move(sizes), std::move(strides), scenario_.memory);
}

// A tensor of token rows: 16 bytes of nobody's between them if the scenario is strided.
Tensor Exchange::make_rows(const char* name, ucclEpDataType_t dtype, Tensor::Shape sizes) const {
  if (!scenario_.strided) return make(name, dtype, std::move(sizes));
  Tensor::Shape strides(sizes.size(), 1);
  int64_t next = sizes.back() + 16 / static_cast<int64_t>(reference::element_bytes(dtype));
  for (size_t i = sizes.size() - 1; i-- > 0;) {
    strides[i] = next;
    next *= sizes[i];
  }
  return make(name, dtype, std::move(sizes), std::move(strides));
}

// The dimensions of received rows.
Tensor::Shape Exchange::leading() const {
  const int64_t max_rows = scenario_.max_rows();
  switch (scenario_.layout) {
    case Layout::ll_expert_major:
      return {scenario_.local_experts(), scenario_.slab_rows()};
    case Layout::ll_rank_major:
      return {scenario_.ranks, max_rows};
    default:
      return {contents_.capacity(rank_)};
  }
}

// The dimensions of a received row's weights.
Tensor::Shape Exchange::weight_entries() const {
  return scenario_.by_expert() ? leading() : with(leading(), scenario_.top_k);
}

Tensor::Shape Exchange::with(Tensor::Shape shape, int64_t last) const {
  shape.push_back(last);
  return shape;
}

// Column-major: the last but one dimension is contiguous.
Tensor::Shape Exchange::scale_strides(const Tensor::Shape& sizes) const {
  if (!scenario_.scales->columns) return {};
  Tensor::Shape strides(sizes.size(), 1);
  const int64_t rows = sizes[sizes.size() - 2];
  strides.back() = rows + 1;  // one element of nobody's after each column
  for (size_t i = sizes.size() - 2; i-- > 0;) strides[i] = (rows + 1) * sizes.back();
  return strides;
}

void Exchange::make_inputs() {
  const int64_t tokens = scenario_.tokens_of(rank_);
  tokens_ = make_rows("tokens", scenario_.dtype, {tokens, scenario_.hidden});
  topk_idx_ = make("topk_idx", scenario_.idx, {tokens, scenario_.top_k});
  if (scenario_.scales && scenario_.quant == UCCLEP_QUANT_NONE) {
    const Tensor::Shape sizes{tokens, scenario_.scale_width()};
    scales_ = make("scales", scenario_.scales->dtype, sizes, scale_strides(sizes));
  }
  const bool dispatch_weights = scenario_.weights == Weights::with_dispatch || scenario_.weights == Weights::with_both;
  const bool combine_weights = scenario_.weights == Weights::with_combine || scenario_.weights == Weights::with_both;
  if (dispatch_weights) weights_ = make("topk_weights", ucclEpFloat32, {tokens, scenario_.top_k});
  if (combine_weights) combine_weights_ = make("combine topk_weights", ucclEpFloat32, {tokens, scenario_.top_k});
  combine_tokens_ = make_rows("combine tokens", scenario_.combine_dtype, with(leading(), scenario_.combined_hidden()));
  const bool weight_rows = scenario_.pass == UCCLEP_PASS_BACKWARD && scenario_.weight_rows;
  if (weight_rows) weight_rows_ = make("combine rows of topk_weights", ucclEpFloat32, weight_entries());
  const Tensor::Shape result{tokens, scenario_.combined_hidden()};
  if (scenario_.biases > 0) bias_ = make_rows("bias", scenario_.combine_dtype, result);
  if (scenario_.biases > 1) bias2_ = make_rows("bias2", scenario_.combine_dtype, result);

  dispatch_in.tokens = get(tokens_);
  dispatch_in.scales = get(scales_);
  dispatch_in.topk_weights = get(weights_);
  if (scenario_.carried) dispatch_in.topk_idx = get(topk_idx_);
  dispatch_config.quant = scenario_.quant;
  dispatch_config.round_scale = scenario_.round_scale;
  dispatch_config.num_sms = scenario_.num_sms;
  combine_in.tokens = get(combine_tokens_);
  combine_in.topk_weights = get(weight_rows ? weight_rows_ : combine_weights_);
  combine_in.bias = get(bias_);
  combine_in.bias2 = get(bias2_);
  combine_config.num_sms = scenario_.num_sms;
  dispatch_config.pass = combine_config.pass = scenario_.pass;
}

void Exchange::make_outputs() {
  const ucclEpDataType_t dtype = scenario_.quant == UCCLEP_QUANT_NONE ? scenario_.dtype : ucclEpFloat8e4m3;
  tokens_out_ = make_rows("dispatched tokens", dtype, with(leading(), scenario_.hidden));
  if (scenario_.scales) {
    const Tensor::Shape sizes = with(leading(), scenario_.scale_width());
    scales_out_ = make("dispatched scales", scenario_.scales->dtype, sizes, scale_strides(sizes));
  }
  const bool by_expert = scenario_.by_expert();
  const Tensor::Shape entries = weight_entries();
  if (weights_) weights_out_ = make("dispatched topk_weights", ucclEpFloat32, entries);
  if (!by_expert) idx_out_ = make("dispatched topk_idx", scenario_.idx_out, entries);
  src_info_ = make("src_info", scenario_.src_info, leading());
  cumulative_ = make("cumulative_tokens_per_expert", ucclEpInt32, {scenario_.local_experts()});
  wait_ = make("wait_ns", ucclEpInt64, {scenario_.ranks});
  combined_ =
      make_rows("combined tokens", scenario_.combine_dtype, {scenario_.tokens_of(rank_), scenario_.combined_hidden()});
  if (weight_rows_)
    combined_weights_ = make("combined topk_weights", ucclEpFloat32, {scenario_.tokens_of(rank_), scenario_.top_k});
  combine_wait_ = make("combine wait_ns", ucclEpInt64, {scenario_.ranks});

  dispatch_out.tokens = get(tokens_out_);
  dispatch_out.scales = get(scales_out_);
  dispatch_out.topk_idx = get(idx_out_);
  dispatch_out.topk_weights = get(weights_out_);
  dispatch_out.src_info = get(src_info_);
  dispatch_out.cumulative_tokens_per_expert = get(cumulative_);
  dispatch_out.wait_ns = get(wait_);
  combine_out.tokens = get(combined_);
  combine_out.topk_weights = get(combined_weights_);
  combine_out.wait_ns = get(combine_wait_);
}

void Exchange::make_counters() {
  const int local = scenario_.local_experts();
  per_expert_ = make("tokens_per_expert", scenario_.counter, {local});
  unpadded_ = make("tokens_per_expert_unpadded", scenario_.counter, {local});
  offsets_ = make("expert_offsets", scenario_.counter, {local + scenario_.offsets_with_total});
  per_rank_ = make("tokens_per_rank", scenario_.counter, {scenario_.ranks});
  per_expert_rank_ = make("tokens_per_expert_rank", scenario_.counter, {local, scenario_.ranks});
  total_ = make("recv_total", scenario_.counter, {1});
  void* host = nullptr;
  ok(ucclEpMemAllocHost(comm_, &host, sizeof(int64_t)), "ucclEpMemAllocHost");
  total_host_ = static_cast<int64_t*>(host);
  *total_host_ = -77;
  counters_.tokens_per_expert = get(per_expert_);
  counters_.tokens_per_expert_unpadded = get(unpadded_);
  counters_.expert_offsets = get(offsets_);
  counters_.tokens_per_rank = get(per_rank_);
  counters_.tokens_per_expert_rank = get(per_expert_rank_);
  counters_.recv_total = get(total_);
  counters_.recv_total_host = total_host_;
  if (scenario_.carried) dispatch_out.counters = &counters_;
}

void Exchange::fill_inputs() {
  const reference::Routing& raw = contents_.raw().rank[static_cast<size_t>(rank_)];
  for (int64_t token = 0; token < raw.tokens; ++token) {
    tokens_->fill_row(token, contents_.token(rank_, token).data());
    if (scales_) scales_->fill_row(token, contents_.scales(rank_, token).data());
    for (int j = 0; j < raw.k; ++j) topk_idx_->set_integer(token, j, raw.expert(token, j));
    const auto first = static_cast<size_t>(token * raw.k);
    if (weights_) weights_->fill_row(token, &raw.weights[first]);
    if (combine_weights_) combine_weights_->fill_row(token, &contents_.combine_weights(rank_).weights[first]);
    for (int64_t column = 0; column < scenario_.combined_hidden(); ++column) {
      const auto set = [&](Tensor& bias, int which) {
        reference::store(scenario_.combine_dtype, bias.element(token, column),
                         contents_.bias(which, rank_, token, column));
      };
      if (bias_) set(*bias_, 0);
      if (bias2_) set(*bias2_, 1);
    }
  }
  fill_rows_back();
  const auto start = [](Tensor& tensor, std::vector<int64_t>& before, int64_t value) {
    before.clear();
    for (int64_t i = 0; i < tensor.columns(); ++i) before.push_back(value * (i + 1));
    tensor.set_integers(before);
  };
  start(*cumulative_, cumulative_before_, 100);
  start(*wait_, wait_before_, 1000);
  start(*combine_wait_, combine_wait_before_, 10000);
  for (auto* tensor : {&tokens_, &scales_, &weights_, &topk_idx_, &combine_weights_, &bias_, &bias2_, &cumulative_,
                       &wait_, &combine_wait_}) {
    if (*tensor) (*tensor)->upload();
  }
}

// Rows that combine must not read are NaN.
void Exchange::fill_rows_back() {
  const int64_t hidden = scenario_.combined_hidden();
  const int64_t rows = combine_tokens_->rows();
  const std::vector<uint8_t> nan(static_cast<size_t>(hidden) * reference::element_bytes(scenario_.combine_dtype), 0xff);
  for (int64_t row = 0; row < rows; ++row) combine_tokens_->fill_row(row, nan.data());
  if (weight_rows_) {
    const std::vector<uint8_t> no_weight(sizeof(float) * static_cast<size_t>(weight_rows_->columns()), 0xff);
    for (int64_t row = 0; row < weight_rows_->rows(); ++row) weight_rows_->fill_row(row, no_weight.data());
  }
  for (const reference::Slot& slot : contents_.kept(rank_).slots) {
    fill_row_back(slot.row);
  }
  for (auto* tensor : {&combine_tokens_, &weight_rows_}) {
    if (*tensor) (*tensor)->upload();
  }
}

int64_t Exchange::at(int64_t row) const {
  if (!places_.empty()) return places_.at(static_cast<size_t>(row));
  if (scenario_.tile_rows == 0 || !scenario_.ll()) return row;
  const int64_t slab = scenario_.ranks * scenario_.max_rows();
  return row / slab * scenario_.slab_rows() + row % slab;
}

void Exchange::take_places(ucclEpHandle_t handle) {
  const TileWords words(comm_, handle, scenario_);
  places_ = words.places(contents_, scenario_, rank_);
  words.check_addresses(dispatch_out, places_);
  fill_rows_back();
}

void Exchange::fill_row_back(int64_t row) {
  if (weight_rows_) fill_weight_row(row);
  for (int64_t column = 0; column < scenario_.combined_hidden(); ++column) {
    reference::store(scenario_.combine_dtype, combine_tokens_->element(at(row), column),
                     contents_.combine_input(rank_, row, column));
  }
}

void Exchange::hide_rows_back() {
  const std::vector<uint8_t> nan(combine_tokens_->download().size(), 0xff);
  for (auto* tensor : {&combine_tokens_, &weight_rows_}) {
    for (int64_t row = 0; *tensor && row < (*tensor)->rows(); ++row) (*tensor)->fill_row(row, nan.data());
    if (*tensor) (*tensor)->upload();
  }
}

void Exchange::make_rows_back(int wave) {
  for (const reference::Slot& slot : contents_.kept(rank_).slots) {
    if (slot.expert * std::max(1, scenario_.waves) / scenario_.local_experts() == wave) fill_row_back(slot.row);
  }
  for (auto* tensor : {&combine_tokens_, &weight_rows_}) {
    if (*tensor) (*tensor)->upload();
  }
}

void Exchange::fill_weight_row(int64_t row) {
  const Tensor::Shape last = weight_rows_->sizes();
  for (int k = 0; k < (scenario_.by_expert() ? 1 : scenario_.top_k); ++k) {
    const float weight = contents_.weight_row(rank_, row, k);
    uint8_t* to = scenario_.by_expert() ? weight_rows_->element(at(row) / last.back(), at(row) % last.back())
                                        : weight_rows_->element(row, k);
    std::memcpy(to, &weight, sizeof(weight));
  }
}

void Exchange::refresh(uint64_t data_seed) {
  contents_ = Contents(scenario_, routing_seed_, data_seed);
  places_.clear();
  for (auto* tensor :
       {&tokens_out_, &scales_out_, &idx_out_, &weights_out_, &src_info_, &combined_, &combined_weights_}) {
    if (*tensor) (*tensor)->poison();
  }
  fill_inputs();
}

void Exchange::leave_out(int rank, bool sends) {
  contents_.leave_out(rank, sends);
  if (!sends) fill_rows_back();
}

void Exchange::reroute(uint64_t seed) {
  routing_seed_ = seed;
  for (auto* tensor : {&per_expert_, &unpadded_, &offsets_, &per_rank_, &per_expert_rank_, &total_}) {
    (*tensor)->poison();
  }
  refresh(seed);
}

void Exchange::remap(std::vector<reference::ExpertMap> maps, uint64_t seed) {
  scenario_.maps = std::move(maps);
  reroute(seed);
}

ucclEpResult_t Exchange::try_update(ucclEpHandle_t handle, ucclEpStream_t stream) {
  last_stream_ = stream;
  return ucclEpHandleUpdate(handle, topk_idx_->get(), &counters_, stream);
}
ucclEpResult_t Exchange::try_dispatch(ucclEpHandle_t handle, ucclEpStream_t stream) {
  last_stream_ = stream;
  return ucclEpDispatch(handle, &dispatch_in, &dispatch_out, &dispatch_config, stream);
}
ucclEpResult_t Exchange::try_combine(ucclEpHandle_t handle, ucclEpStream_t stream) {
  last_stream_ = stream;
  return ucclEpCombine(handle, &combine_in, &combine_out, &combine_config, stream);
}

void Exchange::update(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(try_update(handle, stream), "ucclEpHandleUpdate");
}
void Exchange::dispatch(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(try_dispatch(handle, stream), "ucclEpDispatch");
}
void Exchange::combine(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(try_combine(handle, stream), "ucclEpCombine");
}

// ---- Checks ----

void Exchange::check_counters() {
  const reference::Counters expected = reference::counters(contents_.world(), scenario_.shape(), rank_);
  per_expert_->set_integers(expected.tokens_per_expert);
  unpadded_->set_integers(expected.tokens_per_expert_unpadded);
  std::vector<int64_t> offsets = expected.expert_offsets;
  if (!scenario_.offsets_with_total) offsets.pop_back();
  offsets_->set_integers(offsets);
  per_rank_->set_integers(expected.tokens_per_rank);
  per_expert_rank_->set_integers(expected.tokens_per_expert_rank);
  total_->set_integers({expected.recv_total});
  for (const auto* tensor : {&per_expert_, &unpadded_, &offsets_, &per_rank_, &per_expert_rank_, &total_}) {
    verify(*tensor, rank_);
  }
  const int64_t host = total_on_host();
  require(host == expected.recv_total, "rank " + std::to_string(rank_) + ": recv_total_host is " +
                                           std::to_string(host) + ", expected " + std::to_string(expected.recv_total));
}

void Exchange::expect_row(const reference::Slot& slot) {
  const int64_t row_at = at(slot.row);
  if (slot.source == blank_) return expect_nothing_in(row_at);
  Contents::Row row = contents_.received(slot.source, slot.token);
  const bool given = given_.empty() || slot.token < given_[static_cast<size_t>(slot.source)];
  if (!given) {
    for (auto* bytes : {&row.bytes, &row.scales}) std::fill(bytes->begin(), bytes->end(), uint8_t{0});
  }
  tokens_out_->fill_row(row_at, row.bytes.data());
  if (scales_out_) scales_out_->fill_row(row_at, row.scales.data());
  const bool narrow = scenario_.src_info == ucclEpInt32;
  const Tensor::Shape last = src_info_->sizes();
  src_info_->set_integer(row_at / last.back(), row_at % last.back(),
                         narrow ? slot.token : int64_t{slot.source} << 32 | slot.token);
  if (scenario_.by_expert()) {
    const float weight = given ? reference::received_weight(contents_.world(), slot, rank_) : 0.0f;
    if (weights_out_)
      std::memcpy(weights_out_->element(row_at / last.back(), row_at % last.back()), &weight, sizeof(weight));
    return;
  }
  const auto experts = reference::received_experts(contents_.world(), slot, rank_, scenario_.global_ids);
  for (size_t j = 0; j < experts.size(); ++j) idx_out_->set_integer(row_at, static_cast<int64_t>(j), experts[j]);
  if (!weights_out_) return;
  std::vector<float> weights = reference::received_weights(contents_.world(), slot, rank_);
  if (!given) std::fill(weights.begin(), weights.end(), 0.0f);
  weights_out_->fill_row(row_at, weights.data());
}

// A row between the zones of HT expert-major: zero, its weight too.
void Exchange::expect_padding(int64_t row) {
  tokens_out_->zero_row(row);
  if (scales_out_) scales_out_->zero_row(row);
  if (weights_out_) weights_out_->set_integer(0, row, 0);
  src_info_->set_integer(0, row, -1);
}

// A row of a masked rank of whose rows not all came.
void Exchange::expect_nothing_in(int64_t row) {
  tokens_out_->zero_row(row);
  if (scales_out_) scales_out_->zero_row(row);
  const int64_t width = src_info_->columns();
  src_info_->set_integer(row / width, row % width, -1);
  if (weights_out_ && scenario_.by_expert()) weights_out_->set_integer(row / width, row % width, 0);
}

// A row that no token has come to: only its metadata says so.
void Exchange::expect_unused(int64_t row) {
  if (scenario_.layout == Layout::ll_expert_major) return;
  if (scenario_.by_expert()) {
    if (weights_out_) weights_out_->set_integer(0, row, 0);
    return;
  }
  for (int64_t j = 0; j < scenario_.top_k; ++j) idx_out_->set_integer(row, j, -1);
  if (weights_out_) weights_out_->zero_row(row);
  const int64_t width = src_info_->columns();
  if (scenario_.layout == Layout::ll_rank_major) src_info_->set_integer(row / width, row % width, -1);
}

void Exchange::check_added(Tensor& tensor, const std::vector<int64_t>& before) {
  const std::vector<int64_t> now = tensor.integers();
  for (size_t i = 0; i < now.size(); ++i) {
    const int64_t waited = now[i] - before[i];
    require(waited >= 0 && waited < 200'000'000'000, "rank " + std::to_string(rank_) + ": wait_ns of peer " +
                                                         std::to_string(i) + " grew by " + std::to_string(waited));
  }
  tensor.set_integers(now);
  tensor.verify(rank_);
}

void Exchange::check_dispatch() {
  const int64_t rows = tokens_out_->rows();
  const reference::Placement placed = contents_.kept(rank_);
  const bool pads = scenario_.tile_rows == 0;  // else what is behind an expert's rows in its last tile is left alone
  for (int64_t row = pads ? 0 : placed.total; row < rows; ++row) expect_unused(row);
  for (const int64_t row : placed.padding) {
    if (pads) expect_padding(row);
  }
  for (const reference::Slot& slot : placed.slots) expect_row(slot);
  const reference::Counters counts = reference::counters(contents_.world(), scenario_.shape(), rank_);
  std::vector<int64_t> cumulative = cumulative_before_;
  const bool counted = dispatch_out.cumulative_tokens_per_expert != nullptr;
  for (size_t i = 0; i < cumulative.size() && counted; ++i) cumulative[i] += counts.tokens_per_expert_unpadded[i];
  cumulative_->set_integers(cumulative);
  for (const auto* tensor : {&idx_out_, &src_info_, &tokens_out_, &scales_out_, &weights_out_, &cumulative_}) {
    verify(*tensor, rank_);
  }
  check_added(*wait_, wait_before_);
  for (const auto* input : {&tokens_, &scales_, &weights_, &topk_idx_}) verify(*input, rank_);
}

void Exchange::check_waves(int end) {
  std::vector<int64_t> rows;
  for (const reference::Slot& slot : contents_.kept(rank_).slots) {
    if (slot.expert * std::max(1, scenario_.waves) / scenario_.local_experts() >= end) continue;
    expect_row(slot);
    rows.push_back(at(slot.row));
  }
  for (const auto* tensor : {&tokens_out_, &scales_out_}) {
    if (*tensor) (*tensor)->verify_rows(rank_, rows);
  }
}

void Exchange::check_combine() {
  const std::vector<float> expected = contents_.combined(rank_);
  const auto hidden = static_cast<size_t>(scenario_.combined_hidden());
  for (size_t i = 0; i < expected.size(); ++i) {
    uint8_t* element = combined_->element(static_cast<int64_t>(i / hidden), static_cast<int64_t>(i % hidden));
    reference::store(scenario_.combine_dtype, element, expected[i]);
  }
  verify(combined_, rank_);
  if (combined_weights_) {
    const std::vector<float> weights = contents_.combined_weights(rank_);
    for (int64_t token = 0; token < scenario_.tokens_of(rank_); ++token) {
      combined_weights_->fill_row(token, &weights[static_cast<size_t>(token * scenario_.top_k)]);
    }
    verify(combined_weights_, rank_);
  }
  check_added(*combine_wait_, combine_wait_before_);
  for (const auto* input : {&combine_tokens_, &combine_weights_, &weight_rows_, &bias_, &bias2_}) verify(*input, rank_);
}

void Exchange::check_all() {
  check_counters();
  check_dispatch();
  check_combine();
}

void Exchange::check_untouched() {
  for (const auto* tensor : {&tokens_out_, &scales_out_, &combined_, &combined_weights_}) verify(*tensor, rank_);
}

}  // namespace ucclep::test
