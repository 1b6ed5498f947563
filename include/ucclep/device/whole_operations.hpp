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
// kernel. False: the grid or the code does not fit, of which a data record says why, and the operation has not begun in
// any block; or the communicator has failed: then this call or the next one is false in every block.
//
// | who releases                         | who acquires                     | what is ordered                         |
// |--------------------------------------|----------------------------------|-----------------------------------------|
// | grid_sync at the end (acq_rel, gpu)  | the same                         | all that the operation has read and     |
// |                                      |                                  |   written, before what the grid does    |
// |                                      |                                  |   next                                  |
// | the caller's grid_sync               | acquire_then_bulk of each block, | what blocks have written before, before |
// |                                      |   when slots are free            |   others read it in bulk                |
//
// Floor: as of the library's operations, less their launches. A kernel has the code of the forms that it names: with
// all of them, chosen as it ran, it took 12 to 27 % longer (perf/results/h200x1-device-whole.json).
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/combine.hpp"
#include "ucclep/device/ht/dispatch.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/ll/dispatch.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/rows/quantise.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/wire.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// The scope of a whole operation: all threads of the kernel.
struct grid {};

// Of code for an operation: the rows that it is for, and the forms in which they travel.
struct CodeFor {
  int mode;
  Field rows;  // a field of the settings, and its value
  uint64_t value;
  unsigned forms;  // as of the call
};
template <class Forms>
constexpr unsigned forms_of = Forms::Wire::network ? 2
                              : Forms::bulk        ? 0
                                                   : 1;

// Verb of every block: do the grid and the code fit the operation? If not, a data record says why.
template <class Call, class Args>
UCCLEP_FN bool fits_grid(const Call& call, const Args& args, Kind kind, Operation name, const CodeFor& code,
                         uint64_t value) {
  const auto refused = [&](Field field, uint64_t expected, uint64_t got) {
    if (block_id() == 0) refuse(Op{args.group, kind, name, 0, 0}, field, expected, got);
    return false;
  };
  if (block_size() > call.block_threads || block_size() % wave_size != 0) {
    return refused(Field::threads, call.block_threads, block_size());
  }
  if (args.handle.mode != code.mode) {
    return refused(Field::mode, static_cast<uint64_t>(code.mode), static_cast<uint64_t>(args.handle.mode));
  }
  if (code.forms != call.forms && (code.forms != 0 || call.forms != 1)) {
    return refused(Field::forms, call.forms, code.forms);
  }
  return value == code.value || refused(code.rows, code.value, value);
}
template <class Args>
UCCLEP_FN bool fits_grid(const ucclEpDeviceDispatch& call, const Args& args, const CodeFor& code) {
  return fits_grid(call, args, Kind::dispatch, Operation::dispatch, code, args.settings.quant);
}
UCCLEP_FN bool fits_grid(const ucclEpDeviceCombine& call, const CodeFor& code) {
  return fits_grid(call, call.args, Kind::combine, Operation::combine, code, call.args.settings.dtype);
}

// Grid verb: the operation has ended in all blocks. False: one of them did not come, or the communicator has failed.
UCCLEP_FN bool ended_in_all_blocks(const ucclEpDeviceGroup& group, Kind kind, Operation name) {
  const bool here = sync_grid(Op{group, kind, name, 0, 0}, group.abort_word);
  return here && every_thread(load_relaxed<Scope::gpu>(group.abort_word) == 0);
}

namespace ll {

// Grid verb: a dispatch. Row: Forward, or Quantise where the operation quantises. Forms: AnyForm for ranks of one
// domain; LinesOnly where call.forms is 1, which is faster; AcrossDomains (ll/network.hpp).
template <class Row = Forward, class Forms = AnyForm>
UCCLEP_FN bool dispatch(grid, const ucclEpDeviceDispatch& call) {
  const CodeFor code{UCCLEP_MODE_LL, Field::quant, std::is_same_v<Row, Quantise>, forms_of<Forms>};
  if (!fits_grid(call, call.ll, code)) return false;
  dispatch<Row, Forms>(call.ll);
  if constexpr (Forms::bulk) Stage::end(call.ll.piece_bytes);
  return ended_in_all_blocks(call.ll.group, Kind::dispatch, Operation::dispatch);
}

// Grid verb: a combine of rows of that type, Bf16, Fp16 or Fp32.
template <class Element, class Forms = AnyForm>
UCCLEP_FN bool combine(grid, const ucclEpDeviceCombine& call) {
  const CodeFor code{UCCLEP_MODE_LL, Field::dtype, dtype_of<Element>, forms_of<Forms>};
  if (!fits_grid(call, code)) return false;
  combining::combine_ll<Element, Forms>(call.args);
  if constexpr (Forms::bulk) Stage::end(call.args.piece_bytes);
  return ended_in_all_blocks(call.args.group, Kind::combine, Operation::combine);
}

}  // namespace ll

namespace ht {

// Grid verb: a dispatch. Row: ForwardRow, or QuantiseRow where the operation quantises. Wire: OneNode for ranks of one
// domain; AcrossNodes (ht/nodes/network.hpp).
template <class Row = ForwardRow, class Wire = OneNode>
UCCLEP_FN bool dispatch(grid, const ucclEpDeviceDispatch& call) {
  const CodeFor code{UCCLEP_MODE_HT, Field::quant, std::is_same_v<Row, QuantiseRow>, Wire::network ? 2u : 0u};
  if (!fits_grid(call, call.ht, code)) return false;
  dispatch<Row, Wire>(call.ht);
  Stage::end(call.ht.piece_bytes);
  return ended_in_all_blocks(call.ht.group, Kind::dispatch, Operation::dispatch);
}

// Grid verb: a combine of rows of that type, Bf16, Fp16 or Fp32.
template <class Element, class Wire = OneNode>
UCCLEP_FN bool combine(grid, const ucclEpDeviceCombine& call) {
  if (!fits_grid(call, {UCCLEP_MODE_HT, Field::dtype, dtype_of<Element>, Wire::network ? 2u : 0u})) return false;
  combine<Element, Wire>(call.args);
  Stage::end(call.args.piece_bytes);
  return ended_in_all_blocks(call.args.group, Kind::combine, Operation::combine);
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
