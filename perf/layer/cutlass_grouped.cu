// SPDX-License-Identifier: Apache-2.0
#include "layer/cutlass_grouped.hpp"

#include <cuda_runtime.h>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "api.hpp"

namespace ucclep::perf {

struct CutlassGrouped::Kernel {
  virtual ~Kernel() = default;
  virtual void run(cudaStream_t stream) = 0;
};

namespace {

using namespace cute;
using Bf16 = cutlass::bfloat16_t;
using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;

struct Cooperative {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};
struct Pingpong {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};

void check(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess) {
    throw PerfError(std::string("CUTLASS, ") + what + ": " + cutlassGetStatusString(status));
  }
}

// Copies to device memory that lives as long as the kernel.
class Arrays {
 public:
  ~Arrays() {
    for (void* memory : all_) cudaFree(memory);
  }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) throw PerfError("no GPU memory for CUTLASS's grouped GEMM");
    all_.push_back(memory);
    return memory;
  }
  template <class T>
  T* copy(const std::vector<T>& values) {
    T* const memory = static_cast<T*>(allocate(values.size() * sizeof(T)));
    cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return memory;
  }

 private:
  std::vector<void*> all_;
};

template <class Tile, class Cluster, class Schedule>
class Grouped final : public CutlassGrouped::Kernel {
  using Row = cutlass::layout::RowMajor;
  using Column = cutlass::layout::ColumnMajor;
  static constexpr int alignment = 8;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row*, alignment, Bf16, Row*, alignment,
      typename Schedule::Epilogue>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Bf16, Row*, alignment, Bf16, Column*, alignment, float, Tile,
      Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Schedule::Mainloop>::CollectiveOp;
  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<GemmKernel>;

 public:
  Grouped(const std::vector<int>& counts, int64_t slab, const Bf16* rows, const Bf16* weights, Bf16* results, int width,
          int depth) {
    using StrideA = typename GemmKernel::InternalStrideA;
    using StrideB = typename GemmKernel::InternalStrideB;
    using StrideD = typename GemmKernel::InternalStrideD;
    std::vector<Shape<int, int, int>> shapes;
    std::vector<const Bf16*> a, b;
    std::vector<Bf16*> d;
    std::vector<StrideA> stride_a;
    std::vector<StrideB> stride_b;
    std::vector<StrideD> stride_d;
    for (size_t e = 0; e < counts.size(); ++e) {
      const auto first = static_cast<int64_t>(e) * slab;
      shapes.push_back(make_shape(counts[e], width, depth));
      a.push_back(rows + first * depth);
      b.push_back(weights + static_cast<int64_t>(e) * width * depth);
      d.push_back(results + first * width);
      stride_a.push_back(cutlass::make_cute_packed_stride(StrideA{}, make_shape(counts[e], depth, 1)));
      stride_b.push_back(cutlass::make_cute_packed_stride(StrideB{}, make_shape(width, depth, 1)));
      stride_d.push_back(cutlass::make_cute_packed_stride(StrideD{}, make_shape(counts[e], width, 1)));
    }
    int device = 0;
    cudaGetDevice(&device);
    const auto hardware = cutlass::KernelHardwareInfo::make_kernel_hardware_info<GemmKernel>(device);
    typename Gemm::Arguments arguments;
    decltype(arguments.epilogue.thread) sums;
    sums.alpha = 1;
    sums.beta = 0;
    sums.alpha_ptr = sums.beta_ptr = nullptr;
    sums.alpha_ptr_array = sums.beta_ptr_array = nullptr;
    sums.dAlpha = {_0{}, _0{}, 0};
    sums.dBeta = {_0{}, _0{}, 0};
    arguments = {cutlass::gemm::GemmUniversalMode::kGrouped,
                 {static_cast<int>(counts.size()), arrays_.copy(shapes), nullptr},
                 {arrays_.copy(a), arrays_.copy(stride_a), arrays_.copy(b), arrays_.copy(stride_b)},
                 {sums, nullptr, nullptr, arrays_.copy(d), arrays_.copy(stride_d)},
                 hardware};
    check(Gemm::can_implement(arguments), "can_implement");
    check(gemm_.initialize(arguments, arrays_.allocate(std::max<size_t>(1, Gemm::get_workspace_size(arguments)))),
          "initialize");
  }
  void run(cudaStream_t stream) override { check(gemm_.run(stream), "run"); }

 private:
  Arrays arrays_;
  Gemm gemm_;
};

const char* const cooperative = "cooperative 128x256x64, cluster 2x1";
const char* const pingpong = "pingpong 64x256x64, cluster 1x1";

}  // namespace

std::vector<std::string> CutlassGrouped::kinds() {
  return {cooperative, pingpong};
}

CutlassGrouped::CutlassGrouped(const std::string& kind, const std::vector<int>& counts, int64_t slab, const void* rows,
                               const void* weights, void* results, int width, int depth) {
  const auto make = [&]<class Grouped>() -> std::unique_ptr<Kernel> {
    return std::make_unique<Grouped>(counts, slab, static_cast<const Bf16*>(rows), static_cast<const Bf16*>(weights),
                                     static_cast<Bf16*>(results), width, depth);
  };
  kernel_ = kind == cooperative
                ? make.template operator()<Grouped<Shape<_128, _256, _64>, Shape<_2, _1, _1>, Cooperative>>()
                : make.template operator()<Grouped<Shape<_64, _256, _64>, Shape<_1, _1, _1>, Pingpong>>();
}
CutlassGrouped::~CutlassGrouped() = default;

void CutlassGrouped::run(ucclEpStream_t stream) {
  kernel_->run(static_cast<cudaStream_t>(stream));
}

}  // namespace ucclep::perf
