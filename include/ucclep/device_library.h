/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The device API under C names, for kernels that are not written in C++: libucclep_device.bc is LLVM bitcode, which
 * Triton links as one of its extern_libs, libucclep_device.ptx is for CuPy and cuLink. `make device-library` builds
 * both, for sm_90 and later. docs/frameworks.md shows a kernel in Triton. In C++, include ucclep/device.hpp instead.
 *
 * Each function does what its namesake of ucclep/device/channel.hpp, ll_dispatch.hpp, ll_dispatch_recv.hpp or
 * ll_combine.hpp does; those pages say what is ordered before what. The end of its name is its scope: all threads of
 * the block call a function that ends in _block, all lanes of a warp one that ends in _warp, with the same arguments.
 * In Triton a call is one of the whole program, so of _block. Blocks and grids have one dimension, blocks at most 512
 * threads (num_warps 16), and all blocks of the grid are resident at once.
 *
 * Addresses are integers of 64 bits; 0 stands for NULL. A function begins with a barrier of its scope: what members
 * have stored before, all may read, and the call sends. What a call has received, all members may read after it.
 *
 * A result of 0 means false: the operation or the group has failed, and ucclEpCommGetAsyncError says why. Functions
 * that cannot fail give 1.
 */
#ifndef UCCLEP_DEVICE_LIBRARY_H_
#define UCCLEP_DEVICE_LIBRARY_H_
#include <stdint.h>

#include "ucclep/device/arch/qualifiers.hpp"

/* ---- Objects ----
 * What ucclEpGroupGetDevice, ucclEpHandleGetDevice and ucclEpWindowGetDevice fill, in C. Copied to memory of the device
 * they are the objects that the functions below take by address. In Python: device_address of Group, Handle, Window. */

/** The field `abi` of each, which changes whenever their layout or what lies behind them does. */
#define UCCLEP_DEVICE_ABI 38u
/** @{ The field `magic` of each. */
#define UCCLEP_DEVICE_GROUP_MAGIC 0x55450017u
#define UCCLEP_DEVICE_HANDLE_MAGIC 0x55450013u
#define UCCLEP_DEVICE_WINDOW_MAGIC 0x55450014u
/** @} */

/** ucclEpDeviceGroup. */
typedef struct {
  unsigned size;     /**< sizeof the struct */
  unsigned magic;    /**< UCCLEP_DEVICE_GROUP_MAGIC */
  unsigned abi;      /**< UCCLEP_DEVICE_ABI */
  int rank;          /**< this rank */
  uint64_t rest[77]; /**< the library's */
} ucclEpDeviceGroupLayout_t;

/** ucclEpDeviceHandle. */
typedef struct {
  unsigned size;                   /**< sizeof the struct */
  unsigned magic;                  /**< UCCLEP_DEVICE_HANDLE_MAGIC */
  unsigned abi;                    /**< UCCLEP_DEVICE_ABI */
  unsigned unused;                 /**< 0 */
  ucclEpDeviceGroupLayout_t group; /**< that it was made on, with size, magic and abi of its own */
  uint64_t rest[60];               /**< the library's */
} ucclEpDeviceHandleLayout_t;

/** ucclEpDeviceWindow. */
typedef struct {
  unsigned size;       /**< sizeof the struct */
  unsigned magic;      /**< UCCLEP_DEVICE_WINDOW_MAGIC */
  unsigned abi;        /**< UCCLEP_DEVICE_ABI */
  uint32_t id;         /**< the same on all ranks */
  int rank;            /**< this rank */
  int ranks;           /**< how many there are */
  uint64_t bytes;      /**< of this rank's range */
  uint64_t data;       /**< address of this rank's range */
  uint64_t peers;      /**< address of R addresses: every rank's range as mapped here; 0: of another domain */
  uint64_t peer_bytes; /**< address of R uint64: their sizes */
} ucclEpDeviceWindowLayout_t;

/** Bytes that a pending operation takes for each block, 8-byte aligned, in memory of the device: block b of the grid
 *  gives `op` as the begin of an array plus b times this number. They are written by *_begin_block. */
#define UCCLEP_DEVICE_OPERATION_BYTES 320

/* ---- The channel of a group (ucclep/device/channel.hpp). group, dst, src: addresses of objects ---- */

/** @{ Copies `bytes` of this rank's window src, from src_offset on, into the peer's window dst, at dst_offset. */
UCCLEP_LIBRARY_FN int32_t ucclep_put_warp(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset, uint64_t src,
                                          uint64_t src_offset, uint64_t bytes);
UCCLEP_LIBRARY_FN int32_t ucclep_put_block(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset,
                                           uint64_t src, uint64_t src_offset, uint64_t bytes);
/** @} */
/** @{ The same, and then one count of signal `id` at the peer. */
UCCLEP_LIBRARY_FN int32_t ucclep_put_signal_warp(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset,
                                                 uint64_t src, uint64_t src_offset, uint64_t bytes, int32_t id);
UCCLEP_LIBRARY_FN int32_t ucclep_put_signal_block(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset,
                                                  uint64_t src, uint64_t src_offset, uint64_t bytes, int32_t id);
/** @} */
/** @{ One count of signal `id` at the peer: all that the scope did before has been done. */
UCCLEP_LIBRARY_FN int32_t ucclep_signal_warp(uint64_t group, int32_t peer, int32_t id);
UCCLEP_LIBRARY_FN int32_t ucclep_signal_block(uint64_t group, int32_t peer, int32_t id);
/** @} */
/** @{ Waits until this rank's count of signal `id` is so large. */
UCCLEP_LIBRARY_FN int32_t ucclep_wait_signal_warp(uint64_t group, int32_t id, uint64_t at_least);
UCCLEP_LIBRARY_FN int32_t ucclep_wait_signal_block(uint64_t group, int32_t id, uint64_t at_least);
/** @} */
/** @{ The sources of this scope's puts may be written again, their bytes are there. */
UCCLEP_LIBRARY_FN int32_t ucclep_flush_warp(uint64_t group);
UCCLEP_LIBRARY_FN int32_t ucclep_flush_block(uint64_t group);
/** @} */
/** @{ One scope of every rank meets. team: 0 the ranks of this rank's domain, 1 all of the communicator. */
UCCLEP_LIBRARY_FN int32_t ucclep_barrier_warp(uint64_t group, uint32_t team);
UCCLEP_LIBRARY_FN int32_t ucclep_barrier_block(uint64_t group, uint32_t team);
/** @} */

/* ---- Dispatch of LL (ucclep/device/ll_dispatch.hpp, ll_dispatch_recv.hpp). handle: address of the object. op: address
 * of UCCLEP_DEVICE_OPERATION_BYTES of this block ---- */

/** Every block, first: the handle's group begins a dispatch of rows of `hidden` elements of dtype (a ucclEpDataType_t)
 *  with scale_bytes of scales, of scale_dtype (0 and 0: none), for top_k experts each, which is the group's. weighted:
 *  1 where rows come with weights; in EXPERT_MAJOR they always do. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_begin_block(uint64_t handle, uint64_t op, uint32_t hidden, int32_t dtype,
                                                         uint32_t scale_bytes, int32_t scale_dtype, uint32_t top_k,
                                                         int32_t weighted);
/** @{ Sends one token, each once, by any scope and block. row, scales, experts (top_k ids, int32 with id_bytes 4, int64
 *  with 8), weights (top_k floats): addresses. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_send_warp(uint64_t op, uint32_t token, uint64_t row, uint64_t scales,
                                                       uint64_t experts, uint32_t id_bytes, uint64_t weights);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_send_block(uint64_t op, uint32_t token, uint64_t row, uint64_t scales,
                                                        uint64_t experts, uint32_t id_bytes, uint64_t weights);
/** @} */
/** Every block, once, after its last send: 0 .. tokens - 1 were sent by all blocks together. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_end_block(uint64_t op, uint32_t tokens);
/** @{ After end: waits for what the others announce, and gives how many rows come for a local expert (EXPERT_MAJOR) or
 *  from a source (RANK_MAJOR); -1 where the operation has failed. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_rows_warp(uint64_t op, uint32_t zone);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_rows_block(uint64_t op, uint32_t zone);
/** @} */
/** @{ After end: waits for rows [first, last) of the output, and writes them; each row is asked for once. The addresses
 *  are those of the whole output, of which 0 is not wanted: tokens, scales, topk_idx (int32), topk_weights (float),
 *  src_info (int64). */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_recv_warp(uint64_t op, uint64_t tokens, uint64_t scales, uint64_t topk_idx,
                                                       uint64_t topk_weights, uint64_t src_info, uint32_t first,
                                                       uint32_t last);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_recv_block(uint64_t op, uint64_t tokens, uint64_t scales,
                                                        uint64_t topk_idx, uint64_t topk_weights, uint64_t src_info,
                                                        uint32_t first, uint32_t last);
/** @} */

/* ---- Combine of LL (ucclep/device/ll_combine.hpp). handle and op as above ---- */

/** Every block, first: the handle's group begins a combine of what its last dispatch received. dtype: bf16, fp16 or
 *  fp32. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_begin_block(uint64_t handle, uint64_t op, uint32_t hidden, int32_t dtype,
                                                        uint32_t top_k);
/** @{ How many rows the dispatch put into a zone: the slab of a local expert, or the rows of a source. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_rows_warp(uint64_t op, uint32_t zone);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_rows_block(uint64_t op, uint32_t zone);
/** @} */
/** @{ Sends one row of the experts' output home, each once. row_index: where dispatch put it, counted over all leading
 *  dimensions. row: its address, unchanged until the combine has ended. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_send_warp(uint64_t op, uint32_t row_index, uint64_t row);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_send_block(uint64_t op, uint32_t row_index, uint64_t row);
/** @} */
/** Every block, once, after its last send. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_end_block(uint64_t op);
/** @{ After end: waits for the results of tokens [first, last), and writes them to the [T][hidden] at tokens, plus
 * those at bias and bias2 (0: none); each token is asked for once. */
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_recv_warp(uint64_t op, uint64_t tokens, uint64_t bias, uint64_t bias2,
                                                      uint32_t first, uint32_t last);
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_recv_block(uint64_t op, uint64_t tokens, uint64_t bias, uint64_t bias2,
                                                       uint32_t first, uint32_t last);
/** @} */

#endif /* UCCLEP_DEVICE_LIBRARY_H_ */
