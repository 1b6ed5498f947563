/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * libucclep: Mixture-of-Experts dispatch and combine. This header is the whole C API. It compiles as C99..C23 and as
 * C++11..C++23.
 *
 * Letters in shapes: R ranks, E experts, L = E / R local experts, T tokens of a call, K experts of a token, H elements
 * of a token's row, N rows received. B is the largest T: the group has one for LL and one for HT.
 *
 * Terms. A domain is a set of ranks that read and write each other's memory (NVLink, xGMI, or one machine's memory). A
 * node is a machine, or a virtual node of one; it holds one or more domains. The received rows of one local expert lie
 * together: in a slab of fixed size (LL) or in a zone that is as long as its rows (HT). An operation is one dispatch,
 * combine, or HT update of all ranks.
 *
 * Results. A function returns ucclEpSuccess or an error code. ucclEpGetLastError() then returns a message that names
 * the argument, its value and the expected values. Nothing throws, exits or aborts. Nothing is printed unless
 * UCCLEP_DEBUG asks for it. Out-parameters are written on success only. Any call may return ucclEpInvalidArgument (a
 * wrong object, struct or value), ucclEpUnhandledDeviceError, ucclEpSystemError or ucclEpOutOfMemory. A function's
 * comment lists its other codes. After a fatal error (ucclEpAsyncError_t) all functions return its code at once, except
 * the destroying functions and the queries.
 *
 * Structs start with {size, magic}. Initialise every struct with its INIT macro, also a struct that the library fills:
 * @code
 *     ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
 * @endcode
 * Zero in a field means "choose for me" unless the field is required. A NULL config or counters pointer means the
 * INIT value. A NULL Inputs or Outputs struct or a NULL required tensor is ucclEpInvalidArgument. New versions only
 * append fields. The library reads the shorter struct of an older program up to its size. It accepts the longer struct
 * of a newer program if the part that it does not know is zero. It writes no struct beyond the caller's size.
 *
 * Calls. The comment of each function starts with one of these words:
 * - [collective]  Every rank makes the call, in the same order (destroying calls: every living rank). It blocks for at
 *                 most timeout_ms, then returns ucclEpTimeout with a message that names the missing ranks. In stream
 *                 capture it is ucclEpInvalidUsage. If arguments are bad on one rank, or differ where they must agree,
 *                 every rank gets ucclEpInvalidArgument, and the message names rank and field.
 * - [operation]   Every living rank makes the call, in the same order for one group. It is enqueued on the stream and
 *                 never blocks. It may be captured. A later failure becomes an error record of the communicator
 *                 (ucclEpAsyncError_t).
 * - [stream]      This rank alone makes the call. It is enqueued on the stream and never blocks. It may be captured.
 * - [local]       This rank alone makes the call. It takes effect at once. Calls that allocate are ucclEpInvalidUsage
 *                 in stream capture.
 * - [wait]        This rank alone makes the call. It blocks for at most timeout_ms, then returns ucclEpTimeout. In
 *                 stream capture it is ucclEpInvalidUsage.
 * timeout_ms limits a call as a whole, for any number of ranks, groups or windows that it waits for. Calls on a group
 * use the group's value. All others, ucclEpGroupCreate too, use the communicator's. After a timeout a call may take one
 * more second to find out which ranks are missing. The destroying functions then continue without the missing ranks,
 * and return ucclEpSuccess.
 *
 * Objects. Each call checks its objects. An object that was destroyed (by itself or with its owner), or that never was
 * one, is ucclEpInvalidArgument. If two threads destroy the same object, one of them gets this code. In a forked child
 * the parent's objects are ucclEpInvalidUsage at once; the calls that destroy them free nothing and succeed. The child
 * may create objects of its own, on a GPU as far as its driver allows. If a process exits with a status other than 0,
 * its communicators end, and the other ranks get ucclEpRemoteError at once.
 *
 * Streams. Operations of one group execute in call order. On different streams the caller orders them by events. NULL
 * is the device's default stream. Descriptors, configs and index structs are copied during the call. The caller leaves
 * the memory of tensors untouched until the operation (with send_only: its ucclEpComplete) has finished. Operations of
 * different groups may run at the same time, beside other kernels too, and ranks may order them differently, because an
 * operation makes progress with any number of free SMs, even one. For G groups, add the num_sms of any G - 1 of them to
 * the SMs that other kernels hold: the sum must be less than the SMs of the device. Two groups with num_sms 0 meet
 * this. Otherwise operations may wait for each other until they end with ucclEpTimeout.
 *
 * Threads. Communicators are independent. Only one thread at a time may use a communicator and the objects created from
 * it. The exceptions are ucclEpCommAbort, ucclEpCommGetAsyncError, ucclEpCommGetStats and ucclEpGetLastError: any
 * thread may call them at any time, even while another thread destroys the communicator. If ranks share a process, each
 * needs a thread of its own for the blocking calls. Calls restore the thread's current device.
 */
#ifndef UCCLEP_H_
#define UCCLEP_H_

#include <stddef.h>
#include <stdint.h>

/** The version of this header: MAJOR * 10000 + MINOR * 100 + PATCH. ucclEpGetVersion() returns the library's. */
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
typedef void* ucclEpStream_t;                /**< a cudaStream_t, a hipStream_t or a stream of the host device */
typedef void* ucclEpEvent_t;                 /**< a cudaEvent_t, a hipEvent_t or an event of the host device */

/** The address of a rendezvous and its secret, as plain bytes. Send it to the other ranks by any means. */
typedef struct {
  char internal[128]; /**< address, secret and checksum; callers must not interpret them */
} ucclEpUniqueId;

/* User kernels get these structs by value. ucclep/device.hpp defines them. Each starts with {unsigned size, magic;}. */
typedef struct ucclEpDeviceGroup ucclEpDeviceGroup;       /**< a group, for user kernels */
typedef struct ucclEpDeviceHandle ucclEpDeviceHandle;     /**< a handle, for user kernels */
typedef struct ucclEpDeviceWindow ucclEpDeviceWindow;     /**< a window, for user kernels */
typedef struct ucclEpDeviceDispatch ucclEpDeviceDispatch; /**< a whole dispatch, for user kernels */
typedef struct ucclEpDeviceCombine ucclEpDeviceCombine;   /**< a whole combine, for user kernels */

/* ---- Enumerations ---- */

/** Codes 0..7 have NCCL's meaning and values. */
typedef enum {
  ucclEpSuccess = 0,              /**< for an operation: it was enqueued */
  ucclEpUnhandledDeviceError = 1, /**< a call of the GPU driver failed */
  ucclEpSystemError = 2,          /**< a call of the operating system failed */
  ucclEpInternalError = 3,        /**< a bug in libucclep */
  ucclEpInvalidArgument = 4,      /**< a value is wrong, or differs between ranks where it must agree */
  ucclEpInvalidUsage = 5,         /**< the call is not allowed now */
  ucclEpRemoteError = 6,          /**< a peer failed, died, or has masked this rank */
  ucclEpInProgress = 7,           /**< NCCL's value; no call returns it today */
  ucclEpTimeout = 8,              /**< a peer did not answer within timeout_ms */
  ucclEpAborted = 9,              /**< ucclEpCommAbort was called */
  ucclEpNotSupported = 10, /**< this device, layout or version does not support it; the message names an alternative */
  ucclEpOutOfMemory = 11,  /**< host or device memory is exhausted; nothing was allocated */
  ucclEpOverflow = 12      /**< more rows arrived than the receiver has room for */
} ucclEpResult_t;

/** Types of tensor elements. */
typedef enum {
  ucclEpNoDataType = 0,   /**< not set: never valid */
  ucclEpBfloat16 = 1,     /**< 2 bytes */
  ucclEpFloat16 = 2,      /**< 2 bytes, IEEE */
  ucclEpFloat32 = 3,      /**< 4 bytes, IEEE */
  ucclEpFloat8e4m3 = 4,   /**< 1 byte; the largest is 448, no infinity */
  ucclEpFloat8e5m2 = 5,   /**< 1 byte */
  ucclEpFloat8e8m0 = 6,   /**< 1 byte: an exponent, used as a scale */
  ucclEpFloat4e2m1x2 = 7, /**< two fp4 values in a byte: one storage element */
  ucclEpUint8 = 8,        /**< 1 byte, not interpreted */
  ucclEpInt32 = 9,        /**< 4 bytes */
  ucclEpInt64 = 10        /**< 8 bytes */
} ucclEpDataType_t;

/** The device on which operations run. Memory, streams and events of a communicator belong to its device. */
enum {
  UCCLEP_DEVICE_AUTO = 0,          /**< a GPU if there is one, else the host; UCCLEP_DEVICE overrides this field */
  UCCLEP_DEVICE_CUDA = 1,          /**< an NVIDIA GPU */
  UCCLEP_DEVICE_HIP = 2,           /**< an AMD GPU */
  UCCLEP_DEVICE_HOST = 3,          /**< threads of the CPU */
  UCCLEP_DEVICE_INDEX_CURRENT = -1 /**< for device_index: the current device of the calling thread */
};
/** LL: low latency (decode, few tokens). HT: high throughput (training and prefill, thousands of tokens). */
enum { UCCLEP_MODE_AUTO = 0, UCCLEP_MODE_LL = 1, UCCLEP_MODE_HT = 2 };
/** The arrangement of received rows; ucclEpDispatchOutputs_t has the shapes. 0 (not set) is ucclEpInvalidArgument. With
 * TILES the rows of an expert lie in the order in which they arrive, and ucclEpTiles_t shows which have arrived. */
enum { UCCLEP_LAYOUT_EXPERT_MAJOR = 1, UCCLEP_LAYOUT_RANK_MAJOR = 2, UCCLEP_LAYOUT_FLAT = 3, UCCLEP_LAYOUT_TILES = 4 };
/** Numbers in the received topk_idx. LOCAL: this rank's first expert is 0. GLOBAL: experts of all ranks are counted. */
enum { UCCLEP_EXPERT_IDS_LOCAL = 0, UCCLEP_EXPERT_IDS_GLOBAL = 1 };
/** HT drops rows at or beyond max_recv_tokens_per_rank or a tensor's capacity. ERROR: it also sets the error record
 *  ucclEpOverflow. DROP: it does so silently. */
enum { UCCLEP_OVERFLOW_ERROR = 0, UCCLEP_OVERFLOW_DROP = 1 };
/** Which copy of a logical expert a token takes (ucclEpGroupSetExpertMap). ROUND_ROBIN: copy (rank + token) mod copies.
 *  NEAREST: the first copy on the own rank, else the first in its domain, else on its node, else as ROUND_ROBIN. */
enum { UCCLEP_REPLICA_ROUND_ROBIN = 0, UCCLEP_REPLICA_NEAREST = 1 };
/** BACKWARD: dispatch sends gradients along the handle's routing, and combine computes plain sums. Every layout but
 *  RANK_MAJOR supports it. */
enum { UCCLEP_PASS_FORWARD = 0, UCCLEP_PASS_BACKWARD = 1 };
/** FP8_128: the input is bf16, the output ucclEpFloat8e4m3 with one scale for each 128 elements. */
enum { UCCLEP_QUANT_NONE = 0, UCCLEP_QUANT_FP8_128 = 1 };

/* ---- Structs (order and types of the fields are the ABI) ---- */

/**
 * Describes a tensor; it owns no memory. Token and bias tensors have an innermost stride of 1, and an address and row
 * strides that are multiples of 16 bytes. All others are aligned to their element. Scales may have any strides. Index,
 * weight and counter tensors have an innermost stride of 1. The data of a tensor without elements may be NULL.
 */
typedef struct {
  unsigned size, magic;
  void* data;             /**< the first element, in memory of the communicator's device */
  ucclEpDataType_t dtype; /**< type of a storage element */
  int ndim;               /**< 1..4 */
  int64_t sizes[4];       /**< in storage elements, outermost first */
  int64_t strides[4];     /**< in elements; all zero = contiguous */
} ucclEpTensor_t;

/** Settings of a communicator. device and transport must agree between ranks. */
typedef struct {
  unsigned size, magic;
  int device;       /**< UCCLEP_DEVICE_* */
  int device_index; /**< INIT sets UCCLEP_DEVICE_INDEX_CURRENT; 0 is device 0 */
  /** Network between nodes: "loopback", "ofi:efa", "verbs", a plugin's name; NULL: the library chooses */
  const char* transport;
  /** The only NICs to use, in the order of rails, for example "mlx5_0,mlx5_1"; NULL: the library chooses */
  const char* nics;
  /** 0 = discover; else consecutive ranks form virtual nodes, each of the size that all of its ranks set here */
  int ranks_per_node;
  int ranks_per_domain; /**< 0 = discover; else consecutive ranks of a node form NVLink-like domains of that size */
  int proxy_threads;    /**< number of threads that drive this rank's NICs; 0 = chosen by the number of NICs */
  /** Limit of a wait. UCCLEP_TIMEOUT_MS overrides the group's value, which overrides this one; 0 = 100000 */
  int timeout_ms;
} ucclEpCommConfig_t;

/** The caller's own function to exchange bytes: by MPI, PMIx, a framework's store. */
typedef struct {
  unsigned size, magic;
  void* ctx; /**< passed to allgather */
  /** In place: rank r's bytes are at buf + r * bytes_per_rank. Returns 0 on success. The library calls it inside the
   * init only. */
  int (*allgather)(void* ctx, void* buf, size_t bytes_per_rank);
} ucclEpBootstrap_t;

/** Describes where a communicator runs. */
typedef struct {
  unsigned size, magic;
  int rank, nranks;         /**< this rank, and the number of ranks */
  int device, device_index; /**< UCCLEP_DEVICE_* (never AUTO), and the device's index */
  int node, num_nodes;      /**< this rank's node, and the number of nodes; virtual ones count as nodes */
  int domain_size;          /**< number of ranks in this rank's domain, itself included */
  int proxy_threads;        /**< number of this rank's proxy threads; 0 where all ranks are one domain */
  char transport[32];       /**< "shared memory" where all ranks are one domain; "" where none was chosen yet */
  char nics[256];           /**< NICs that this rank uses between nodes, comma-separated */
  char node_name[64];       /**< the host's name */
  char device_name[64];     /**< the driver's name of the device */
  uint64_t window_bytes;    /**< memory of this rank that peers can reach */
} ucclEpCommInfo_t;

/**
 * The first error that a communicator met while operations ran.
 * - A fatal error (Timeout without mask, RemoteError, SystemError, UnhandledDeviceError, InternalError, Aborted) is the
 *   result of all later calls.
 * - A data record (InvalidArgument or Overflow found on the device, Timeout of a peer that was then masked) stops
 *   nothing, and stays until ucclEpCommClearAsyncError.
 */
typedef struct {
  unsigned size, magic;
  ucclEpResult_t code; /**< ucclEpSuccess: no error */
  char op[32];         /**< "dispatch", "combine", "update" and others */
  char phase[32];      /**< the step in which the operation waited or worked */
  int rank, peer;      /**< -1: no particular one */
  uint64_t epoch;      /**< the operation's number */
  uint64_t waited_ms;  /**< time spent waiting for that peer */
  char text[512];      /**< the error message; it contains all fields above */
} ucclEpAsyncError_t;

/** Counters of this rank's proxy threads since the communicator was created. They are sums over the threads; the last
 * one is a maximum. */
typedef struct {
  unsigned size, magic;
  uint64_t commands, messages;         /**< commands that kernels pushed; messages that were posted to NICs */
  uint64_t bytes_sent, bytes_received; /**< bytes over NICs, without their headers */
  uint64_t ring_full_stalls;           /**< how often a command ring was found full */
  uint64_t credit_stalls, nic_stalls; /**< messages that had to wait for the receiver; messages that waited for a NIC */
  uint64_t reorder_depth_max;         /**< largest number of earlier chunks that were missing when a chunk arrived */
} ucclEpStats_t;

/** Settings of a group. All must agree between ranks, except the callbacks, alloc_ctx and timeout_ms. With enable_mask
 * the effective timeout (ucclEpCommConfig_t) must agree too: a rank with a shorter one would mask ranks that still
 * wait.
 */
typedef struct {
  unsigned size, magic;
  int num_experts;            /**< required, a multiple of R; expert e lives on rank e / (num_experts / R) */
  int top_k;                  /**< required: the largest K */
  int max_tokens_per_rank;    /**< required: B in HT */
  int ll_max_tokens_per_rank; /**< B in LL; 0 = max_tokens_per_rank */
  int64_t max_token_bytes;    /**< required: bytes of the largest row of dispatch and of combine, scales included */
  /** Number of received rows that HT keeps, duplicates and padding included; 0 = all */
  int64_t max_recv_tokens_per_rank;
  /** Number of SMs that a kernel of the library may use. 0 = all but one in 32, at least one, which stay free for
   * operations of another group. See "Streams" */
  int num_sms;
  int timeout_ms; /**< limit of a wait; 0 = the communicator's */
  /** 1: a peer that times out is masked, and the others continue without it. Limits: at most one send_only operation of
   * each kind (dispatch, combine) is in flight; HT across domains uses more memory and does not pre-reduce per node */
  int enable_mask;
  int overflow; /**< UCCLEP_OVERFLOW_* */
  /** Allocates workspace, never windows. Returns 0 on success. Set both functions or none. */
  int (*alloc_fn)(void** ptr, size_t bytes, void* ctx);
  int (*free_fn)(void* ptr, void* ctx); /**< frees memory of alloc_fn; returns 0 on success */
  void* alloc_ctx;                      /**< passed to both functions */
  int num_signals;                      /**< number of signals for user kernels */
  int max_in_flight; /**< operations of each kind in flight, up to 8, rounded up to a power of two; 0 = 2 */
  int nranks;        /**< only for ucclEpGroupQuery without a communicator */
  /** Upper bound of the memory that peers and NICs write for this group, on each rank. 0 = the memory of LL and about
   * 512 MiB for HT. UCCLEP_WINDOW_BYTES overrides it. HT operations whose tokens do not fit run in several rounds */
  int64_t window_bytes;
  /** [R] number of experts on each rank, or NULL; read during the call. num_experts is their sum. Counts that differ
   * are ucclEpNotSupported in this version */
  const int* experts_per_rank;
  /** Number of experts that a map of ucclEpGroupSetExpertMap knows, up to num_experts; 0 = num_experts */
  int num_logical_experts;
  int replica_choice; /**< UCCLEP_REPLICA_*: which copy of a logical expert a token takes */
} ucclEpGroupConfig_t;

/** The memory that a group needs, in bytes, and the limits of its settings. */
typedef struct {
  unsigned size, magic;
  int64_t device_bytes, host_bytes;             /**< memory of the group on each rank */
  int64_t max_top_k, max_experts;               /**< the largest top_k and num_experts that a group can have */
  int64_t max_tokens_per_rank, max_token_bytes; /**< the largest of both modes, and the longest row */
  int64_t max_ranks;                            /**< ranks whose tables fit into this device; at most 4096 */
  int64_t epoch_bits;                           /**< width of the counter that numbers operations */
  int64_t tokens_per_round; /**< tokens of a rank in an HT round: max_tokens_per_rank, or fewer due to window_bytes */
  /** Size of the largest store that never arrives in pieces, between all ranks of a domain: 128 bytes between NVIDIA
   * GPUs over NVLink, 16 over PCIe, 8 between AMD GPUs. With 128, LL operations with few rows are faster */
  int64_t whole_bytes;
} ucclEpGroupLimits_t;

/** Settings of a handle. All must agree between ranks, except handle_mem and tile_rows. The next operation detects a
 * difference: it ends with ucclEpInvalidArgument on all ranks and writes no row. */
typedef struct {
  unsigned size, magic;
  /** UCCLEP_MODE_*. AUTO: LL for RANK_MAJOR, HT for FLAT; for EXPERT_MAJOR and TILES it is LL if
   * max_tokens_per_rank is at most 256, else HT */
  int mode;
  int layout;           /**< required: UCCLEP_LAYOUT_*. LL: EXPERT_MAJOR, RANK_MAJOR, TILES; HT: all but RANK_MAJOR */
  int expert_alignment; /**< HT EXPERT_MAJOR: zones are padded to a multiple of it; a power of two; 0 = 1 */
  int expert_ids;       /**< UCCLEP_EXPERT_IDS_* */
  /** uint8 [ucclEpHandleMemSize], or NULL. If an earlier handle used this memory, the new one has its routing */
  const ucclEpTensor_t* handle_mem;
  int tile_rows; /**< TILES: rows of a tile, a power of two from 16 to 256; 0 = 128. Other layouts: 0 */
  /** EXPERT_MAJOR: number of waves, up to 32; 0 = 1. Local expert l is in wave l * waves / L of its rank. A send_only
   * operation is received or sent wave by wave (ucclEpCompleteWave, ucclEpWaveDone) */
  int waves;
  /** Largest number of tokens of an HT operation; 0 = max_tokens_per_rank. ucclEpHandleMemSize grows with it */
  int64_t max_tokens;
} ucclEpHandleConfig_t;

/**
 * Describes the received rows of a handle with layout TILES. The arrays are in device memory and stay at the same
 * addresses as long as the handle lives. The rows of an expert are dense from its first row on, in the order in which
 * they arrive, each once. Tile t of local expert l has the number first_row[l] / tile_rows + t, and holds tile_rows
 * rows; the unused end of an expert's last tile is not written. A kernel that reads a ready tile while the dispatch is
 * running must load the word with acquire (ld.acquire.gpu), and execute fence.proxy.async before bulk copies. A kernel
 * that starts behind a wait of the stream needs neither.
 *
 * A dispatch resets all words before its stream continues. If it fails, each word of tile_ready that is still 0
 * becomes 2.
 */
typedef struct {
  unsigned size, magic;
  /** [tiles] 0: not ready. 1: all rows of the tile have arrived. 2: the tile does not exist, or will not arrive */
  uint32_t* tile_ready;
  /** [tiles] 0 when a dispatch begins. For ucclEpCombine with send_only: consumers add to it (red.release.gpu) after
   * they have written the results of the tile's rows; or the stream writes it */
  uint32_t* tile_done;
  /** [L] number of rows of an expert, without dropped ones. -1 until the counts of all sources are known; in HT they
   * are known when the rows are about to be received */
  int32_t* rows_final;
  int32_t* tile_expert;         /**< [tiles] the local expert; -1: none */
  int64_t* first_row;           /**< [L] an expert's first row, a multiple of tile_rows */
  int64_t* src_info;            /**< [capacity] source of a row: rank << 32 | token */
  float* weights;               /**< [capacity] weight of the row's selection; 1 if the dispatch had no weights */
  uint64_t *row_at, *scales_at; /**< [capacity] addresses of the row and of its scales; 0: it has none */
  int64_t capacity, tiles;      /**< rows and tiles of all experts; in HT the largest number that may arrive */
} ucclEpTiles_t;

/**
 * Optional device tensors, int32 or int64, with counts of the rows that this rank receives. In HT they are valid on the
 * stream after ucclEpHandleUpdate. In LL they are valid after the next dispatch; the tensors must exist until then.
 */
typedef struct {
  unsigned size, magic;
  /** [L] rows of each expert, padding of expert_alignment included. In HT it excludes rows that
   * max_recv_tokens_per_rank drops; all other counters here include them */
  const ucclEpTensor_t* tokens_per_expert;
  const ucclEpTensor_t* expert_offsets;  /**< [L] first row of each expert, or [L+1] with the total */
  const ucclEpTensor_t* tokens_per_rank; /**< [R] rows received from each rank */
  const ucclEpTensor_t* recv_total;      /**< [1] all rows received */
  int64_t* recv_total_host;              /**< device-mapped host memory: -1 after the call, later the total */
  const ucclEpTensor_t* tokens_per_expert_unpadded; /**< [L] rows of each expert, without padding */
  const ucclEpTensor_t* tokens_per_expert_rank;     /**< [L, R] rows of each expert from each rank */
} ucclEpCounters_t;

/** Optional device tensors with counts of the rows that this rank sends. All but is_token_in_rank are int32 or int64.
 */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens_per_rank;   /**< [R] rows to send to each rank */
  const ucclEpTensor_t* tokens_per_expert; /**< [E] how often each expert is selected */
  const ucclEpTensor_t* is_token_in_rank;  /**< [T, R] uint8 */
  /** [num_logical_experts] how often each id of topk_idx is selected: of logical experts, if the group has a map */
  const ucclEpTensor_t* tokens_per_logical_expert;
} ucclEpRoutingCounts_t;

/** Tensors that a rank sends. T is from 0 to B in LL, to the handle's max_tokens in HT, and may differ between ranks.
 * H, dtypes and K are the same on all ranks. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens;       /**< required: [T, H] bf16, fp16, fp32, or bytes (fp8, fp4) with scales */
  const ucclEpTensor_t* scales;       /**< [T, any]: sent bit for bit with their row */
  const ucclEpTensor_t* topk_weights; /**< [T, K] fp32 */
  const ucclEpTensor_t* topk_idx;     /**< [T, K]: the dispatch then also does ucclEpHandleUpdate */
} ucclEpDispatchInputs_t;

/**
 * Tensors that a rank receives. The rows of one zone or source are ordered by (source rank, source token).
 *
 * In HT, sizes[0] is a capacity. Rows from N on are not written, but their topk_idx is set to -1 and their topk_weights
 * to 0. Rows beyond the capacity or max_recv_tokens_per_rank are dropped: in FLAT the rows with the highest (source
 * rank, token), in EXPERT_MAJOR the end of the last zones, in TILES the rows of these that arrive last. Dropped rows
 * are not written either, and count as zero in combine.
 * - EXPERT_MAJOR, LL  [L, R*B, H]    rows [0, tokens_per_expert[l]) of slab l are packed; topk_weights [L, R*B]
 * - TILES, LL         [L, C, H]      C is R*B, rounded up to tile_rows. As EXPERT_MAJOR in LL, but the rows of a slab
 *                                    are in the order of their arrival (ucclEpTiles_t); topk_weights [L, C]
 * - EXPERT_MAJOR, HT  [capacity, H]  a row per (token, local expert), zones at expert_offsets, padded with zero rows;
 *                                    topk_weights [capacity]
 * - TILES, HT         [capacity, H]  as EXPERT_MAJOR in HT with zones padded to tile_rows, but the rows of a zone are
 * in the order of their arrival (ucclEpTiles_t), and padding is not written
 * - RANK_MAJOR        [R, B, H]      a row per token, by source rank; topk_idx and topk_weights [R, B, K]
 * - FLAT              [capacity, H]  a row per token; topk_idx and topk_weights [capacity, K]
 *
 * topk_idx and topk_weights keep the source's order of k. Entries of experts on other ranks are -1 and 0.
 */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens; /**< required; the dtype of the input, or ucclEpFloat8e4m3 with UCCLEP_QUANT_FP8_128 */
  /** [rows, width of the input]. FP8_128: fp32 or e8m0 [rows, H/128], or int32 [rows, ceil(H/512)] with four exponents
   * in a word, lowest byte first */
  const ucclEpTensor_t* scales;
  const ucclEpTensor_t* topk_idx;                     /**< int32 or int64 */
  const ucclEpTensor_t* topk_weights;                 /**< fp32 */
  const ucclEpTensor_t* src_info;                     /**< [rows] int64 = rank << 32 | token, or int32 = token */
  const ucclEpTensor_t* cumulative_tokens_per_expert; /**< [L] int32: this call's counts are added */
  const ucclEpTensor_t* wait_ns;                      /**< [R] int64: the time waited for each peer is added */
  const ucclEpCounters_t* counters;                   /**< or NULL */
} ucclEpDispatchOutputs_t;

/** Tensors that a rank sends back. In the forward pass LL EXPERT_MAJOR multiplies rows by topk_weights, set here or in
 *  the dispatch. TILES multiplies by the topk_weights of the dispatch, if it had any. All other layouts sum the rows
 *  unchanged. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens; /**< required: bf16, fp16 or fp32 in the shape of dispatch's output */
  const ucclEpTensor_t* scales; /**< reserved: must be NULL */
  /** Forward: [T, K] fp32. Backward: in the shape of dispatch's topk_weights output; set it and outputs.topk_weights,
   * or neither */
  const ucclEpTensor_t* topk_weights;
  const ucclEpTensor_t* bias;  /**< [T, H], added last; forward only */
  const ucclEpTensor_t* bias2; /**< as bias */
} ucclEpCombineInputs_t;

/** Results of a combine, on the rank that sent the tokens. */
typedef struct {
  unsigned size, magic;
  const ucclEpTensor_t* tokens;       /**< required: [T, H]; a token with no valid expert is zero plus bias */
  const ucclEpTensor_t* topk_weights; /**< backward: [T, K] fp32, the sums of the rows of inputs.topk_weights */
  const ucclEpTensor_t* wait_ns;      /**< [R] int64: the time waited for each peer is added */
} ucclEpCombineOutputs_t;

/** Settings of one dispatch. All but num_sms must be the same on all ranks. */
typedef struct {
  unsigned size, magic;
  int send_only;   /**< 1: only start the transfer; ucclEpComplete finishes it */
  int quant;       /**< UCCLEP_QUANT_* */
  int round_scale; /**< 1: scales are powers of two */
  int pass;        /**< UCCLEP_PASS_* */
  int num_sms;     /**< number of SMs of all kernels that the call launches, together; 0 = the group's */
} ucclEpDispatchConfig_t;

/** Settings of one combine. All but num_sms and done_target must be the same on all ranks. */
typedef struct {
  unsigned size, magic;
  int send_only;   /**< 1: only start the transfer; ucclEpComplete finishes it */
  int pass;        /**< UCCLEP_PASS_* */
  int num_sms;     /**< number of SMs of all kernels that the call launches, together; 0 = the group's */
  int quant;       /**< UCCLEP_QUANT_NONE; FP8_128 is ucclEpNotSupported in this version */
  int done_target; /**< TILES: a tile is done when its tile_done has reached this value; 0 = 1 */
} ucclEpCombineConfig_t;

/* ---- Library ---- */

/** [local] The library's version, in the form of UCCLEP_VERSION. */
ucclEpResult_t ucclEpGetVersion(int* version);
/** Returns a short name of a code; never NULL. */
const char* ucclEpGetErrorString(ucclEpResult_t result);
/** Returns the message of the last failed call: of this thread (comm NULL) or with this communicator. It is "" if no
 *  call has failed, and never NULL. Any thread may call it. The string belongs to the calling thread until its next
 *  libucclep call. */
const char* ucclEpGetLastError(ucclEpComm_t comm);
/** [local] Writes version, embedded GPU code and transports as text. On success *len is the number of bytes written. If
 *  text is NULL, *len becomes the number of bytes needed, with the final NUL. If *len is too small, the same happens
 * and the result is ucclEpInvalidArgument. */
ucclEpResult_t ucclEpGetBuildInfo(char* text, size_t* len);

/* ---- Communicator ---- */

/** [local] Opens a rendezvous in this process, which must live until all ranks have joined. The process need not be a
 *  rank. The call touches no GPU driver, and the process may fork afterwards. */
ucclEpResult_t ucclEpGetUniqueId(ucclEpUniqueId* id);
/** [collective] Creates rank `rank` of `nranks`. Ranks are processes, or threads of one process. The call blocks until
 *  all ranks have made it. It returns ucclEpInvalidArgument if rank, nranks or an environment variable (UCCLEP_*) is
 *  wrong, ucclEpNotSupported if the device or transport does not exist, and ucclEpRemoteError if a rank dies meanwhile.
 */
ucclEpResult_t ucclEpCommInitRank(ucclEpComm_t* comm, int nranks, ucclEpUniqueId id, int rank,
                                  const ucclEpCommConfig_t* config);
/** [collective] As ucclEpCommInitRank, with the caller's allgather. The calling thread calls allgather, inside this
 * call only. Its time does not count towards the timeout. If it fails or throws on one rank, all ranks that have
 * received rank 0's bytes get ucclEpSystemError with that rank's number. The message of the others names it as missing.
 */
ucclEpResult_t ucclEpCommInitBootstrap(ucclEpComm_t* comm, int nranks, int rank, const ucclEpBootstrap_t* bootstrap,
                                       const ucclEpCommConfig_t* config);
/** [local] The number of ranks, R. */
ucclEpResult_t ucclEpCommCount(ucclEpComm_t comm, int* nranks);
/** [local] This rank: 0 .. R-1. */
ucclEpResult_t ucclEpCommUserRank(ucclEpComm_t comm, int* rank);
/** [local] Describes where the communicator runs. */
ucclEpResult_t ucclEpCommGetInfo(ucclEpComm_t comm, ucclEpCommInfo_t* info);
/** [local] Writes machines, nodes, domains, and the NICs and proxies of all ranks, as JSON. docs/architecture.md
 *  documents the fields. len works as in ucclEpGetBuildInfo. */
ucclEpResult_t ucclEpCommGetTopology(ucclEpComm_t comm, char* json, size_t* len);
/** [local] The first error record; its code is ucclEpSuccess if no error occurred. Any thread may call it. */
ucclEpResult_t ucclEpCommGetAsyncError(ucclEpComm_t comm, ucclEpAsyncError_t* error);
/** [local] Removes a data record (Overflow, an id out of range, a masked peer). Returns ucclEpInvalidUsage if the error
 *  is fatal. */
ucclEpResult_t ucclEpCommClearAsyncError(ucclEpComm_t comm);
/** [local] Counters of the proxy threads; all zero without proxy threads. Any thread may call it. */
ucclEpResult_t ucclEpCommGetStats(ucclEpComm_t comm, ucclEpStats_t* stats);
/** [local] Aborts the communicator: kernels, proxy threads and waiting calls end within a second with ucclEpAborted.
 * Any thread may call it. */
ucclEpResult_t ucclEpCommAbort(ucclEpComm_t comm);
/** [collective] Destroys the communicator and all objects created from it, memory of ucclEpMemAlloc included. After a
 *  fatal error it is local. It returns ucclEpSuccess and frees everything, with one exception: memory that work on the
 *  device still uses one second after timeout_ms stays allocated until the process ends, and a WARN line reports it.
 *  NULL is allowed. */
ucclEpResult_t ucclEpCommDestroy(ucclEpComm_t comm);

/* ---- Memory, streams, events: what a program needs on every device, the host included ---- */

/** [local] Allocates device memory that can be registered as a window. It is not zeroed. The message of
 *  ucclEpOutOfMemory names the number of bytes. */
ucclEpResult_t ucclEpMemAlloc(ucclEpComm_t comm, void** ptr, size_t bytes);
/** [local] Frees memory of ucclEpMemAlloc. No operation may still use it. NULL is allowed. */
ucclEpResult_t ucclEpMemFree(ucclEpComm_t comm, void* ptr);
/** [local] Allocates host memory that the device accesses at the same address, for recv_total_host and the like. */
ucclEpResult_t ucclEpMemAllocHost(ucclEpComm_t comm, void** ptr, size_t bytes);
/** [local] Frees memory of ucclEpMemAllocHost. NULL is allowed. */
ucclEpResult_t ucclEpMemFreeHost(ucclEpComm_t comm, void* ptr);
/** [stream] Copies bytes in any direction. With pageable host memory it may block. In stream capture the memory must be
 *  device memory or pinned. */
ucclEpResult_t ucclEpMemcpy(ucclEpComm_t comm, void* dst, const void* src, size_t bytes, ucclEpStream_t stream);

/** [local] Creates a stream of the communicator's device. Programs with a GPU framework pass its streams instead. */
ucclEpResult_t ucclEpStreamCreate(ucclEpComm_t comm, ucclEpStream_t* stream);
/** [local] Destroys a stream. Work in flight still finishes. NULL is allowed. */
ucclEpResult_t ucclEpStreamDestroy(ucclEpComm_t comm, ucclEpStream_t stream);
/** [wait] Waits until all work on the stream has finished. Returns the code of a fatal error that ended it. */
ucclEpResult_t ucclEpStreamSynchronize(ucclEpComm_t comm, ucclEpStream_t stream);
/** [stream] Later work on the stream waits for the event. */
ucclEpResult_t ucclEpStreamWaitEvent(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpEvent_t event);
/** [local] Creates an event that records its time. */
ucclEpResult_t ucclEpEventCreate(ucclEpComm_t comm, ucclEpEvent_t* event);
/** [local] Destroys an event. NULL is allowed. */
ucclEpResult_t ucclEpEventDestroy(ucclEpComm_t comm, ucclEpEvent_t event);
/** [stream] The event completes when all earlier work on the stream has finished. */
ucclEpResult_t ucclEpEventRecord(ucclEpComm_t comm, ucclEpEvent_t event, ucclEpStream_t stream);
/** [wait] Waits until the event has completed. */
ucclEpResult_t ucclEpEventSynchronize(ucclEpComm_t comm, ucclEpEvent_t event);
/** [local] The milliseconds from event a to event b. Both must have completed. */
ucclEpResult_t ucclEpEventElapsed(ucclEpComm_t comm, ucclEpEvent_t a, ucclEpEvent_t b, float* ms);

/** [local] Starts a capture: later calls on the stream are recorded, not run. So are calls on a stream that waits for
 * an event of the capture. Host device only. On a GPU it is ucclEpNotSupported: capture with the GPU's own runtime. */
ucclEpResult_t ucclEpStreamBeginCapture(ucclEpComm_t comm, ucclEpStream_t stream);
/** [local] Ends the capture and returns the recorded calls as a graph. Before this call the stream must wait for all
 *  other streams of the capture, by events. */
ucclEpResult_t ucclEpStreamEndCapture(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpGraph_t* graph);
/** [stream] Runs the graph on any stream, any number of times, the same number on every rank. In a capture the graph
 *  becomes a part of the captured one. Returns ucclEpInvalidUsage if a group whose operations it contains was
 * destroyed.
 */
ucclEpResult_t ucclEpGraphLaunch(ucclEpComm_t comm, ucclEpGraph_t graph, ucclEpStream_t stream);
/** [local] Destroys a graph. A replay in flight still finishes. NULL is allowed. */
ucclEpResult_t ucclEpGraphDestroy(ucclEpComm_t comm, ucclEpGraph_t graph);

/** [collective] Allows peers to read and write a range: any part of an allocation. bytes may differ between ranks.
 *  Tensors inside it are accessed in place; others are copied through an internal buffer. Across domains every tensor
 * is copied. If the memory of one rank cannot be shared, all ranks get ucclEpNotSupported. */
ucclEpResult_t ucclEpWindowRegister(ucclEpComm_t comm, void* ptr, size_t bytes, ucclEpWindow_t* window);
/** [collective] Destroys a window. The memory still belongs to the caller. After a fatal error it is local. NULL is
 *  allowed. */
ucclEpResult_t ucclEpWindowDeregister(ucclEpComm_t comm, ucclEpWindow_t window);
/** [local] From now on ucclEpMemPoolAlloc allocates from this window's memory, until the window is destroyed. */
ucclEpResult_t ucclEpMemPoolOpen(ucclEpWindow_t window);
/** [local] Allocates from a window that ucclEpMemPoolOpen opened for this device (ucclEpCommInfo_t's device_index):
 * from the newest one that has room. Returns NULL if none has. It is meant for a framework's allocator, for example
 * torch's CUDAPluggableAllocator. Any thread may call it. The stream has no effect. */
void* ucclEpMemPoolAlloc(size_t bytes, int device, ucclEpStream_t stream);
/** [local] Frees memory of ucclEpMemPoolAlloc. No operation may still use it. If its window was destroyed, the call
 * does nothing. */
void ucclEpMemPoolFree(void* ptr, size_t bytes, int device, ucclEpStream_t stream);

/* ---- Group ---- */

/** [local] Computes memory and limits of a group, and allocates nothing. Real use is within 5 % of it. If comm is NULL,
 *  it estimates for config->nranks ranks in one domain, or in domains of the sizes in UCCLEP_NODES. */
ucclEpResult_t ucclEpGroupQuery(ucclEpComm_t comm, const ucclEpGroupConfig_t* config, ucclEpGroupLimits_t* limits);
/** [collective] Allocates all memory for operations of one MoE shape; operations themselves allocate nothing. One group
 *  serves LL and HT, any number of handles and many layers. Returns ucclEpInvalidArgument if a value exceeds a limit of
 *  ucclEpGroupQuery. */
ucclEpResult_t ucclEpGroupCreate(ucclEpGroup_t* group, ucclEpComm_t comm, const ucclEpGroupConfig_t* config);
/** [collective] Destroys the group and its handles. After a fatal error it is local. Always succeeds. NULL is allowed.
 */
ucclEpResult_t ucclEpGroupDestroy(ucclEpGroup_t group);
/** [stream] Sets the map from logical to physical experts of this rank, for experts with copies and experts that move.
 *  After it, the ids in topk_idx are logical experts, 0 to num_logical_experts - 1. Each selection takes one of the
 *  copies (replica_choice). All else is physical: num_experts, counters, received topk_idx, the order of sums.
 *  - logical_to_physical  [num_logical_experts, C] int32: the copies of each logical expert, then any numbers, e.g. -1
 *  - copies               [num_logical_experts] int32: how many copies there are, 1 to C
 *
 *  The tensors are read in stream order; a graph may capture the call. The map holds for each later ucclEpHandleUpdate,
 *  ucclEpGetRoutingCounts and dispatch with topk_idx, in any stream that the caller orders behind the call. Routings
 *  that exist keep their experts. If a physical expert is out of range or there twice, or copies[e] is not 1 to C, the
 *  group keeps the map that it had, and the communicator gets a data record (ucclEpInvalidArgument). NULL for both
 *  tensors takes the map away: ids are physical again, as they are before the first call. Ranks may have different
 *  maps. */
ucclEpResult_t ucclEpGroupSetExpertMap(ucclEpGroup_t group, const ucclEpTensor_t* logical_to_physical,
                                       const ucclEpTensor_t* copies, ucclEpStream_t stream);
/** [stream] Computes counts of a routing, without any communication. T may be any number, even above B. */
ucclEpResult_t ucclEpGetRoutingCounts(ucclEpGroup_t group, const ucclEpTensor_t* topk_idx,
                                      const ucclEpRoutingCounts_t* out, ucclEpStream_t stream);

/** [stream] Writes this rank's view of the masks to device memory: R ints, 1 = active, 0 = masked. */
ucclEpResult_t ucclEpMaskQuery(ucclEpGroup_t group, int* device_mask, ucclEpStream_t stream);
/** [stream] Masks the ranks whose entry is 0, for all later operations. host_mask has R ints and is read during the
 *  call. A 1 for a rank that is masked already is ucclEpInvalidUsage. */
ucclEpResult_t ucclEpMaskUpdate(ucclEpGroup_t group, const int* host_mask, ucclEpStream_t stream);
/** [collective] Unmasks all ranks whose process is alive. Afterwards every handle needs a dispatch before its next
 *  combine, and in HT an ucclEpHandleUpdate before that dispatch. Pending operations are discarded. */
ucclEpResult_t ucclEpMaskClear(ucclEpGroup_t group, ucclEpStream_t stream);

/* ---- Handle and operations ---- */

/** [local] The smallest size of handle_mem for handles with these settings. config->handle_mem is ignored. */
ucclEpResult_t ucclEpHandleMemSize(ucclEpGroup_t group, const ucclEpHandleConfig_t* config, size_t* bytes);
/** [local] Creates a handle. A group may have any number. The settings are the same on all ranks. */
ucclEpResult_t ucclEpHandleCreate(ucclEpHandle_t* handle, ucclEpGroup_t group, const ucclEpHandleConfig_t* config);
/** [local] Destroys a handle. Its operations may be in flight. NULL is allowed. */
ucclEpResult_t ucclEpHandleDestroy(ucclEpHandle_t handle);
/** Sets the routing of a handle. In HT it is an [operation], which exchanges counts; in LL it is [stream]. topk_idx is
 *  [T, K], int32 or int64, with global expert ids, logical ones if the group has an expert map; -1 = dropped.
 *  0 <= T <= B; T may differ between ranks and calls. 1 <= K <= top_k, and K is the same on all ranks. An id that is
 * out of range, or twice in a row of topk_idx, counts as -1 and sets the error record ucclEpInvalidArgument. */
ucclEpResult_t ucclEpHandleUpdate(ucclEpHandle_t handle, const ucclEpTensor_t* topk_idx, const ucclEpCounters_t* out,
                                  ucclEpStream_t stream);
/** [wait] Waits for the counts of the last HT update: recv_total, and tokens_per_expert ([L], or NULL) of
 *  ucclEpCounters_t. After this call a tensor that is too small for these counts is ucclEpInvalidArgument. */
ucclEpResult_t ucclEpHandleWaitCounts(ucclEpHandle_t handle, int64_t* recv_total, int64_t* tokens_per_expert);
/** [local] The arrays of a handle's tiles. Returns ucclEpInvalidUsage if its layout is not TILES. */
ucclEpResult_t ucclEpHandleGetTiles(ucclEpHandle_t handle, ucclEpTiles_t* out);
/** [operation] Sends every token to the ranks of its experts, by the last routing of the handle or by inputs.topk_idx.
 *  When later work on the stream starts, all rows have arrived, in a deterministic order (TILES: in the order of their
 *  arrival). ucclEpDispatchOutputs_t has the shapes. Returns ucclEpInvalidUsage before the first routing. Returns
 *  ucclEpInvalidArgument, and launches nothing, if T is above B or a tensor is known to be too small. */
ucclEpResult_t ucclEpDispatch(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                              const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                              ucclEpStream_t stream);
/** [operation] Sends the rows back to the source ranks of their tokens, and sums them per token. Returns
 *  ucclEpInvalidUsage before the handle's first dispatch.
 *
 *  Order of a sum: first the experts of a rank, ascending, in fp32, rounded once to the dtype of tokens; then ranks (HT
 *  between nodes: nodes), ascending; then bias and one last rounding. Sums are the same bits in every run, on every
 *  device and transport.
 *
 *  Waves and tiles: without send_only, this call first ends a pending dispatch of the handle. With TILES, send_only and
 *  a pending dispatch, num_sms blocks on a library stream send the rows of a token when all tiles that hold its rows on
 *  this rank are done (tile_done, done_target). So make this call before you launch the consumers; its stream continues
 *  when these blocks run. A tile that is not done in time is ucclEpTimeout. */
ucclEpResult_t ucclEpCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                             const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                             ucclEpStream_t stream);
/** [operation] The receive phase of a send_only operation: it writes the outputs. It is ordered after the send phase.
 * If no operation is pending, it does nothing.
 *
 *  TILES: the rows of a dispatch are received from the send phase on, by num_sms blocks on a library stream, while
 *  consumers process the tiles that are ready. The stream of the send phase continues when these blocks run, and this
 *  call waits for them.
 *
 *  Limits: a handle has at most one pending operation, and until its end accepts no Update, Dispatch or Combine.
 *  Exception: with waves or TILES it accepts one Combine while a dispatch is pending. With send_only that combine is
 *  pending too, and the same ucclEpComplete ends both; without send_only it first ends the dispatch. A group has at
 * most max_in_flight operations of a kind, counted from its oldest pending one. One more is ucclEpInvalidUsage.
 *
 *  Graphs: a capture contains both phases. A graph that holds a whole operation may be replayed while an operation of
 *  another handle is pending. The replay counts towards max_in_flight, but the library cannot check that: the caller
 *  must. With enable_mask such a replay sends nothing and sets the error record ucclEpInvalidUsage. */
ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream);
/** [stream] Receives a wave of a pending send_only dispatch. When later work on the stream starts, the rows of all
 *  experts up to this wave have arrived, even if peers hold back rows of later waves. Ask for waves in ascending order,
 *  each at most once. A wave that you skip arrives with a later one, or with ucclEpComplete. The last wave ends the
 *  dispatch. With enable_mask, and with several rounds, the first wave that you ask for receives all rows. Returns
 *  ucclEpInvalidUsage if no dispatch is pending. */
ucclEpResult_t ucclEpCompleteWave(ucclEpHandle_t handle, int wave, ucclEpStream_t stream);
/** [stream] Sends results of a wave, in a pending send_only combine of a handle with waves. When the stream reaches
 * this call, the rows of all experts of the wave must be computed. Tokens whose rows are then complete are sent to
 * their source ranks. Pass waves in ascending order, each once; ucclEpComplete sends the remaining rows. Where the
 * first wave receives all rows, the last one sends all, and until then the group accepts no other combine. Returns
 *  ucclEpInvalidUsage if no such combine is pending, and before ucclEpCompleteWave of a pending dispatch. */
ucclEpResult_t ucclEpWaveDone(ucclEpHandle_t handle, int wave, ucclEpStream_t stream);
/** [operation] The receive phase of a device-initiated dispatch: one that a user kernel began (ucclep/device.hpp).
 *  outputs are as for ucclEpDispatch, with the type and width of the rows that the kernel sent. If no such dispatch is
 *  pending, it does nothing. Until it has ended, the group accepts no other dispatch. */
ucclEpResult_t ucclEpCompleteDispatch(ucclEpHandle_t handle, const ucclEpDispatchOutputs_t* outputs,
                                      const ucclEpDispatchConfig_t* config, ucclEpStream_t stream);
/** [operation] The receive phase of a device-initiated combine. Only bias and bias2 of the inputs may be set. If no
 * such combine is pending, it does nothing. */
ucclEpResult_t ucclEpCompleteCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                     const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                     ucclEpStream_t stream);

/* ---- For user kernels (ucclep/device.hpp): valid until the owner is destroyed ---- */

/** [local] Fills the struct that a kernel takes. Set size and magic of out before; so for all calls below. */
ucclEpResult_t ucclEpGroupGetDevice(ucclEpGroup_t group, ucclEpDeviceGroup* out);
/** [local] As ucclEpGroupGetDevice, for a handle. The first call for HT EXPERT_MAJOR allocates memory for the whole
 *  group. */
ucclEpResult_t ucclEpHandleGetDevice(ucclEpHandle_t handle, ucclEpDeviceHandle* out);
/** [local] As ucclEpGroupGetDevice, for a window. */
ucclEpResult_t ucclEpWindowGetDevice(ucclEpWindow_t window, ucclEpDeviceWindow* out);
/** [local] Prepares a dispatch that a kernel runs itself, any number of times, with the tensors of this call
 *  (ucclep/device/whole_operations.hpp). It does the same as ucclEpDispatch with these arguments. LL reads
 *  inputs.topk_idx in each run; HT uses the routing of the last ucclEpHandleUpdate. The handle counts as dispatched
 * from now on. out is valid until the handle is destroyed, in HT also until it is updated. out->block_threads and
 *  out->shared_bytes are the launch parameters of the kernel; the library does not check that a launch has as much
 *  shared memory. out->forms lists the code that can run the operation. Returns ucclEpNotSupported with enable_mask,
 * and for a handle with waves or tiles. */
ucclEpResult_t ucclEpDispatchGetDevice(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                                       const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                                       ucclEpDeviceDispatch* out);
/** [local] As ucclEpDispatchGetDevice, for a combine. */
ucclEpResult_t ucclEpCombineGetDevice(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                      const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                      ucclEpDeviceCombine* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---- INIT macros ----
 * They are expressions: use them to initialise and to assign. In C an object with static storage cannot be initialised
 * by them: assign at run time, or leave it zeroed and set size, magic and the device_index of ucclEpCommConfig_t. */

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
/** Returns a T with its size and magic, and zero in all other fields. The INIT macros call it in C++. */
template <class T>
inline T ucclEpInit(unsigned magic) {
  T object = T(); /* all fields zero */
  object.size = static_cast<unsigned>(sizeof(T));
  object.magic = magic;
  return object;
}
/** As above, with device_index UCCLEP_DEVICE_INDEX_CURRENT. */
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
