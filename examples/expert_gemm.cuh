// SPDX-License-Identifier: Apache-2.0
// The GEMMs of a MoE layer's experts on Hopper's tensor cores: persistent blocks, one warp loads by TMA, two warpgroups
// multiply (WGMMA, bf16, sums in fp32). Which tiles a block computes, and when, is up to a Source, so one text serves
// rows that are all there, rows that still arrive, and a kernel that runs a whole layer (moe_layer_fused.cu). Needs
// CUTLASS 4 (`make examples-cutlass` fetches its headers).
#pragma once
#include <cuda_bf16.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

namespace expert_gemm {

using Element = cute::bfloat16_t;

// A tile of work: rows [0, rows) of an expert from row `first` on, times columns [n * Tile::N, (n + 1) * Tile::N).
struct Work {
  int expert = -1;  // -1: no more work
  int first = 0;    // row of the operand, and of the result
  int rows = 0;     // valid rows, at least 1; the tile's others are computed and not stored
  int n = 0;
  int gemm = 0;  // of a kernel that computes several
};

// Shapes of a tile of `tile_rows` rows, and the types that follow from them.
template <int tile_rows>
struct Tile {
  static_assert(tile_rows == 64 || tile_rows == 128, "a warpgroup multiplies 64 rows");
  static constexpr int M = tile_rows, N = 256, K = 64, stages = tile_rows == 128 ? 4 : 5;
  static constexpr int multipliers = 256, threads = multipliers + 128;  // the first warpgroup loads

  // 128 rows: a warpgroup has 64 of them. 64 rows: a warpgroup has half of the columns.
  using Instruction =
      cute::conditional_t<tile_rows == 128,
                          cute::SM90_64x256x16_F32BF16BF16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>,
                          cute::SM90_64x128x16_F32BF16BF16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>>;
  using Warpgroups = cute::conditional_t<tile_rows == 128, cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>,
                                         cute::Layout<cute::Shape<cute::_1, cute::_2, cute::_1>>>;
  using Mma = decltype(cute::make_tiled_mma(Instruction{}, Warpgroups{}));
  using LayoutA = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                               cute::Shape<cute::Int<M>, cute::Int<K>, cute::Int<stages>>{}));
  using LayoutB = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                               cute::Shape<cute::Int<N>, cute::Int<K>, cute::Int<stages>>{}));
  using Loads = cutlass::PipelineTmaAsync<stages>;
  using Queue = cutlass::PipelineAsync<2>;  // of Work, from the loading warp to the multipliers

  struct Shared {
    alignas(1024) cute::ArrayEngine<Element, cute::cosize_v<LayoutA>> a;
    alignas(1024) cute::ArrayEngine<Element, cute::cosize_v<LayoutB>> b;
    typename Loads::SharedStorage loads;
    typename Queue::SharedStorage queue;
    Work work[2];
  };
};

// A matrix [rows, depth] in device memory, of which TMA loads boxes of `box` rows and Tile::K columns. Host.
template <class Layout>
auto make_load(const Element* data, int rows, int depth) {
  using namespace cute;
  const auto matrix = make_tensor(make_gmem_ptr(data), make_shape(rows, depth), make_stride(int64_t{depth}, _1{}));
  const auto box = Layout{}(_, _, _0{});
  return make_tma_atom(SM90_TMA_LOAD{}, matrix, box, make_shape(size<0>(box), size<1>(box)));
}
template <class T>
using LoadA = decltype(make_load<typename T::LayoutA>(nullptr, 0, 0));
template <class T>
using LoadB = decltype(make_load<typename T::LayoutB>(nullptr, 0, 0));

// The operands of one GEMM: rows [*, depth] times weights [experts, width, depth].
template <class T>
struct Operands {
  LoadA<T> rows;
  LoadB<T> weights;
  int num_rows, width, depth;
};
template <class T>
Operands<T> make_operands(const Element* rows, int num_rows, const Element* weights, int experts, int width,
                          int depth) {
  return {make_load<typename T::LayoutA>(rows, num_rows, depth),
          make_load<typename T::LayoutB>(weights, experts * width, depth), num_rows, width, depth};
}

// Issues the loads of one tile, K step by K step. One thread calls it.
template <class T>
__device__ void load_tile(const Operands<T>& operands, const Work& work, typename T::Shared& shared,
                          typename T::Loads& loads, cutlass::PipelineState<T::stages>& state) {
  using namespace cute;
  const auto source = [&](const auto& load, int rows, int row, auto box_rows) {
    const auto matrix = load.get_tma_tensor(make_shape(rows, operands.depth));
    return local_tile(domain_offset(make_coord(row, 0), matrix), make_shape(box_rows, Int<T::K>{}), make_coord(0, _));
  };
  const auto parts = [](const auto& load, auto to, auto from) {
    return tma_partition(load, Int<0>{}, Layout<_1>{}, group_modes<0, 2>(to), group_modes<0, 2>(from));
  };
  const int weights_row = work.expert * operands.width + work.n * T::N;
  const auto [from_a, to_a] = parts(operands.rows, make_tensor(make_smem_ptr(shared.a.begin()), typename T::LayoutA{}),
                                    source(operands.rows, operands.num_rows, work.first, Int<T::M>{}));
  const auto [from_b, to_b] =
      parts(operands.weights, make_tensor(make_smem_ptr(shared.b.begin()), typename T::LayoutB{}),
            source(operands.weights, (work.expert + 1) * operands.width, weights_row, Int<T::N>{}));
  for (int k = 0; k < operands.depth / T::K; ++k, ++state) {
    loads.producer_acquire(state);
    uint64_t* const barrier = loads.producer_get_barrier(state);
    copy(operands.rows.with(*barrier), from_a(_, k), to_a(_, state.index()));
    copy(operands.weights.with(*barrier), from_b(_, k), to_b(_, state.index()));
  }
}

// Multiplies what load_tile loads. sums: the thread's part of the tile.
template <class T, class Sums>
__device__ void multiply_tile(int thread, int steps, typename T::Shared& shared, typename T::Loads& loads,
                              cutlass::PipelineState<T::stages>& state, Sums& sums) {
  using namespace cute;
  typename T::Mma mma;
  const auto part = mma.get_thread_slice(thread);
  const auto a =
      part.make_fragment_A(part.partition_A(make_tensor(make_smem_ptr(shared.a.begin()), typename T::LayoutA{})));
  const auto b =
      part.make_fragment_B(part.partition_B(make_tensor(make_smem_ptr(shared.b.begin()), typename T::LayoutB{})));
  mma.accumulate_ = GMMA::ScaleOut::Zero;
  auto released = state;  // a stage is free when the next step's instructions are under way
  for (int step = 0; step < steps; ++step, ++state) {
    loads.consumer_wait(state);
    warpgroup_fence_operand(sums);
    warpgroup_arrive();
    CUTE_UNROLL
    for (int k = 0; k < size<2>(a); ++k) {
      gemm(mma, a(_, _, k, state.index()), b(_, _, k, state.index()), sums);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<1>();
    warpgroup_fence_operand(sums);
    if (step > 0) {
      loads.consumer_release(released);
      ++released;
    }
  }
  warpgroup_wait<0>();
  warpgroup_fence_operand(sums);
  loads.consumer_release(released);
}

// Each of four neighbouring lanes has a pair of columns of four groups of 8. Afterwards lane i of them has group i.
__device__ inline uint4 exchange_groups(uint32_t (&pairs)[4]) {
  const unsigned lane = threadIdx.x & 3;
  const auto swap = [&](uint32_t& low, uint32_t& high, unsigned distance) {
    const bool upper = (lane & distance) != 0;
    const uint32_t received = __shfl_xor_sync(~0u, upper ? low : high, static_cast<int>(distance));
    (upper ? low : high) = received;
  };
  swap(pairs[0], pairs[1], 1);
  swap(pairs[2], pairs[3], 1);
  swap(pairs[0], pairs[2], 2);
  swap(pairs[1], pairs[3], 2);
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

// What becomes of sums. Groups: how many groups of 8 columns of sums make one of the result.
struct Rounded {  // to bf16
  static constexpr int groups = 1;
  template <class Sums>
  static __device__ uint32_t pair(const Sums& sums, int group, int upper) {
    const int i = group * 4 + upper * 2;
    return pack(sums(i), sums(i + 1));
  }
};
// Weights have 8 rows of the gate and 8 of the up projection in turn: silu(gate) * up.
struct Swiglu {
  static constexpr int groups = 2;
  static __device__ float value(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }
  template <class Sums>
  static __device__ uint32_t pair(const Sums& sums, int group, int upper) {
    const int gate = group * 8 + upper * 2, up = gate + 4;
    return pack(value(sums(gate), sums(up)), value(sums(gate + 1), sums(up + 1)));
  }
};

// Stores the tile's valid rows; out is [*, width / Result::groups], its rows are those of the operand.
template <class T, class Result, class Sums>
__device__ void store_tile(int thread, const Work& work, int width, const Sums& sums, Element* out) {
  using namespace cute;
  constexpr int groups = size(Sums{}) / 4;
  const auto part = typename T::Mma{}.get_thread_slice(thread);
  const auto places = part.partition_C(make_identity_tensor(Shape<Int<T::M>, Int<T::N>>{}));
  const int lane = thread & 3, out_width = width / Result::groups;
  const int row = get<0>(places(0)), column = (get<1>(places(0)) - 2 * lane + work.n * T::N) / Result::groups;
  CUTE_UNROLL
  for (int upper = 0; upper < 2; ++upper) {
    Element* const out_row = out + static_cast<int64_t>(work.first + row + 8 * upper) * out_width + column;
    const bool valid = row + 8 * upper < work.rows;
    CUTE_UNROLL
    for (int group = 0; group < groups / Result::groups; group += 4) {
      uint32_t pairs[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = Result::pair(sums, group + i, upper);
      const uint4 eight = exchange_groups(pairs);
      if (valid) *reinterpret_cast<uint4*>(out_row + (group + lane) * 8) = eight;
    }
  }
}

// What a kernel that does more than one GEMM passes to run() instead.
struct NothingElse {
  __device__ void operator()() const {}
};

// All threads of the block: computes what source.next gives until it says that there is no more.
//   bool next(Work&): called by the loading warp, the same answer for each lane; the rows are visible to TMA then
//   operands_of(work): the operands; store(thread, work, sums): takes the results, called by the multipliers
//   others(): what the three warps beside the loading one do meanwhile
// registers_move: the multipliers take registers of the others, which keep 40.
template <class T, bool registers_move = true, class Source, class OperandsOf, class Store, class Others = NothingElse>
__device__ void run(Source& source, typename T::Shared& shared, OperandsOf&& operands_of, Store&& store,
                    Others&& others = {}) {
  using namespace cute;
  const bool multiplies = threadIdx.x >= 128, loader = threadIdx.x == 0;
  typename T::Loads::Params load_params;
  load_params.role = multiplies ? T::Loads::ThreadCategory::Consumer : T::Loads::ThreadCategory::Producer;
  load_params.is_leader = loader;
  load_params.num_consumers = T::multipliers;
  load_params.transaction_bytes = (T::M + T::N) * T::K * sizeof(Element);
  typename T::Loads loads(shared.loads, load_params, Shape<_1, _1, _1>{});
  typename T::Queue::Params queue_params;
  queue_params.role = multiplies ? T::Queue::ThreadCategory::Consumer : T::Queue::ThreadCategory::Producer;
  queue_params.consumer_arv_count = T::multipliers;
  typename T::Queue queue(shared.queue, queue_params);
  __syncthreads();

  if (!multiplies) {
    if constexpr (registers_move) cutlass::arch::warpgroup_reg_dealloc<40>();
    if (threadIdx.x >= 32) return others();
    auto loaded = cutlass::make_producer_start_state<typename T::Loads>();
    auto queued = cutlass::make_producer_start_state<typename T::Queue>();
    for (bool more = true; more; ++queued) {
      Work work;
      more = source.next(work);
      if (!more) work = Work{};
      if (loader) {
        queue.producer_acquire(queued);
        shared.work[queued.index()] = work;
        queue.producer_commit(queued);
        if (more) load_tile<T>(operands_of(work), work, shared, loads, loaded);
      }
      __syncwarp();
    }
    return;
  }
  if constexpr (registers_move) cutlass::arch::warpgroup_reg_alloc<232>();
  const int thread = static_cast<int>(threadIdx.x) - 128;
  cutlass::PipelineState<T::stages> loaded;
  cutlass::PipelineState<2> queued;
  auto sums = partition_fragment_C(typename T::Mma{}, Shape<Int<T::M>, Int<T::N>>{});
  while (true) {
    queue.consumer_wait(queued);
    const Work work = shared.work[queued.index()];
    queue.consumer_release(queued);
    ++queued;
    if (work.expert < 0) return;
    multiply_tile<T>(thread, operands_of(work).depth / T::K, shared, loads, loaded, sums);
    store(thread, work, sums);
  }
}

// One GEMM of such work.
template <class T, class Result, class Source>
__device__ void run_one(const Operands<T>& operands, Source& source, Element* out, typename T::Shared& shared) {
  run<T>(
      source, shared, [&](const Work&) -> const Operands<T>& { return operands; },
      [&](int thread, const Work& work, const auto& sums) {
        store_tile<T, Result>(thread, work, operands.width, sums, out);
      });
}

// Where an expert's rows are.
struct Zones {
  const int32_t* counts;  // [experts] rows; -1: more may come
  const int64_t* first;   // [experts] first row; NULL: expert e begins at row e * slab
  int64_t slab;           // rows that an expert has room for
  int begin, end;         // experts [begin, end)
  const uint32_t* ready;  // of ucclEpTiles_t; NULL: all rows are there
  uint32_t* late;         // set when a tile was waited for too long

  __device__ int first_row(int expert) const {
    return static_cast<int>(first != nullptr ? first[expert] : expert * slab);
  }
};

// All rows are there: block b takes tiles b, b + gridDim.x, ... of all tiles, in an order in which blocks that run at
// the same time share rows and weights.
template <class T>
class Counted {
 public:
  __device__ Counted(const Zones& zones, int width) : zones_(zones), columns_(width / T::N), next_(blockIdx.x) {
    open(zones.begin);
  }

  __device__ bool next(Work& work) {
    while (next_ >= before_ + tiles()) {
      before_ += tiles();
      if (expert_ + 1 >= zones_.end) return false;
      open(expert_ + 1);
    }
    const int place = next_ - before_, group = place / (together * columns_), inside = place % (together * columns_);
    const int in_group = min(together, row_tiles_ - group * together);
    const int m = group * together + inside % in_group;
    work = {expert_, zones_.first_row(expert_) + m * T::M, min(T::M, rows_ - m * T::M), inside / in_group};
    next_ += static_cast<int>(gridDim.x);
    return true;
  }

 private:
  static constexpr int together = 16;  // tiles of rows that share a tile of weights at the same time

  __device__ int tiles() const { return row_tiles_ * columns_; }
  __device__ void open(int expert) {
    expert_ = expert;
    rows_ = expert < zones_.end ? zones_.counts[expert] : 0;
    row_tiles_ = (rows_ + T::M - 1) / T::M;
  }

  Zones zones_;
  int columns_, next_;
  int expert_ = 0, rows_ = 0, row_tiles_ = 0, before_ = 0;
};

// Rows still arrive (layout TILES of libucclep, with tiles of T::M rows): block b takes places b, b + gridDim.x, ... of
// all that there may be, in the order of Counted, and waits for each tile's word.
template <class T>
class Arriving {
 public:
  __device__ Arriving(const Zones& zones, int width)
      : zones_(zones),
        columns_(width / T::N),
        row_tiles_(static_cast<int>(zones.slab / T::M)),
        places_((zones.end - zones.begin) * row_tiles_ * columns_),
        next_(blockIdx.x) {}

  __device__ bool next(Work& work) {
    const uint64_t deadline = now() + wait_ns;
    while (next_ < places_) {
      // The lanes look at the words of the block's next 32 places: most experts have fewer tiles than room.
      const int step = static_cast<int>(gridDim.x), lane = static_cast<int>(threadIdx.x & 31);
      const int mine = next_ + lane * step;
      const uint32_t state = mine < places_ ? word(at(mine)) : no_such_tile;
      const int first = __ffs(static_cast<int>(__ballot_sync(~0u, state != no_such_tile))) - 1;
      if (first < 0) {
        next_ += 32 * step;
        continue;
      }
      next_ += first * step;
      work = at(next_);
      if (__shfl_sync(~0u, state, first) == is_ready) {
        // Each lane has acquired a word of its own: the lane that loads orders the one that was found before its loads.
        word(work);
        asm volatile("fence.proxy.async;" ::: "memory");
        const int count = *const_cast<const volatile int32_t*>(zones_.counts + work.expert);
        const int place = work.first - zones_.first_row(work.expert);
        work.rows = count < 0 ? T::M : min(T::M, count - place);
        next_ += step;
        return true;
      }
      if (now() > deadline) {
        *zones_.late = 1;
        return false;
      }
    }
    return false;
  }

 private:
  static constexpr int together = 16;
  static constexpr uint32_t is_ready = 1, no_such_tile = 2;
  static constexpr uint64_t wait_ns = 20'000'000'000;

  static __device__ uint64_t now() {
    uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  }
  __device__ uint32_t word(const Work& work) const {
    uint32_t state;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(state)
                 : "l"(zones_.ready + work.first / T::M)
                 : "memory");
    return state;
  }
  // All experts' first 16 tiles, then all experts' next ones, and so on.
  __device__ Work at(int place) const {
    const int experts = zones_.end - zones_.begin, round = place / (experts * together * columns_);
    const int in_round = min(together, row_tiles_ - round * together);
    const int rest = place - round * experts * together * columns_;
    const int expert = zones_.begin + rest / (in_round * columns_), inside = rest % (in_round * columns_);
    const int tile = round * together + inside % in_round;
    return {expert, zones_.first_row(expert) + tile * T::M, T::M, inside / in_round};
  }

  Zones zones_;
  int columns_, row_tiles_, places_, next_;
};

template <class T, class Result>
__global__ void __launch_bounds__(T::threads, 1)
    multiply_arriving(const __grid_constant__ Operands<T> operands, const Zones zones, Element* out) {
  extern __shared__ __align__(1024) char memory[];
  Arriving<T> source(zones, operands.width);
  run_one<T, Result>(operands, source, out, *reinterpret_cast<typename T::Shared*>(memory));
}

template <class T, class Result>
__global__ void __launch_bounds__(T::threads, 1)
    multiply_counted(const __grid_constant__ Operands<T> operands, const Zones zones, Element* out) {
  extern __shared__ __align__(1024) char memory[];
  Counted<T> source(zones, operands.width);
  run_one<T, Result>(operands, source, out, *reinterpret_cast<typename T::Shared*>(memory));
}

// Grid of `blocks`. Host.
template <class T, class Result>
cudaError_t launch(const Operands<T>& operands, const Zones& zones, Element* out, int blocks, cudaStream_t stream) {
  const auto kernel = zones.ready != nullptr ? multiply_arriving<T, Result> : multiply_counted<T, Result>;
  constexpr int bytes = sizeof(typename T::Shared);
  const cudaError_t result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (result != cudaSuccess) return result;
  kernel<<<blocks, T::threads, bytes, stream>>>(operands, zones, out);
  return cudaGetLastError();
}

}  // namespace expert_gemm
