/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * libucclep: Mixture-of-Experts dispatch and combine. This header is the whole C API: C99..C23 and C++11..C++23.
 *
 * Letters in shapes: R ranks, E experts, L = E / R local experts, T tokens of a call, K experts of a token, H elements
 * of a token's row, B the group's maximum of tokens for the handle's mode, N rows received.
 *
 * Results. A function returns ucclEpSuccess or a code; ucclEpGetLastError() has the message that says which argument,
 * which value and what was expected. Nothing throws, exits or aborts; nothing is printed unless UCCLEP_DEBUG asks.
 * Out-parameters are written on success only. Any call may return ucclEpInvalidArgument (a wrong object, struct or
 * value), ucclEpUnhandledDeviceError, ucclEpSystemError or ucclEpOutOfMemory; what else a function returns stands
 * there. After a fatal error (ucclEpAsyncError_t) all but the destroying functions and queries return its code at once.
 *
 * Structs start with {size, magic} and are made by their INIT macro, those that the library fills as well:
 * @code
 *     ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
 * @endcode
 * Zero in a field means "choose for me" unless its comment says that it is required. A NULL config or counters pointer
 * means the INIT value; a NULL Inputs or Outputs struct or required tensor is ucclEpInvalidArgument. Fields are only
 * ever appended: a smaller struct of an older program is read as far as it goes, a larger one of a newer program is
 * accepted when its unknown tail is zero. A struct that the library fills is written up to the caller's size.
 *
 * Calls. Each function says which of these it is:
 * - [collective]  by every rank (the destroying ones: every living rank), in the same order; blocks for at most
 *                 timeout_ms, then ucclEpTimeout names who is missing; ucclEpInvalidUsage in stream capture. Bad or
 *                 differing arguments on one rank give every rank ucclEpInvalidArgument, and the message names rank
 *                 and field.
 * - [operation]   by every living rank, in the same order for one group; enqueued on the stream, never blocks; may be
 *                 captured. What goes wrong later is an error record of the communicator (ucclEpAsyncError_t).
 * - [stream]      by this rank alone; enqueued on the stream, never blocks; may be captured.
 * - [local]       by this rank alone; at once. Those that allocate are ucclEpInvalidUsage in stream capture.
 * - [wait]        by this rank alone; blocks for at most timeout_ms, then ucclEpTimeout; ucclEpInvalidUsage in stream
 *                 capture.
 * timeout_ms counts for a call as a whole, however many ranks, groups or windows it waits for: the group's for a call
 * on a group, else the communicator's, for ucclEpGroupCreate too. A second may follow, in which the call hears who is
 * missing. The destroying functions go on alone then, and return ucclEpSuccess.
 *
 * Objects. An object that does not exist (it was destroyed, by itself or with its owner, or never was one) is
 * ucclEpInvalidArgument in every call; of two threads that destroy one, one gets this. In a forked child the parent's
 * objects are ucclEpInvalidUsage at once, and the calls that destroy them free nothing and succeed; objects that the
 * child makes itself work, on a GPU as far as its driver allows. A process that exits with a status other than 0 gives
 * its communicators up, and their ranks get ucclEpRemoteError at once.
 *
 * Streams. Operations of one group execute in call order; on different streams the caller orders them by events. NULL
 * is the device's default stream. Descriptors, configs and index structs are copied during the call; the memory of
 * tensors stays untouched by the caller until the operation (with send_only: its ucclEpComplete) has finished.
 * Operations of different groups may run at the same time, and beside other kernels, and ranks may order them
 * differently: an operation makes progress with any number of free SMs, from one on. Of G groups this needs that the
 * num_sms of any G - 1 of them, with the SMs that other kernels hold, are together fewer than the SMs of the device: so
 * it holds for two groups with num_sms 0. Else operations may wait for each other until they end with ucclEpTimeout.
 *
 * Threads. Communicators are independent. One communicator, with all that was made from it, is used by one thread at a
 * time, except for ucclEpCommAbort, ucclEpCommGetAsyncError, ucclEpCommGetStats and ucclEpGetLastError, which may also
 * come while another thread destroys it. Ranks of one process each need a thread of their own for the blocking calls.
 * Calls restore the thread's current device.
 */
#ifndef UCCLEP_H_
#define UCCLEP_H_

#include <stddef.h>
#include <stdint.h>

/** The version of this header: MAJOR * 10000 + MINOR * 100 + PATCH. ucclEpGetVersion() has the library's. */
#define UCCLEP_VERSION 100

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Objects ---- */

typedef struct ucclEpComm* ucclEpComm_t;     /**< a communicator: R ranks that can reach each other */
typedef struct ucclEpGroup* ucclEpGroup_t;   /**< one MoE shape on a communicator, with the memory that it needs */
typedef struct ucclEpHandle* ucclEpHandle_t; /**< one routing decision on a group */
typedef struct ucclEpWindow* ucclEpWindow_t; /**< memory that the peers can read and write */
typedef struct ucclEpGraph* ucclEpGraph_t;   /**< captured operations; host device only */
typedef void* ucclEpStream_t;                /**< cudaStream_t, hipStream_t or the host device's own */
typedef void* ucclEpEvent_t;                 /**< cudaEvent_t, hipEvent_t or the host device's own */

/** The address of a rendezvous and its secret: plain bytes, to be sent to the other ranks by any means. */
typedef struct {
  char internal[128]; /**< address, secret and checksum: not for callers to read */
} ucclEpUniqueId;

/* What user kernels get by value; complete in ucclep/device.hpp. Each starts with {unsigned size, magic;}. */
typedef struct ucclEpDeviceGroup ucclEpDeviceGroup;       /**< a group, for user kernels */
typedef struct ucclEpDeviceHandle ucclEpDeviceHandle;     /**< a handle, for user kernels */
typedef struct ucclEpDeviceWindow ucclEpDeviceWindow;     /**< a window, for user kernels */
typedef struct ucclEpDeviceDispatch ucclEpDeviceDispatch; /**< a whole dispatch, for user kernels */
typedef struct ucclEpDeviceCombine ucclEpDeviceCombine;   /**< a whole combine, for user kernels */

/* ---- Enumerations ---- */

/** Codes 0..7 have NCCL's meaning and values. */
typedef enum {
  ucclEpSuccess = 0,              /**< of an operation: it was enqueued */
  ucclEpUnhandledDeviceError = 1, /**< a call of the GPU driver failed */
  ucclEpSystemError = 2,          /**< a call of the operating system failed */
  ucclEpInternalError = 3,        /**< a bug in libucclep */
  ucclEpInvalidArgument = 4,      /**< a value that is wrong, or differs between ranks where it must not */
  ucclEpInvalidUsage = 5,         /**< a call that is not allowed now */
  ucclEpRemoteError = 6,          /**< a peer failed, died, or has masked this rank */
  ucclEpInProgress = 7,           /**< NCCL's value; no call returns it today */
  ucclEpTimeout = 8,              /**< a peer did not come within timeout_ms */
  ucclEpAborted = 9,              /**< ucclEpCommAbort was called */
  ucclEpNotSupported = 10,        /**< not with this device, layout or version; the message says what to use instead */
  ucclEpOutOfMemory = 11,         /**< of host or device; nothing was allocated */
  ucclEpOverflow = 12             /**< more rows arrived than the receiver has room for */
} ucclEpResult_t;

/** What the elements of a tensor are. */
typedef enum {
  ucclEpNoDataType = 0,   /**< not set: never valid */
  ucclEpBfloat16 = 1,     /**< 2 bytes */
  ucclEpFloat16 = 2,      /**< 2 bytes, IEEE */
  ucclEpFloat32 = 3,      /**< 4 bytes, IEEE */
  ucclEpFloat8e4m3 = 4,   /**< 1 byte; the largest is 448, no infinity */
  ucclEpFloat8e5m2 = 5,   /**< 1 byte */
  ucclEpFloat8e8m0 = 6,   /**< an exponent: a scale */
  ucclEpFloat4e2m1x2 = 7, /**< two fp4 values in a byte: one storage element */
  ucclEpUint8 = 8,        /**< 1 byte, as it is */
  ucclEpInt32 = 9,        /**< 4 bytes */
  ucclEpInt64 = 10        /**< 8 bytes */
} ucclEpDataType_t;

/** Where operations run. Memory, streams and events of a communicator are of its device. */
enum {
  UCCLEP_DEVICE_AUTO = 0,          /**< a GPU if there is one, else the host; UCCLEP_DEVICE has the last word */
  UCCLEP_DEVICE_CUDA = 1,          /**< an NVIDIA GPU */
  UCCLEP_DEVICE_HIP = 2,           /**< an AMD GPU */
  UCCLEP_DEVICE_HOST = 3,          /**< threads of the CPU */
  UCCLEP_DEVICE_INDEX_CURRENT = -1 /**< for device_index: the device that is current in the calling thread */
};
/** Low latency (decode, few tokens) or high throughput (training and prefill, thousands of tokens). */
enum { UCCLEP_MODE_AUTO = 0, UCCLEP_MODE_LL = 1, UCCLEP_MODE_HT = 2 };
/** How received rows lie; ucclEpDispatchOutputs_t has the shapes. 0 (not set) is ucclEpInvalidArgument. TILES: by
 * expert, in the order in which they arrive, and ucclEpTiles_t says which are there. */
enum { UCCLEP_LAYOUT_EXPERT_MAJOR = 1, UCCLEP_LAYOUT_RANK_MAJOR = 2, UCCLEP_LAYOUT_FLAT = 3, UCCLEP_LAYOUT_TILES = 4 };
/** Received topk_idx counts experts from this rank's first one, or over all ranks. */
enum { UCCLEP_EXPERT_IDS_LOCAL = 0, UCCLEP_EXPERT_IDS_GLOBAL = 1 };
/** Rows at or beyond max_recv_tokens_per_rank or a tensor's capacity (HT): dropped with the record ucclEpOverflow, or
 *  silently. */
enum { UCCLEP_OVERFLOW_ERROR = 0, UCCLEP_OVERFLOW_DROP = 1 };
/** Backward: dispatch takes gradients where the handle's routing says, combine gives plain sums. Every layout but
 *  RANK_MAJOR. */
enum { UCCLEP_PASS_FORWARD = 0, UCCLEP_PASS_BACKWARD = 1 };
/** FP8_128: bf16 in, ucclEpFloat8e4m3 out with one scale for 128 elements. */
enum { UCCLEP_QUANT_NONE = 0, UCCLEP_QUANT_FP8_128 = 1 };

/* ---- Structs (order and types of the fields are the ABI) ---- */

/**
 * Where a tensor lies. It owns nothing. Token and bias tensors: innermost stride 1, address and row strides multiples
 * of 16 bytes. All others are aligned to their element: scales may have any strides, index, weight and counter tensors
 * have innermost stride 1. A tensor without elements may carry NULL.
 */
typedef struct {
  unsigned size, magic;
  void* data;             /**< the first element, in memory of the communicator's device */
  ucclEpDataType_t dtype; /**< of a storage element */
  int ndim;               /**< 1..4 */
  int64_t sizes[4];       /**< in storage elements, outermost first */
  int64_t strides[4];     /**< in elements; all zero = contiguous */
} ucclEpTensor_t;

/** Of a communicator. Must agree between ranks: device, transport. */
typedef struct {
  unsigned size, magic;
  int device;            /**< UCCLEP_DEVICE_* */
  int device_index;      /**< UCCLEP_DEVICE_INDEX_CURRENT by INIT; 0 is device 0 */
  const char* transport; /**< what crosses nodes: "loopback", "ofi:efa", "verbs", a plugin's name; NULL: choose */
  const char* nics;      /**< the only ones to use, in the order of rails, as in "mlx5_0,mlx5_1"; NULL: choose */
  int ranks_per_node; /**< 0 = discover; else consecutive ranks form virtual nodes of the size that each member gives */
  int ranks_per_domain; /**< 0 = discover; else consecutive ranks of a node form NVLink-like domains of that size */
  int proxy_threads;    /**< that drive this rank's NICs; 0 = by their number */
  int timeout_ms;       /**< of a wait: UCCLEP_TIMEOUT_MS, else the group's, else this, else 100000 */
} ucclEpCommConfig_t;

/** The caller's own way to exchange bytes: MPI, PMIx, a framework's store. */
typedef struct {
  unsigned size, magic;
  void* ctx; /**< handed to allgather */
  /** In place: rank r's part is at buf + r * bytes_per_rank. Returns 0 on success. Called inside the init only. */
  int (*allgather)(void* ctx, void* buf, size_t bytes_per_rank);
} ucclEpBootstrap_t;

/** What a communicator runs on. */
typedef struct {
  unsigned size, magic;
  int rank, nranks;         /**< this rank, and how many there are */
  int device, device_index; /**< UCCLEP_DEVICE_*, never AUTO, and which of them */
  int node, num_nodes;      /**< this rank's, and how many there are; virtual ones as well */
  int domain_size;          /**< ranks that read and write each other's memory, this one included */
  int proxy_threads;        /**< of this rank; 0 where all ranks are one domain */
  char transport[32];       /**< "shared memory" where all ranks are one domain; "" where none was chosen yet */
  char nics[256];           /**< that this rank uses for other nodes, comma-separated */
  char node_name[64];       /**< the host's name */
  char device_name[64];     /**< in the driver's words */
  uint64_t window_bytes;    /**< memory of this rank that peers can reach */
} ucclEpCommInfo_t;

/**
 * The first error that a communicator met while operations ran. A fatal one (Timeout without mask, RemoteError,
 * SystemError, UnhandledDeviceError, InternalError, Aborted) is what later calls return. A data record
 * (InvalidArgument or Overflow found on the device, Timeout of a peer that was then masked) stops nothing and stays
 * until ucclEpCommClearAsyncError.
 */
typedef struct {
  unsigned size, magic;
  ucclEpResult_t code; /**< ucclEpSuccess: there is none */
  char op[32];         /**< "dispatch", "combine", "update" and so on */
  char phase[32];      /**< what it was waiting for or doing */
  int rank, peer;      /**< -1: no particular one */
  uint64_t epoch;      /**< the operation's number */
  uint64_t waited_ms;  /**< for that peer, until it was given up */
  char text[512];      /**< all of it as an error message */
} ucclEpAsyncError_t;

/** What this rank's proxy threads have done since the communicator was made: sums over them; the last is a maximum. */
typedef struct {
  unsigned size, magic;
  uint64_t commands, messages;         /**< commands of kernels, and messages posted to NICs */
  uint64_t bytes_sent, bytes_received; /**< over NICs, without their headers */
  uint64_t ring_full_stalls;           /**< times that a ring of commands was found full */
  uint64_t credit_stalls, nic_stalls;  /**< messages that had to wait for the receiver, and for the NIC */
  uint64_t reorder_depth_max;          /**< the most earlier chunks that were missing when one came */
} ucclEpStats_t;

/** Of a group. Must agree between ranks: all but the callbacks and alloc_ctx; timeout_ms, as it results from what is
 * set elsewhere (ucclEpCommConfig_t), only with enable_mask, where a rank that waits less would mask one that waits
 * longer. */
typedef struct {
  unsigned size, magic;
  int num_experts;                  /**< required, a multiple of R; expert e lives on rank e / (num_experts / R) */
  int top_k;                        /**< required: the largest K */
  int max_tokens_per_rank;          /**< required: B in HT */
  int ll_max_tokens_per_rank;       /**< B in LL; 0 = max_tokens_per_rank */
  int64_t max_token_bytes;          /**< required: the largest row, scales included, of dispatch and of combine */
  int64_t max_recv_tokens_per_rank; /**< rows that HT keeps of those received, with duplicates and padding; 0 = all */
  /** SMs that a kernel of the library may use; 0 = all but one in 32, at least one, which stay free for operations of
   * another group. See "Streams" */
  int num_sms;
  int timeout_ms; /**< of a wait; 0 = the communicator's */
  /** 1: a peer that times out is masked, and the others continue without it. Limits: at most one send_only operation of
   * a kind is in flight; HT across domains uses more memory and does not pre-reduce per node */
  int enable_mask;
  int overflow;                                         /**< UCCLEP_OVERFLOW_* */
  int (*alloc_fn)(void** ptr, size_t bytes, void* ctx); /**< plain workspace; 0 on success; both functions or none */
  int (*free_fn)(void* ptr, void* ctx);                 /**< takes back what alloc_fn gave; 0 on success */
  void* alloc_ctx;                                      /**< handed to both */
  int num_signals;                                      /**< for user kernels */
  int max_in_flight; /**< operations of a kind in flight, up to 8, rounded up to a power of two; 0 = 2 */
  int nranks;        /**< for ucclEpGroupQuery without a communicator only */
  /** Bound of the memory that peers and NICs write for this group, on each rank; 0 = about 512 MiB for HT, beside what
   * LL needs. UCCLEP_WINDOW_BYTES wins. HT operations with more tokens than it has room for run in rounds */
  int64_t window_bytes;
} ucclEpGroupConfig_t;

/** What a group needs, in bytes, and what it allows. */
typedef struct {
  unsigned size, magic;
  int64_t device_bytes, host_bytes;             /**< memory of the group on each rank */
  int64_t max_top_k, max_experts;               /**< the largest top_k and num_experts that a group can have */
  int64_t max_tokens_per_rank, max_token_bytes; /**< the largest of both modes, and the longest row */
  int64_t max_ranks;                            /**< whose tables fit into this device; 4096 at most */
  int64_t epoch_bits;                           /**< operations are numbered by so many bits */
  int64_t tokens_per_round; /**< of HT, on a rank: at most max_tokens_per_rank, fewer where window_bytes says so */
  /** The largest store that arrives whole between all ranks of a domain: 128 bytes between NVIDIA GPUs joined by
   * NVLink, 16 by PCIe, 8 between AMD GPUs. With 128, LL operations with few rows take less time */
  int64_t whole_bytes;
} ucclEpGroupLimits_t;

/** Of a handle. Must agree between ranks: all but handle_mem and tile_rows; what differs is found by the next
 * operation, which ends with ucclEpInvalidArgument on all ranks and writes no row. */
typedef struct {
  unsigned size, magic;
  int mode;             /**< UCCLEP_MODE_*; AUTO: RANK_MAJOR is LL, FLAT is HT, EXPERT_MAJOR and TILES by size */
  int layout;           /**< required: UCCLEP_LAYOUT_*. LL: EXPERT_MAJOR, RANK_MAJOR, TILES; HT: all but RANK_MAJOR */
  int expert_alignment; /**< HT EXPERT_MAJOR: zones are padded to it; a power of two; 0 = 1 */
  int expert_ids;       /**< UCCLEP_EXPERT_IDS_* */
  const ucclEpTensor_t* handle_mem; /**< uint8 [ucclEpHandleMemSize], with what an earlier handle left there, or NULL */
  int tile_rows;                    /**< TILES: rows of a tile, a power of two, 16 to 256; 0 = 128; else 0 */
  /** EXPERT_MAJOR: local expert l is in wave l * waves / L of its rank, and waves of an operation in phases are had one
   * after the other (ucclEpCompleteWave, ucclEpWaveDone); 0 = 1; up to 32 */
  int waves;
  int64_t max_tokens; /**< of an HT operation; 0 = max_tokens_per_rank. ucclEpHandleMemSize grows with it */
} ucclEpHandleConfig_t;

/**
 * What a handle of TILES says of received rows, in device memory that stays where it is as long as the handle lives. An
 * expert's rows are dense from its first one on, in the order in which they arrive, each once. Tile t of local expert l
 * is number first_row[l] / tile_rows + t and holds tile_rows of them; the rest of an expert's last tile is not written.
 * A kernel that reads a ready tile while its dispatch is under way acquires the word (ld.acquire.gpu), and fences the
 * proxy (fence.proxy.async) before bulk copies; a kernel that is launched behind a wait of the stream needs neither.
 *
 * A dispatch resets all words before its stream goes on. When it fails in any way, words of tile_ready that are
 * still 0 become 2.
 */
typedef struct {
  unsigned size, magic;
  uint32_t* tile_ready; /**< [tiles] 0 not yet, 1 its rows are there, 2 there is no such tile, or it will not come */
  uint32_t* tile_done;  /**< [tiles] 0 when a dispatch begins: consumers add to it (red.release.gpu) when the results of
                             the tile's rows are written, or the stream writes it. For ucclEpCombine with send_only */
  int32_t* rows_final;  /**< [L] rows of an expert, without dropped ones; -1 until the counts of all sources are known:
                             in HT, when the rows are about to be received */
  int32_t* tile_expert; /**< [tiles] the local expert; -1: none */
  int64_t* first_row;   /**< [L] an expert's first row, a multiple of tile_rows */
  int64_t* src_info;    /**< [capacity] of a row, rank << 32 | token */
  float* weights;       /**< [capacity] the weight of the row's selection; 1 where dispatch was given none */
  uint64_t *row_at, *scales_at; /**< [capacity] addresses of the row and of its scales; 0: it has none */
  int64_t capacity, tiles;      /**< rows, and tiles, of all experts; in HT the most that may come */
} ucclEpTiles_t;

/**
 * Optional device tensors, int32 or int64, about the rows that this rank receives. Valid on the stream after
 * ucclEpHandleUpdate in HT, after the next dispatch in LL (the tensors stay alive till then).
 */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens_per_expert; /**< [L], padded where an alignment pads; in HT without rows that
                                                max_recv_tokens_per_rank drops, which all others here count */
  const ucclEpTensor_t* expert_offsets;    /**< [L] first row of each expert, or [L+1] with the total */
  const ucclEpTensor_t* tokens_per_rank;   /**< [R] rows received from each rank */
  const ucclEpTensor_t* recv_total;        /**< [1] */
  int64_t* recv_total_host;                /**< device-mapped host memory: -1 from the call on, then the total */
  const ucclEpTensor_t* tokens_per_expert_unpadded; /**< [L] */
  const ucclEpTensor_t* tokens_per_expert_rank;     /**< [L, R] */
} ucclEpCounters_t;

/** Optional device tensors about the rows that this rank sends; the first two int32 or int64. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens_per_rank;   /**< [R] rows to send to each rank */
  const ucclEpTensor_t* tokens_per_expert; /**< [E] selections */
  const ucclEpTensor_t* is_token_in_rank;  /**< [T, R] uint8 */
} ucclEpRoutingCounts_t;

/** What a rank sends: T from 0 to B of LL or the handle's max_tokens, free to differ between ranks; H, dtypes and K are
 * the same on all ranks. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens;       /**< required: [T, H] bf16, fp16, fp32, or bytes (fp8, fp4) with scales */
  const ucclEpTensor_t* scales;       /**< [T, any]: forwarded bit for bit with their row */
  const ucclEpTensor_t* topk_weights; /**< [T, K] fp32 */
  const ucclEpTensor_t* topk_idx;     /**< [T, K]: ucclEpHandleUpdate and dispatch in one call */
} ucclEpDispatchInputs_t;

/**
 * Rows of one zone or source are ordered by (source rank, source token). In HT, sizes[0] is a capacity: rows from N on
 * are left alone, but their topk_idx is -1 and their topk_weights are 0. Rows from the capacity or
 * max_recv_tokens_per_rank on are dropped: in FLAT those of the highest (source rank, token), in EXPERT_MAJOR the end
 * of the last zones, in TILES what arrives last of these. They are left alone likewise, and count as zero in combine.
 * - EXPERT_MAJOR, LL  [L, R*B, H]    rows [0, tokens_per_expert[l]) of slab l are packed; topk_weights [L, R*B]
 * - TILES, LL         [L, C, H]      C is R*B, rounded up to tile_rows: as EXPERT_MAJOR, LL, but rows of a slab are in
 * the order of their arrival (ucclEpTiles_t); topk_weights [L, C]
 * - EXPERT_MAJOR, HT  [capacity, H]  a row per (token, local expert), zones at expert_offsets, padded with zero rows;
 *                                    topk_weights [capacity]
 * - TILES, HT         [capacity, H]  the same, zones padded to tile_rows, but rows of a zone are in the order of their
 *                                    arrival (ucclEpTiles_t), and pads are left alone
 * - RANK_MAJOR        [R, B, H]      a row per token, by source rank; topk_idx and topk_weights [R, B, K]
 * - FLAT              [capacity, H]  a row per token; topk_idx and topk_weights [capacity, K]
 *
 * topk_idx and topk_weights keep the source's k order; entries that are not of this rank are -1 and 0.
 */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens; /**< required; the dtype of the input, or ucclEpFloat8e4m3 with UCCLEP_QUANT_FP8_128 */
  const ucclEpTensor_t* scales; /**< [rows, width of the input]; FP8_128: fp32 or e8m0 [rows, H/128], or int32
                                     [rows, ceil(H/512)] with four exponents a word, lowest byte first */
  const ucclEpTensor_t* topk_idx;                     /**< int32 or int64 */
  const ucclEpTensor_t* topk_weights;                 /**< fp32 */
  const ucclEpTensor_t* src_info;                     /**< [rows] int64 = rank << 32 | token, or int32 = token */
  const ucclEpTensor_t* cumulative_tokens_per_expert; /**< [L] int32: added to */
  const ucclEpTensor_t* wait_ns;                      /**< [R] int64: the time waited for each peer is added */
  const ucclEpCounters_t* counters;                   /**< or NULL */
} ucclEpDispatchOutputs_t;

/** Forward, LL EXPERT_MAJOR multiplies by topk_weights, given here or with dispatch, and TILES by those given with
 *  dispatch, if any; else rows are summed as is. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens;       /**< required: bf16, fp16 or fp32 in the shape of dispatch's output */
  const ucclEpTensor_t* scales;       /**< kept for later: must be NULL */
  const ucclEpTensor_t* topk_weights; /**< [T, K] fp32; backward: in the shape of dispatch's topk_weights output,
                                           given with outputs.topk_weights or not at all */
  const ucclEpTensor_t* bias;         /**< [T, H], added last; forward only */
  const ucclEpTensor_t* bias2;        /**< as bias */
} ucclEpCombineInputs_t;

/** What comes back to a rank. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens;       /**< required: [T, H]; a token with no valid expert is zero plus bias */
  const ucclEpTensor_t* topk_weights; /**< backward: [T, K] fp32, the sums of the rows of inputs.topk_weights */
  const ucclEpTensor_t* wait_ns;      /**< [R] int64: the time waited for each peer is added */
} ucclEpCombineOutputs_t;

/** Of one call; the same on all ranks but for num_sms. */
typedef struct {
  unsigned size, magic;
  int send_only;   /**< 1: start the transfer only; ucclEpComplete finishes it */
  int quant;       /**< UCCLEP_QUANT_* */
  int round_scale; /**< 1: scales are powers of two */
  int pass;        /**< UCCLEP_PASS_* */
  int num_sms;     /**< of every kernel that the call launches together; 0 = the group's */
} ucclEpDispatchConfig_t;

/** Of one call; the same on all ranks but for num_sms and done_target. */
typedef struct {
  unsigned size, magic;
  int send_only;   /**< 1: start the transfer only; ucclEpComplete finishes it */
  int pass;        /**< UCCLEP_PASS_* */
  int num_sms;     /**< of every kernel that the call launches together; 0 = the group's */
  int quant;       /**< UCCLEP_QUANT_NONE; FP8_128 is ucclEpNotSupported in this version */
  int done_target; /**< TILES: a tile is done when its tile_done has reached this; 0 = 1 */
} ucclEpCombineConfig_t;

/* ---- Library ---- */

/** [local] The library's version, as UCCLEP_VERSION. */
ucclEpResult_t ucclEpGetVersion(int* version);
/** A few words for a code; never NULL. */
const char* ucclEpGetErrorString(ucclEpResult_t result);
/** The message of the last failed call: of this thread (NULL) or with this communicator; "" when there was none. Any
 *  thread may ask. The string belongs to the calling thread until its next libucclep call; never NULL. */
const char* ucclEpGetLastError(ucclEpComm_t comm);
/** [local] Version, embedded GPU code, transports. text NULL: *len = bytes needed with the final NUL; too small: the
 *  same and ucclEpInvalidArgument; else *len = bytes written. */
ucclEpResult_t ucclEpGetBuildInfo(char* text, size_t* len);

/* ---- Communicator ---- */

/** [local] Opens a rendezvous in this process (it need not be a rank), which must live until all ranks have joined. It
 *  touches no GPU driver, and the process may fork afterwards. */
ucclEpResult_t ucclEpGetUniqueId(ucclEpUniqueId* id);
/** [collective] Makes rank `rank` of `nranks`. Blocks until all ranks, processes or threads of one process, have called
 *  it. Ranks, or a variable of the environment (UCCLEP_*), that make no sense: ucclEpInvalidArgument. A device or
 *  transport that is not there: ucclEpNotSupported. A rank that dies meanwhile: ucclEpRemoteError. */
ucclEpResult_t ucclEpCommInitRank(ucclEpComm_t* comm, int nranks, ucclEpUniqueId id, int rank,
                                  const ucclEpCommConfig_t* config);
/** [collective] The same over the caller's allgather, called by the calling thread inside this call only. The time that
 *  it takes does not count. If it fails or throws on one rank, every rank that has rank 0's part gets ucclEpSystemError
 *  with the rank, and the others hear that it is missing. */
ucclEpResult_t ucclEpCommInitBootstrap(ucclEpComm_t* comm, int nranks, int rank, const ucclEpBootstrap_t* bootstrap,
                                       const ucclEpCommConfig_t* config);
/** [local] The number of ranks, R. */
ucclEpResult_t ucclEpCommCount(ucclEpComm_t comm, int* nranks);
/** [local] This rank: 0 .. R-1. */
ucclEpResult_t ucclEpCommUserRank(ucclEpComm_t comm, int* rank);
/** [local] What the communicator runs on. */
ucclEpResult_t ucclEpCommGetInfo(ucclEpComm_t comm, ucclEpCommInfo_t* info);
/** [local] Machines, nodes, domains, and the NICs and proxies of all ranks, as JSON (docs/architecture.md has its
 *  fields); len as in ucclEpGetBuildInfo. */
ucclEpResult_t ucclEpCommGetTopology(ucclEpComm_t comm, char* json, size_t* len);
/** [local] The first error record; code ucclEpSuccess when there is none. Any thread may ask. */
ucclEpResult_t ucclEpCommGetAsyncError(ucclEpComm_t comm, ucclEpAsyncError_t* error);
/** [local] Forgets a data record (Overflow, an id out of range, a masked peer); ucclEpInvalidUsage on a fatal one. */
ucclEpResult_t ucclEpCommClearAsyncError(ucclEpComm_t comm);
/** [local] Counters of the proxies; all zero where there are none. Any thread may ask. */
ucclEpResult_t ucclEpCommGetStats(ucclEpComm_t comm, ucclEpStats_t* stats);
/** [local] From any thread: kernels, proxies and waiting calls leave within a second with ucclEpAborted. */
ucclEpResult_t ucclEpCommAbort(ucclEpComm_t comm);
/** [collective] Destroys all that was made from it too, memory of ucclEpMemAlloc included. After a fatal error it is
 *  local. Returns ucclEpSuccess and frees all, except memory that work on the device still uses a second after
 *  timeout_ms: that stays until the process ends, and a WARN line says so. NULL is fine. */
ucclEpResult_t ucclEpCommDestroy(ucclEpComm_t comm);

/* ---- Memory, streams, events: what a program needs on every device, the host included ---- */

/** [local] Device memory that can be registered as a window; not zeroed. ucclEpOutOfMemory names the bytes. */
ucclEpResult_t ucclEpMemAlloc(ucclEpComm_t comm, void** ptr, size_t bytes);
/** [local] Frees ucclEpMemAlloc's memory, which no operation uses any more. NULL is fine. */
ucclEpResult_t ucclEpMemFree(ucclEpComm_t comm, void* ptr);
/** [local] Host memory that the device can access at the same address: for recv_total_host and the like. */
ucclEpResult_t ucclEpMemAllocHost(ucclEpComm_t comm, void** ptr, size_t bytes);
/** [local] Frees ucclEpMemAllocHost's memory. NULL is fine. */
ucclEpResult_t ucclEpMemFreeHost(ucclEpComm_t comm, void* ptr);
/** [stream] Copies bytes in any direction. With pageable host memory it may block; in capture only device or pinned
 * memory. */
ucclEpResult_t ucclEpMemcpy(ucclEpComm_t comm, void* dst, const void* src, size_t bytes, ucclEpStream_t stream);

/** [local] A stream of the communicator's device; a GPU framework passes its own instead. */
ucclEpResult_t ucclEpStreamCreate(ucclEpComm_t comm, ucclEpStream_t* stream);
/** [local] Destroys a stream; work in flight still ends. NULL is fine. */
ucclEpResult_t ucclEpStreamDestroy(ucclEpComm_t comm, ucclEpStream_t stream);
/** [wait] Until all work on the stream has ended. Returns the code of a fatal error that ended it. */
ucclEpResult_t ucclEpStreamSynchronize(ucclEpComm_t comm, ucclEpStream_t stream);
/** [stream] Later work on the stream waits for the event. */
ucclEpResult_t ucclEpStreamWaitEvent(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpEvent_t event);
/** [local] An event that can be timed. */
ucclEpResult_t ucclEpEventCreate(ucclEpComm_t comm, ucclEpEvent_t* event);
/** [local] Destroys an event. NULL is fine. */
ucclEpResult_t ucclEpEventDestroy(ucclEpComm_t comm, ucclEpEvent_t event);
/** [stream] The event happens when all earlier work on the stream has ended. */
ucclEpResult_t ucclEpEventRecord(ucclEpComm_t comm, ucclEpEvent_t event, ucclEpStream_t stream);
/** [wait] Until the event has happened. */
ucclEpResult_t ucclEpEventSynchronize(ucclEpComm_t comm, ucclEpEvent_t event);
/** [local] The milliseconds from event a to event b, which have both happened. */
ucclEpResult_t ucclEpEventElapsed(ucclEpComm_t comm, ucclEpEvent_t a, ucclEpEvent_t b, float* ms);

/** [local] From here on calls on the stream are recorded, not run; so are those on a stream that waits for an event of
 *  the capture. Host device only: on a GPU ucclEpNotSupported, capture with its own runtime. */
ucclEpResult_t ucclEpStreamBeginCapture(ucclEpComm_t comm, ucclEpStream_t stream);
/** [local] The recorded calls as a graph. The stream must have waited for all that others of the capture do. */
ucclEpResult_t ucclEpStreamEndCapture(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpGraph_t* graph);
/** [stream] Runs the graph on any stream; any number of times, on every rank alike. In a capture it becomes a part of
 *  it. ucclEpInvalidUsage when a group of which it holds operations was destroyed. */
ucclEpResult_t ucclEpGraphLaunch(ucclEpComm_t comm, ucclEpGraph_t graph, ucclEpStream_t stream);
/** [local] Destroys a graph; a replay in flight still ends. NULL is fine. */
ucclEpResult_t ucclEpGraphDestroy(ucclEpComm_t comm, ucclEpGraph_t graph);

/** [collective] Lets peers read and write a range, any part of an allocation; bytes may differ between ranks. Tensors
 *  inside it are accessed in place; others are copied through an internal buffer. Across domains every tensor is
 *  copied. Memory that cannot be shared on one rank is ucclEpNotSupported on all. */
ucclEpResult_t ucclEpWindowRegister(ucclEpComm_t comm, void* ptr, size_t bytes, ucclEpWindow_t* window);
/** [collective] Ends ucclEpWindowRegister's window; the memory stays the caller's. After a fatal error it is local.
 * NULL is fine. */
ucclEpResult_t ucclEpWindowDeregister(ucclEpComm_t comm, ucclEpWindow_t window);
/** [local] From now on ucclEpMemPoolAlloc gives parts of this window's memory, until the window ends. */
ucclEpResult_t ucclEpMemPoolOpen(ucclEpWindow_t window);
/** [local] For a framework's allocator, as torch's CUDAPluggableAllocator: bytes in a window that ucclEpMemPoolOpen
 * opened for this device (ucclEpCommInfo_t's device_index), the newest one that has room; NULL: none has. Any thread;
 * the stream does not matter. */
void* ucclEpMemPoolAlloc(size_t bytes, int device, ucclEpStream_t stream);
/** [local] Frees ucclEpMemPoolAlloc's memory, which no operation uses any more. One whose window
 * has ended is left alone. */
void ucclEpMemPoolFree(void* ptr, size_t bytes, int device, ucclEpStream_t stream);

/* ---- Group ---- */

/** [local] The memory and the limits of such a group; allocates nothing. Real use is within 5 % of it. comm may be
 * NULL: an estimate for config->nranks ranks of one domain, or of domains of the sizes in UCCLEP_NODES. */
ucclEpResult_t ucclEpGroupQuery(ucclEpComm_t comm, const ucclEpGroupConfig_t* config, ucclEpGroupLimits_t* limits);
/** [collective] Allocates all that operations of one MoE shape need; they themselves allocate nothing. One group serves
 *  LL and HT, any number of handles and many layers. Beyond a limit of ucclEpGroupQuery: ucclEpInvalidArgument. */
ucclEpResult_t ucclEpGroupCreate(ucclEpGroup_t* group, ucclEpComm_t comm, const ucclEpGroupConfig_t* config);
/** [collective] Destroys its handles too. After a fatal error it is local. Always succeeds. NULL is fine. */
ucclEpResult_t ucclEpGroupDestroy(ucclEpGroup_t group);
/** [stream] Counts of a routing, without any communication; any T, B does not bind it. */
ucclEpResult_t ucclEpGetRoutingCounts(ucclEpGroup_t group, const ucclEpTensor_t* topk_idx,
                                      const ucclEpRoutingCounts_t* out, ucclEpStream_t stream);

/** [stream] Writes this rank's view, R ints, to device memory: 1 = active, 0 = masked. */
ucclEpResult_t ucclEpMaskQuery(ucclEpGroup_t group, int* device_mask, ucclEpStream_t stream);
/** [stream] Masks the ranks whose entry of R is 0, for operations that follow; the ints are read at once. A 1 for a
 * masked rank is ucclEpInvalidUsage. */
ucclEpResult_t ucclEpMaskUpdate(ucclEpGroup_t group, const int* host_mask, ucclEpStream_t stream);
/** [collective] Brings back all ranks whose process lived. Every handle needs a dispatch before its next combine, and
 * in HT an Update before that; phases that are pending are given up. */
ucclEpResult_t ucclEpMaskClear(ucclEpGroup_t group, ucclEpStream_t stream);

/* ---- Handle and operations ---- */

/** [local] The least bytes of handle_mem for handles with these settings; handle_mem itself is not looked at. */
ucclEpResult_t ucclEpHandleMemSize(ucclEpGroup_t group, const ucclEpHandleConfig_t* config, size_t* bytes);
/** [local] Any number per group; the settings are the same on all ranks. */
ucclEpResult_t ucclEpHandleCreate(ucclEpHandle_t* handle, ucclEpGroup_t group, const ucclEpHandleConfig_t* config);
/** [local] Allowed with operations in flight. NULL is fine. */
ucclEpResult_t ucclEpHandleDestroy(ucclEpHandle_t handle);
/** Takes a routing: topk_idx [T, K], int32 or int64, global expert ids, -1 = dropped; 0 <= T <= B, free to differ
 *  between ranks and calls; 1 <= K <= top_k, the same on all ranks. An id out of range, or twice in a row, counts as -1
 *  and leaves the record ucclEpInvalidArgument. HT: [operation], it exchanges counts. LL: [stream]. */
ucclEpResult_t ucclEpHandleUpdate(ucclEpHandle_t handle, const ucclEpTensor_t* topk_idx, const ucclEpCounters_t* out,
                                  ucclEpStream_t stream);
/** [wait] For the counts of the last HT update: recv_total and tokens_per_expert ([L], or NULL) of ucclEpCounters_t.
 *  From then on a tensor with less room than they need is ucclEpInvalidArgument. */
ucclEpResult_t ucclEpHandleWaitCounts(ucclEpHandle_t handle, int64_t* recv_total, int64_t* tokens_per_expert);
/** [local] The words of a handle's tiles. ucclEpInvalidUsage where its layout is another. */
ucclEpResult_t ucclEpHandleGetTiles(ucclEpHandle_t handle, ucclEpTiles_t* out);
/** [operation] Sends every token to the ranks of its experts, by the last routing of the handle (or by
 *  inputs.topk_idx). When later work on the stream starts, all rows have arrived, in a deterministic order (but in
 * TILES). Shapes: ucclEpDispatchOutputs_t. ucclEpInvalidUsage before the first routing; T above B, or a tensor known to
 * be too small: ucclEpInvalidArgument, and nothing is launched. */
ucclEpResult_t ucclEpDispatch(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                              const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                              ucclEpStream_t stream);
/** [operation] Brings the rows back and sums them per token: experts of a rank ascending in fp32, rounded once to the
 *  dtype of tokens, then ranks (HT between nodes: nodes) ascending, then bias and one last rounding. Sums repeat bit
 * for bit on every device and transport. A pending dispatch of a handle with waves or tiles ends before, unless
 * send_only is set. With TILES, send_only and a pending dispatch, num_sms blocks on a stream of the library's send the
 * rows of a token when the tiles of all its rows here are done (tile_done, done_target). So this call comes before the
 * consumers; its stream goes on when these blocks run. A tile that is not done in time is ucclEpTimeout.
 * ucclEpInvalidUsage before the handle's first dispatch. */
ucclEpResult_t ucclEpCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                             const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                             ucclEpStream_t stream);
/** [operation] The receive phase of a send_only operation, ordered after the first: it writes the outputs. (Those of a
 *  dispatch of TILES are written on a stream of the library's from the first phase on, by num_sms blocks, while
 * consumers take the tiles that are ready; the call's stream goes on when these blocks run, and this call waits for
 * them.) With none pending it does nothing. At most one may be pending on a handle, which takes no Update, Dispatch or
 * Combine meanwhile (with waves or TILES: one Combine, which with send_only is pending, too, and ends with the same
 * call, and else ends the dispatch), and of a group's operations of a kind at most max_in_flight from the oldest
 * pending one on; one more is ucclEpInvalidUsage. A capture contains both phases. A graph that holds a whole operation
 * may be replayed while one of another handle is pending; the replay counts towards max_in_flight, which the caller has
 * to observe then, as no call sees it. With enable_mask such a replay sends nothing and leaves the record
 * ucclEpInvalidUsage. */
ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream);
/** [stream] Of a pending send_only dispatch: when later work on the stream starts, the rows of all experts up to this
 *  wave are there, whatever peers hold back of later waves. Ascending, each at most once; what was left out comes with
 *  a later wave, or with ucclEpComplete. The last wave ends the dispatch. With enable_mask, and with several rounds,
 * the first wave that is asked for receives all. ucclEpInvalidUsage when no dispatch is pending. */
ucclEpResult_t ucclEpCompleteWave(ucclEpHandle_t handle, int wave, ucclEpStream_t stream);
/** [stream] Of a pending send_only combine of a handle with waves, whose rows leave by these calls: the stream has made
 *  the rows of all experts of this wave, and what is then complete of a token goes to its home. Ascending, each once;
 *  ucclEpComplete sends what is left. Where the first wave receives all, the last one sends all, and until then the
 * group takes no other combine. ucclEpInvalidUsage before ucclEpCompleteWave of a pending dispatch, and when no such
 * combine is pending. */
ucclEpResult_t ucclEpWaveDone(ucclEpHandle_t handle, int wave, ucclEpStream_t stream);
/** [operation] The receive phase of a device-initiated dispatch: one that a user kernel began (ucclep/device.hpp).
 * outputs as for ucclEpDispatch; their type and width are those of the rows that the kernel sent. If none is pending it
 * does nothing. Until it has ended, the group takes no other dispatch. */
ucclEpResult_t ucclEpCompleteDispatch(ucclEpHandle_t handle, const ucclEpDispatchOutputs_t* outputs,
                                      const ucclEpDispatchConfig_t* config, ucclEpStream_t stream);
/** [operation] The receive phase of a device-initiated combine; of the inputs only bias and bias2 may be given. If none
 * is pending it does nothing. */
ucclEpResult_t ucclEpCompleteCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                     const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                     ucclEpStream_t stream);

/* ---- For user kernels (ucclep/device.hpp): valid until the owner is destroyed ---- */

/** [local] Fills what a kernel is given; out has its size and magic set, here and below. */
ucclEpResult_t ucclEpGroupGetDevice(ucclEpGroup_t group, ucclEpDeviceGroup* out);
/** [local] As ucclEpGroupGetDevice, for a handle. The first one of HT EXPERT_MAJOR allocates, for all of its group. */
ucclEpResult_t ucclEpHandleGetDevice(ucclEpHandle_t handle, ucclEpDeviceHandle* out);
/** [local] As ucclEpGroupGetDevice, for a window. */
ucclEpResult_t ucclEpWindowGetDevice(ucclEpWindow_t window, ucclEpDeviceWindow* out);
/** [local] Fills out with what ucclEpDispatch would launch, for a kernel that runs it itself, any number of times
 *  (ucclep/device/whole_operations.hpp), with the tensors of this call. LL reads inputs.topk_idx in each run; HT uses
 *  the routing of the last ucclEpHandleUpdate. The handle counts as dispatched from now on. Valid until the handle is
 *  destroyed, in HT or updated. out->block_threads and out->shared_bytes say how the kernel is launched, out->forms
 *  which code can run the operation. The library does not check that a launch has so much shared memory.
 * ucclEpNotSupported with enable_mask, and for a handle with waves or tiles. */
ucclEpResult_t ucclEpDispatchGetDevice(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                                       const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                                       ucclEpDeviceDispatch* out);
/** [local] As ucclEpDispatchGetDevice, of what ucclEpCombine would launch. */
ucclEpResult_t ucclEpCombineGetDevice(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                      const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                      ucclEpDeviceCombine* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---- INIT macros ----
 * Expressions: they initialise and they assign. In C, an object with static storage cannot be initialised by one:
 * assign at run time, or leave it zeroed and set size, magic and the device_index of ucclEpCommConfig_t. */

/** @{ The magic of each struct, which its INIT macro sets. */
#define UCCLEP_TENSOR_MAGIC 0x55450001u
#define UCCLEP_COMM_CONFIG_MAGIC 0x55450002u
#define UCCLEP_BOOTSTRAP_MAGIC 0x55450003u
#define UCCLEP_COMM_INFO_MAGIC 0x55450004u
#define UCCLEP_ASYNC_ERROR_MAGIC 0x55450005u
#define UCCLEP_STATS_MAGIC 0x55450006u
#define UCCLEP_GROUP_CONFIG_MAGIC 0x55450007u
#define UCCLEP_GROUP_LIMITS_MAGIC 0x55450008u
#define UCCLEP_HANDLE_CONFIG_MAGIC 0x55450009u
#define UCCLEP_COUNTERS_MAGIC 0x5545000au
#define UCCLEP_ROUTING_COUNTS_MAGIC 0x5545000bu
#define UCCLEP_DISPATCH_INPUTS_MAGIC 0x5545000cu
#define UCCLEP_DISPATCH_OUTPUTS_MAGIC 0x5545000du
#define UCCLEP_COMBINE_INPUTS_MAGIC 0x5545000eu
#define UCCLEP_COMBINE_OUTPUTS_MAGIC 0x5545000fu
#define UCCLEP_DISPATCH_CONFIG_MAGIC 0x55450010u
#define UCCLEP_COMBINE_CONFIG_MAGIC 0x55450011u
#define UCCLEP_TILES_MAGIC 0x55450012u
/** @} */

#ifdef __cplusplus
/** A T with its size and magic, and zero in all other fields: what the INIT macros are in C++. */
template <class T>
inline T ucclEpInit(unsigned magic) {
  T object = T(); /* all fields zero */
  object.size = static_cast<unsigned>(sizeof(T));
  object.magic = magic;
  return object;
}
/** The same, on the device that is current in the calling thread. */
template <>
inline ucclEpCommConfig_t ucclEpInit<ucclEpCommConfig_t>(unsigned magic) {
  ucclEpCommConfig_t object = ucclEpCommConfig_t();
  object.size = static_cast<unsigned>(sizeof(ucclEpCommConfig_t));
  object.magic = magic;
  object.device_index = UCCLEP_DEVICE_INDEX_CURRENT;
  return object;
}
/** @{ The initial value of each struct. */
#define UCCLEP_INIT_(type, magic_number) (::ucclEpInit<type>(magic_number))
#define UCCLEP_COMM_CONFIG_INIT UCCLEP_INIT_(ucclEpCommConfig_t, UCCLEP_COMM_CONFIG_MAGIC)
#else
#define UCCLEP_INIT_(type, magic_number) ((type){.size = sizeof(type), .magic = (magic_number)})
#define UCCLEP_COMM_CONFIG_INIT                             \
  ((ucclEpCommConfig_t){.size = sizeof(ucclEpCommConfig_t), \
                        .magic = UCCLEP_COMM_CONFIG_MAGIC,  \
                        .device_index = UCCLEP_DEVICE_INDEX_CURRENT})
#endif

#define UCCLEP_TENSOR_INIT UCCLEP_INIT_(ucclEpTensor_t, UCCLEP_TENSOR_MAGIC)
#define UCCLEP_BOOTSTRAP_INIT UCCLEP_INIT_(ucclEpBootstrap_t, UCCLEP_BOOTSTRAP_MAGIC)
#define UCCLEP_COMM_INFO_INIT UCCLEP_INIT_(ucclEpCommInfo_t, UCCLEP_COMM_INFO_MAGIC)
#define UCCLEP_ASYNC_ERROR_INIT UCCLEP_INIT_(ucclEpAsyncError_t, UCCLEP_ASYNC_ERROR_MAGIC)
#define UCCLEP_STATS_INIT UCCLEP_INIT_(ucclEpStats_t, UCCLEP_STATS_MAGIC)
#define UCCLEP_GROUP_CONFIG_INIT UCCLEP_INIT_(ucclEpGroupConfig_t, UCCLEP_GROUP_CONFIG_MAGIC)
#define UCCLEP_GROUP_LIMITS_INIT UCCLEP_INIT_(ucclEpGroupLimits_t, UCCLEP_GROUP_LIMITS_MAGIC)
#define UCCLEP_HANDLE_CONFIG_INIT UCCLEP_INIT_(ucclEpHandleConfig_t, UCCLEP_HANDLE_CONFIG_MAGIC)
#define UCCLEP_COUNTERS_INIT UCCLEP_INIT_(ucclEpCounters_t, UCCLEP_COUNTERS_MAGIC)
#define UCCLEP_ROUTING_COUNTS_INIT UCCLEP_INIT_(ucclEpRoutingCounts_t, UCCLEP_ROUTING_COUNTS_MAGIC)
#define UCCLEP_DISPATCH_INPUTS_INIT UCCLEP_INIT_(ucclEpDispatchInputs_t, UCCLEP_DISPATCH_INPUTS_MAGIC)
#define UCCLEP_DISPATCH_OUTPUTS_INIT UCCLEP_INIT_(ucclEpDispatchOutputs_t, UCCLEP_DISPATCH_OUTPUTS_MAGIC)
#define UCCLEP_COMBINE_INPUTS_INIT UCCLEP_INIT_(ucclEpCombineInputs_t, UCCLEP_COMBINE_INPUTS_MAGIC)
#define UCCLEP_COMBINE_OUTPUTS_INIT UCCLEP_INIT_(ucclEpCombineOutputs_t, UCCLEP_COMBINE_OUTPUTS_MAGIC)
#define UCCLEP_DISPATCH_CONFIG_INIT UCCLEP_INIT_(ucclEpDispatchConfig_t, UCCLEP_DISPATCH_CONFIG_MAGIC)
#define UCCLEP_COMBINE_CONFIG_INIT UCCLEP_INIT_(ucclEpCombineConfig_t, UCCLEP_COMBINE_CONFIG_MAGIC)
#define UCCLEP_TILES_INIT UCCLEP_INIT_(ucclEpTiles_t, UCCLEP_TILES_MAGIC)
/** @} */

#endif /* UCCLEP_H_ */
