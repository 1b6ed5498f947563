// SPDX-License-Identifier: Apache-2.0
// The experts of a rank on its GPU: weights, the two grouped GEMMs, and a reference that shares nothing with them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

struct ExpertShape {
  int experts = 0;       // of this rank
  int first_expert = 0;  // global id of the first
  int hidden = 0;        // a multiple of 256
  int intermediate = 0;  // a multiple of 128
  uint64_t seed = 0;
};

// Where an expert's rows are, as expert_gemm::Zones says it.
struct ExpertZones {
  const int32_t* counts = nullptr;
  const int64_t* first = nullptr;
  int64_t slab = 0;
  int begin = 0, end = 0;
  const uint32_t* ready = nullptr;
  uint32_t* late = nullptr;
};

// How a GEMM is launched.
struct GemmLaunch {
  int tile_rows = 128;  // 64 or 128
  int blocks = 0;
  ucclEpStream_t stream = nullptr;
};

// bf16 matrices in device memory, row-major.
class Experts {
 public:
  // rows and results: [num_rows, hidden]. Throws PerfError.
  Experts(const ExpertShape& shape, const void* rows, void* results, int64_t num_rows);
  ~Experts();
  Experts(const Experts&) = delete;
  Experts& operator=(const Experts&) = delete;

  // silu(rows * gate) * (rows * up), into inner().
  void up(const ExpertZones& zones, const GemmLaunch& launch) const;
  // inner() * down, into results.
  void down(const ExpertZones& zones, const GemmLaunch& launch) const;
  // The same GEMMs without SwiGLU, as a library has them: rows * [gate, up] into wide [num_rows, 2 * intermediate].
  void up_plain(const ExpertZones& zones, void* wide, const GemmLaunch& launch) const;

  void* inner() const;               // [num_rows, intermediate]
  const void* up_weights() const;    // [experts, 2 * intermediate, hidden]: 8 rows of gate, 8 of up, in turn
  const void* down_weights() const;  // [experts, hidden, intermediate]

  struct Gpu;  // of the implementation: nvcc's stubs name its types

 private:
  std::unique_ptr<Gpu> gpu_;
};

// tokens [count, hidden]: what the reference expects of tokens first, first + 1, ... of a rank.
void fill_tokens(void* tokens, int64_t count, int hidden, uint64_t seed, int rank, int64_t first,
                 ucclEpStream_t stream);

// A token of a rank and the experts that it visits, by global ids; -1: none.
struct Visit {
  int rank = 0;
  int64_t token = 0;
  std::vector<int> experts;
  std::vector<float> weights;
};
struct ReferenceRows {
  std::vector<float> inner;    // [visits, intermediate], of the first expert, rounded to bf16
  std::vector<float> results;  // [visits, hidden]: the weighted sum, in fp32
};
// In fp32 by plain dot products; inner values are rounded to bf16 as the GEMMs do. All visits have as many experts.
ReferenceRows reference_rows(const ExpertShape& shape, const std::vector<Visit>& visits);

// Largest errors of rows that were read back, in units of |expected| + rms(expected).
struct RowErrors {
  double largest = 0;
  int64_t row = -1, column = -1;  // of the largest
  double got = 0, expected = 0;
};
RowErrors compare_rows(const std::vector<uint16_t>& got, const float* expected, int64_t rows, int64_t columns);

void use_gpu(int index);  // of this thread
int gpu_sms();
// Copies to the host, after all work of the device.
std::vector<uint16_t> read_row(const void* matrix, int64_t row, int64_t columns);
void write_device(void* to, const void* from, size_t bytes);
// Device memory of the process; throws PerfError. Freed by free_device.
void* allocate_device(size_t bytes);
void free_device(void* memory);

// Between two points of a stream, by events.
class GpuTimer {
 public:
  explicit GpuTimer(ucclEpStream_t stream);
  ~GpuTimer();
  void begin();
  double end();  // us; waits

 private:
  ucclEpStream_t stream_;
  void *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace ucclep::perf
