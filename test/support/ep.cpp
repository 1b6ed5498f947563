// SPDX-License-Identifier: Apache-2.0
#include "support/ep.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iomanip>
#include <sstream>
#include <utility>

#include "reference/numeric.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {

using reference::element_bytes;

void require(bool condition, const std::string& what) {
  if (!condition) throw Failure(what);
}

void ok(ucclEpResult_t result, const char* call) {
  if (result == ucclEpSuccess) return;
  throw Failure(std::string(call) + " failed: " + ucclEpGetErrorString(result) + ": " + ucclEpGetLastError(nullptr));
}

void refused(ucclEpResult_t result, ucclEpResult_t expected, const char* call, const std::vector<std::string>& words) {
  const std::string message = ucclEpGetLastError(nullptr);
  if (result != expected) {
    throw Failure(std::string(call) + " answered " + std::to_string(result) + " (" + message + "), expected " +
                  std::to_string(expected));
  }
  require(!message.empty(), std::string(call) + " was refused without an error message");
  const std::string name = std::string(call) + ": ";
  require(!message.starts_with(name + name), std::string(call) + " names itself twice: " + message);
  for (const std::string& word : words) {
    require(message.find(word) != std::string::npos,
            std::string(call) + " was refused with \"" + message + "\", which does not contain \"" + word + "\"");
  }
}

int test_gpus() {
  const char* gpus = std::getenv("UCCLEP_TEST_GPUS");
  return gpus == nullptr ? 0 : std::atoi(gpus);
}

int test_device() {
  const char* device = std::getenv("UCCLEP_TEST_DEVICE");
  return device != nullptr && std::strcmp(device, "hip") == 0 ? UCCLEP_DEVICE_HIP : UCCLEP_DEVICE_CUDA;
}

bool shares_gpus(int ranks) {
  return test_gpus() > 0 && ranks > test_gpus();
}

static int ranks_per_node() {
  const char* ranks = std::getenv("UCCLEP_TEST_RANKS_PER_NODE");
  return ranks == nullptr ? 0 : std::atoi(ranks);
}

bool crosses_nodes(int ranks) {
  return ranks_per_node() > 0 && ranks > ranks_per_node();
}

std::vector<int> nodes_of_environment(int ranks) {
  std::vector<int> nodes;
  for (int rank = 0; crosses_nodes(ranks) && rank < ranks; ++rank) nodes.push_back(rank / ranks_per_node());
  return nodes;
}

ucclEpCommConfig_t comm_config(const Rank& rank) {
  ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
  config.device = test_gpus() > 0 ? test_device() : UCCLEP_DEVICE_HOST;
  if (test_gpus() > 0) config.device_index = rank.rank % test_gpus();
  config.timeout_ms = reduced() ? 100000 : 20000;
  config.ranks_per_node = ranks_per_node();
  return config;
}

Comm::Comm(const Rank& rank, const ucclEpCommConfig_t& config, int id) {
  ok(ucclEpCommInitRank(&comm_, rank.count, rank.ids[id], rank.rank, &config), "ucclEpCommInitRank");
  note_comm(comm_);
}

void Comm::reset() {
  if (comm_ == nullptr) return;
  forget_comm(comm_);
  ucclEpCommDestroy(std::exchange(comm_, nullptr));
}

Group make_group(ucclEpComm_t comm, const ucclEpGroupConfig_t& config) {
  ucclEpGroup_t group = nullptr;
  ok(ucclEpGroupCreate(&group, comm, &config), "ucclEpGroupCreate");
  return Group(group);
}

Handle make_handle(ucclEpGroup_t group, const ucclEpHandleConfig_t& config) {
  ucclEpHandle_t handle = nullptr;
  ok(ucclEpHandleCreate(&handle, group, &config), "ucclEpHandleCreate");
  return Handle(handle);
}

void answered(ucclEpResult_t result, ucclEpResult_t expected, ucclEpComm_t comm, const char* call) {
  if (result == expected) return;
  throw Failure(std::string(call) + " answered " + ucclEpGetErrorString(result) + ", expected " +
                ucclEpGetErrorString(expected) + "; the record says: " + async_error(comm).text);
}

ucclEpAsyncError_t async_error(ucclEpComm_t comm) {
  ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
  ok(ucclEpCommGetAsyncError(comm, &error), "ucclEpCommGetAsyncError");
  return error;
}

void no_async_error(ucclEpComm_t comm) {
  const ucclEpAsyncError_t error = async_error(comm);
  require(error.code == ucclEpSuccess, std::string("an asynchronous error was recorded: ") + error.text);
}

Stream::Stream(ucclEpComm_t comm) : comm_(comm) {
  ok(ucclEpStreamCreate(comm, &stream_), "ucclEpStreamCreate");
}

Event::Event(ucclEpComm_t comm) : comm_(comm) {
  ok(ucclEpEventCreate(comm, &event_), "ucclEpEventCreate");
}

// ---- Tensor ----

namespace {

constexpr size_t margin = 256;  // keeps the alignment that token rows need

// It repeats itself after 65536 bytes.
std::vector<uint8_t> make_pattern() {
  std::vector<uint8_t> bytes(1 << 16);
  for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(0xc3 ^ (at * 89 + (at >> 8) * 37));
  return bytes;
}

}  // namespace

Tensor::Tensor(ucclEpComm_t comm, std::string name, ucclEpDataType_t dtype, Shape sizes, Shape strides, Memory memory)
    : comm_(comm),
      name_(std::move(name)),
      sizes_(std::move(sizes)),
      strides_(std::move(strides)),
      base_(nullptr, Free{comm, memory}) {
  tensor_ = UCCLEP_TENSOR_INIT;
  tensor_.dtype = dtype;
  tensor_.ndim = static_cast<int>(sizes_.size());
  int64_t elements = 1, contiguous = 1, last = 0;
  const bool given = !strides_.empty();
  if (!given) strides_.resize(sizes_.size());
  for (size_t i = sizes_.size(); i-- > 0;) {
    if (!given) strides_[i] = contiguous;
    contiguous *= sizes_[i];
    elements *= sizes_[i];
    last += (sizes_[i] - 1) * strides_[i];
    tensor_.sizes[i] = sizes_[i];
    tensor_.strides[i] = given ? strides_[i] : 0;
  }
  if (elements == 0) return;
  image_.resize(static_cast<size_t>(last + 1) * element_bytes(dtype) + 2 * margin);
  void* data = nullptr;
  if (memory == Memory::plain) {
    data = std::aligned_alloc(margin, (image_.size() + margin - 1) / margin * margin);
    require(data != nullptr, "no memory for tensor " + name_);
  } else {
    ok(ucclEpMemAlloc(comm_, &data, image_.size()), "ucclEpMemAlloc");
  }
  base_.reset(static_cast<uint8_t*>(data));
  tensor_.data = base_.get() + margin;
  poison();
}

void Tensor::Free::operator()(uint8_t* base) const {
  // When a check has failed, kernels may still run: the memory stays until the communicator ends.
  if (std::uncaught_exceptions() > 0) return;
  if (memory == Memory::plain) {
    std::free(base);
  } else {
    ucclEpMemFree(comm, base);
  }
}

size_t Tensor::offset(int64_t row, int64_t column) const {
  int64_t at = column * strides_.back();
  for (size_t i = sizes_.size() - 1; i-- > 0;) {
    at += row % sizes_[i] * strides_[i];
    row /= sizes_[i];
  }
  return margin + static_cast<size_t>(at) * element_bytes(tensor_.dtype);
}

int64_t Tensor::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < sizes_.size(); ++i) count *= sizes_[i];
  return count;
}

uint8_t* Tensor::row(int64_t row) {
  return image_.data() + offset(row, 0);
}
uint8_t* Tensor::element(int64_t row, int64_t column) {
  return image_.data() + offset(row, column);
}

void Tensor::fill_row(int64_t row, const void* bytes) {
  const size_t size = element_bytes(tensor_.dtype), step = static_cast<size_t>(strides_.back()) * size;
  const auto count = static_cast<size_t>(columns());
  uint8_t* const first = this->row(row);
  if (step == size) {
    std::memcpy(first, bytes, count * size);
    return;
  }
  for (size_t column = 0; column < count; ++column) {
    std::memcpy(first + column * step, static_cast<const uint8_t*>(bytes) + column * size, size);
  }
}

void Tensor::zero_row(int64_t row) {
  const std::vector<uint8_t> zeros(static_cast<size_t>(columns()) * element_bytes(tensor_.dtype));
  fill_row(row, zeros.data());
}

void Tensor::set_integer(int64_t row, int64_t column, int64_t value) {
  std::memcpy(element(row, column), &value, element_bytes(tensor_.dtype));  // little endian
}

void Tensor::set_integers(const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    set_integer(static_cast<int64_t>(i) / columns(), static_cast<int64_t>(i) % columns(), values[i]);
  }
}

void Tensor::poison() {
  static const std::vector<uint8_t> pattern = make_pattern();
  for (size_t at = 0; at < image_.size(); at += pattern.size()) {
    std::memcpy(image_.data() + at, pattern.data(), std::min(pattern.size(), image_.size() - at));
  }
  upload();
}

void Tensor::upload() {
  if (!base_) return;
  // The default stream orders nothing against other streams: callers upload while nothing runs.
  ok(ucclEpMemcpy(comm_, base_.get(), image_.data(), image_.size(), nullptr), "ucclEpMemcpy");
  ok(ucclEpStreamSynchronize(comm_, nullptr), "ucclEpStreamSynchronize");
}

std::vector<uint8_t> Tensor::download() const {
  std::vector<uint8_t> bytes(image_.size());
  if (!base_) return bytes;
  ok(ucclEpMemcpy(comm_, bytes.data(), base_.get(), bytes.size(), nullptr), "ucclEpMemcpy");
  ok(ucclEpStreamSynchronize(comm_, nullptr), "ucclEpStreamSynchronize");
  return bytes;
}

std::vector<int64_t> Tensor::integers() const {
  const std::vector<uint8_t> bytes = download();
  std::vector<int64_t> values;
  for (int64_t row = 0; row < rows(); ++row) {
    for (int64_t column = 0; column < columns(); ++column) {
      const uint8_t* at = bytes.data() + offset(row, column);
      int32_t narrow;
      int64_t wide;
      std::memcpy(&narrow, at, sizeof(narrow));
      if (tensor_.dtype == ucclEpInt64) std::memcpy(&wide, at, sizeof(wide));
      values.push_back(tensor_.dtype == ucclEpInt64 ? wide : narrow);
    }
  }
  return values;
}

bool Tensor::same_nan(const std::vector<uint8_t>& got, size_t at) const {
  const bool number =
      tensor_.dtype == ucclEpBfloat16 || tensor_.dtype == ucclEpFloat16 || tensor_.dtype == ucclEpFloat32;
  return number && at >= margin && std::isnan(reference::load(tensor_.dtype, got.data() + at)) &&
         std::isnan(reference::load(tensor_.dtype, image_.data() + at));
}

void Tensor::compare(int rank, bool any_nan) const {
  const std::vector<uint8_t> got = download();
  if (got == image_) return;
  const size_t size = element_bytes(tensor_.dtype);
  for (size_t at = 0; at < got.size(); ++at) {
    if (got[at] == image_[at]) continue;
    if (!any_nan || !same_nan(got, at / size * size)) report(rank, got, at);
  }
}

void Tensor::verify(int rank) const {
  compare(rank, false);
}
void Tensor::verify_numbers(int rank) const {
  compare(rank, true);
}

void Tensor::verify_rows(int rank, const std::vector<int64_t>& rows) const {
  const std::vector<uint8_t> got = download();
  const size_t size = element_bytes(tensor_.dtype);
  for (const int64_t row : rows) {
    for (int64_t column = 0; column < columns(); ++column) {
      const size_t at = offset(row, column);
      if (!std::equal(&got[at], &got[at] + size, &image_[at])) report(rank, got, at);
    }
  }
}

void Tensor::report(int rank, const std::vector<uint8_t>& got, size_t at) const {
  const size_t size = element_bytes(tensor_.dtype);
  std::ostringstream text;
  text << "rank " << rank << ", " << name_ << ": ";
  bool inside = false;
  for (int64_t row = 0; row < rows() && !inside; ++row) {
    for (int64_t column = 0; column < columns() && !inside; ++column) {
      if (at / size * size != offset(row, column)) continue;
      inside = true;
      text << "row " << row << " of " << rows() << ", element " << column << " of " << columns();
    }
  }
  if (!inside) text << "byte " << static_cast<int64_t>(at) - static_cast<int64_t>(margin) << ", outside all rows";
  const auto hex = [&](const std::vector<uint8_t>& bytes) {
    text << "0x" << std::hex << std::setfill('0');
    for (size_t i = size; i-- > 0;) text << std::setw(2) << static_cast<unsigned>(bytes[at / size * size + i]);
    text << std::dec;
  };
  text << ": expected ";
  hex(image_);
  text << ", got ";
  hex(got);
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != image_[i];
  text << "; " << wrong << " bytes differ";
  throw Failure(text.str());
}

}  // namespace ucclep::test
