// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer in one persistent kernel: rows leave as soon as their experts are known, experts multiply each tile
// of rows as soon as it is whole, and results go home, with nothing between that waits for all rows.
//
//   warps of a block       do
//   all                    send the rank's tokens; at the end send results home, and sum what came back
//   0                      loads operands by TMA, of the next part of a tile that can be multiplied
//   1                      asks for tiles that are ready, and puts their parts on the board
//   2, 3                   serve rows that arrive, into tiles
//   4 .. 11                multiply (WGMMA); the last part of a tile's first GEMM puts those of the second on the board
//
// Needs CUTLASS 4: `make examples-cutlass` builds it into layer_perf, as the way `fused`. tools/count_communication.py
// counts the lines that communicate.
#include "moe_layer_fused.hpp"

#include <ucclep/device/tiles.hpp>

#include "expert_gemm.cuh"

namespace moe_layer {
namespace {

namespace gpu = ucclep;
namespace tiles = ucclep::tiles;
using expert_gemm::Element;
using expert_gemm::Operands;
using expert_gemm::Work;
constexpr int up = 0, down = 1;  // Work::gemm

// Parts of tiles that can be multiplied, in the order in which they became so: of a tile that is ready all columns of
// the first GEMM, and when these are done all of the second. Whoever takes a part never waits for another part, so any
// number of blocks makes progress.
struct Board {
  struct Counts {
    uint32_t put, taken;  // parts
    uint32_t tiles;       // that were ready
    uint32_t ended;       // warps that ask for tiles no more
    uint32_t all;         // 1 + the parts that there will be; 0 while nobody knows
  };
  Counts* counts;
  uint32_t *rows, *multiplied, *made;  // [tiles] valid rows; parts of the first and of the second GEMM that are done
  uint32_t* parts;             // [tiles * of_tile()] 1 + number of a part: tile * of_tile() + which; 0: none yet
  uint32_t tiles, columns[2];  // of a GEMM, in parts
  uint32_t of_expert;          // tiles

  __host__ __device__ uint32_t of_tile() const { return columns[up] + columns[down]; }
  __host__ __device__ uint32_t size() const { return tiles * (3 + of_tile()) + sizeof(Counts) / sizeof(uint32_t); }

  // Grid verb, before the barrier of tiles::begin.
  __device__ void clear() const {
    auto* const words = reinterpret_cast<uint32_t*>(counts);
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint32_t i = first; i < size(); i += step) words[i] = 0;
  }

  // Warp verb: all parts of a GEMM of a tile. What its lanes have seen, or stored, is visible to whoever takes one.
  __device__ void put(uint32_t tile, int gemm) const {
    gpu::sync_warp();
    uint32_t place = 0;
    if (gpu::lane_id() == 0) place = gpu::fetch_add_relaxed<gpu::Scope::gpu>(&counts->put, columns[gemm]);
    place = gpu::broadcast(place, 0);
    const uint32_t first = 1 + tile * of_tile() + (gemm == down ? columns[up] : 0);
    for (uint32_t i = gpu::lane_id(); i < columns[gemm]; i += gpu::wave_size) {
      gpu::store_release<gpu::Scope::gpu>(parts + place + i, first + i);
    }
  }

  // Warp verb, of every block once: this warp has put all tiles that it will. The last one knows how many there are.
  // failed: nobody waits for more.
  __device__ void end(bool failed) const {
    gpu::sync_warp();
    if (gpu::lane_id() != 0) return;
    if (failed) gpu::store_release<gpu::Scope::gpu>(&counts->all, 1u);
    if (gpu::fetch_add_acq_rel<gpu::Scope::gpu>(&counts->ended, 1u) + 1 != gridDim.x) return;
    const uint32_t ready = gpu::load_relaxed<gpu::Scope::gpu>(&counts->tiles);
    if (!failed && gpu::load_relaxed<gpu::Scope::gpu>(&counts->all) == 0) {
      gpu::store_release<gpu::Scope::gpu>(&counts->all, 1 + ready * of_tile());
    }
  }

  // Lane verb: a part's number, or 0 when there are no more. tiles::next bounds the wait: it ends in every warp that
  // puts tiles.
  __device__ uint32_t take() const {
    const uint32_t ticket = gpu::fetch_add_relaxed<gpu::Scope::gpu>(&counts->taken, 1u);
    while (true) {
      const uint32_t part = ticket < tiles * of_tile() ? gpu::load_acquire<gpu::Scope::gpu>(parts + ticket) : 0;
      if (part != 0) return part;
      const uint32_t all = gpu::load_acquire<gpu::Scope::gpu>(&counts->all);
      if (all != 0 && ticket >= all - 1) return 0;
    }
  }

  // Warp verb, after all stores of a part: was it the last one of its tile?
  __device__ bool is_last(uint32_t* done, uint32_t of_gemm) const {
    uint32_t before = 0;
    if (gpu::lane_id() == 0) before = gpu::fetch_add_acq_rel<gpu::Scope::gpu>(done, 1u);
    const bool last = gpu::broadcast(before, 0) + 1 == of_gemm;
    gpu::sync_warp();  // what the first has acquired, all have
    return last;
  }
};

template <class T>
struct Arguments {
  ucclEpDeviceHandle handle;
  gpu::TileShapes shapes;
  Operands<T> operands[2];
  Element *inner, *made, *out;
  const Element* in;
  const int32_t* ids;
  const float* weights;
  uint32_t tokens, top_k, hidden;
  Board board;
  uint32_t* failed;
};

// The parts of the board, as expert_gemm::run takes them.
template <class T>
struct FromBoard {
  const Board& board;

  __device__ bool next(Work& work) {
    uint32_t part = 0;
    if (gpu::lane_id() == 0) part = board.take();
    part = gpu::broadcast(part, 0);
    gpu::acquire_then_bulk();
    if (part == 0) return false;
    const uint32_t tile = (part - 1) / board.of_tile(), which = (part - 1) % board.of_tile();
    const int gemm = which < board.columns[up] ? up : down;
    work = {static_cast<int>(tile / board.of_expert), static_cast<int>(tile) * T::M,
            static_cast<int>(gpu::load_relaxed<gpu::Scope::gpu>(board.rows + tile)),
            static_cast<int>(gemm == up ? which : which - board.columns[up]), gemm};
    return true;
  }
};

// Block verb: tokens to their experts. Neighbouring tokens leave from different blocks.
template <class T>
__device__ void send_tokens(const tiles::OpenTiles& op, const Arguments<T>& args) {
  const uint32_t step = gpu::grid_warps();
  for (uint32_t t = gpu::warp_id() * gridDim.x + blockIdx.x; t < args.tokens; t += step) {
    const uint64_t row = uint64_t{t} * args.hidden, choice = uint64_t{t} * args.top_k;
    tiles::send(gpu::warp{}, op, t, args.in + row, nullptr, args.ids + choice, args.weights + choice);
  }
  tiles::close(gpu::block{}, op);
}

// Warp verb: tiles to the board.
__device__ inline void put_tiles(const tiles::OpenTiles& op, const Board& board) {
  tiles::Tile tile;
  tiles::Next next = tiles::next(gpu::warp{}, op, tile);
  for (; next == tiles::Next::tile; next = tiles::next(gpu::warp{}, op, tile)) {
    const uint32_t number = tile.expert * board.of_expert + tile.index;
    if (gpu::lane_id() == 0) {
      gpu::store_relaxed<gpu::Scope::gpu>(board.rows + number, tile.rows);
      gpu::fetch_add_relaxed<gpu::Scope::gpu>(&board.counts->tiles, 1u);
    }
    board.put(number, up);
  }
  board.end(next == tiles::Next::failed);
}

// Warp verb: rows that arrive, into tiles. Two warps of each block serve the sources, as evenly as they can.
__device__ inline void serve_rows(const tiles::OpenTiles& op, uint32_t ranks) {
  const uint32_t server = (gpu::warp_id() - 2) * gridDim.x + blockIdx.x, shares = 2 * gridDim.x / ranks;
  if (server < shares * ranks) tiles::serve(gpu::warp{}, op, server % ranks, server / ranks, shares);
}

// The multipliers, which have stored a part of a tile.
template <class T>
__device__ void finish(const tiles::OpenTiles& op, const Arguments<T>& args, int thread, const Work& work) {
  const Board& board = args.board;
  cutlass::arch::NamedBarrier::sync(T::multipliers, 0u);  // all have stored
  if (thread >= 32) return;
  const uint32_t tile = static_cast<uint32_t>(work.first / T::M);
  if (work.gemm == up) {
    if (board.is_last(board.multiplied + tile, board.columns[up])) board.put(tile, down);
  } else if (board.is_last(board.made + tile, board.columns[down]) && thread == 0) {
    tiles::done(gpu::thread{}, op,
                {tile / board.of_expert, tile % board.of_expert, static_cast<uint32_t>(work.rows), 0});
  }
}

template <class T>
__device__ void multiply(const tiles::OpenTiles& op, const Arguments<T>& args, typename T::Shared& shared) {
  FromBoard<T> source{args.board};
  expert_gemm::run<T, false>(  // functions that are called need as many registers in all warps
      source, shared, [&](const Work& work) -> const Operands<T>& { return args.operands[work.gemm]; },
      [&](int thread, const Work& work, const auto& sums) {
        const int width = args.operands[work.gemm].width;
        if (work.gemm == up) {
          expert_gemm::store_tile<T, expert_gemm::Swiglu>(thread, work, width, sums, args.inner);
        } else {
          expert_gemm::store_tile<T, expert_gemm::Rounded>(thread, work, width, sums, args.made);
        }
        finish(op, args, thread, work);
      },
      [&] { gpu::warp_id() == 1 ? put_tiles(op, args.board) : serve_rows(op, args.handle.group.shape.ranks); });
}

template <class T>
__global__ void __launch_bounds__(T::threads, 1) moe_layer_fused(const __grid_constant__ Arguments<T> args) {
  extern __shared__ char memory[];
  const uint64_t at = (reinterpret_cast<uint64_t>(memory) + 1023) / 1024 * 1024;  // behind shared variables of others
  args.board.clear();
  const auto op = tiles::begin(args.handle, args.shapes);
  send_tokens(op, args);
  multiply(op, args, *reinterpret_cast<typename T::Shared*>(at));
  bool ok = tiles::close_back(gpu::block{}, op);
  for (uint32_t t = gpu::warp_id() * gridDim.x + blockIdx.x; t < args.tokens; t += gpu::grid_warps()) {
    ok = tiles::results(gpu::warp{}, op, {args.out}, t, t + 1) && ok;
  }
  if (!ok) *args.failed = 1;
}

Board make_board(const Layer& layer) {
  Board board{};
  board.of_expert = static_cast<uint32_t>(layer.slab / layer.tile_rows);
  board.tiles = static_cast<uint32_t>(layer.experts) * board.of_expert;
  board.columns[up] = static_cast<uint32_t>(2 * layer.intermediate / expert_gemm::Tile<64>::N);
  board.columns[down] = static_cast<uint32_t>(layer.hidden / expert_gemm::Tile<64>::N);
  board.counts = static_cast<Board::Counts*>(layer.words);
  board.rows = reinterpret_cast<uint32_t*>(board.counts + 1);
  board.multiplied = board.rows + board.tiles;
  board.made = board.multiplied + board.tiles;
  board.parts = board.made + board.tiles;
  return board;
}

template <class T>
const char* launch_tiles(const Layer& layer, int blocks, cudaStream_t stream) {
  Arguments<T> args{};
  if (ucclEpHandleGetDevice(layer.handle, &args.handle) != ucclEpSuccess) return ucclEpGetLastError(nullptr);
  if (2 * static_cast<uint32_t>(blocks) < args.handle.group.shape.ranks) {
    return "blocks of a layer: expected at least half as many as there are ranks, whose rows they serve";
  }
  const auto hidden = static_cast<uint32_t>(layer.hidden), top_k = static_cast<uint32_t>(layer.top_k);
  args.shapes.out = {hidden, ucclEpBfloat16, 0, top_k, ucclEpNoDataType, true};
  args.shapes.back = {hidden, ucclEpBfloat16, 0, top_k};
  args.shapes.closers = static_cast<uint32_t>(blocks);
  args.shapes.rows = layer.rows, args.shapes.back_rows = layer.made;
  const auto num_rows = static_cast<int>(layer.experts * layer.slab);
  const auto operands = [&](const void* rows, const void* weights, int width, int depth) {
    return expert_gemm::make_operands<T>(static_cast<const Element*>(rows), num_rows,
                                         static_cast<const Element*>(weights), layer.experts, width, depth);
  };
  args.operands[up] = operands(layer.rows, layer.up_weights, 2 * layer.intermediate, layer.hidden);
  args.operands[down] = operands(layer.inner, layer.down_weights, layer.hidden, layer.intermediate);
  args.inner = static_cast<Element*>(layer.inner), args.made = static_cast<Element*>(layer.made);
  args.out = static_cast<Element*>(layer.out), args.in = static_cast<const Element*>(layer.in);
  args.ids = layer.ids, args.weights = layer.weights;
  args.tokens = static_cast<uint32_t>(layer.tokens), args.top_k = top_k, args.hidden = hidden;
  args.board = make_board(layer);
  args.failed = layer.failed;
  constexpr int bytes = sizeof(typename T::Shared) + 1024;
  cudaError_t result = cudaFuncSetAttribute(moe_layer_fused<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (result == cudaSuccess) {
    moe_layer_fused<T><<<blocks, T::threads, bytes, stream>>>(args);
    result = cudaGetLastError();
  }
  return result == cudaSuccess ? nullptr : cudaGetErrorString(result);
}

}  // namespace

size_t words_bytes(const Layer& layer) {
  return make_board(layer).size() * sizeof(uint32_t);
}

const char* launch(const Layer& layer, int blocks, ucclEpStream_t stream) {
  const auto cuda = static_cast<cudaStream_t>(stream);
  if (layer.tile_rows == 64) return launch_tiles<expert_gemm::Tile<64>>(layer, blocks, cuda);
  if (layer.tile_rows == 128) return launch_tiles<expert_gemm::Tile<128>>(layer, blocks, cuda);
  return "tile_rows of a layer: expected 64 or 128";
}

}  // namespace moe_layer
