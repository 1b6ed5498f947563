// SPDX-License-Identifier: Apache-2.0
// Whole operations in a user's kernel: what the kernels of ucclEpDispatch and ucclEpCombine do, done by the grid of the
// caller, without a launch. Layers that follow each other in one kernel call them in turn.
//
//   ucclEpDispatchGetDevice, ucclEpCombineGetDevice           on the host: what they take and put out
//   if (!ll::dispatch(grid{}, dispatch)) return;              every thread of the grid
//   .. the experts, from the rows that are there now ..       then grid_sync, as combine reads rows of all blocks
//   if (!ll::combine<Bf16>(grid{}, combine)) return;
//
// and ht::dispatch, ht::combine, of a routing that ucclEpHandleUpdate has exchanged. An operation may run any number of
// times. Ranks may mix these with the calls of the host and with operations whose rows a kernel sends and receives by
// itself (ll_dispatch.hpp); all ranks begin operations of a group in the same order.
//
// All blocks are resident at once. They have at most block_threads threads, a multiple of wave_size, and the first
// shared_bytes of their dynamic shared memory are the operation's while it runs. The operation is a parameter of the
// kernel. False, the same for all blocks: the communicator has failed, or the grid does not fit, of which a data record
// says why; then the operation has not begun.
//
// | who releases                         | who acquires                     | what is ordered                         |
// |--------------------------------------|----------------------------------|-----------------------------------------|
// | grid_sync at the end (acq_rel, gpu)  | the same                         | all that the operation has read and     |
// |                                      |                                  |   written, before what the grid does    |
// |                                      |                                  |   next                                  |
// | the caller's grid_sync               | acquire_then_bulk of each block, | what blocks have written before, before |
// |                                      |   when slots are free            |   others read it in bulk                |
//
// Floor: as of the library's operations, less their launches.
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/combine.hpp"
#include "ucclep/device/ht/dispatch.hpp"
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/ll/combine_small.hpp"
#include "ucclep/device/ll/dispatch_small.hpp"
#include "ucclep/device/ll/network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/wire.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// The scope of a whole operation: all threads of the kernel.
struct grid {};

// Verb of every block: does this grid fit the operation, and does the code, which is for rows of that mode and of that
// `kind` of rows: a field of the settings? If not, a data record says why.
template <class Call>
UCCLEP_FN bool fits_grid(const Op& op, const Call& call, const HandleView& handle, int mode, Field rows,
                         uint64_t expected, uint64_t got) {
  const auto refused = [&](Field field, uint64_t right, uint64_t wrong) {
    if (block_id() == 0) refuse(op, field, right, wrong);
    return false;
  };
  if (block_size() > call.block_threads || block_size() % wave_size != 0) {
    return refused(Field::threads, call.block_threads, block_size());
  }
  if (handle.mode != mode) {
    return refused(Field::mode, static_cast<uint64_t>(mode), static_cast<uint64_t>(handle.mode));
  }
  return expected == got || refused(rows, expected, got);
}
template <class Args>
UCCLEP_FN bool fits_grid(const ucclEpDeviceDispatch& call, const Args& args, int mode, bool quantises) {
  const Op op{args.group, Kind::dispatch, Operation::dispatch, 0, 0};
  return fits_grid(op, call, args.handle, mode, Field::quant, quantises ? 1 : 0, args.settings.quant);
}
template <class Element>
UCCLEP_FN bool fits_grid(const ucclEpDeviceCombine& call, int mode) {
  const CombineArgs& args = call.args;
  const Op op{args.group, Kind::combine, Operation::combine, 0, 0};
  return fits_grid(op, call, args.handle, mode, Field::dtype, dtype_of<Element>, args.settings.dtype);
}

// Verb of every block: the operation has ended in all of them. False: the communicator has failed.
UCCLEP_FN bool await_all_blocks(const ucclEpDeviceGroup& group) {
  const bool here = grid_sync(&group.state->barrier, begin_wait_for_blocks(group));
  return here && every_thread(load_relaxed<Scope::gpu>(group.abort_word) == 0);
}

namespace ll {

// Grid verb: a dispatch. Row: Forward, or Quantise where the operation quantises.
template <class Row = Forward>
UCCLEP_FN bool dispatch(grid, const ucclEpDeviceDispatch& call) {
  const LlDispatchArgs& args = call.ll;
  if (!fits_grid(call, args, UCCLEP_MODE_LL, std::is_same_v<Row, Quantise>)) return false;
  if (args.group.network != nullptr) {
    dispatch<Row, AcrossDomains>(args);
    Stage::end(args.piece_bytes);
  } else if (!args.group.shape.rows_by_headers()) {
    dispatch<Row, AnyForm>(args);
    Stage::end(args.piece_bytes);
  } else if (is_small_batch(args, grid_size(), block::warps())) {
    dispatch_small<Row>(args);
  } else {
    dispatch<Row, LinesOnly>(args);
  }
  return await_all_blocks(args.group);
}

// Grid verb: a combine of rows of that type, Bf16, Fp16 or Fp32.
template <class Element>
UCCLEP_FN bool combine(grid, const ucclEpDeviceCombine& call) {
  const CombineArgs& args = call.args;
  if (!fits_grid<Element>(call, UCCLEP_MODE_LL)) return false;
  if (args.group.network != nullptr) {
    combining::combine_ll<Element, AcrossDomains>(args);
    Stage::end(args.piece_bytes);
  } else if (!args.group.shape.lines_only()) {
    combining::combine_ll<Element, AnyForm>(args);
    Stage::end(args.piece_bytes);
  } else if (is_small_batch(args, grid_size(), block::warps(), wave_size)) {
    combining::combine_small<Element>(args);
  } else {
    combining::combine_ll<Element, LinesOnly>(args);
  }
  return await_all_blocks(args.group);
}

}  // namespace ll

namespace ht {

// Grid verb: a dispatch. Row: ForwardRow, or QuantiseRow where the operation quantises.
template <class Row = ForwardRow>
UCCLEP_FN bool dispatch(grid, const ucclEpDeviceDispatch& call) {
  const HtDispatchArgs& args = call.ht;
  if (!fits_grid(call, args, UCCLEP_MODE_HT, std::is_same_v<Row, QuantiseRow>)) return false;
  if (args.group.network != nullptr) {
    dispatch<Row, AcrossNodes>(args);
  } else {
    dispatch<Row, OneNode>(args);
  }
  Stage::end(args.piece_bytes);
  return await_all_blocks(args.group);
}

// Grid verb: a combine of rows of that type, Bf16, Fp16 or Fp32.
template <class Element>
UCCLEP_FN bool combine(grid, const ucclEpDeviceCombine& call) {
  const HtCombineArgs& args = call.args;
  if (!fits_grid<Element>(call, UCCLEP_MODE_HT)) return false;
  if (args.group.network != nullptr) {
    combine<Element, AcrossNodes>(args);
  } else {
    combine<Element, OneNode>(args);
  }
  Stage::end(args.piece_bytes);
  return await_all_blocks(args.group);
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
