// SPDX-License-Identifier: Apache-2.0
#include "layer/experts.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "../../examples/expert_gemm.cuh"
#include "api.hpp"

namespace ucclep::perf {
namespace {

using expert_gemm::Element;
using expert_gemm::Operands;
using expert_gemm::Rounded;
using expert_gemm::Swiglu;
using expert_gemm::Tile;

void check_cuda(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw PerfError(std::string(call) + ": " + cudaGetErrorString(result));
}
#define CHECK_CUDA(call) check_cuda(call, #call)

// ---- Values: pure functions of seed and place, exact in bf16 ----

enum Kind : uint32_t { kind_token = 1, kind_gate = 2, kind_up = 3, kind_down = 4 };

__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
  return x;
}
// Of a row: of a token, or of an expert's matrix.
__host__ __device__ inline uint32_t row_seed(uint64_t seed, Kind kind, uint32_t owner, uint32_t row) {
  return mix(row ^ mix(owner * 8 + kind ^ mix(static_cast<uint32_t>(seed))));
}
// An odd multiple of 1/256 in (-1, 1).
__host__ __device__ inline float value(uint32_t row_seed, uint32_t column) {
  return (2.0f * static_cast<float>(mix(row_seed + column) >> 24) - 255.0f) / 256;
}
// A power of two by which sums of `depth` products stay near 1.
inline float weight_scale(int depth) {
  return std::exp2(std::round(std::log2(3.0f / std::sqrt(static_cast<float>(depth)))));
}

__global__ void fill_token_rows(__nv_bfloat16* rows, int hidden, uint64_t seed, uint32_t rank, int64_t first) {
  const uint32_t from = row_seed(seed, kind_token, rank, static_cast<uint32_t>(first + blockIdx.x));
  for (int c = static_cast<int>(threadIdx.x); c < hidden; c += static_cast<int>(blockDim.x)) {
    rows[static_cast<int64_t>(blockIdx.x) * hidden + c] = __float2bfloat16_rn(value(from, c));
  }
}
// Row r of the up matrix: 8 rows of gate, 8 of up, in turn.
__global__ void fill_up(__nv_bfloat16* rows, int width, int depth, uint64_t seed, uint32_t first_expert, float scale) {
  const uint32_t expert = blockIdx.y, row = blockIdx.x;
  const uint32_t from =
      row_seed(seed, row / 8 % 2 == 0 ? kind_gate : kind_up, first_expert + expert, row / 16 * 8 + row % 8);
  __nv_bfloat16* const to = rows + (static_cast<int64_t>(expert) * width + row) * depth;
  for (int c = static_cast<int>(threadIdx.x); c < depth; c += static_cast<int>(blockDim.x)) {
    to[c] = __float2bfloat16_rn(value(from, c) * scale);
  }
}
__global__ void fill_down(__nv_bfloat16* rows, int width, int depth, uint64_t seed, uint32_t first_expert,
                          float scale) {
  const uint32_t expert = blockIdx.y, row = blockIdx.x;
  const uint32_t from = row_seed(seed, kind_down, first_expert + expert, row);
  __nv_bfloat16* const to = rows + (static_cast<int64_t>(expert) * width + row) * depth;
  for (int c = static_cast<int>(threadIdx.x); c < depth; c += static_cast<int>(blockDim.x)) {
    to[c] = __float2bfloat16_rn(value(from, c) * scale);
  }
}

// ---- The reference: a warp computes one value by a plain dot product, of weights that it computes itself ----

struct DeviceVisit {
  uint32_t rank, token;
};

__device__ inline float sum_lanes(float sum) {
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}
__device__ inline int warp_of_grid() {
  return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
}

// inner [visits * top_k, intermediate]
__global__ void reference_up(ExpertShape shape, const DeviceVisit* visits, const int* experts, int top_k, float scale,
                             float* inner) {
  const int column = warp_of_grid(), choice = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  const int expert = experts[choice];
  if (column >= shape.intermediate || expert < 0) return;
  const DeviceVisit visit = visits[choice / top_k];
  const uint32_t x = row_seed(shape.seed, kind_token, visit.rank, visit.token),
                 g = row_seed(shape.seed, kind_gate, expert, column), u = row_seed(shape.seed, kind_up, expert, column);
  float gate = 0, up = 0;
  for (int i = lane; i < shape.hidden; i += 32) {
    const float in = value(x, i);
    gate += in * (value(g, i) * scale);
    up += in * (value(u, i) * scale);
  }
  gate = sum_lanes(gate), up = sum_lanes(up);
  const float result = gate / (1 + expf(-gate)) * up;
  if (lane == 0)
    inner[static_cast<int64_t>(choice) * shape.intermediate + column] = __bfloat162float(__float2bfloat16_rn(result));
}

// results [visits, hidden]
__global__ void reference_down(ExpertShape shape, const int* experts, const float* weights, int top_k, float scale,
                               const float* inner, float* results) {
  const int column = warp_of_grid(), visit = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  if (column >= shape.hidden) return;
  float total = 0;
  for (int k = 0; k < top_k; ++k) {
    const int choice = visit * top_k + k, expert = experts[choice];
    if (expert < 0) continue;
    const uint32_t d = row_seed(shape.seed, kind_down, expert, column);
    float sum = 0;
    for (int i = lane; i < shape.intermediate; i += 32) {
      sum += inner[static_cast<int64_t>(choice) * shape.intermediate + i] * (value(d, i) * scale);
    }
    total += weights[choice] * sum_lanes(sum);
  }
  if (lane == 0) results[static_cast<int64_t>(visit) * shape.hidden + column] = total;
}

// Freed at the end of its scope.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count), data_(static_cast<T*>(allocate_device(count * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    CHECK_CUDA(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    CHECK_CUDA(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_;
};

cudaStream_t cuda(ucclEpStream_t stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

struct Experts::Gpu {
  template <class T>
  struct Gemms {
    using Tile = T;
    Operands<T> up, down;
  };

  Gpu(const ExpertShape& s, const void* rows, void* results, int64_t num_rows)
      : shape(s),
        out(static_cast<Element*>(results)),
        inner(static_cast<size_t>(num_rows) * s.intermediate),
        up_weights(static_cast<size_t>(s.experts) * 2 * s.intermediate * s.hidden),
        down_weights(static_cast<size_t>(s.experts) * s.hidden * s.intermediate),
        tiles128(gemms<Tile<128>>(rows, num_rows)),
        tiles64(gemms<Tile<64>>(rows, num_rows)) {
    const auto fill = [&](auto kernel, Element* to, int width, int depth) {
      const dim3 grid(static_cast<unsigned>(width), static_cast<unsigned>(s.experts));
      kernel<<<grid, 256>>>(reinterpret_cast<__nv_bfloat16*>(to), width, depth, s.seed,
                            static_cast<uint32_t>(s.first_expert), weight_scale(depth));
      CHECK_CUDA(cudaGetLastError());
    };
    fill(fill_up, up_weights.data(), 2 * s.intermediate, s.hidden);
    fill(fill_down, down_weights.data(), s.hidden, s.intermediate);
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  template <class T>
  Gemms<T> gemms(const void* rows, int64_t num_rows) const {
    const int n = static_cast<int>(num_rows);
    return {expert_gemm::make_operands<T>(static_cast<const Element*>(rows), n, up_weights.data(), shape.experts,
                                          2 * shape.intermediate, shape.hidden),
            expert_gemm::make_operands<T>(inner.data(), n, down_weights.data(), shape.experts, shape.hidden,
                                          shape.intermediate)};
  }

  // Result: what becomes of sums. matrix: the up or the down GEMM.
  template <class Result>
  void multiply(bool down, const ExpertZones& z, Element* to, const GemmLaunch& launch) const {
    const expert_gemm::Zones zones{z.counts, z.first, z.slab, z.begin, z.end, z.ready, z.late};
    const auto start = [&](const auto& gemms) {
      using T = typename std::decay_t<decltype(gemms)>::Tile;
      CHECK_CUDA((
          expert_gemm::launch<T, Result>(down ? gemms.down : gemms.up, zones, to, launch.blocks, cuda(launch.stream))));
    };
    launch.tile_rows == 64 ? start(tiles64) : start(tiles128);
  }

  ExpertShape shape;
  Element* out;
  DeviceArray<Element> inner, up_weights, down_weights;
  Gemms<Tile<128>> tiles128;
  Gemms<Tile<64>> tiles64;
};

Experts::Experts(const ExpertShape& shape, const void* rows, void* results, int64_t num_rows) {
  if (shape.hidden % 256 != 0 || shape.intermediate % 128 != 0) {
    throw PerfError("hidden " + std::to_string(shape.hidden) + " and intermediate " +
                    std::to_string(shape.intermediate) + ": expected multiples of 256 and 128, the tiles of the GEMMs");
  }
  if (num_rows > INT32_MAX) throw PerfError(std::to_string(num_rows) + " rows of experts: expected at most 2^31 - 1");
  gpu_ = std::make_unique<Gpu>(shape, rows, results, num_rows);
}
Experts::~Experts() = default;

void Experts::up(const ExpertZones& zones, const GemmLaunch& launch) const {
  gpu_->multiply<Swiglu>(false, zones, gpu_->inner.data(), launch);
}
void Experts::down(const ExpertZones& zones, const GemmLaunch& launch) const {
  gpu_->multiply<Rounded>(true, zones, gpu_->out, launch);
}
void Experts::up_plain(const ExpertZones& zones, void* wide, const GemmLaunch& launch) const {
  gpu_->multiply<Rounded>(false, zones, static_cast<Element*>(wide), launch);
}
void* Experts::inner() const {
  return gpu_->inner.data();
}
const void* Experts::up_weights() const {
  return gpu_->up_weights.data();
}
const void* Experts::down_weights() const {
  return gpu_->down_weights.data();
}

void fill_tokens(void* tokens, int64_t count, int hidden, uint64_t seed, int rank, int64_t first,
                 ucclEpStream_t stream) {
  if (count == 0) return;
  fill_token_rows<<<static_cast<unsigned>(count), 256, 0, cuda(stream)>>>(static_cast<__nv_bfloat16*>(tokens), hidden,
                                                                          seed, static_cast<uint32_t>(rank), first);
  CHECK_CUDA(cudaGetLastError());
}

ReferenceRows reference_rows(const ExpertShape& shape, const std::vector<Visit>& visits) {
  const int top_k = static_cast<int>(visits.at(0).experts.size());
  std::vector<DeviceVisit> places;
  std::vector<int> experts;
  std::vector<float> weights;
  for (const Visit& visit : visits) {
    places.push_back({static_cast<uint32_t>(visit.rank), static_cast<uint32_t>(visit.token)});
    experts.insert(experts.end(), visit.experts.begin(), visit.experts.end());
    weights.insert(weights.end(), visit.weights.begin(), visit.weights.end());
  }
  const DeviceArray<DeviceVisit> device_places(places);
  const DeviceArray<int> device_experts(experts);
  const DeviceArray<float> device_weights(weights), inner(experts.size() * shape.intermediate),
      results(visits.size() * shape.hidden);
  constexpr int warps = 8;
  const auto grid = [](int columns, size_t rows) {
    return dim3(static_cast<unsigned>((columns + warps - 1) / warps), static_cast<unsigned>(rows));
  };
  reference_up<<<grid(shape.intermediate, experts.size()), warps * 32>>>(
      shape, device_places.data(), device_experts.data(), top_k, weight_scale(shape.hidden), inner.data());
  CHECK_CUDA(cudaGetLastError());
  reference_down<<<grid(shape.hidden, visits.size()), warps * 32>>>(shape, device_experts.data(), device_weights.data(),
                                                                    top_k, weight_scale(shape.intermediate),
                                                                    inner.data(), results.data());
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  const std::vector<float> all = inner.read();
  ReferenceRows rows{{}, results.read()};
  for (size_t v = 0; v < visits.size(); ++v) {
    const auto first = all.begin() + static_cast<int64_t>(v) * top_k * shape.intermediate;
    rows.inner.insert(rows.inner.end(), first, first + shape.intermediate);
  }
  return rows;
}

RowErrors compare_rows(const std::vector<uint16_t>& got, const float* expected, int64_t rows, int64_t columns) {
  double squares = 0;
  for (int64_t i = 0; i < rows * columns; ++i) squares += static_cast<double>(expected[i]) * expected[i];
  const double rms = std::sqrt(squares / std::max<double>(1, static_cast<double>(rows * columns)));
  RowErrors errors;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint32_t bits = static_cast<uint32_t>(got[i]) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    const double error = std::abs(static_cast<double>(value) - expected[i]) / (std::abs(expected[i]) + rms);
    if (error <= errors.largest) continue;  // NaN counts as an error
    errors = {std::isnan(error) ? INFINITY : error, i / columns, i % columns, value, expected[i]};
    if (std::isinf(errors.largest)) break;
  }
  return errors;
}

void use_gpu(int index) {
  CHECK_CUDA(cudaSetDevice(index));
  CHECK_CUDA(cudaFree(nullptr));  // makes the context that the library uses
}

int gpu_sms() {
  int device = 0, sms = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  return sms;
}

std::vector<uint16_t> read_row(const void* matrix, int64_t row, int64_t columns) {
  std::vector<uint16_t> values(static_cast<size_t>(columns));
  CHECK_CUDA(cudaMemcpy(values.data(), static_cast<const uint16_t*>(matrix) + row * columns, values.size() * 2,
                        cudaMemcpyDeviceToHost));
  return values;
}

void write_device(void* to, const void* from, size_t bytes) {
  CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

void* allocate_device(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
  if (result != cudaSuccess) {
    throw PerfError("no " + std::to_string(bytes >> 20) + " MiB of GPU memory: " + cudaGetErrorString(result));
  }
  return memory;
}
void free_device(void* memory) {
  cudaFree(memory);
}

GpuTimer::GpuTimer(ucclEpStream_t stream) : stream_(stream) {
  for (void** event : {&begin_, &end_}) CHECK_CUDA(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)));
}
GpuTimer::~GpuTimer() {
  for (void* event : {begin_, end_}) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
void GpuTimer::begin() {
  CHECK_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(begin_), cuda(stream_)));
}
double GpuTimer::end() {
  CHECK_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(end_), cuda(stream_)));
  CHECK_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)));
  float milliseconds = 0;
  CHECK_CUDA(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)));
  return milliseconds * 1e3;
}

}  // namespace ucclep::perf
